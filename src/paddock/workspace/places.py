"""Places in a workspace that are about to change: their locks, temporary names and drafts.

Two calls on one path come one after the other, and no temporary outlives a killed process.
"""

import errno
import fcntl
import os
import resource
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import FileChangedError, PaddockError, PathError, StorageFullError
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk
from paddock.storage.locks import Identity, identity_of, unlock, wait_for_lock
from paddock.text.show import quote
from paddock.workspace.metadata import FileStatus, status_at, status_of
from paddock.workspace.paths import (
    OF_SET,
    ROOT,
    TEMPORARY_PREFIX,
    WorkspacePath,
    is_temporary_name,
    unchecked_path,
)
from paddock.workspace.read import Pieces
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY, Resolution
from paddock.workspace.workspace import Workspace

# flock(2) on a descriptor of the parent directory itself: no lock file, so two planes on
# one tree, or a thread and another process, exclude each other without knowing of each
# other. Each lock opens the directory anew, because flock belongs to the open file and a
# shared descriptor would let every thread in.
#
# Rules kept here:
#   * the wait is bounded by limits.path_lock_timeout_s, and does not spin;
#   * once locked, the name must still lead to the locked directory, else it is opened
#     again: a lock on a directory that was moved away protects nothing;
#   * several locks are taken in the order of (device, inode), so that two moves never
#     wait for each other;
#   * a lock is given up by LOCK_UN before the descriptor is closed: a child forked
#     meanwhile holds a copy of it, and would keep the lock for as long as it lives.

_REOPENS_MAX: Final = 64
_CHECKED_FROM: Final = 64
_SPARE: Final = 64
"""Descriptors for the work in the directories: drafts, walks, the store, the journal."""
_USED_AT_MOST: Final = 128
"""Where the system does not tell what is open."""


def lock_directory(fd: int, path: WorkspacePath, wait_s: float) -> None:
    if not wait_for_lock(fd, fcntl.LOCK_EX, wait_s):
        raise PathError(
            f"directory {quote(path.relative)} is locked by another write, for over {wait_s:g} s",
            hint="try again",
        )


def _require_descriptors(wanted: int) -> None:
    """Refuse what would leave no descriptor for the work: a lock lasts as long as its own."""
    if wanted <= _CHECKED_FROM:
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = _USED_AT_MOST
    room = max(0, most - used - _SPARE)
    if wanted > room:
        raise StorageFullError(
            f"{wanted} directories are changed at once, and this process may open {room} more",
            hint="nothing was changed; change less at once, or raise the limit of open files "
            "(ulimit -n)",
        )


class LockedDirectories:
    """Descriptors of directories, held and locked, in the order they were asked for."""

    __slots__ = ("_fds", "_paths", "_resolution", "_root_fd", "_wait_s")

    def __init__(
        self,
        root_fd: int,
        resolution: Resolution,
        *paths: WorkspacePath,
        wait_s: float = limits.path_lock_timeout_s,
    ) -> None:
        self._wait_s = wait_s
        self._root_fd = root_fd
        self._resolution = resolution
        self._paths = paths
        self._fds: dict[Identity, int] = {}

    def __enter__(self) -> tuple[int, ...]:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def acquire(self) -> tuple[int, ...]:
        _require_descriptors(len(self._paths))
        for _ in range(_REOPENS_MAX):
            found = self._lock_all()
            if all(map(self._still_there, self._paths, found)):
                return tuple(self._fds[identity] for identity in found)
            self.release()
        raise FileChangedError(
            f"directory {quote(self._paths[0].relative)} keeps being replaced",
            hint="try again when nobody else changes it",
        )

    def _lock_all(self) -> list[Identity]:
        found: list[Identity] = []
        try:
            for path in self._paths:
                fd = self._resolution.open(self._root_fd, path.relative, READ_DIRECTORY)
                identity = identity_of(fd)
                found.append(identity)
                if identity in self._fds:
                    os.close(fd)
                else:
                    self._fds[identity] = fd
            for identity in sorted(self._fds):
                lock_directory(self._fds[identity], self._paths[0], self._wait_s)
        except BaseException:
            self.release()
            raise
        return found

    def _still_there(self, path: WorkspacePath, identity: Identity) -> bool:
        try:
            fd = self._resolution.open(self._root_fd, path.relative, PASS_DIRECTORY)
            with held_open(fd):
                return identity_of(fd) == identity
        except OSError:
            return False  # opened again, and then it says what is wrong

    def release(self) -> None:
        while self._fds:
            unlock(self._fds.popitem()[1])


# A new file needs no temporary name where the file system has O_TMPFILE: it is written
# without a name and linked to its place. Replacing a file does need one, for no call links
# over an existing name; so does deleting, which moves the entry aside to see that it is
# the one that was judged. Such a name stands in the directory of the file, because only
# there inherited group, default ACL and file system are right.
#
# A process can be killed while the name stands. Finding it again must not cost a walk of
# the tree, so the intention is recorded first where the next open looks: a symbolic link
# in the root, named like the temporary, whose text is the directory. One call makes such a
# record whole and one removes it; there is no journal that could tear, and no place
# outside the workspace is needed. `sweep` then reads one directory, the root. A name in
# the root itself needs no record.
#
#     lock directory → record → name the temporary → exchange or move → unlink → drop record
#
# Names and records live only while the lock of the temporary's directory is held. So
# whoever holds that lock and saw the record before knows that its writer is dead.
#
# A set of changes has names of its own, which the sweep leaves alone: they may hold what
# its journal still needs, so the journal's recovery is what removes them.
#
# What stays: where the root directory itself may not be written there is no record, and a
# temporary of a killed process remains there, hidden from every tool.

_NAMED: Final = ".tmp"
_RECORD: Final = ".at"
_UNWRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP})
_SWEEP_WAIT_S: Final = 2.0
"""Longer than a write holds a lock; an open does not wait for a stuck writer."""


def _is_swept(name: str) -> bool:
    # Threat: what stands under a set's name may be the only copy of an old version.
    return is_temporary_name(name) and not name.lower().endswith(OF_SET)


@contextmanager
def temporary_name(workspace: Workspace, directory: WorkspacePath, dir_fd: int) -> Generator[str]:
    """A name in a locked directory, recorded for as long as anything may stand there.

    Whatever stands there at the end is removed.
    """
    disk, root_fd = workspace.disk, workspace.root_fd
    # Threat: a name that can be guessed is a file that can be planted. 128 random bits.
    token = TEMPORARY_PREFIX + os.urandom(16).hex()
    name, record, is_recorded = token + _NAMED, token + _RECORD, False
    if not directory.is_root:
        try:
            disk.make_link(root_fd, record, directory.relative)
            is_recorded = True
        except OSError as failure:
            if failure.errno not in _UNWRITABLE:
                _removed(disk, root_fd, record)
                raise
    try:
        yield name
    finally:
        # Before the lock is given up. If the name cannot be removed the record stays, and
        # the next open tries again; the write itself is over and keeps its outcome.
        if _removed(disk, dir_fd, name) and is_recorded:
            _removed(disk, root_fd, record)


def _removed(disk: Disk, dir_fd: int, name: str) -> bool:
    try:
        disk.unlink(dir_fd, name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep(workspace: Workspace, names: Iterable[str]) -> None:
    """Remove what killed processes left under `names` of ours in the root, and what they tell of.

    Waits for no stuck writer, and leaves what this user may not remove.
    """
    disk, root_fd = workspace.disk, workspace.root_fd
    for name in sorted(filter(_is_swept, names)):
        is_record = name.endswith(_RECORD)
        directory = _recorded(root_fd, name) if is_record else ROOT
        temporary = name.removesuffix(_RECORD) + _NAMED if is_record else name
        locked = LockedDirectories(root_fd, workspace.resolution, directory, wait_s=_SWEEP_WAIT_S)
        try:
            with locked as (fd,):
                is_gone = _removed(disk, fd, temporary)
        except (PermissionError, PaddockError):
            continue  # not ours to remove, or its writer lives: the record stays
        except OSError:
            # The directory is gone or became a link, and its temporary cannot be found again.
            is_gone = True
        if is_record and is_gone:
            _removed(disk, root_fd, name)


def _recorded(root_fd: int, name: str) -> WorkspacePath:
    try:
        text = os.readlink(name, dir_fd=root_fd)
    except OSError:
        return ROOT
    # Threat: anyone who may write the root can plant a record. It is opened like any other
    # path, without links and beneath the root, and removes nothing but a name of ours.
    parts = text.split("/")
    return ROOT if not all(parts) or ".." in parts else unchecked_path(text)


def lock(workspace: Workspace, *directories: WorkspacePath) -> LockedDirectories:
    return LockedDirectories(workspace.root_fd, workspace.resolution, *directories)


class LockedPlace(Struct, frozen=True):
    """A name in a directory that is locked."""

    workspace: Workspace
    path: WorkspacePath
    dir_fd: int

    @property
    def name(self) -> str:
        return self.path.name

    def status(self) -> FileStatus | None:
        return status_at(self.dir_fd, self.name)

    def temporary(self) -> AbstractContextManager[str]:
        return temporary_name(self.workspace, self.path.parent, self.dir_fd)


class Draft(Struct, frozen=True):
    """New content that nobody sees yet; `name` where the file system lacks O_TMPFILE."""

    place: LockedPlace
    fd: int
    name: str | None

    def fill(self, pieces: Pieces) -> None:
        disk = self.place.workspace.disk
        for piece in pieces:
            disk.write(self.fd, piece)
        disk.begin_sync(self.fd)  # while what it replaces is kept

    def appear(self) -> None:
        disk, dir_fd = self.place.workspace.disk, self.place.dir_fd
        disk.sync(self.fd)
        # link(2) never replaces, so a file that appeared meanwhile is not lost.
        if self.name is None:
            disk.link_open(self.fd, dir_fd, self.place.name)
        else:
            disk.move_new(dir_fd, self.name, dir_fd, self.place.name)

    def vanish(self) -> None:
        # Also if placing it failed: a file system across a network may have done it.
        now = self.place.status()
        if now is not None and now.is_same_entry(status_of(self.fd)):
            self.place.workspace.disk.unlink(self.place.dir_fd, self.place.name)


@contextmanager
def open_draft(place: LockedPlace, mode: int) -> Generator[Draft]:
    """Leaving the context without placing it leaves nothing."""
    disk = place.workspace.disk
    fd = disk.open_unnamed(place.dir_fd, mode)
    if fd is not None:
        with held_open(fd):
            yield Draft(place, fd, None)
        return
    with place.temporary() as name, held_open(disk.create(place.dir_fd, name, mode)) as fd:
        yield Draft(place, fd, name)
