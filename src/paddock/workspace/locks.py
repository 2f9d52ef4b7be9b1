"""Locks on directories of a workspace: two calls on one path come one after the other.

flock(2) on a descriptor of the parent directory itself: no lock file, so two planes on
one tree, or a thread and another process, exclude each other without knowing of each
other. Each lock opens the directory anew, because flock belongs to the open file and a
shared descriptor would let every thread in.

Rules kept here:
  * the wait is bounded by limits.path_lock_timeout_s, and does not spin;
  * once locked, the name must still lead to the locked directory, else it is opened
    again: a lock on a directory that was moved away protects nothing;
  * several locks are taken in the order of (device, inode), so that two moves never
    wait for each other;
  * a lock is given up by LOCK_UN before the descriptor is closed: a child forked
    meanwhile holds a copy of it, and would keep the lock for as long as it lives.
"""

import fcntl
import os
import resource
from typing import Final

from paddock import limits
from paddock.errors import FileChangedError, PathError, StorageFullError
from paddock.storage.locks import Identity, identity_of, unlock, wait_for_lock
from paddock.text.show import quote
from paddock.workspace.names import WorkspacePath
from paddock.workspace.resolution import PASS_DIRECTORY, READ_DIRECTORY, Resolution

_REOPENS_MAX: Final = 64
_CHECKED_FROM: Final = 64
"""So few directories are not worth the look."""
_SPARE: Final = 64
"""Descriptors for the work in the directories: drafts, walks, the store, the journal."""
_USED_AT_MOST: Final = 128
"""Where the system does not tell what is open."""


def lock_directory(fd: int, path: WorkspacePath, wait_s: float) -> None:
    """Wait for the exclusive lock, at most `wait_s`.

    Raises:
        PathError: the time is over.
    """
    if not wait_for_lock(fd, fcntl.LOCK_EX, wait_s):
        raise PathError(
            f"directory {quote(path.relative)} is locked by another write, for over {wait_s:g} s",
            hint="try again",
        )


def _require_descriptors(wanted: int) -> None:
    """Refuse what would leave no descriptor for the work itself: before anything changes.

    A lock lasts as long as its descriptor, so none of them can be closed and opened again.

    Raises:
        StorageFullError: this process may not open so many files at once.
    """
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
    """Descriptors of directories, held and locked, in the order they were asked for.

    A directory named twice is locked once and its descriptor shared.
    """

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
        """Open and lock all of them; `release` gives them up again.

        Raises:
            PathError: a lock is not free in time.
            StorageFullError: this process may not open so many.
            FileChangedError: a directory is replaced faster than it can be locked.
            OSError: one of them cannot be opened.
        """
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
        except OSError:
            return False  # opened again, and then it says what is wrong
        try:
            return identity_of(fd) == identity
        finally:
            os.close(fd)

    def release(self) -> None:
        """Give all of them up; a second time does nothing."""
        while self._fds:
            unlock(self._fds.popitem()[1])
