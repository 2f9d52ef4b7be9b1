"""Sessions as the ledgers have them: listed, read, and their conversations restored.

A turn's two ends, message and response, stand in its `TURN_RECORDED`. The calls and
results between them, of every order that it took, are restored where the configuration
keeps contents; where it does not, the conversation goes on without them, and that is said.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from paddock.agent.context import Conversation, said
from paddock.agent.results import TurnOutcome
from paddock.errors import ConfigError, LedgerDamagedError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, Ledgers
from paddock.plane.layout import LedgerName
from paddock.providers.transcript import message_from_json
from paddock.providers.wire import as_count, as_list, as_map, as_text
from paddock.values import entries
from paddock.values.calls import Json
from paddock.values.models import AssistantMessage, Message, Usage, UserMessage
from paddock.values.orders import OrderType


class RecordedTurn(Struct, frozen=True):
    number: int
    user_message: str
    response: str
    outcome: str
    timestamp: str = ""
    answered_by: str = ""
    reason: str = ""
    cut_chars: int = 0
    """Characters of message and response that the record left out."""
    orders: tuple[str, ...] = ()
    """Those that were to answer, in order; all but the last were not accepted."""

    def as_json(self) -> dict[str, Json]:
        return {
            "turn": self.number,
            "timestamp": self.timestamp,
            "user_message": self.user_message,
            "response": self.response,
            "outcome": self.outcome,
            "reason": self.reason,
            "cut_chars": self.cut_chars,
        }


class RecordedSession(Struct, frozen=True):
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
    def first_message(self) -> str | None:
        """Of the first turn on record, else of the first unfinished one; None without a turn."""
        return next((turn.user_message for turn in (*self.turns, *self.unfinished)), None)

    @property
    def turns_used(self) -> int:
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
            "first_message": self.first_message,
        }


def list_sessions(ledgers: Ledgers, agent: str | None = None) -> tuple[RecordedSession, ...]:
    """By their first start. Raises: HostError; LedgerDamagedError, as everything here."""
    by_session: dict[str, list[StoredEntry]] = {}
    # One pass: a session has at least a start, and its other entries stand anywhere behind.
    for stored in _rows(ledgers, LedgerName.HO2M, Filter()):
        by_session.setdefault(stored.entry.session_id, []).append(stored)
    found = (_session(session_id, rows) for session_id, rows in by_session.items())
    return tuple(
        each for each in found if each is not None and (agent is None or each.agent == agent)
    )


def find_session(ledgers: Ledgers, session_id: str) -> RecordedSession | None:
    return _session(session_id, _rows(ledgers, LedgerName.HO2M, Filter(session_id=session_id)))


def _rows(ledgers: Ledgers, name: LedgerName, wanted: Filter) -> Sequence[StoredEntry]:
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
    starts = [row for row in rows if row.entry.event_type == entries.SESSION_START]
    if not session_id or not starts:
        return None
    last_mark = [
        row for row in rows if row.entry.event_type in {entries.SESSION_START, entries.SESSION_END}
    ][-1]
    is_over = last_mark.entry.event_type == entries.SESSION_END
    plans = [row for row in rows if row.entry.event_type == entries.WO_PLANNED]
    orders = _orders_by_turn(plans)
    turns = tuple(
        _turn(row, orders) for row in rows if row.entry.event_type == entries.TURN_RECORDED
    )
    newest = starts[-1].entry
    model = as_map(newest.metadata.get("model"))
    return RecordedSession(
        session_id=session_id,
        agent=newest.agent,
        started=starts[0].timestamp,
        ended=last_mark.timestamp if is_over else "",
        model=f"{as_text(model.get('provider'))}:{as_text(model.get('name'))}",
        turns=turns,
        unfinished=_unfinished(plans, turns, orders),
        orders_used=max((_order_number(row) for row in plans), default=0),
    )


def _orders_by_turn(plans: Iterable[StoredEntry]) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for row in plans:
        metadata = row.entry.metadata
        if metadata.get("wo_type") == OrderType.SYNTHESIZE.value:
            number = as_count(metadata.get("turn"))
            found[number] = (*found.get(number, ()), row.entry.submission_id)
    return found


def _turn(row: StoredEntry, orders: Mapping[int, tuple[str, ...]]) -> RecordedTurn:
    metadata = row.entry.metadata
    number = as_count(metadata.get("turn"))
    return RecordedTurn(
        number=number,
        user_message=as_text(metadata.get("user_message")),
        response=as_text(metadata.get("response")),
        outcome=as_text(metadata.get("outcome")),
        timestamp=row.timestamp,
        answered_by=as_text(metadata.get("answered_by")),
        reason=row.entry.reason,
        cut_chars=as_count(metadata.get("user_message_cut_chars"))
        + as_count(metadata.get("response_cut_chars")),
        orders=orders.get(number, ()),
    )


def _unfinished(
    plans: Iterable[StoredEntry],
    turns: Sequence[RecordedTurn],
    orders: Mapping[int, tuple[str, ...]],
) -> tuple[RecordedTurn, ...]:
    recorded = {turn.number for turn in turns}
    found: dict[int, RecordedTurn] = {}
    for row in plans:
        metadata = row.entry.metadata
        number = as_count(metadata.get("turn"))
        # An order that was delegated belongs to the turn before it, or to none.
        is_delegated = metadata.get("wo_type") == OrderType.EXECUTE.value
        # The first order of a turn has the message, which may be empty.
        if not is_delegated and number not in recorded and number not in found:
            found[number] = RecordedTurn(
                number=number,
                user_message=as_text(metadata.get("user_message")),
                response="",
                outcome="unfinished",
                timestamp=row.timestamp,
                cut_chars=as_count(metadata.get("user_message_cut_chars")),
                orders=orders.get(number, ()),
            )
    return tuple(found.values())


def _order_number(row: StoredEntry) -> int:
    number = row.entry.submission_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


class Restored(Struct, frozen=True):
    conversation: Conversation
    notices: tuple[str, ...]


def restore(ledgers: Ledgers, session: RecordedSession) -> Restored:
    kept = _kept_contents(ledgers, session.session_id)
    conversation = Conversation()
    without = cut_short = 0
    for turn in session.turns:
        between = _between(turn, kept)
        if between is None:
            without += 1
            conversation.add(said(turn.user_message, turn.response or turn.reason))
            continue
        cut_short += between.is_cut_short
        messages = [UserMessage(turn.user_message), *between.messages]
        if turn.outcome != TurnOutcome.SUCCESS.value or not between.messages:
            messages.append(AssistantMessage(turn.response or turn.reason))
        conversation.add(tuple(messages))
    notices: list[str] = []
    if without:
        notices.append(
            f"of {without} turns only message and response are restored: what was called in "
            "between is kept only with [ledger] keep_model_contents = true"
        )
    if cut_short:
        notices.append(f"of {cut_short} turns the last calls before a failure are not restored")
    cut = sum(turn.cut_chars for turn in session.turns)
    if cut:
        notices.append(f"{cut} characters of long messages and responses were not kept")
    return Restored(conversation, tuple(notices))


def tokens_charged(ledgers: Ledgers, session_id: str) -> int:
    """What the exchanges of a session took from its budget, its children's included.

    Raises: HostError, LedgerDamagedError.
    """
    wanted = Filter(event_type=entries.LLM_CALL, session_id=session_id)
    return sum(_charged(row.entry.metadata) for row in _rows(ledgers, LedgerName.HO1M, wanted))


def _charged(metadata: Mapping[str, Json]) -> int:
    if "charged_tokens" in metadata:
        return as_count(metadata["charged_tokens"])
    # Entries that were made before a charge stood in them.
    usage = as_map(metadata.get("usage"))
    return sum(as_count(usage.get(name)) for name in Usage._fields)


def _kept_contents(ledgers: Ledgers, session_id: str) -> Mapping[str, list[StoredEntry]]:
    wanted = Filter(event_type=entries.LLM_CALL, session_id=session_id)
    found: dict[str, list[StoredEntry]] = {}
    for row in _rows(ledgers, LedgerName.HO1M, wanted):
        found.setdefault(row.entry.submission_id, []).append(row)
    return found


class _Between(Struct):
    messages: list[Message] = field(default_factory=list[Message])
    is_cut_short: bool = False
    """Calls of its last exchange may have run, and what came of them is not kept."""


def _between(turn: RecordedTurn, kept: Mapping[str, list[StoredEntry]]) -> _Between | None:
    """Of all its orders; None where not all of it was kept."""
    found = _Between()
    for order in turn.orders:
        rows = kept.get(order, [])
        is_accepted = order == turn.answered_by
        said_there = _said_in(rows, turn.response if is_accepted else None)
        if said_there is None or (is_accepted and not rows):
            return None
        # The user's own words stand at the turn's start; a correction stays.
        found.messages += said_there.messages[1 if order == turn.orders[0] else 0 :]
        found.is_cut_short = found.is_cut_short or said_there.is_cut_short
    return found


def _said_in(calls: Sequence[StoredEntry], accepted: str | None) -> _Between | None:
    """What one order added; `accepted` is its response, where it was the turn's."""
    found = _Between()
    answer: Message | None = None
    for row in calls:
        contents = row.entry.metadata.get("contents")
        if not isinstance(contents, str):
            return None
        place = f"ho1m, entry {row.id}"
        try:
            kept = as_map(json.loads(contents))
            found.messages += [
                message_from_json(each, place) for each in as_list(kept.get("messages"))
            ]
            # Every earlier turn of the model stands among the next request's messages.
            answer = message_from_json(kept["turn"], place) if "turn" in kept else None
        except (ValueError, ConfigError):
            return None
    if not isinstance(answer, AssistantMessage):
        return None if accepted is not None and calls else found
    found.is_cut_short = accepted is None and bool(answer.tool_calls)
    text = answer.text.strip() and answer.text
    if accepted is not None:
        is_whole = bool(text) and not answer.tool_calls
        found.messages.append(answer if is_whole else AssistantMessage(text or accepted))
    elif text:
        # Without its calls: none of them has an answer here.
        found.messages.append(AssistantMessage(text))
    return found


def export_session(ledgers: Ledgers, session: RecordedSession) -> dict[str, Json]:
    wanted = Filter(session_id=session.session_id)
    return {
        "session": session.as_json(),
        "turns": [turn.as_json() for turn in (*session.turns, *session.unfinished)],
        "entries": {
            name: [json.loads(row.line) for row in _rows(ledgers, name, wanted)]
            for name in (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M)
        },
    }
