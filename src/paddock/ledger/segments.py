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
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from msgspec import Struct

from paddock.errors import HostError, LedgerDamagedError, LedgerFullError, PaddockError

if TYPE_CHECKING:
    from paddock.ledger.head import HeadFile
    from paddock.storage.disk import Disk

_EXTENSION: Final = ".jsonl"
_START_DIGITS: Final = 16
"""So the order of the names is the order of the segments, and all stand before the newest."""


class LedgerPaths(Struct, frozen=True):
    ledger: str

    @property
    def parent(self) -> str:
        return os.path.dirname(self.ledger) or "."

    @property
    def stem(self) -> str:
        stem, extension = os.path.splitext(self.ledger)
        return stem if extension == _EXTENSION else self.ledger

    @property
    def folder(self) -> str:
        return f"{self.stem}.d"

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

    @property
    def next(self) -> str:
        return os.path.join(self.folder, "next")

    @property
    def lock(self) -> str:
        return os.path.join(self.folder, "lock")

    @property
    def commit_lock(self) -> str:
        """Held while the durable mark is written."""
        return os.path.join(self.folder, "slock")

    @property
    def head(self) -> str:
        return os.path.join(self.folder, "head")

    @property
    def index(self) -> str:
        return os.path.join(self.folder, "index.sqlite")

    @property
    def new(self) -> str:
        return os.path.join(self.folder, "new")

    @property
    def torn(self) -> str:
        return os.path.join(self.folder, "torn")


APPENDING: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OPEN_SEGMENTS_MAX: Final = 16

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


@contextmanager
def failing(what: str, path: str, hint: str = "") -> Generator[None]:
    try:
        yield
    except OSError as fault:
        raise failure(fault, what, path, hint) from fault


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


def is_identity(disk: Reads, path: str, identity: Identity) -> bool:
    try:
        return find_identity(disk, path) == identity
    except OSError:
        return False


class ActiveSegment:
    """The newest segment of one open ledger; another file from rotation to rotation."""

    __slots__ = ("_disk", "_paths", "_starts", "current")

    def __init__(self, disk: "Disk", paths: LedgerPaths, descriptor: int) -> None:
        """Take over the open ledger file. The append lock is held."""
        self._disk = disk
        self._paths = paths
        self._starts: list[int] = []
        self.current = self._settle(descriptor)

    def settle(self, head: "HeadFile") -> None:
        """Store where the newest segment begins, if the head says otherwise. Under the lock."""
        if head.read().base != self.current.base:
            # Whoever made the name may have been killed before it was durable.
            sync_directory(self._disk, self._paths.parent)
            head.store_base(self.current.base)

    def follow(self, head: "HeadFile") -> None:
        """Open what is the newest segment by now. The append lock is held."""
        descriptor = self._disk.open(self._paths.ledger, APPENDING)
        try:
            found = self._settle(descriptor)
        except BaseException:
            self._disk.close(descriptor)
            raise
        before = self.current
        if found.identity == before.identity:
            # A commit may be on its way through the descriptor that we have.
            self._disk.close(descriptor)
            self.current = found._replace(descriptor=before.descriptor)
        else:
            self.current = found
            self._disk.close(before.descriptor)
        self.settle(head)

    def rotate(self, head: "HeadFile", end: int) -> None:
        """Seal the segment, all of it durable, and go on in a new one that begins at `end`.

        The append lock is held. After a failure `follow` finds out how far it came.
        """
        disk, paths, before = self._disk, self._paths, self.current
        # Threat: a file that was put in our place would be sealed as ours.
        self.verify_in_place(before)
        descriptor = open_new(disk, paths.next, APPENDING)
        try:
            disk.sync(descriptor)
            identity = find_identity(disk, descriptor)
            head.store_base(None)
            try:
                disk.link(None, paths.ledger, None, paths.sealed(before.base))
            except FileExistsError as fault:
                raise LedgerDamagedError(
                    "another file stands where a segment of the ledger belongs",
                    where=ascii(paths.sealed(before.base)),
                ) from fault
            # Were the rename durable and the link not, a power cut would take the full file.
            sync_directory(disk, paths.parent)
            disk.replace(None, paths.next, None, paths.ledger)
            sync_directory(disk, paths.parent)
            head.store_base(end)
        except BaseException:
            disk.close(descriptor)
            raise
        self.current = Segment(descriptor, end, identity)
        self._starts = [*self._starts, before.base]
        # Nobody syncs through the old one any more: all in it is durable.
        disk.close(before.descriptor)

    def verify_in_place(self, segment: Segment) -> None:
        """Refuse if neither the path nor the segment's sealed name leads to it any more.

        Threat: a ledger that was moved away or replaced while in use would take
        acknowledged entries with it.
        """
        paths = self._paths
        try:
            if find_identity(self._disk, paths.ledger) == segment.identity:
                return
        except OSError as fault:
            raise LedgerDamagedError(
                f"the ledger is gone: {fault.strerror}", where=ascii(paths.ledger)
            ) from fault
        self.verify_sealed(segment)

    def verify_sealed(self, segment: Segment) -> None:
        if not is_identity(self._disk, self._paths.sealed(segment.base), segment.identity):
            raise LedgerDamagedError(
                "the ledger was replaced by another file while in use",
                where=ascii(self._paths.ledger),
            )

    def text(self) -> "LedgerText":
        """The whole ledger, to be read under the lock; closed by the caller."""
        return LedgerText(self._disk, self._paths, self._starts, self.current)

    def _settle(self, descriptor: int) -> Segment:
        disk, paths = self._disk, self._paths
        identity = find_identity(disk, descriptor)
        starts = self._starts = list_starts(disk, paths)
        if not starts:
            return Segment(descriptor, 0, identity)
        last = starts[-1]
        status = disk.stat(paths.sealed(last))
        if (status.st_dev, status.st_ino) == identity:
            disk.unlink(None, paths.sealed(last))
            return Segment(descriptor, last, identity)
        return Segment(descriptor, last + status.st_size, identity)


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
                    where=ascii(self._path(start)),
                    hint="paddock ledger verify says more; compare with a backup",
                )
            pieces.append(piece)
            offset += len(piece)
        if end > base:
            pieces.append(self._disk.pread(self.active.descriptor, end - base, 0))
        return b"".join(pieces)

    def starts(self) -> list[int]:
        return [*self._starts, self.active.base]

    @property
    def sealed(self) -> list[tuple[int, str]]:
        """Where each sealed segment begins in the whole, and its file."""
        return [(start, self._path(start)) for start in self._starts]

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
                where=f"{self._path(starts[0])!a} and before",
                hint="restore the segment that is missing from a backup",
            )
        return starts[at - 1], starts[at]

    def _path(self, start: int) -> str:
        return self._paths.sealed(start)

    def open_sealed(self, start: int) -> int:
        descriptor = self._opened.get(start)
        if descriptor is not None:
            return descriptor
        if len(self._opened) >= _OPEN_SEGMENTS_MAX:
            self._disk.close(self._opened.pop(next(iter(self._opened))))
        path = self._path(start)
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
