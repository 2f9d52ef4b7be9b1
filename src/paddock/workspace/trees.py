"""Directories as a whole, by descriptor: what one holds, as a digest; and removing it.

A directory that is moved away with all that it holds can be filled, through its old
descriptor or by a writer that had its lock, in the moment before it moves. So what it
holds is looked at before and after, and must be the same.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Generator
from typing import Final

from paddock import limits
from paddock.errors import InvalidPathError
from paddock.storage.disk import Disk
from paddock.storage.journal import EntryMark, MarkKind
from paddock.storage.locks import unlock
from paddock.text.show import quote
from paddock.workspace.draft import changed, lock_directory
from paddock.workspace.metadata import FileStatus, status_at, status_of
from paddock.workspace.paths import WorkspacePath, child_of
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY

_OPEN: Final = READ_DIRECTORY | os.O_NOFOLLOW
_LOCK_WAIT_S: Final = 2.0
"""A writer in there holds its lock for milliseconds. We hold locks above it meanwhile, for
which it could be waiting: then it is in our way, and the set gives way."""


class HeldTree:
    """What a directory holds, entry by entry, in the order of a walk by name."""

    __slots__ = ("_digest", "_sight", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        """Relative to the directory."""
        self._digest = hashlib.sha256()
        self._sight = hashlib.sha256()

    def add(self, path: WorkspacePath, status: FileStatus, below: int) -> None:
        """One entry; `below` is the depth of the directory that is looked at."""
        relative = "/".join(path.parts[below:])
        self.names.add(relative)
        name = relative.encode("utf-8", "surrogateescape")
        size_bytes, modified_ns = (
            (0, 0) if status.is_directory else (status.size_bytes, status.modified_ns)
        )
        about = f"\0{status.mode:o} {status.inode} {size_bytes} {modified_ns}\n"
        self._digest.update(name + about.encode("ascii"))
        if not status.is_directory:
            self._sight.update(f"{sight_of(status)}\n".encode("ascii"))

    def digest(self) -> str:
        """Equal as long as nobody changed anything in there."""
        return self._digest.hexdigest()

    def sight(self) -> str:
        """See `sight_of`: of all the files and links in there."""
        return self._sight.hexdigest()


def mark_of(status: FileStatus, held: str = "") -> EntryMark:
    """How the journal tells this entry from any other."""
    if status.is_directory:
        return EntryMark(MarkKind.DIRECTORY, status.inode, 0, 0, held)
    kind = MarkKind.LINK if status.is_link else MarkKind.FILE
    return EntryMark(kind, status.inode, status.size_bytes, status.modified_ns)


def sight_of(status: FileStatus) -> str:
    """What a file's mark leaves out: when it was changed, in any way.

    Threat: a file that is rewritten in place with as many bytes, and gets its old
    modification time back, has the same mark. Nobody sets the change time (inode(7)).
    It holds until our own rename moves it (on ext4, XFS, Btrfs and tmpfs), so it is for the
    last look before that, and stands in no journal. Empty of a file with several names: an
    act of ours at another of them moves it too.
    """
    return "" if status.links > 1 else str(status.changed_ns)


def fits(dir_fd: int, name: str, mark: EntryMark, path: WorkspacePath, sight: str = "") -> bool:
    """Whether what stands under `name` is what was marked, unchanged.

    `sight`: also as it was seen then, where that is known. A FIFO, socket or device fits
    nothing that was marked, for none ever is.
    """
    status = status_at(dir_fd, name)
    if status is None or not (status.is_regular or status.is_directory or status.is_link):
        return False
    if not status.is_directory or mark.kind is not MarkKind.DIRECTORY:
        return mark_of(status) == mark and sight in ("", sight_of(status))
    if status.inode != mark.inode:
        return False
    held = held_in(dir_fd, name, path)
    return held.digest() == mark.held and sight in ("", held.sight())


def held_in(dir_fd: int, name: str, path: WorkspacePath) -> HeldTree:
    """All that a directory holds.

    Each directory in it is locked while it is read, so that a writer in there is either
    done, and seen, or comes after and finds that the directory is not where it was.

    Raises:
        PathError: a lock is not free in time.
        InvalidPathError: deeper than limits.path_depth_max.
        OSError: it cannot be read.
    """
    held = HeldTree()
    _walk(dir_fd, name, path, len(path.parts), held)
    return held


def _walk(dir_fd: int, name: str, path: WorkspacePath, below: int, held: HeldTree) -> None:
    with reading(dir_fd, name, path) as (fd, names):
        for child in names:
            at = child_of(path, child)
            status = status_at(fd, child)
            if status is None:
                raise changed(at)
            held.add(at, status, below)
            if status.is_directory:
                _walk(fd, child, at, below, held)


@contextlib.contextmanager
def reading(dir_fd: int, name: str, path: WorkspacePath) -> Generator[tuple[int, list[str]]]:
    if len(path.parts) > limits.path_depth_max:
        raise InvalidPathError(
            f"{quote(path.relative)} lies deeper than {limits.path_depth_max} directories",
            hint="use a path with fewer directories",
        )
    fd = os.open(name, _OPEN, dir_fd=dir_fd)
    try:
        lock_directory(fd, path, _LOCK_WAIT_S)
    except BaseException:
        os.close(fd)
        raise
    try:
        yield fd, sorted(os.listdir(fd))
    finally:
        unlock(fd)


def remove_any(disk: Disk, dir_fd: int, name: str) -> None:
    """Remove what stands under a temporary name, whatever it is and holds; nothing is fine.

    Raises:
        OSError: something cannot be removed.
    """
    status = status_at(dir_fd, name)
    if status is None:
        return
    if not status.is_directory:
        _insisting(dir_fd, lambda: disk.unlink(dir_fd, name))
        return
    fd = _open_to_empty(disk, dir_fd, name)
    try:
        for child in os.listdir(fd):
            remove_any(disk, fd, child)
    finally:
        os.close(fd)
    _insisting(dir_fd, lambda: disk.remove_directory(dir_fd, name))


def remove_held(disk: Disk, dir_fd: int, name: str, held: HeldTree) -> bool:
    """Remove a directory and what it was seen to hold; whether nothing else was in it.

    Threat: what somebody makes in there after it was looked at stands nowhere else.

    Raises:
        OSError: something cannot be removed.
    """
    return _remove_named(disk, dir_fd, name, held.names, "")


def _remove_named(disk: Disk, dir_fd: int, name: str, names: set[str], above: str) -> bool:
    fd = _open_to_empty(disk, dir_fd, name)
    is_empty = True
    try:
        for child in os.listdir(fd):
            relative = f"{above}{child}"
            status = status_at(fd, child)
            if relative not in names or status is None:
                is_empty = is_empty and status is None
            elif status.is_directory:
                is_empty = _remove_named(disk, fd, child, names, f"{relative}/") and is_empty
            else:
                remove_any(disk, fd, child)
    finally:
        os.close(fd)
    if not is_empty:
        return False
    try:
        _insisting(dir_fd, lambda: disk.remove_directory(dir_fd, name))
    except OSError as failure:
        if failure.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False  # it came after the listing
    return True


def _insisting(dir_fd: int, act: Callable[[], None]) -> None:
    """Do it, also in a directory of ours that the set has just made read-only."""
    try:
        act()
    except FileNotFoundError:
        return
    except PermissionError:
        mode = stat.S_IMODE(os.fstat(dir_fd).st_mode)
        os.fchmod(dir_fd, mode | stat.S_IRWXU)
        try:
            act()
        finally:
            os.fchmod(dir_fd, mode)


def _open_to_empty(disk: Disk, dir_fd: int, name: str) -> int:
    """A directory that is to be emptied, though its permissions may say no."""
    try:
        return os.open(name, _OPEN, dir_fd=dir_fd)
    except PermissionError:
        # Threat: a link that takes the name meanwhile. What was opened is what is changed.
        fd = os.open(name, PASS_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            disk.set_mode_held(fd, stat.S_IRWXU)
            return os.open(".", READ_DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)


def require_same(fd: int, status: FileStatus, path: WorkspacePath) -> None:
    """Refuse if what was opened is not what was looked at.

    Raises:
        FileChangedError: it is another, or was changed.
    """
    if status_of(fd) != status:
        raise changed(path)
