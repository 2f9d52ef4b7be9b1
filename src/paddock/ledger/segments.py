"""The files of one ledger: sealed segments, and the newest one, which is appended to.

A ledger is one text. Its first bytes stand in the segment whose name says 0, and
each file goes on where the one before ends; an offset is a place in the whole.
Only the newest file has the ledger's own name, and at every instant there is one:

    everything is durable → `next` is made, empty, and synced → the head's base is
    cleared → link(2) gives the full file its sealed name → the directory is synced →
    rename(2) puts `next` in its place → the directory is synced → the base is the
    end of the sealed one

Killed before the rename, the file has both names: whoever holds the lock next takes
the sealed one away. Killed after it, the base is still cleared: whoever holds the
lock next looks at the names, syncs the directory, and stores it. So nothing is
appended to a sealed file, and no entry is acknowledged in one whose name could go.

All of this happens under the append lock. Readers take none: a sealed name of the
file that they have open as the newest is not there for them.
"""

import errno
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from paddock import limits
from paddock.errors import HostError, LedgerDamagedError, LedgerFullError, PaddockError
from paddock.ledger.format.lines import Genesis, parse_genesis, parse_line

if TYPE_CHECKING:
    from paddock.storage.disk import Disk

_EXTENSION: Final = ".jsonl"
_START_DIGITS: Final = 16
"""So the order of the names is the order of the segments, and all stand before the newest."""


class LedgerPaths:
    """Where the files of a ledger are, and what stands in the folder beside it."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger
        self.parent = os.path.dirname(ledger) or "."
        self.stem = ledger.removesuffix(_EXTENSION)
        self.folder = f"{self.stem}.d"
        self.next = f"{self.folder}/next"
        self.lock = f"{self.folder}/lock"
        self.commit_lock = f"{self.folder}/slock"
        """Held while the durable mark is written."""
        self.head = f"{self.folder}/head"
        self.index = f"{self.folder}/index.sqlite"
        self.new = f"{self.folder}/new"
        self.torn = f"{self.folder}/torn"

    def sealed(self, start: int) -> str:
        """A segment that is full, by the place of its first byte in the whole ledger."""
        return f"{self.stem}.{start:0{_START_DIGITS}}{_EXTENSION}"

    def find_starts(self, names: Iterable[str]) -> list[int]:
        """Where the sealed segments among these names begin, in order; others count for nothing."""
        before = f"{os.path.basename(self.stem)}."
        first, end = len(before), len(before) + _START_DIGITS
        length = end + len(_EXTENSION)
        digits = [
            name[first:end]
            for name in names
            if name.startswith(before) and len(name) == length and name.endswith(_EXTENSION)
        ]
        return sorted(int(each) for each in digits if each.isdigit() and each.isascii())


APPENDING: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPEN_SEGMENTS_MAX: Final = 16
_GENESIS_BYTES_USUAL: Final = 4096

Identity = tuple[int, int]
"""Device and inode: which file, whatever its name."""


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, or the process's own file size limit (setrlimit(2))."""


class Reads(Protocol):
    def open(self, path: str, flags: int, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def pread(self, fd: int, size_bytes: int, offset: int, /) -> bytes: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def stat(self, path: str | int, /) -> os.stat_result: ...


def is_full(fault: OSError) -> bool:
    return fault.errno in _FULL


def failure(fault: OSError, what: str, path: str, hint: str = "") -> PaddockError:
    """The one place where an OSError of the ledger's disk becomes ours.

    `hint` is for what only a person can mend; a full disk has its own.
    """
    if is_full(fault):
        said = f"no space for the ledger: {os.strerror(fault.errno or 0)}"
        return LedgerFullError(said, hint="free some space")
    reason = os.strerror(fault.errno) if fault.errno else str(fault)
    return HostError(f"{what}: {reason}", where=ascii(path), hint=hint)


class failing:  # noqa: N801 - read as the statement that it is
    """`with failing(what, path)`: an OSError in there is ours."""

    __slots__ = ("_hint", "_path", "_what")

    def __init__(self, what: str, path: str, hint: str = "") -> None:
        # No generator: each append comes through here.
        self._what, self._path, self._hint = what, path, hint

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: BaseException | None, _: object) -> None:
        if isinstance(fault, OSError):
            raise failure(fault, self._what, self._path, self._hint) from fault


class Segment(NamedTuple):
    """The newest segment, as it is open: where it begins in the whole, and which file it is."""

    descriptor: int
    base: int
    identity: Identity


def sync_directory(disk: "Disk", path: str) -> None:
    """Make a new name in a directory durable (fsync(2) says why the file's own is not enough)."""
    descriptor = disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)


def list_starts(disk: Reads, paths: LedgerPaths) -> list[int]:
    return paths.find_starts(disk.listdir(paths.parent))


def find_identity(disk: Reads, path: str | int) -> Identity:
    status = disk.stat(path)
    return status.st_dev, status.st_ino


def open_new(disk: "Disk", path: str, flags: int = os.O_WRONLY | os.O_CLOEXEC) -> int:
    """Open a file that is made now; another one of that name is removed, not emptied.

    Threat: a pipe in a draft's place would hold up whoever opens it, and a link
    would be written through. A segment of a rotation that was stopped may have another name.
    """
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return disk.open(path, flags, 0o600)
    except FileExistsError:
        disk.unlink(None, path)
        return disk.open(path, flags, 0o600)


def find_newest(disk: Reads, paths: LedgerPaths, descriptor: int) -> tuple[Segment, list[int]]:
    """Return what is open as the ledger's file, and where the sealed segments begin.

    The last of these is the same file where a rotation is on its way, or was killed.
    """
    identity, base = find_identity(disk, descriptor), 0
    starts = list_starts(disk, paths)
    if starts:
        status = disk.stat(paths.sealed(starts[-1]))
        is_same = (status.st_dev, status.st_ino) == identity
        base = starts[-1] if is_same else starts[-1] + status.st_size
    return Segment(descriptor, base, identity), starts


def split_lines(
    read: Callable[[int, int], bytes], start: int, end: int
) -> Iterator[tuple[int, list[bytes], bool]]:
    """Runs of lines without LF, the place of the first, and whether an LF follows the last.

    `read` gives so many bytes from a place. `start` is where a line begins. Of a line longer
    than any can be, as much as shows that, in a run of its own.
    """
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
    """The bytes of a ledger over all its segments, by their place in the whole.

    Sealed segments are opened when something of them is read. One thread uses it.
    """

    __slots__ = ("_disk", "_opened", "_paths", "_starts", "active")

    def __init__(self, disk: Reads, paths: LedgerPaths, starts: list[int], active: Segment) -> None:
        """`starts` of sealed segments in order; those from the active base on are left out."""
        self._disk = disk
        self._paths = paths
        self._starts = starts[: bisect_left(starts, active.base)]
        self.active = active
        self._opened: dict[int, int] = {}

    def size(self) -> int:
        return self.active.base + self._disk.stat(self.active.descriptor).st_size

    def read(self, size_bytes: int, offset: int) -> bytes:
        """So many bytes from a place, fewer at the end. Raises: LedgerDamagedError; OSError."""
        base = self.active.base
        if offset >= base:
            return self._disk.pread(self.active.descriptor, size_bytes, offset - base)
        pieces: list[bytes] = []
        end = offset + size_bytes
        while offset < min(end, base):
            start, stop = self._bounds(offset)
            piece = self._disk.pread(
                self.open_sealed(start), min(end, stop) - offset, offset - start
            )
            if not piece:
                raise LedgerDamagedError(
                    f"a segment of the ledger lacks bytes from {offset} on",
                    where=ascii(self._paths.sealed(start)),
                    hint="paddock ledger verify says more; compare with a backup",
                )
            pieces.append(piece)
            offset += len(piece)
        if end > base:
            pieces.append(self._disk.pread(self.active.descriptor, end - base, 0))
        return b"".join(pieces)

    def genesis(self, path: str) -> Genesis:
        """Return what line 0 says. Raises: LedgerDamagedError: nothing; OSError."""
        start = self.read(_GENESIS_BYTES_USUAL, 0)
        if b"\n" not in start:
            start = self.read(limits.entry_bytes_max + 1, 0)
        line, end, _ = start.partition(b"\n")
        if not end:
            raise LedgerDamagedError(
                "the ledger has no first line", where=ascii(path), hint="was it emptied?"
            )
        return parse_genesis(parse_line(line))

    def starts(self) -> list[int]:
        return [*self._starts, self.active.base]

    @property
    def sealed(self) -> list[tuple[int, str]]:
        """Where each sealed segment begins in the whole, and its file."""
        return [(start, self._paths.sealed(start)) for start in self._starts]

    def floor(self, end: int) -> int:
        """Where the segment begins that holds the byte before `end`: no need to read below it."""
        if end > self.active.base:
            return self.active.base
        starts = self.starts()
        at = bisect_right(starts, end - 1)
        return starts[at - 1] if at else 0

    def close(self) -> None:
        """Close what was opened here; the active segment is its owner's."""
        for descriptor in self._opened.values():
            self._disk.close(descriptor)
        self._opened.clear()

    def _bounds(self, offset: int) -> tuple[int, int]:
        starts = self.starts()
        at = bisect_right(starts, offset)
        if at == 0:
            raise LedgerDamagedError(
                f"the ledger's bytes before {starts[0]} are missing",
                where=f"{self._paths.sealed(starts[0])!a} and before",
                hint="restore the segment that is missing from a backup",
            )
        return starts[at - 1], starts[at]

    def open_sealed(self, start: int) -> int:
        descriptor = self._opened.get(start)
        if descriptor is not None:
            return descriptor
        if len(self._opened) >= _OPEN_SEGMENTS_MAX:
            self._disk.close(self._opened.pop(next(iter(self._opened))))
        path = self._paths.sealed(start)
        try:
            descriptor = self._opened[start] = self._disk.open(path, READING)
        except FileNotFoundError as fault:
            raise HostError(
                "a segment of the ledger is missing",
                where=ascii(path),
                hint="restore it from a backup",
            ) from fault
        except OSError as fault:
            raise failure(fault, "a segment of the ledger cannot be opened", path) from fault
        return descriptor
