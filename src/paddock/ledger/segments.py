"""The files of one ledger: sealed segments, and the newest one, which is appended to.

A ledger is one text. Its first bytes stand in the segment whose name says 0, and each file
goes on where the one before ends; an offset is a place in the whole. Only the newest file has
the ledger's own name, and at every instant there is one: `recovery.LedgerFiles.rotate` says how.

Readers take no lock: a sealed name of the file that they have open as the newest is not there
for them.
"""

import errno
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from paddock.errors import HostError, LedgerFullError, PaddockError

if TYPE_CHECKING:
    from paddock.storage.disk import Disk

_EXTENSION: Final = ".jsonl"
_START_DIGITS: Final = 16
"""So the order of the names is the order of the segments, and all stand before the newest."""


class LedgerPaths:
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
        return f"{self.stem}.{start:0{_START_DIGITS}}{_EXTENSION}"


APPENDING: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

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
    reason = os.strerror(fault.errno) if fault.errno else str(fault)
    if is_full(fault):
        return LedgerFullError(f"no space for the ledger: {reason}", hint="free some space")
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


def read_regular(path: str, bytes_max: int) -> bytes:
    """Threat: a pipe would hold its reader up, and a link have another file count as this one."""
    descriptor = os.open(path, READING)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.read(descriptor, bytes_max)
    finally:
        os.close(descriptor)


class Segment(NamedTuple):
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
    before = f"{os.path.basename(paths.stem)}."
    digits = {
        name: name[len(before) : -len(_EXTENSION)]
        for name in disk.listdir(paths.parent)
        if len(name) == len(before) + _START_DIGITS + len(_EXTENSION)
    }
    return sorted(
        int(each)
        for name, each in digits.items()
        if name == f"{before}{each}{_EXTENSION}" and each.isdecimal() and each.isascii()
    )


def find_identity(disk: Reads, path: str | int) -> Identity:
    status = disk.stat(path)
    return status.st_dev, status.st_ino


def open_new(disk: "Disk", path: str, flags: int = os.O_WRONLY | os.O_CLOEXEC) -> int:
    """Open a file that is made now; another one of that name is removed, not emptied."""
    # Threat: a pipe in a draft's place would hold up whoever opens it, and a link would be
    # written through. A segment of a rotation that was stopped may have another name.
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        return disk.open(path, flags, 0o600)
    except FileExistsError:
        disk.unlink(None, path)
        return disk.open(path, flags, 0o600)


def find_newest(disk: Reads, paths: LedgerPaths, descriptor: int) -> tuple[Segment, list[int]]:
    """The last of the starts is the same file where a rotation is on its way, or was killed."""
    identity, base = find_identity(disk, descriptor), 0
    starts = list_starts(disk, paths)
    if starts:
        status = disk.stat(paths.sealed(starts[-1]))
        is_same = (status.st_dev, status.st_ino) == identity
        base = starts[-1] if is_same else starts[-1] + status.st_size
    return Segment(descriptor, base, identity), starts
