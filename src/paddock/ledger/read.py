"""Read a ledger without locks, repairs or files beside it.

Bytes after the last LF may be a line that is being written. A reader knows the segments that
existed when it was opened; `keep_up` finds newer ones.
"""

import errno
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError, LedgerFullError, PaddockError
from paddock.ledger.format.lines import (
    LINE_OPENING,
    Genesis,
    StoredEntry,
    parse_genesis,
    parse_line,
)
from paddock.ledger.tail import (
    START_DIGITS,
    HeadFile,
    HeadPage,
    LedgerPaths,
    Mark,
    is_file,
    read_boot,
)

if TYPE_CHECKING:
    from paddock.ledger.tail import LedgerDisk

_CHUNK: Final = limits.ledger_scan_chunk_bytes
_LINE_USUAL: Final = 4096
_TRIES: Final = 100
_ENDLESS: Final = 1 << 64
_UNREADABLE: Final = "the ledger cannot be read"
_MORE: Final = "for details: paddock ledger verify"
MORE_AND_BACKUP: Final = f"{_MORE}; compare with a backup"
READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
Identity = tuple[int, int]  # device and inode: which file, whatever its name
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # EFBIG: setrlimit(2)


def is_full(fault: OSError) -> bool:
    return fault.errno in _FULL


def damage(said: str, where: str, hint: str = _MORE) -> LedgerDamagedError:
    return LedgerDamagedError(said, where=where, hint=hint)


class failing:  # noqa: N801 - read as the statement that it is
    """`with failing(what, path)`: turn an OSError into HostError, or LedgerFullError."""

    def __init__(self, what: str, path: str, hint: str = "") -> None:
        # Not `contextmanager`, which is slower: each append enters it several times.
        self._what, self._path, self._hint = what, path, hint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: BaseException | None, _: object) -> None:
        if isinstance(fault, OSError):
            reason = os.strerror(fault.errno) if fault.errno else str(fault)
            if is_full(fault):
                said = f"no space for the ledger: {reason}"
                raise LedgerFullError(said, hint="free some space") from fault
            where, hint = ascii(self._path), self._hint
            raise HostError(f"{self._what}: {reason}", where=where, hint=hint) from fault


def read_regular(path: str, bytes_max: int) -> bytes:
    """Threat: opening a pipe would block, and a symlink would pass off another file as this one."""
    descriptor = os.open(path, READING)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)


class Segment(NamedTuple):
    descriptor: int
    base: int  # where in the whole ledger it begins
    identity: Identity


def list_starts(disk: "LedgerDisk", paths: LedgerPaths) -> list[int]:
    """Return the starts of the sealed segments, in order; ignore other names."""
    names, before = disk.listdir(paths.parent), len(os.path.basename(paths.stem)) + 1
    digits = (name[before : before + START_DIGITS] for name in names)
    starts = {int(each) for each in digits if each.isdecimal() and each.isascii()}
    return sorted(each for each in starts if os.path.basename(paths.sealed(each)) in names)


def find_identity(disk: "LedgerDisk", path: str | int) -> Identity:
    status = disk.stat(path)
    return status.st_dev, status.st_ino


def find_newest(
    disk: "LedgerDisk", paths: LedgerPaths, descriptor: int
) -> tuple[Segment, list[int]]:
    """During a rotation, or after a killed one, the last start is the newest file's."""
    identity, base = find_identity(disk, descriptor), 0
    starts = list_starts(disk, paths)
    if starts:
        status = disk.stat(paths.sealed(starts[-1]))
        is_same = (status.st_dev, status.st_ino) == identity
        base = starts[-1] if is_same else starts[-1] + status.st_size
    return Segment(descriptor, base, identity), starts


def read_head(path: str) -> HeadPage:
    # Threat: with a pipe in its place every reader would wait for a writer.
    if not os.path.lexists(path):
        return HeadPage(None, None)
    with failing("the ledger's head file cannot be read", path):
        descriptor = os.open(path, READING)
        try:
            return HeadFile(os, descriptor).read()
        finally:
            os.close(descriptor)


def believable_marks(page: HeadPage, boot: bytes) -> list[Mark]:
    """Return the marks that the ledger must match, the farthest last.

    A durable mark always counts. An append's mark counts only in its boot (zeros: unknown), while
    the page cache has all written bytes; a reboot may lose those that were not synced.
    """
    newest, durable = page.newest, page.durable
    found = [durable] if durable is not None and durable.entries else []
    if newest is not None and newest.boot == boot and any(boot):
        # If its newer slot is torn, the older one may be before the durable mark.
        is_last = not found or newest.offset_bytes >= found[0].offset_bytes
        found.insert(len(found) if is_last else 0, newest)
    return found


def split_lines(
    read: Callable[[int, int], bytes], start: int, end: int
) -> Iterator[tuple[int, list[bytes], bool]]:
    """Yield each run's offset, lines, and whether LF ends it; truncate lines that are too long."""
    longest = limits.entry_bytes_max + 1
    carry, position = b"", start
    while position < end:
        chunk = read(min(limits.ledger_scan_chunk_bytes, end - position), position)
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
            yield start, [carry[:longest]], True
            start = begin + len(lines.pop(0)) + 1
        carry = lines.pop()
        if lines:
            yield start, lines, True
        start = position - len(carry)
    if start < end:
        yield start, [carry[:longest]], False


class LedgerText:
    """The bytes of all segments as one text. Raises: HostError; LedgerDamagedError for a gap."""

    def __init__(
        self, disk: "LedgerDisk", paths: LedgerPaths, starts: list[int], active: Segment
    ) -> None:
        self.path, self._disk, self._paths = paths.ledger, disk, paths
        self.active: Segment = active
        self.starts: list[int] = [*starts[: bisect_left(starts, active.base)], active.base]

    def size(self) -> int:
        with failing(_UNREADABLE, self.path):
            return self.active.base + self._disk.stat(self.active.descriptor).st_size

    def read(self, size_bytes: int, offset: int) -> bytes:
        pieces: list[bytes] = []
        end = offset + size_bytes
        while offset < end:
            start, stop = self._bounds(offset)
            pieces.append(self.read_segment(start, min(end, stop) - offset, offset))
            if stop == _ENDLESS:
                break
            if not pieces[-1]:
                said = f"a segment of the ledger lacks bytes from {offset} on"
                raise damage(said, ascii(self._paths.sealed(start)), MORE_AND_BACKUP)
            offset += len(pieces[-1])
        return b"".join(pieces)

    def read_segment(self, start: int, size_bytes: int, offset: int) -> bytes:
        """Read one segment up to its end, even if the next one starts earlier."""
        with failing(_UNREADABLE, self.path):
            if start == self.active.base:
                return self._disk.pread(self.active.descriptor, size_bytes, offset - start)
            path = self._paths.sealed(start)
            try:
                descriptor = self._disk.open(path, READING)
            except FileNotFoundError as fault:
                said, hint = "a segment of the ledger is missing", "restore it from a backup"
                raise HostError(said, where=ascii(path), hint=hint) from fault
            try:
                return self._disk.pread(descriptor, size_bytes, offset - start)
            finally:
                self._disk.close(descriptor)

    def genesis(self) -> Genesis:
        start = self.read(_LINE_USUAL, 0)
        if b"\n" not in start:
            start = self.read(limits.entry_bytes_max + 1, 0)
        line, end, _ = start.partition(b"\n")
        if not end:
            raise damage("the ledger has no first line", ascii(self.path), "was it emptied?")
        return parse_genesis(parse_line(line))

    def lines(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, list[bytes]]]:
        end = self.whole_bytes(self.size()) if end is None else end
        for offset, lines, has_end in split_lines(self.read, start, end):
            if has_end:
                yield offset, lines

    def whole_bytes(self, end: int) -> int:
        """Return the offset after the last LF before `end`."""
        return next(self.lines_backwards(end + 1))[0]

    def lines_backwards(self, end: int, first: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield lines from `end` back to `first`; truncate lines that are too long."""
        position, carry, size = max(first, end - 1), b"", _LINE_USUAL
        if end <= first:
            return
        while position > first:
            # Never across two segments: if one is missing, later ones can still be read.
            start = max(first, self._bounds(position - 1)[0], position - size)
            parts = (self.read(position - start, start) + carry).split(b"\n")
            carry = parts[0][: limits.entry_bytes_max + 1]
            offset = start + sum(len(part) + 1 for part in parts)
            for part in reversed(parts[1:]):
                offset -= len(part) + 1
                yield offset, part
            position, size = start, _CHUNK
        yield first, carry

    def _bounds(self, offset: int) -> tuple[int, int]:
        at = bisect_right(self.starts, offset)
        if at == 0:
            where = f"{self._paths.sealed(self.starts[0])!a} and before"
            said = f"the ledger's bytes before {self.starts[0]} are missing"
            raise damage(said, where, "restore the missing segment from a backup")
        return self.starts[at - 1], self.starts[at] if at < len(self.starts) else _ENDLESS


class LedgerReader(LedgerText):
    def __init__(self, path: str) -> None:
        paths = LedgerPaths(path)
        active, starts = _open_newest(paths)
        super().__init__(os, paths, starts, active)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.active.descriptor)

    def marks(self) -> HeadPage:
        page = read_head(self._paths.head)
        self.keep_up()
        return page

    def keep_up(self) -> bool:
        """Find segments created since; return False if the ledger was replaced."""
        before = self.active
        if is_file(os, self.path, before.identity):
            return True
        try:
            after = LedgerReader(self.path)
        except PaddockError:
            return False
        if not is_file(os, self._paths.sealed(before.base), before.identity):
            after.close()
            return False
        self.close()
        self.active, self.starts = after.active, after.starts
        return True

    def files(self) -> Iterator[tuple[int, int, Iterator[tuple[int, list[bytes], bool]]]]:
        """Yield each file's start, its actual end (not the next file's start), and its lines."""
        for start in self.starts.copy():
            with failing(_UNREADABLE, self.path):
                is_newest = start == self.active.base
                sealed = 0 if is_newest else os.lstat(self._paths.sealed(start)).st_size
            end = self.size() if is_newest else start + sealed
            yield start, end, split_lines(partial(self.read_segment, start), start, end)

    def touched(self, count: int) -> tuple[tuple[int, ...], ...]:
        """Return start, size, inode, mtime and ctime of the first `count` sealed files."""
        found: list[tuple[int, ...]] = []
        for start in self.starts[:-1][:count]:
            path = self._paths.sealed(start)
            with failing(_UNREADABLE, path):
                now = os.lstat(path)
            found.append((start, now.st_size, now.st_ino, now.st_mtime_ns, now.st_ctime_ns))
        return tuple(found)


def _open_newest(paths: LedgerPaths) -> tuple[Segment, list[int]]:
    path = paths.ledger
    for _ in range(_TRIES):
        with failing("the ledger cannot be opened", path), ExitStack() as opened:
            try:
                descriptor = os.open(path, READING)
            except FileNotFoundError as fault:
                raise HostError("ledger not found", where=ascii(path)) from fault
            opened.callback(os.close, descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise HostError("a ledger is a regular file", where=ascii(path))
            with suppress(FileNotFoundError):  # a rotation was undone
                segment, starts = find_newest(os, paths, descriptor)
                if is_file(os, path, segment.identity):
                    opened.pop_all()
                    return segment, starts
    raise HostError("the ledger's files changed at each try to open them", where=ascii(path))


def follow(path: str, *, last: int, poll: Callable[[], bool]) -> Iterator[StoredEntry]:
    """Yield the `last` entries, then each new one; `poll` waits and returns False to stop."""
    with LedgerReader(path) as reader:
        position = _written_end(reader)
        for offset, _ in islice(reader.lines_backwards(position), max(0, last)):
            position = offset
        while True:
            end = _written_end(reader)
            if end < position:
                raise LedgerDamagedError("the ledger became shorter", where=ascii(path))
            for _, lines, _ in split_lines(reader.read, position, end):
                for line in lines:
                    yield parse_line(line, f"{path!a}, byte {position}")
                    position += len(line) + 1
            if not poll():
                return
            if not reader.keep_up():
                raise replaced_error(path)


def _written_end(reader: LedgerReader) -> int:
    newest, size = reader.marks().newest, reader.size()
    if newest is None or newest.boot != read_boot():
        return reader.whole_bytes(size)
    return newest.offset_bytes


def is_shaped(line: bytes) -> bool:
    """Return True if a line begins and ends like an entry; other lines must be inspected."""
    return line.startswith(LINE_OPENING) and line.endswith(b'"}')


def find_genesis(path: str) -> Genesis | None:
    with LedgerReader(path) as reader:
        try:
            return reader.genesis()
        except LedgerDamagedError:
            return None


def unfinished(size_bytes: int) -> str:
    return f"{size_bytes} bytes follow the last whole line"


_BEFORE: Final = frozenset({"lock", "new"})  # files beside a ledger that is not created yet


def is_known(path: Path) -> bool:
    if path.exists():
        return True
    folder = Path(LedgerPaths(str(path)).folder)
    with failing("the ledger's folder cannot be listed", str(folder)):
        try:
            return not _BEFORE.issuperset(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return False


def stands(path: Path) -> bool:
    """Return False if it was never created. Raises: LedgerDamagedError: it was removed."""
    if path.exists():
        return True
    # Threat: a removed ledger would pass for an empty one. Check twice: another process may create
    # it in between.
    if is_known(path) and not path.exists():
        raise gone_error(path, path.stem)
    return path.exists()


def gone_error(path: Path, name: str) -> LedgerDamagedError:
    said = f"the ledger {name} is gone: records of it still exist"
    hint = f"restore it from a backup, or start a new one: paddock ledger set-aside --ledger {name}"
    return damage(said, str(path), hint)


def replaced_error(path: str) -> LedgerDamagedError:
    return LedgerDamagedError("the ledger was replaced by another file", where=ascii(path))
