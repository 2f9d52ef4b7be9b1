"""Finding entries, newest first on disk and newest last in the answer.

The file is read backwards, and only lines that hold the wanted text are parsed.
Every row is then parsed strictly and compared with what was asked: the same
text inside somebody's metadata is no match. A bad line on the way is part of
the answer, never passed over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.ledger.format import encode_text, format_timestamp
from paddock.ledger.format_lines import BadLine, LineFault, StoredEntry, inspect_line
from paddock.ledger.reading import LedgerReader

_LINE_START: Final = b'{"id":"LED-'
_LINE_END: Final = b'"}'


@dataclass(frozen=True, slots=True)
class Filter:
    """What an entry has to be; None means any.

    `since` and `until` are seconds since 1970, both included, compared with the
    entry's own timestamp, which is a claim: sequence is order, time is not. `call_id` is
    compared with `client_call` of the metadata too, the id by which a client knows a call.
    """

    event_type: str | None = None
    session_id: str | None = None
    call_id: str | None = None
    agent: str | None = None
    decision: str | None = None
    since: float | None = None
    until: float | None = None

    def matches(self, stored: StoredEntry) -> bool:
        """Whether the entry is wanted."""
        entry = stored.entry
        return (
            self.event_type in {None, entry.event_type}
            and self.session_id in {None, entry.session_id}
            and (self.call_id is None or self.call_id in _call_ids(stored))
            and self.agent in {None, entry.agent}
            and self.decision in {None, entry.decision}
            and (self.since is None or stored.timestamp >= format_timestamp(self.since))
            and (self.until is None or stored.timestamp <= format_timestamp(self.until))
        )

    def needles(self) -> list[bytes]:
        """Bytes that a wanted line holds."""
        wanted = {
            "event_type": self.event_type,
            "session_id": self.session_id,
            "agent": self.agent,
            "decision": self.decision,
        }
        needles = [
            f'"{name}":'.encode() + encode_text(value)
            for name, value in wanted.items()
            if value is not None
        ]
        if self.call_id is not None:
            needles.append(b":" + encode_text(self.call_id))
        return needles


def _call_ids(stored: StoredEntry) -> tuple[object, ...]:
    entry = stored.entry
    return entry.call_id, entry.metadata.get("client_call")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that holds no entry, where it stands, and why."""

    offset_bytes: int
    fault: LineFault
    detail: str


@dataclass(frozen=True, slots=True)
class Rows:
    """The answer to a query.

    `entries` newest last. `bad` are the lines that could not be read on the way,
    `bad_omitted` how many more there were. `unfinished_bytes` follow the last
    whole line: an append on its way, or a torn one.
    """

    entries: tuple[StoredEntry, ...]
    bad: tuple[BadRow, ...]
    bad_omitted: int
    unfinished_bytes: int


def query(path: str, wanted: Filter, *, last: int | None = None) -> Rows:
    """Return the `last` entries that match, or all of them.

    Raises:
        HostError: there is no ledger, or it cannot be read.
    """
    with LedgerReader(path) as reader:
        size = reader.size()
        end = reader.whole_bytes(size)
        search = _Search(wanted, last)
        search.run(reader.lines_backwards(end))
    return Rows(
        tuple(reversed(search.found)),
        tuple(reversed(search.bad)),
        search.bad_omitted,
        size - end,
    )


class _Search:
    """One pass over lines, newest first."""

    def __init__(self, wanted: Filter, last: int | None) -> None:
        self._wanted = wanted
        self._needles = wanted.needles()
        self._last = last
        self.found: list[StoredEntry] = []
        self.bad: list[BadRow] = []
        self.bad_omitted = 0

    def run(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Look at lines until there are enough entries."""
        if self._last is not None and self._last <= 0:
            return
        for offset, line in lines:
            is_shaped = line.startswith(_LINE_START) and line.endswith(_LINE_END)
            if is_shaped and not all(needle in line for needle in self._needles):
                continue
            row = inspect_line(line)
            if isinstance(row, BadLine):
                self._note(offset, row)
            elif self._wanted.matches(row):
                self.found.append(row)
                if len(self.found) == self._last:
                    return

    def _note(self, offset: int, row: BadLine) -> None:
        if len(self.bad) < limits.ledger_problems_listed_max:
            self.bad.append(BadRow(offset, row.fault, row.detail))
        else:
            self.bad_omitted += 1
