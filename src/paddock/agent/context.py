"""Build a turn's context from the plane: facts of the tier and the newest ledger entries.

    stages      tier   → the agent's workspace and role
                ledger → the newest entries, of one type or all, except this session's, whose
                         turns are already in the conversation
    budget      rows over it are left out, later stages and older entries first
    reach       only the newest `limits.attention_reach_max` entries are searched

Omissions are reported. The context is data for the model: one JSON object per line in `<context>`.
"""

import json
from collections.abc import Mapping

from paddock import limits
from paddock.errors import ConfigError, HostError, PaddockError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import Filter, Ledgers
from paddock.plane.admin import Attention, LedgerStage, Stage, TierStage
from paddock.plane.layout import LedgerName
from paddock.providers.budgets import MESSAGE_TOKENS
from paddock.providers.gateway import message_as_json
from paddock.text.show import cut
from paddock.values.calls import Json
from paddock.values.models import Message, UserMessage

_VALUE_CHARS_MAX = 400


def attend(
    attention: Attention, ledgers: Ledgers, facts: Mapping[str, Json], session_id: str
) -> tuple[str, list[str]]:
    """Return the context, and a list of what is left out.

    Raises: ConfigError: a stage cannot be built and the configuration says `fail`.
    """
    left_out: list[str] = []
    parts: list[str] = []
    room = attention.token_budget * limits.model_bytes_per_token
    for stage in attention.stages:
        try:
            rows = _rows(stage, ledgers, facts, session_id, left_out)
        except (HostError, OSError) as error:
            _skip_or_raise(attention, stage, error, left_out)
            continue
        kept = _newest(rows, room)
        room -= sum(len(row) + 1 for row in kept)
        parts += kept
        if len(kept) < len(rows):
            said = f"{len(rows) - len(kept)} of {len(rows)} rows of the stage {_name(stage)}"
            left_out.append(f"{said} are over the token budget")
    body = "\n".join(parts)
    return (f"<context>\n{body}\n</context>\n" if parts else ""), left_out


def _skip_or_raise(
    attention: Attention, stage: Stage, error: HostError | OSError, left_out: list[str]
) -> None:
    said = error.message if isinstance(error, PaddockError) else type(error).__name__
    if attention.fallback == "fail":
        raise ConfigError(
            f"the context stage {_name(stage)} cannot be built: {said}",
            where="attention",
            hint='fallback "skip" continues without it',
        )
    left_out.append(f"the stage {_name(stage)} cannot be built: {said}")


def _newest(rows: list[str], room: int) -> list[str]:
    kept: list[str] = []
    for row in reversed(rows):
        room -= len(row) + 1
        if room < 0:
            break
        kept.insert(0, row)
    return kept


def _name(stage: Stage) -> str:
    if isinstance(stage, TierStage):
        return "tier"
    return f"ledger {stage.ledger} {stage.event_type or 'all'}"


def _rows(
    stage: Stage,
    ledgers: Ledgers,
    facts: Mapping[str, Json],
    session_id: str,
    left_out: list[str],
) -> list[str]:
    if isinstance(stage, TierStage):
        return [_row(facts)]
    wanted, reach = stage.max_entries, stage.max_entries
    while True:
        found = ledgers.query(
            LedgerName(stage.ledger), Filter(stage.event_type or None), reach
        ).entries
        others = [stored for stored in found if stored.entry.session_id != session_id]
        is_all = len(found) < reach
        if len(others) >= wanted or is_all or reach >= limits.attention_reach_max:
            break
        # The newest entries may all be this session's: search further back for others.
        reach = min(2 * reach, limits.attention_reach_max)
    if len(others) < wanted and not is_all:
        said = f"{wanted - len(others)} of {wanted} rows of the stage {_name(stage)}"
        left_out.append(f"{said} are not among the newest {reach}, most of this session")
    return [_row(_entry(stage, stored)) for stored in others[max(0, len(others) - wanted) :]]


def _entry(stage: LedgerStage, stored: StoredEntry) -> dict[str, Json]:
    entry = stored.entry
    shown: dict[str, Json] = {
        "ledger": stage.ledger,
        "event_type": entry.event_type,
        "timestamp": stored.timestamp,
        "reason": cut(entry.reason, _VALUE_CHARS_MAX),
    }
    for name, value in entry.metadata.items():
        shown[name] = cut(value, _VALUE_CHARS_MAX) if isinstance(value, str) else value
    return {name: value for name, value in shown.items() if value != ""}


def _row(value: Mapping[str, Json]) -> str:
    return without_marks(json.dumps(dict(value)))


def without_marks(text: str) -> str:
    """Escape characters that could open or close a tag of the prompt, such as `<context>`."""
    # Threat: an entry, or the reason for rejecting an answer, repeats text of a model or a file; a
    # tag in it would end its section and pass for the user's words.
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


class Conversation:
    """The messages of each turn, oldest first. Not shared between threads."""

    def __init__(self) -> None:
        self._turns: list[tuple[Message, ...]] = []

    def add(self, messages: tuple[Message, ...]) -> None:
        self._turns.append(messages)

    def fit(self, tokens_max: int) -> tuple[tuple[Message, ...], int]:
        """Return the messages of the newest turns that fit, and the number of turns left out."""
        kept: list[tuple[Message, ...]] = []
        left = tokens_max
        for turn in reversed(self._turns):
            left -= sum(map(_tokens, turn))
            if left < 0:
                break
            kept.append(turn)
        missing = len(self._turns) - len(kept)
        messages = tuple(message for turn in reversed(kept) for message in turn)
        if missing:
            note = UserMessage(f"[{missing} earlier turns of this session are not repeated here]")
            messages = (note, *messages)
        return messages, missing


def _tokens(message: Message) -> int:
    size = len(str(message_as_json(message)).encode("utf-8", "surrogatepass"))
    return size // limits.model_bytes_per_token + MESSAGE_TOKENS
