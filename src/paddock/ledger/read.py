"""Opening a ledger to read it: no lock, no repair, and nothing beside it is needed.

Readers see files that others append to. Every whole line is one that a writer
finished writing; what follows the last LF may be a line on its way.
A reader goes by the segments that there were when it was opened: `keep_up` looks
for those that were made since.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError, PaddockError
from paddock.ledger.format.lines import (
    BadLine,
    Genesis,
    StoredEntry,
    inspect_line,
    parse_genesis,
    parse_line,
)
from paddock.ledger.segments import (
    READING,
    LedgerPaths,
    LedgerText,
    Segment,
    failing,
    failure,
    find_identity,
    is_identity,
    list_starts,
)
from paddock.ledger.tail import HeadPage, read_boot, read_page

_CHUNK: Final = limits.ledger_scan_chunk_bytes
_LINE_USUAL: Final = 4096
_TRIES: Final = 100


def read_head(path: str) -> HeadPage | None:
    """What a head file says; None where there is none. Raises: PaddockError."""
    # Threat: a pipe in its place would have every reader wait for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if not os.path.lexists(path):
        return None
    with failing("the ledger's head file cannot be read", path):
        descriptor = os.open(path, flags)
        try:
            return read_page(os, descriptor)
        finally:
            os.close(descriptor)


class SegmentRange(Struct, frozen=True):
    """One file of a ledger: where its name says that it begins, and how long it is."""

    start: int
    size_bytes: int
    is_newest: bool

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


class LedgerReader:
    def __init__(self, path: str) -> None:
        self.path = path
        self._paths = LedgerPaths(path)
        self.text = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.text.close()
        os.close(self.text.active.descriptor)

    def size(self) -> int:
        return self.text.size()

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return so many bytes from a place, fewer at the end."""
        with failing("the ledger cannot be read", self.path):
            return self.text.read(size_bytes, offset)

    def boot(self) -> bytes:
        return read_boot()

    def marks(self) -> HeadPage | None:
        """What the head file says; None where there is none to read.

        The segments that its marks stand in are there to be read afterwards.
        """
        page = read_head(self._paths.head)
        self.keep_up()
        return page

    def keep_up(self) -> bool:
        """Look for segments that were made since; False where the ledger is another one."""
        if is_identity(os, self.path, self.text.active.identity):
            return True
        before = self.text.active
        try:
            after = self._open()
        except PaddockError:
            return False
        sealed = self._paths.sealed(before.base)
        if not is_identity(os, sealed, before.identity):
            after.close()
            os.close(after.active.descriptor)
            return False
        self.close()
        self.text = after
        return True

    def segments(self) -> list[SegmentRange]:
        """Every file in order, with its own size, whatever the next one's name says."""
        text = self.text
        with failing("the ledger cannot be read", self.path):
            sealed = [
                SegmentRange(start, os.fstat(text.open_sealed(start)).st_size, False)
                for start, _ in text.sealed
            ]
            size = os.fstat(text.active.descriptor).st_size
        return [*sealed, SegmentRange(text.active.base, size, True)]

    def touched(self, count: int) -> tuple[tuple[int, ...], ...]:
        """The first so many sealed files, and when each was last changed."""
        found: list[tuple[int, ...]] = []
        for start, path in self.text.sealed[:count]:
            with failing("a segment of the ledger cannot be looked at", path):
                now = os.stat(path, follow_symlinks=False)
            found.append((start, now.st_size, now.st_ino, now.st_mtime_ns, now.st_ctime_ns))
        return tuple(found)

    def runs(
        self, segment: SegmentRange, first: int = 0
    ) -> Iterator[tuple[int, list[bytes], bool]]:
        """Runs of lines of one file without LF, the place of the first, and whether an LF follows.

        Of a line longer than any can be, as much as shows that, in a run of its own.
        """
        longest = limits.entry_bytes_max + 1
        carry, start, position = b"", first, first
        while position < segment.size_bytes:
            chunk = self._read_file(segment, position)
            if not chunk:
                break
            begin, position = position, position + len(chunk)
            lines = chunk.split(b"\n")
            if len(carry) < longest:
                carry += lines[0]
            if len(lines) == 1:
                continue
            if len(carry) < longest:
                lines[0] = carry
            else:
                yield segment.start + start, [carry[:longest]], True
                start = begin + len(lines.pop(0)) + 1
            carry = lines.pop()
            if lines:
                yield segment.start + start, lines, True
            start = position - len(carry)
        if start < segment.size_bytes:
            yield segment.start + start, [carry[:longest]], False

    def _read_file(self, segment: SegmentRange, position: int) -> bytes:
        text = self.text
        size = min(_CHUNK, segment.size_bytes - position)
        with failing("the ledger cannot be read", self.path):
            # A sealed one may have been closed meanwhile, for others.
            is_newest = segment.start == text.active.base
            opened = text.active.descriptor if is_newest else text.open_sealed(segment.start)
            return os.pread(opened, size, position)

    def _open(self) -> LedgerText:
        for _ in range(_TRIES):
            found = self._try_open()
            if found is not None:
                return found
        raise HostError("the ledger's files are others at every look", where=ascii(self.path))

    def _try_open(self) -> LedgerText | None:
        """The newest file with the sealed ones; None where that changed as we looked."""
        path = self.path
        try:
            descriptor = os.open(path, READING)
        except FileNotFoundError as fault:
            raise HostError("there is no ledger here", where=ascii(path)) from fault
        except OSError as fault:
            raise failure(fault, "the ledger cannot be opened", path) from fault
        text = None
        try:
            text = self._join(descriptor)
        except FileNotFoundError:
            return None  # a rotation that was taken back
        except OSError as fault:
            raise failure(fault, "the ledger cannot be opened", path) from fault
        finally:
            if text is None:
                os.close(descriptor)
        return text

    def _join(self, descriptor: int) -> LedgerText | None:
        """The open file with the segments before it. Looks at the last of them alone."""
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise HostError("a ledger is a regular file", where=ascii(self.path))
        identity, base = (status.st_dev, status.st_ino), 0
        starts = list_starts(os, self._paths)
        if starts:
            last = starts[-1]
            status = os.stat(self._paths.sealed(last))
            is_same = (status.st_dev, status.st_ino) == identity
            # A rotation on its way: the file that we have open has its sealed name already.
            base = last if is_same else last + status.st_size
        if find_identity(os, self.path) != identity:
            return None
        return LedgerText(os, self._paths, starts, Segment(descriptor, base, identity))

    def whole_bytes(self, end: int) -> int:
        """The place after the last LF before `end`."""
        size = _LINE_USUAL
        while end > 0:
            start = max(self.text.floor(end), end - size)
            size = _CHUNK
            found = self.read(end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def lines_backwards(self, end: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Lines with their offsets, the last one before `end` first.

        `end` is the place after an LF, `first` where a line begins, and no earlier one
        is given. A line longer than any can be is given only as far as shows that.
        """
        position, carry = max(first, end - 1), b""
        if end <= first:
            return
        while position > first:
            start = max(first, self.text.floor(position), position - _CHUNK)
            parts = (self.read(position - start, start) + carry).split(b"\n")
            carry = parts[0][: limits.entry_bytes_max + 1]
            offset = start + sum(len(part) + 1 for part in parts)
            for part in reversed(parts[1:]):
                offset -= len(part) + 1
                yield offset, part
            position = start
        yield first, carry


def follow(path: str, *, last: int, poll: Callable[[], bool]) -> Iterator[StoredEntry]:
    """Yield the `last` entries that are there, then each new one.

    `poll` is called whenever there is nothing new: it waits as it likes and
    answers whether to go on. Only entries up to the head's mark are given, as
    what lies beyond may still be taken back; without a head file, whole lines.
    """
    with LedgerReader(path) as reader:
        position = _start(reader, last)
        while True:
            end = _end(reader)
            if end < position:
                raise LedgerDamagedError("the ledger became shorter", where=ascii(path))
            while position < end:
                line = _next_line(reader, position, end)
                found = inspect_line(line)
                if isinstance(found, BadLine):
                    raise LedgerDamagedError(
                        f"not a ledger line ({found.fault}): {found.detail}",
                        where=f"{path!a}, byte {position}",
                    )
                yield found
                position += len(line) + 1
            if not poll():
                return
            if not reader.keep_up():
                raise LedgerDamagedError(
                    "the ledger was replaced by another file", where=ascii(path)
                )


def find_torn_bytes(path: str) -> int:
    with LedgerReader(path) as reader:
        size = reader.size()
        return size - reader.whole_bytes(size)


def _start(reader: LedgerReader, last: int) -> int:
    position = _end(reader)
    if last <= 0:
        return position
    for count, (offset, _) in enumerate(reader.lines_backwards(position), start=1):
        position = offset
        if count == last:
            break
    return position


def _end(reader: LedgerReader) -> int:
    marks = reader.marks()
    size = reader.size()
    if marks is None or marks.newest is None or marks.newest.boot != reader.boot():
        return reader.whole_bytes(size)
    return marks.newest.offset_bytes


def _next_line(reader: LedgerReader, position: int, end: int) -> bytes:
    size = limits.ledger_scan_chunk_bytes
    while True:
        chunk = reader.read(min(size, end - position), position)
        found = chunk.find(b"\n")
        if found >= 0:
            return chunk[:found]
        if size > limits.entry_bytes_max or len(chunk) < size:
            return chunk
        size *= 4


LINE_OPENING: Final = b'{"id":"LED-'
"""Every line begins so."""


def is_shaped(line: bytes) -> bool:
    """Whether a line begins and ends as an entry's does; what is not may hold anything."""
    return line.startswith(LINE_OPENING) and line.endswith(b'"}')


def whole_lines(reader: LedgerReader, start: int, end: int) -> Iterator[tuple[int, list[bytes]]]:
    """Runs of lines without their LF, each with the offset of its first, in order.

    From `start`, where a line begins, up to `end`, where one ends. Of a line longer
    than any can be its beginning is given, as the last of all.
    """
    carry, offset, position = b"", start, start
    while position < end:
        chunk = reader.read(min(_CHUNK, end - position), position)
        if not chunk:
            return
        position += len(chunk)
        lines = chunk.split(b"\n")
        lines[0] = carry + lines[0]
        carry = lines.pop()
        if lines:
            yield offset, lines
            offset = position - len(carry)
        if len(carry) > limits.entry_bytes_max:
            yield offset, [carry]
            return


def read_first(reader: LedgerReader) -> Genesis:
    for _, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
        return parse_genesis(parse_line(lines[0]))
    raise LedgerDamagedError("the ledger has no first line", where=ascii(reader.path))


def find_genesis(path: str) -> Genesis | None:
    """Return what line 0 of a ledger says; None where it says nothing."""
    with LedgerReader(path) as reader:
        try:
            return read_first(reader)
        except LedgerDamagedError:
            return None


_PATHS: Final = LedgerPaths("")
_BEFORE: Final = frozenset(os.path.basename(path) for path in (_PATHS.lock, _PATHS.new))
"""What stands beside a ledger before there is one."""


def is_known(path: Path) -> bool:
    """Whether there is this ledger, or beside it what only a ledger leaves."""
    if path.exists():
        return True
    folder = Path(LedgerPaths(str(path)).folder)
    with failing("the ledger's folder cannot be listed", str(folder)):
        try:
            return not _BEFORE.issuperset(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return False


def stands(path: Path) -> bool:
    """Whether the ledger is there; where it is not, it was never made.

    Threat: a ledger that was removed would pass for one in which nothing stands yet.
    """
    if path.exists():
        return True
    if not is_known(path):
        return False
    # Another process may have made it between the two looks.
    if path.exists():
        return True
    raise gone_error(path, path.stem)


def gone_error(path: Path, name: str) -> LedgerDamagedError:
    return LedgerDamagedError(
        f"the ledger {name} is gone: what is kept of it says that there was one",
        where=str(path),
        hint="restore it from a backup",
    )
