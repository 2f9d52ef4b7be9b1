"""Read sessions back from the ledgers: list them, and restore their conversations.

A turn's message and response are in its `TURN_RECORDED`. The tool calls and results between them
are in `LLM_CALL` if the configuration kept contents; otherwise the turn is restored without them,
and a notice says so.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from paddock.agent.context import Conversation
from paddock.agent.events import TurnOutcome
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import BadRow, Filter, Ledgers
from paddock.plane.layout import LedgerName
from paddock.text.json import BrokenJsonError, read_json
from paddock.values import entries
from paddock.values.calls import Json
from paddock.values.models import AssistantMessage, Message, Usage, UserMessage
from paddock.values.orders import OrderType


class RecordedTurn(Struct, frozen=True):
    number: int = field(default=0, name="turn")
    user_message: str = ""
    response: str = ""
    outcome: str = "unfinished"
    timestamp: str = ""
    answered_by: str = ""
    reason: str = ""
    user_message_cut_chars: int = 0
    response_cut_chars: int = 0
    orders: tuple[str, ...] = ()
    """The orders to answer the message, in sequence. Only the last can have been accepted."""

    @property
    def cut_chars(self) -> int:
        return self.user_message_cut_chars + self.response_cut_chars

    def as_json(self) -> dict[str, Json]:
        names = ("timestamp", "user_message", "response", "outcome", "reason", "cut_chars")
        return {"turn": self.number, **{name: getattr(self, name) for name in names}}


class RecordedSession(Struct, frozen=True):
    session_id: str
    agent: str
    started: str
    ended: str
    model: str
    turns: tuple[RecordedTurn, ...]
    unfinished: tuple[RecordedTurn, ...] = ()
    """Turns that began but have no record: the process was killed, or they still run."""
    orders_used: int = 0

    @property
    def first_message(self) -> str | None:
        return next((turn.user_message for turn in (*self.turns, *self.unfinished)), None)

    @property
    def turns_used(self) -> int:
        return max((turn.number for turn in (*self.turns, *self.unfinished)), default=0)

    def as_json(self) -> dict[str, Json]:
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


def list_sessions(
    ledgers: Ledgers, agent: str | None = None, last: int | None = None
) -> tuple[RecordedSession, ...]:
    by_session: dict[str, list[StoredEntry]] = {}
    begun, first = dict[str, None](), Filter(entries.SESSION_START, agent=agent)
    # One pass, newest first: all entries of a session are after its first start.
    for row in ledgers.newest_first(LedgerName.HO2M):
        if isinstance(row, BadRow):
            raise _unreadable(LedgerName.HO2M)
        session_id = row.entry.session_id
        by_session.setdefault(session_id, []).append(row)
        if first.matches(row) and not row.entry.metadata.get("resumed"):
            begun[session_id] = None
            if len(begun) == last:
                break
    found = (_session(each, by_session[each][::-1]) for each in reversed(begun))
    return tuple(each for each in found if each is not None)


def find_session(ledgers: Ledgers, session_id: str) -> RecordedSession | None:
    return _session(session_id, _rows(ledgers, LedgerName.HO2M, Filter(session_id=session_id)))


def _rows(ledgers: Ledgers, name: LedgerName, wanted: Filter) -> Sequence[StoredEntry]:
    found = ledgers.query(name, wanted, None)
    if found.bad:
        raise _unreadable(name)
    return found.entries


def _unreadable(name: LedgerName) -> LedgerDamagedError:
    """Threat: making a line unreadable would remove a turn from the session."""
    said = f"bad lines in the ledger {name}"
    return LedgerDamagedError(said, where=name, hint="find them with: paddock ledger verify")


class _Start(Struct, frozen=True):
    model: dict[str, str] = {}


class _Exchange(Struct, frozen=True):
    """The metadata of an LLM_CALL."""

    charged_tokens: int | None = None
    """None in old entries."""
    usage: dict[str, int] = {}
    contents: str | None = None


class _Contents(Struct, frozen=True):
    messages: list[Message] = []
    turn: AssistantMessage | None = None


M = TypeVar("M", _Start, _Exchange, RecordedTurn)


def _read(row: StoredEntry, type_: type[M]) -> M:
    try:
        return convert(dict(row.entry.metadata), type_)
    except ValidationError as error:
        raise LedgerDamagedError(
            f"the entry {row.id} is not a valid {row.entry.event_type}: {error}",
            hint="another program may have written it",
        ) from None


def _session(session_id: str, rows: Sequence[StoredEntry]) -> RecordedSession | None:
    def of(*events: str) -> list[StoredEntry]:
        return [row for row in rows if row.entry.event_type in events]

    starts, plans = of(entries.SESSION_START), of(entries.WO_PLANNED)
    if not session_id or not starts:
        return None
    last_start_or_end = of(entries.SESSION_START, entries.SESSION_END)[-1]
    is_over = last_start_or_end.entry.event_type == entries.SESSION_END
    orders = _orders_by_turn(plans)
    turns = tuple(_turn(row, orders) for row in of(entries.TURN_RECORDED))
    model = _read(starts[-1], _Start).model
    numbers = [row.entry.submission_id.rpartition("-")[2] for row in plans]
    return RecordedSession(
        session_id=session_id,
        agent=starts[-1].entry.agent,
        started=starts[0].timestamp,
        ended=last_start_or_end.timestamp if is_over else "",
        model=f"{model.get('provider', '')}:{model.get('name', '')}",
        turns=turns,
        unfinished=_unfinished(plans, {turn.number for turn in turns}, orders),
        orders_used=max((int(n) for n in numbers if n.isdecimal()), default=0),
    )


def _orders_by_turn(plans: Iterable[StoredEntry]) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for row in plans:
        if row.entry.metadata.get("wo_type") == OrderType.SYNTHESIZE.value:
            number = _read(row, RecordedTurn).number
            found[number] = (*found.get(number, ()), row.entry.submission_id)
    return found


def _turn(row: StoredEntry, orders: Mapping[int, tuple[str, ...]]) -> RecordedTurn:
    turn = _read(row, RecordedTurn)
    own = orders.get(turn.number, ())
    return replace(turn, timestamp=row.timestamp, reason=row.entry.reason, orders=own)


def _unfinished(
    plans: Iterable[StoredEntry], recorded: set[int], orders: Mapping[int, tuple[str, ...]]
) -> tuple[RecordedTurn, ...]:
    found: dict[int, RecordedTurn] = {}
    for row in plans:
        # A delegated order belongs to the turn before it, or to none.
        if row.entry.metadata.get("wo_type") != OrderType.EXECUTE.value:
            turn = _turn(row, orders)
            # The first order of a turn has the message, which may be empty.
            found.setdefault(turn.number, turn)
    return tuple(turn for number, turn in found.items() if number not in recorded)


def restore(ledgers: Ledgers, session: RecordedSession) -> tuple[Conversation, tuple[str, ...]]:
    """Return its conversation, and notices of what was not restored."""
    kept: dict[str, list[StoredEntry]] = {}
    for row in _exchanges(ledgers, session.session_id):
        kept.setdefault(row.entry.submission_id, []).append(row)
    conversation = Conversation()
    without = cut_short = 0
    for turn in session.turns:
        between = _between(turn, kept)
        messages: list[Message] = [UserMessage(turn.user_message)]
        if between is None:
            without += 1
        else:
            cut_short += between.is_cut_short
            messages += between.messages
        if len(messages) == 1 or turn.outcome != TurnOutcome.SUCCESS.value:
            messages.append(AssistantMessage(turn.response or turn.reason))
        conversation.add(tuple(messages))
    notices: list[str] = []
    if without:
        notices.append(
            f"of {without} turns only message and response are restored: the calls between "
            "them are kept only with [ledger] keep_model_contents = true"
        )
    if cut_short:
        notices.append(f"of {cut_short} turns the last calls before a failure are not restored")
    if cut := sum(turn.cut_chars for turn in session.turns):
        notices.append(f"{cut} characters of long messages and responses were not kept")
    return conversation, tuple(notices)


def tokens_charged(ledgers: Ledgers, session_id: str) -> int:
    """Return the tokens that a session's exchanges were charged, including its children's."""
    found = (_read(row, _Exchange) for row in _exchanges(ledgers, session_id))
    return sum(
        sum(each.usage.get(name, 0) for name in Usage._fields)
        if each.charged_tokens is None
        else each.charged_tokens
        for each in found
    )


def _exchanges(ledgers: Ledgers, session_id: str) -> Sequence[StoredEntry]:
    return _rows(ledgers, LedgerName.HO1M, Filter(entries.LLM_CALL, session_id))


class _Between(Struct):
    messages: list[Message] = field(default_factory=list[Message])
    is_cut_short: bool = False
    """Calls of the last exchange may have run, but no later request has their results."""


def _between(turn: RecordedTurn, kept: Mapping[str, list[StoredEntry]]) -> _Between | None:
    found = _Between()
    for order in turn.orders:
        rows = kept.get(order, [])
        is_accepted = order == turn.answered_by
        in_order = _messages_in(rows, turn.response if is_accepted else None)
        if in_order is None or (is_accepted and not rows):
            return None
        # Leave out the first order's prompt: `restore` puts the user's message there.
        found.messages += in_order.messages[1 if order == turn.orders[0] else 0 :]
        found.is_cut_short = found.is_cut_short or in_order.is_cut_short
    return found


def _messages_in(exchanges: Sequence[StoredEntry], accepted: str | None) -> _Between | None:
    found = _Between()
    answer: AssistantMessage | None = None
    for row in exchanges:
        try:
            kept = convert(read_json(_read(row, _Exchange).contents or ""), _Contents)
        except (BrokenJsonError, ValidationError, UnicodeEncodeError):
            return None
        found.messages += kept.messages
        # Only the last one: earlier turns are among the next request's messages.
        answer = kept.turn
    if answer is None:
        return None if accepted is not None and exchanges else found
    found.is_cut_short = accepted is None and bool(answer.tool_calls)
    text = answer.text.strip() and answer.text
    if accepted is not None:
        is_whole = bool(text) and not answer.tool_calls
        found.messages.append(answer if is_whole else AssistantMessage(text or accepted))
    elif text:
        # Without its calls: their results are missing, and a provider would refuse them.
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
