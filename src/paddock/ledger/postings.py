"""The files of a run, open to be read: offsets, and posting files by type, session, call, …

A run is believed as little as anything beside the ledger: its header must fit its
name and its length, its last line must have the hash that the header says, and each
line that it names is looked at again. What does not fit is `StaleRunError`: the
search goes on without that run, and reads the lines.

Numbers are read where they are asked for, with pread(2): a mapping of a file that
somebody cuts is a signal that kills the process. So opening costs the same whatever
the run holds.
"""

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, overload

from paddock import limits
from paddock.ledger.disk import Disk
from paddock.ledger.format.encoding import leaf_hash
from paddock.ledger.format.posting_files import (
    BLOCK_LINES,
    FOLDERS,
    HEADER_BYTES,
    NUMBER_BYTES,
    TIMESTAMP_BYTES,
    Kind,
    RunHeader,
    decode_numbers,
    parse_header,
)
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.reading import LedgerReader
from paddock.ledger.segments import READING

_ROWS_AT_FIRST: Final = 32
_ROWS_AT_ONCE: Final = 1024
"""Mostly the newest few are asked for; for all of them, long reads are cheaper."""
_RUN_NAME: Final = re.compile(r"(\d{16})-(\d{16})", re.ASCII)
_CHEAP: Final = 256
"""To look at a line costs as much as to read so many numbers."""


class StaleRunError(Exception):
    """A run is not of this ledger, or not whole. Never leaves this folder."""

    def __init__(self, run: "Run", why: str) -> None:
        super().__init__(why)
        self.run = run


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Timestamps as they stand in lines, both included; None: no bound."""

    since: bytes | None
    until: bytes | None

    def holds(self, earliest: bytes, latest: bytes) -> bool:
        """Whether one of the lines between these may be wanted."""
        return (self.since is None or latest >= self.since) and (
            self.until is None or earliest <= self.until
        )


class Run:
    def __init__(self, disk: Disk, paths: LedgerPaths, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._disk = disk
        self._paths = paths
        self._files: dict[Kind, tuple[int, RunHeader]] = {}
        self._is_checked = False
        self._blocks: dict[int, bool] = {}

    def close(self) -> None:
        """Close its files; what is asked for later is opened anew."""
        for descriptor, _ in self._files.values():
            self._disk.close(descriptor)
        self._files.clear()

    def verify(self, reader: LedgerReader) -> None:
        """Compare the run's last line with the one that stands in the ledger.

        Raises:
            StaleRunError: it is another one, or the run is not whole.
        """
        if self._is_checked:
            return
        header = self._file(Kind.OFFSETS)[1]
        # Threat: the run of another ledger, or of this one before it was restored. The hash
        # of one line stands for all lines before it, too.
        _, line = self.line(reader, header.lines - 1)
        if leaf_hash(line) != header.leaf:
            raise StaleRunError(self, "the last line is another one")
        self._is_checked = True

    @property
    def lines(self) -> int:
        """How many lines it has. Raises: StaleRunError."""
        return self._file(Kind.OFFSETS)[1].lines

    def line(self, reader: LedgerReader, row: int) -> tuple[int, bytes]:
        """A line's offset, and its bytes without LF. Raises: StaleRunError, HostError."""
        is_last = row + 1 == self.lines
        found = self._numbers(Kind.OFFSETS, row, 1 if is_last else 2)
        start = self.start + found[0]
        end = self.end if is_last else self.start + found[1]
        if not start < end <= min(self.end, start + limits.entry_bytes_max + 1):
            raise StaleRunError(self, "its offsets are in no order")
        line = reader.read(end - start, start)
        if line.find(b"\n") != end - start - 1:
            raise StaleRunError(self, "a line is not where it should be")
        return start, line[:-1]

    def choose(self, keys: Mapping[Kind, int]) -> tuple[Kind, int]:
        """The kind in which the fewest lines have their key, and how many. There is one key.

        Raises: StaleRunError.
        """
        bounds = {kind: self._find(kind, key) for kind, key in keys.items()}
        counts = {kind: high - low for kind, (low, high) in bounds.items()}
        kind = min(counts, key=counts.__getitem__)
        return kind, counts[kind]

    def rows(self, kind: Kind, keys: Mapping[Kind, int], span: TimeSpan) -> Iterator[int]:
        """Lines that may hold all the values at a time, the newest first, by the list of `kind`.

        Raises: StaleRunError.
        """
        low, high = self._find(kind, keys[kind])
        at = self._file(kind)[1].rows_at
        others = {other: self._find(other, keys[other]) for other in keys if other is not kind}
        before, count = self.lines, _ROWS_AT_FIRST
        while high > low:
            first = max(low, high - count)
            rows = self._numbers(kind, first, high - first, at)
            for row in reversed(rows):
                if row >= before:
                    raise StaleRunError(self, "its lines are in no order")
                before = row
            for row in reversed(self._common(rows, others)):
                if self._is_in(span, row // BLOCK_LINES):
                    yield row
            high, count = first, min(2 * count, _ROWS_AT_ONCE)

    def _common(self, rows: Sequence[int], others: Mapping[Kind, tuple[int, int]]) -> Sequence[int]:
        for kind, (low, high) in others.items():
            _, header = self._file(kind)
            column = _Column(self, kind, header.rows_at, header.rows)
            first = bisect_left(column, rows[0], low, high)
            end = bisect_right(column, rows[-1], first, high)
            if end - first > _CHEAP * len(rows):
                continue
            found = set(self._numbers(kind, first, end - first, header.rows_at))
            rows = [row for row in rows if row in found]
            if not rows:
                break
        return rows

    def rows_by_time(self, span: TimeSpan) -> Iterator[int]:
        """Lines that may be of a time, the newest first. Raises: StaleRunError."""
        lines = self.lines
        for block in reversed(range(-(-lines // BLOCK_LINES))):
            if self._is_in(span, block):
                first = block * BLOCK_LINES
                yield from reversed(range(first, min(lines, first + BLOCK_LINES)))

    def _is_in(self, span: TimeSpan, block: int) -> bool:
        if span.since is None and span.until is None:
            return True
        found = self._blocks.get(block)
        if found is None:
            descriptor, _ = self._file(Kind.TIMES)
            size = 2 * TIMESTAMP_BYTES
            times = self._read(Kind.TIMES, descriptor, size, HEADER_BYTES + size * block)
            found = span.holds(times[:TIMESTAMP_BYTES], times[TIMESTAMP_BYTES:])
            self._blocks[block] = found
        return found

    def forget_times(self) -> None:
        """Forget which blocks the last search wanted."""
        self._blocks.clear()

    def _find(self, kind: Kind, key: int) -> tuple[int, int]:
        """Where the lines of a key begin and end among the rows."""
        _, header = self._file(kind)
        keys = _Column(self, kind, header.keys_at, header.keys)
        at = bisect_left(keys, key)
        if at == header.keys or keys[at] != key:
            return 0, 0
        low, high = self._numbers(kind, at, 2, header.bounds_at)
        if not low < high <= header.rows:
            raise StaleRunError(self, "its bounds are in no order")
        return low, high

    def number(self, kind: Kind, index: int, at: int) -> int:
        """One number of a part that begins at `at`. Raises: StaleRunError."""
        return self._numbers(kind, index, 1, at)[0]

    def _numbers(self, kind: Kind, index: int, count: int, at: int = HEADER_BYTES) -> Sequence[int]:
        descriptor, _ = self._file(kind)
        size = NUMBER_BYTES * count
        return decode_numbers(self._read(kind, descriptor, size, at + NUMBER_BYTES * index))

    def _read(self, kind: Kind, descriptor: int, size: int, at: int) -> bytes:
        try:
            content = self._disk.read(descriptor, size, at)
        except OSError as fault:
            raise StaleRunError(self, f"{FOLDERS[kind]}: {fault.strerror}") from fault
        if len(content) != size:
            raise StaleRunError(self, f"{FOLDERS[kind]} was cut")
        return content

    def _file(self, kind: Kind) -> tuple[int, RunHeader]:
        found = self._files.get(kind)
        if found is None:
            found = self._files[kind] = self._open(kind)
        return found

    def _open(self, kind: Kind) -> tuple[int, RunHeader]:
        path = run_path(self._paths, kind, self.start, self.end)
        try:
            descriptor = self._disk.open(path, READING)
        except OSError as fault:
            raise StaleRunError(self, f"{FOLDERS[kind]}: {fault.strerror}") from fault
        try:
            header = parse_header(self._disk.read(descriptor, HEADER_BYTES, 0))
            size = self._disk.size(descriptor)
        except OSError as fault:
            self._disk.close(descriptor)
            raise StaleRunError(self, f"{FOLDERS[kind]}: {fault.strerror}") from fault
        if (
            header is None
            or (header.kind, header.start, header.end) != (kind, self.start, self.end)
            or header.file_bytes != size
            or header.lines == 0
            or (kind is Kind.OFFSETS and header.rows != header.lines)
            or not self._fits(header)
        ):
            self._disk.close(descriptor)
            raise StaleRunError(self, f"{FOLDERS[kind]} is not whole, or of something else")
        return descriptor, header

    def _fits(self, header: RunHeader) -> bool:
        others = [other for _, other in self._files.values()]
        return all(
            (header.lines, header.first_seq, header.leaf)
            == (other.lines, other.first_seq, other.leaf)
            for other in others
        )


class _Column(Sequence[int]):
    """Numbers of a file as a sequence: what a bisection looks at is read, and nothing else."""

    def __init__(self, run: Run, kind: Kind, at: int, count: int) -> None:
        self._run, self._kind, self._at, self._count = run, kind, at, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._count))]
        return self._run.number(self._kind, index, self._at)


def run_path(paths: LedgerPaths, kind: Kind, start: int, end: int) -> str:
    return os.path.join(paths.folder, FOLDERS[kind], run_name(start, end))


def run_name(start: int, end: int) -> str:
    """The name of a run's files: its first byte, and the one after its last."""
    return f"{start:016}-{end:016}"


def parse_run_name(name: str) -> tuple[int, int] | None:
    """The range of a run; None for a name that is none."""
    named = _RUN_NAME.fullmatch(name)
    if named is None or int(named[1]) >= int(named[2]):
        return None
    return int(named[1]), int(named[2])
