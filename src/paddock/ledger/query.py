"""Finding entries, newest first on disk and newest last in the answer.

Where the lines are posted (index.py), only those that the posting files name are
read. Where they are not, they are read backwards, and only lines that hold the wanted
text are parsed; what turns out to be far is posted, for whoever asks next.
Either way every row is parsed strictly and compared with what was asked: the same
text inside somebody's metadata is no match. A bad line on the way is part of the
answer, never passed over; there is none among posted lines, unless it was made since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.disk import Disk, SystemDisk
from paddock.ledger.format.encoding import TIMESTAMP_SECONDS_MAX, encode_text, format_timestamp
from paddock.ledger.format.lines import BadLine, LineFault, StoredEntry, inspect_line
from paddock.ledger.format.posting_files import Kind, key_of, keys_in
from paddock.ledger.index import Piece, PostingIndex, segment_ranges
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.postings import Run, StaleRunError, TimeSpan
from paddock.ledger.reading import LedgerReader
from paddock.ledger.scan import LINE_END, LINE_OPENING
from paddock.ledger.touched import names_path

_HALF_MICROSECOND: Final = 5e-7
_NEWEST: Final = "9999-12-31T23:59:59.999999Z"
_DENSE: Final = 8
"""Where so many times the rows are more than the lines, reading the lines is faster."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What an entry has to be; None means any.

    `since` and `until` are seconds since 1970, both included, compared with the
    entry's own timestamp, which is a claim: sequence is order, time is not. `call_id` is
    compared with `client_call` of the metadata too, the id by which a client knows a call.

    `path` is workspace-relative, and what is below it counts as well (`names_path`). No
    posting file knows it: the lines that all else leaves are read.
    """

    event_type: str | None = None
    session_id: str | None = None
    call_id: str | None = None
    agent: str | None = None
    decision: str | None = None
    since: float | None = None
    until: float | None = None
    path: str | None = None
    without: str | None = None
    """An event type that is left out."""

    def matches(self, stored: StoredEntry) -> bool:
        entry = stored.entry
        return (
            self.event_type in {None, entry.event_type}
            and entry.event_type != self.without
            and self.session_id in {None, entry.session_id}
            and (self.call_id is None or self.call_id in _call_ids(stored))
            and self.agent in {None, entry.agent}
            and self.decision in {None, entry.decision}
            and (self.since is None or stored.timestamp >= _bound(self.since))
            and (self.until is None or stored.timestamp <= _bound(self.until))
            and (self.path is None or names_path(entry, self.path))
        )

    def texts(self) -> dict[Kind, bytes]:
        wanted = {
            Kind.TYPE: self.event_type,
            Kind.SESSION: self.session_id,
            Kind.CALL: self.call_id,
            Kind.AGENT: self.agent,
            Kind.DECISION: self.decision,
        }
        return {kind: encode_text(value) for kind, value in wanted.items() if value is not None}

    def needles(self) -> dict[Kind, bytes]:
        return {kind: _NAMES[kind] + text for kind, text in self.texts().items()}

    def marks(self) -> list[bytes]:
        """All bytes that a wanted line holds, those that no posting file knows included."""
        path = b"" if self.path is None else encode_text(self.path)[1:-1]
        return [*self.needles().values(), path]

    def span(self) -> TimeSpan:
        """The timestamps of wanted lines."""
        since, until = (
            None if seconds is None else _bound(seconds).encode()
            for seconds in (self.since, self.until)
        )
        return TimeSpan(since, until)


_NAMES: Final = {
    Kind.TYPE: b'"event_type":',
    Kind.SESSION: b'"session_id":',
    Kind.CALL: b":",
    Kind.AGENT: b'"agent":',
    Kind.DECISION: b'"decision":',
}
"""What stands before a value; a call may be named in the metadata too."""


def _bound(seconds: float) -> str:
    """The timestamp that is meant: seconds of today are a little beside it, on either side."""
    if seconds >= TIMESTAMP_SECONDS_MAX:
        return _NEWEST
    return format_timestamp(seconds + _HALF_MICROSECOND)


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
        LedgerDamagedError: a segment of it is missing.
    """
    with LedgerSearch(path) as search:
        return search.query(wanted, last=last)


def query_lines(path: str, wanted: Filter, *, last: int | None = None) -> Rows:
    """Return the `last` entries that match, or all of them, from the lines alone.

    For what must not depend on posting files: who can write beside the ledger could
    take a row out of them, and the chain would not show it.

    Raises: as `query`.
    """
    with LedgerReader(path) as reader:
        size = reader.size()
        end = reader.whole_bytes(size)
        search = _Search(wanted, last)
        search.run(reader.lines_backwards(end))
    return search.rows(size - end)


class LedgerSearch:
    """A ledger that is open to be asked, as often as one likes. One thread uses it.

    Opening reads nothing of the ledger.
    """

    def __init__(self, path: str, *, disk: Disk | None = None) -> None:
        """Raises: HostError: there is no ledger, or it cannot be read."""
        self._reader = LedgerReader(path)
        self._index = PostingIndex(disk or SystemDisk(), LedgerPaths(path))
        self._may_post_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        self._index.close()
        self._reader.close()

    def query(self, wanted: Filter, *, last: int | None = None) -> Rows:
        """Return the `last` entries that match, or all of them.

        Raises:
            HostError: the ledger cannot be read.
            LedgerDamagedError: a segment is missing; the ledger was replaced.
        """
        reader = self._reader
        if not reader.keep_up():
            raise LedgerDamagedError(
                "the ledger was replaced by another file", where=ascii(reader.path)
            )
        self._may_post_bytes = limits.ledger_posted_bytes_max
        while True:
            size = reader.size()
            end = reader.whole_bytes(size)
            search = _Search(wanted, last)
            try:
                search.run(self._lines(wanted, end, is_all=last is None))
            except StaleRunError as stale:
                self._index.distrust(stale.run)
            except _PostedError:
                continue
            else:
                return search.rows(size - end)

    def _lines(self, wanted: Filter, end: int, *, is_all: bool) -> Iterator[tuple[int, bytes]]:
        """Every line that may be wanted, the newest first, and others."""
        asked = _Asked(wanted.needles(), _keys(wanted), wanted.span(), is_all)
        if not asked.keys and asked.span == _ANY_TIME:
            yield from self._reader.lines_backwards(end)
            return
        self._index.refresh()
        for segment in segment_ranges(self._reader, end):
            for piece in reversed(self._index.plan(*segment)):
                if piece.run is None:
                    yield from self._unposted(segment, piece)
                else:
                    yield from self._posted(piece.run, asked)

    def _unposted(self, segment: tuple[int, int], piece: Piece) -> Iterator[tuple[int, bytes]]:
        """The lines of a piece; where that is far, it is posted instead, and all begins anew."""
        position = piece.end
        for offset, line in self._reader.lines_backwards(piece.end, piece.start):
            if piece.end - offset > limits.ledger_unposted_bytes_max and self._may_post_bytes > 0:
                break
            yield offset, line
            position = offset
        if position == piece.start and segment[1] > self._reader.text.active.base:
            return
        # What was sealed gets its run, however little of it is missing.
        self._post(segment, piece)
        yield from self._reader.lines_backwards(position, piece.start)

    def _post(self, segment: tuple[int, int], piece: Piece) -> None:
        """Post a piece. Raises: _PostedError: done, so that the search may begin anew."""
        if self._may_post_bytes <= 0:
            return
        # Not for ever, where what was posted does not come back whole.
        self._may_post_bytes -= max(segment[1] - segment[0], limits.ledger_posted_bytes_max // 16)
        if self._index.post(self._reader, segment, piece):
            raise _PostedError
        self._may_post_bytes = 0

    def _posted(self, run: Run, asked: "_Asked") -> Iterator[tuple[int, bytes]]:
        """The lines of a run that its files name. Raises: StaleRunError."""
        reader = self._reader
        run.verify(reader)
        run.forget_times()
        if not asked.keys:
            for row in run.rows_by_time(asked.span):
                yield run.line(reader, row)
            return
        kind, count = run.choose(asked.keys)
        if asked.is_all and count * _DENSE > run.lines and asked.span == _ANY_TIME:
            yield from reader.lines_backwards(run.end, run.start)
            return
        needle, key = asked.needles[kind], asked.keys[kind]
        for row in run.rows(kind, asked.keys, asked.span):
            offset, line = run.line(reader, row)
            if needle not in line and key not in keys_in(line).get(kind, {key}):
                raise StaleRunError(run, "a line does not hold what it is posted for")
            yield offset, line


class _PostedError(Exception):
    """There are posting files that were not there when the search began."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A filter as runs are asked."""

    needles: dict[Kind, bytes]
    keys: dict[Kind, int]
    span: TimeSpan
    is_all: bool


_ANY_TIME: Final = TimeSpan(None, None)


def _keys(wanted: Filter) -> dict[Kind, int]:
    return {kind: key_of(text[1:-1]) for kind, text in wanted.texts().items()}


class _Search:
    """One pass over lines, newest first."""

    def __init__(self, wanted: Filter, last: int | None) -> None:
        self._wanted = wanted
        self._marks = wanted.marks()
        self._last = last
        self.found: list[StoredEntry] = []
        self.bad: list[BadRow] = []
        self.bad_omitted = 0

    def rows(self, unfinished_bytes: int) -> Rows:
        """What was found, newest last."""
        found, bad = tuple(reversed(self.found)), tuple(reversed(self.bad))
        return Rows(found, bad, self.bad_omitted, unfinished_bytes)

    def run(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Look at lines until there are enough entries."""
        if self._last is not None and self._last <= 0:
            return
        for offset, line in lines:
            is_shaped = line.startswith(LINE_OPENING) and line.endswith(LINE_END)
            if is_shaped and not all(mark in line for mark in self._marks):
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
