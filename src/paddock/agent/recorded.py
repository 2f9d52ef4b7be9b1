"""Sessions as the ledgers have them: listed, read, and their conversations restored.

A turn's two ends, message and response, stand in its `TURN_RECORDED`. The calls and
results between them are restored where the configuration keeps contents; where it does
not, the conversation goes on without them, and that is said.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paddock.agent.conversation import Conversation, said
from paddock.errors import ConfigError, LedgerDamagedError
from paddock.ledger import format_events as events
from paddock.ledger.format_lines import StoredEntry
from paddock.ledger.named import Ledgers
from paddock.ledger.query import Filter
from paddock.providers.transcript import message_from_json
from paddock.providers.wire_json import as_count, as_list, as_map, as_text
from paddock.values.calls import Json
from paddock.values.models import AssistantMessage, Message, UserMessage


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One turn, as its record has it."""

    number: int
    user_message: str
    response: str
    outcome: str
    timestamp: str = ""
    answered_by: str = ""
    reason: str = ""
    cut_chars: int = 0
    """Characters of message and response that the record left out."""

    def as_json(self) -> dict[str, Json]:
        """For `--json` and exports."""
        return {
            "turn": self.number,
            "timestamp": self.timestamp,
            "user_message": self.user_message,
            "response": self.response,
            "outcome": self.outcome,
            "reason": self.reason,
            "cut_chars": self.cut_chars,
        }


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One session. `ended` is empty where it is open, or was left without an end."""

    session_id: str
    agent: str
    started: str
    ended: str
    model: str
    turns: tuple[RecordedTurn, ...]
    unfinished: tuple[RecordedTurn, ...] = ()
    """Turns that were begun and have no record: the process was killed, or they run now."""
    orders_used: int = 0

    @property
    def turns_used(self) -> int:
        """The highest number of any turn."""
        return max((turn.number for turn in (*self.turns, *self.unfinished)), default=0)

    def as_json(self) -> dict[str, Json]:
        """Without the turns themselves."""
        return {
            "session_id": self.session_id,
            "agent": self.agent,
            "started": self.started,
            "ended": self.ended or None,
            "model": self.model,
            "turns": len(self.turns),
            "unfinished": len(self.unfinished),
            "last_outcome": self.turns[-1].outcome if self.turns else None,
            "first_message": self.turns[0].user_message if self.turns else None,
        }


def list_sessions(ledgers: Ledgers, agent: str | None = None) -> tuple[RecordedSession, ...]:
    """All sessions of an agent, or of all, by their first start.

    Raises: HostError; LedgerDamagedError, as everything here.
    """
    by_session: dict[str, list[StoredEntry]] = {}
    # One pass: a session has at least a start, and its other entries stand anywhere behind.
    for stored in _rows(ledgers, "ho2m", Filter()):
        by_session.setdefault(stored.entry.session_id, []).append(stored)
    found = (_session(session_id, rows) for session_id, rows in by_session.items())
    return tuple(
        each for each in found if each is not None and (agent is None or each.agent == agent)
    )


def find_session(ledgers: Ledgers, session_id: str) -> RecordedSession | None:
    """The session of that id. Raises: HostError."""
    return _session(session_id, _rows(ledgers, "ho2m", Filter(session_id=session_id)))


def _rows(ledgers: Ledgers, name: str, wanted: Filter) -> Sequence[StoredEntry]:
    found = ledgers.query(name, wanted, None)
    if found.bad:
        # Threat: a line that was made unreadable would take a turn out of the session.
        raise LedgerDamagedError(
            f"{len(found.bad) + found.bad_omitted} lines of the ledger {name} hold no entry",
            where=name,
            hint="paddock ledger verify says which",
        )
    return found.entries


def _session(session_id: str, rows: Sequence[StoredEntry]) -> RecordedSession | None:
    starts = [row for row in rows if row.entry.event_type == events.SESSION_START]
    if not session_id or not starts:
        return None
    last_mark = [
        row for row in rows if row.entry.event_type in {events.SESSION_START, events.SESSION_END}
    ][-1]
    is_over = last_mark.entry.event_type == events.SESSION_END
    turns = tuple(_turn(row) for row in rows if row.entry.event_type == events.TURN_RECORDED)
    plans = [row for row in rows if row.entry.event_type == events.WO_PLANNED]
    newest = starts[-1].entry
    model = as_map(newest.metadata.get("model"))
    return RecordedSession(
        session_id=session_id,
        agent=newest.agent,
        started=starts[0].timestamp,
        ended=last_mark.timestamp if is_over else "",
        model=f"{as_text(model.get('provider'))}:{as_text(model.get('name'))}",
        turns=turns,
        unfinished=_unfinished(plans, turns),
        orders_used=max((_order_number(row) for row in plans), default=0),
    )


def _turn(row: StoredEntry) -> RecordedTurn:
    metadata = row.entry.metadata
    return RecordedTurn(
        number=as_count(metadata.get("turn")),
        user_message=as_text(metadata.get("user_message")),
        response=as_text(metadata.get("response")),
        outcome=as_text(metadata.get("outcome")),
        timestamp=row.timestamp,
        answered_by=as_text(metadata.get("answered_by")),
        reason=row.entry.reason,
        cut_chars=as_count(metadata.get("user_message_cut_chars"))
        + as_count(metadata.get("response_cut_chars")),
    )


def _unfinished(
    plans: Iterable[StoredEntry], turns: Sequence[RecordedTurn]
) -> tuple[RecordedTurn, ...]:
    recorded = {turn.number for turn in turns}
    found: dict[int, RecordedTurn] = {}
    for row in plans:
        metadata = row.entry.metadata
        number = as_count(metadata.get("turn"))
        message = as_text(metadata.get("user_message"))
        # An order that was delegated belongs to the turn before it, or to none.
        if message and number not in recorded:
            found[number] = RecordedTurn(number, message, "", "unfinished", row.timestamp)
    return tuple(found.values())


def _order_number(row: StoredEntry) -> int:
    number = row.entry.submission_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class Restored:
    """A session's conversation, and what is missing of it."""

    conversation: Conversation
    notices: tuple[str, ...]


def restore(ledgers: Ledgers, session: RecordedSession) -> Restored:
    """The conversation of a recorded session. Raises: HostError."""
    kept = _kept_contents(ledgers, session.session_id)
    conversation = Conversation()
    without = 0
    for turn in session.turns:
        messages = _messages(turn, kept.get(turn.answered_by, []))
        without += messages is None
        conversation.add(messages or said(turn.user_message, turn.response or turn.reason))
    notices: list[str] = []
    if without:
        notices.append(
            f"of {without} turns only message and response are restored: what was called in "
            "between is kept only with [ledger] keep_model_contents = true"
        )
    cut = sum(turn.cut_chars for turn in session.turns)
    if cut:
        notices.append(f"{cut} characters of long messages and responses were not kept")
    return Restored(conversation, tuple(notices))


def _kept_contents(ledgers: Ledgers, session_id: str) -> Mapping[str, list[StoredEntry]]:
    wanted = Filter(event_type=events.LLM_CALL, session_id=session_id)
    found: dict[str, list[StoredEntry]] = {}
    for row in _rows(ledgers, "ho1m", wanted):
        found.setdefault(row.entry.submission_id, []).append(row)
    return found


def _messages(turn: RecordedTurn, calls: Sequence[StoredEntry]) -> tuple[Message, ...] | None:
    """Everything that was said in the turn's last order; None where not all of it was kept."""
    found: list[Message] = []
    answer: Message | None = None
    for row in calls:
        contents = row.entry.metadata.get("contents")
        if not isinstance(contents, str):
            return None
        place = f"ho1m, entry {row.id}"
        try:
            kept = as_map(json.loads(contents))
            found += [message_from_json(each, place) for each in as_list(kept.get("messages"))]
            # Every earlier turn of the model stands among the next request's messages.
            answer = message_from_json(kept["turn"], place) if "turn" in kept else None
        except (ValueError, ConfigError):
            return None
    if not found or not isinstance(answer, AssistantMessage):
        return None
    if answer.tool_calls:
        answer = AssistantMessage(answer.text or turn.response)
    return (UserMessage(turn.user_message), *found[1:], answer)


def export_session(ledgers: Ledgers, session: RecordedSession) -> dict[str, Json]:
    """All that the plane has of a session, as one JSON value. Raises: HostError."""
    wanted = Filter(session_id=session.session_id)
    return {
        "session": session.as_json(),
        "turns": [turn.as_json() for turn in (*session.turns, *session.unfinished)],
        "entries": {
            name: [json.loads(row.line) for row in _rows(ledgers, name, wanted)]
            for name in ("governance", "ho2m", "ho1m")
        },
    }
