"""Finding the calls that changed something, without parsing those that only read.

The file is read backwards. A line is parsed if its bytes say that it may be wanted; a
line's JSON has no free space, and inside a text a quote is escaped, so these bytes stand
for nothing else. Every row is then parsed strictly and looked at again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.ledger.format.lines import BadLine, StoredEntry, inspect_line
from paddock.ledger.query import BadRow
from paddock.ledger.reading import LedgerReader
from paddock.values.entries import AGENT_CHANGED, AGENT_CREATED, TOOL_INTENT, TOOL_RESULT

_AGENT = '"agent":"{}"'
_RESULT = f'"event_type":"{TOOL_RESULT}"'.encode()
_INTENT = f'"event_type":"{TOOL_INTENT}"'.encode()
_DECLARING = (AGENT_CREATED, AGENT_CHANGED)
_DECLARED = [f'"event_type":"{kind}"'.encode() for kind in _DECLARING]
_NO_EFFECTS = b'"effects":[]'


@dataclass(frozen=True, slots=True)
class Effects:
    """What was found, newest last. `bad`: lines that hold no entry."""

    results: tuple[StoredEntry, ...]
    """`TOOL_RESULT` entries that name effects, or say that they are unknown."""
    intents: tuple[StoredEntry, ...]
    """`TOOL_INTENT` entries of the agents that were asked for."""
    bad: tuple[BadRow, ...]


def find_effects(path: str, intents_of: Sequence[str] = ()) -> Effects:
    """Every result with effects, and every intent of these agents.

    Raises:
        HostError: there is no ledger, or it cannot be read.
    """
    results: list[StoredEntry] = []
    intents: list[StoredEntry] = []
    bad: list[BadRow] = []
    agents = [_AGENT.format(name).encode() for name in intents_of]
    with LedgerReader(path) as reader:
        for offset, line in reader.lines_backwards(reader.whole_bytes(reader.size())):
            is_result = _RESULT in line and _NO_EFFECTS not in line
            if not is_result and not (_INTENT in line and any(name in line for name in agents)):
                continue
            row = inspect_line(line)
            if isinstance(row, BadLine):
                bad.append(BadRow(offset, row.fault, row.detail))
            elif row.entry.event_type == TOOL_RESULT and row.entry.metadata.get("effects"):
                results.append(row)
            elif row.entry.event_type == TOOL_INTENT and row.entry.agent in intents_of:
                intents.append(row)
    return Effects(tuple(reversed(results)), tuple(reversed(intents)), tuple(reversed(bad)))


def find_declarations(path: str) -> tuple[StoredEntry, ...]:
    """Every declaration of an agent, oldest first.

    Raises:
        HostError: there is no ledger, or it cannot be read.
    """
    found: list[StoredEntry] = []
    with LedgerReader(path) as reader:
        for _, line in reader.lines_backwards(reader.whole_bytes(reader.size())):
            row = inspect_line(line) if any(kind in line for kind in _DECLARED) else None
            if isinstance(row, StoredEntry) and row.entry.event_type in _DECLARING:
                found.append(row)
    return tuple(reversed(found))


def has_entry_of(path: str, agent: str) -> bool:
    """Whether any entry is this agent's. Every line is read until one is.

    Raises:
        HostError: there is no ledger, or it cannot be read.
    """
    wanted = _AGENT.format(agent).encode("utf-8", "surrogateescape")
    with LedgerReader(path) as reader:
        for _, line in reader.lines_backwards(reader.whole_bytes(reader.size())):
            row = inspect_line(line) if wanted in line else None
            if isinstance(row, StoredEntry) and row.entry.agent == agent:
                return True
    return False
