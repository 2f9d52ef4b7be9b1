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
)
from paddock.ledger.segments import (
    READING,
    LedgerPaths,
    LedgerText,
    failing,
    find_newest,
    split_lines,
)
from paddock.ledger.tail import HeadFile, HeadPage, Mark, is_file, read_boot

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
            return HeadFile(os, descriptor).read()
        finally:
            os.close(descriptor)


def believable_marks(page: HeadPage, boot: bytes) -> list[Mark]:
    """Return the marks that the ledger has to agree with, the farthest last.

    A durable one always: all before it was on the disk. An append's while the machine
    runs on (a boot of zeros is not known): the page cache is what was written, of which
    a restart may lose what no sync covers.
    """
    newest, durable = page.newest, page.durable
    found = [durable] if durable is not None and durable.entries else []
    if newest is not None and newest.boot == boot and any(boot):
        # The elder twin of a torn record may lie before the durable mark.
        is_last = not found or newest.offset_bytes >= found[0].offset_bytes
        found.insert(len(found) if is_last else 0, newest)
    return found


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

    def marks(self) -> HeadPage | None:
        """What the head file says; None where there is none to read.

        The segments that its marks stand in are there to be read afterwards.
        """
        page = read_head(self._paths.head)
        self.keep_up()
        return page

    def keep_up(self) -> bool:
        """Look for segments that were made since; False where the ledger is another one."""
        if is_file(os, self.path, self.text.active.identity):
            return True
        before = self.text.active
        try:
            after = self._open()
        except PaddockError:
            return False
        sealed = self._paths.sealed(before.base)
        if not is_file(os, sealed, before.identity):
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

    def runs(self, segment: SegmentRange) -> Iterator[tuple[int, list[bytes], bool]]:
        """`split_lines` of one file, as long as it is, whatever the next one's name says."""

        def read(size_bytes: int, offset: int) -> bytes:
            text = self.text
            with failing("the ledger cannot be read", self.path):
                # A sealed one may have been closed meanwhile, for others.
                is_newest = segment.start == text.active.base
                opened = text.active.descriptor if is_newest else text.open_sealed(segment.start)
                return os.pread(opened, size_bytes, offset - segment.start)

        return split_lines(read, segment.start, segment.end)

    def genesis(self) -> Genesis:
        with failing("the ledger cannot be read", self.path):
            return self.text.genesis(self.path)

    def lines(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
        """Runs of lines without LF, each with the place of its first, in order.

        From `start`, where a line begins, up to `end`, where one ends: that of the last one.
        """
        end = self.whole_bytes(self.size()) if end is None else end
        for offset, lines, has_end in split_lines(self.read, start, end):
            if has_end:
                yield offset, lines

    def _open(self) -> LedgerText:
        """The newest file with the sealed ones; again where these changed as we looked."""
        path, text = self.path, None
        for _ in range(_TRIES):
            with failing("the ledger cannot be opened", path):
                try:
                    descriptor = os.open(path, READING)
                except FileNotFoundError as fault:
                    raise HostError("there is no ledger here", where=ascii(path)) from fault
                try:
                    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                        raise HostError("a ledger is a regular file", where=ascii(path))
                    segment, starts = find_newest(os, self._paths, descriptor)
                    if is_file(os, path, segment.identity):
                        text = LedgerText(os, self._paths, starts, segment)
                        return text
                except FileNotFoundError:
                    continue  # a rotation that was taken back
                finally:
                    if text is None:
                        os.close(descriptor)
        raise HostError("the ledger's files are others at every look", where=ascii(path))

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
            for _, lines, _ in split_lines(reader.read, position, end):
                for line in lines:
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
                raise replaced_error(path)


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
    if marks is None or marks.newest is None or marks.newest.boot != read_boot():
        return reader.whole_bytes(size)
    return marks.newest.offset_bytes


LINE_OPENING: Final = b'{"id":"LED-'
"""Every line begins so."""


def is_shaped(line: bytes) -> bool:
    """Whether a line begins and ends as an entry's does; what is not may hold anything."""
    return line.startswith(LINE_OPENING) and line.endswith(b'"}')


def find_genesis(path: str) -> Genesis | None:
    """Return what line 0 of a ledger says; None where it says nothing."""
    with LedgerReader(path) as reader:
        try:
            return reader.genesis()
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


def replaced_error(path: str) -> LedgerDamagedError:
    return LedgerDamagedError("the ledger was replaced by another file", where=ascii(path))
