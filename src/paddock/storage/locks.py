"""Lock files between processes with flock(2), and reset state in forked children.

The kernel releases a dead holder's locks. Every wait is bounded: a holder may be stopped.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from paddock import limits
from paddock.errors import HostError
from paddock.storage.atomic import host_errors
from paddock.text.show import quote

if TYPE_CHECKING:
    from paddock.storage.disk import Disk

T = TypeVar("T")
SHARED: Final = LOCK_SH

Identity = tuple[int, int]


def identity_of(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def leads_to(dir_fd: int | None, name: str | Path, fd: int) -> bool:
    try:
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == identity_of(fd)


def try_lock(fd: int, kind: int = LOCK_EX) -> bool:
    try:
        flock(fd, kind | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(fd: int, kind: int, wait_s: float | None = None) -> bool:
    deadline_s = time.monotonic() + (limits.path_lock_timeout_s if wait_s is None else wait_s)
    pause_s = 0.0005
    while not try_lock(fd, kind):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.02)
    return True


def open_locked(dir_fd: int | None, name: str | Path, flags: int) -> int | None:
    """Open and lock a file or directory; None if another process locks it, or it is gone."""
    try:
        fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
    except FileNotFoundError:
        if flags & os.O_CREAT:
            raise
        return None
    is_ours = False
    try:
        # Check again under the lock: the previous holder may have removed it.
        is_ours = try_lock(fd) and leads_to(dir_fd, name, fd)
    finally:
        if not is_ours:
            os.close(fd)
    return fd if is_ours else None


def unlock(fd: int) -> None:
    # Unlock before closing: a child forked meanwhile has a copy that would keep the lock.
    try:
        flock(fd, LOCK_UN)
    finally:
        os.close(fd)


class ClaimedFile:
    # A process that can lock it knows that its owner is dead, and takes it over.
    def __init__(self, disk: "Disk", dir_fd: int, name: str, fd: int) -> None:
        self.disk, self._dir_fd, self.name, self.fd = disk, dir_fd, name, fd
        self.end_bytes = self.size_bytes = 0  # of the lines; NULs follow, up to the size

    @classmethod
    def make(cls, disk: "Disk", dir_fd: int, suffix: str) -> Self:
        name = os.urandom(16).hex() + suffix
        made = cls(disk, dir_fd, name, disk.create(dir_fd, name))
        # Between the two calls another process may have taken it for a dead owner's.
        if not try_lock(made.fd) or not leads_to(dir_fd, name, made.fd):
            made.release()
            return cls.make(disk, dir_fd, suffix)
        try:
            disk.sync(dir_fd)
        except BaseException:
            made.remove()
            raise
        return made

    def append(self, lines: bytes, room: int, sync: Callable[[int], None] | None) -> None:
        """Overwrite the NULs; add `room` new ones if they run out. It can be retried."""
        end_bytes = self.end_bytes + len(lines)
        nuls = bytes(room) if end_bytes > self.size_bytes else b""
        os.lseek(self.fd, self.end_bytes, os.SEEK_SET)
        self.disk.write(self.fd, lines + nuls)
        if sync is not None:
            sync(self.fd)
        self.end_bytes = end_bytes
        self.size_bytes = max(self.size_bytes, end_bytes + len(nuls))

    def cut(self, size_bytes: int) -> None:
        os.ftruncate(self.fd, size_bytes)
        self.end_bytes = self.size_bytes = size_bytes

    def release(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            unlock(fd)

    def remove(self) -> None:
        self.disk.unlink(self._dir_fd, self.name)
        self.release()


@contextmanager
def locked(directory: Path, kind: int = LOCK_EX) -> Generator[None]:
    with try_locked(directory, kind, limits.path_lock_timeout_s) as is_ours:
        if not is_ours:
            wait = f"{limits.path_lock_timeout_s:g} s"
            said = f"{quote(str(directory))} was locked by another process for {wait}"
            hint = "end the other paddock process, then try again"
            raise HostError(said, where=str(directory), hint=hint)
        yield


@contextmanager
def try_locked(directory: Path, kind: int = LOCK_EX, wait_s: float = 0.0) -> Generator[bool]:
    with host_errors("locking", directory):
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with host_errors("locking", directory):
            is_ours = wait_for_lock(fd, kind, wait_s)
        yield is_ours
    finally:
        unlock(fd)


_resets: Final[weakref.WeakKeyDictionary[Any, Callable[[Any], None]]] = weakref.WeakKeyDictionary()


def call_after_fork(target: T, reset: Callable[[T], None]) -> None:
    """Call `reset(target)` in every child that is forked while `target` is alive."""
    # Only the forking thread runs in the child: other threads' mutexes would stay locked there.
    _resets[target] = reset


class Late(Generic[T]):
    # A value created at its first use, by any thread.
    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        self.renew()
        call_after_fork(self, Late[T].renew)

    def renew(self) -> None:
        self._mutex = threading.Lock()

    def get(self) -> T:
        with self._mutex:
            if self.made is None:
                self.made = self._make()
            return self.made


def _in_child() -> None:
    for target, reset in list(_resets.items()):
        reset(target)


os.register_at_fork(after_in_child=_in_child)
