"""Who may change the store when: many put at once, one prunes alone."""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from paddock import limits
from paddock.errors import HostError
from paddock.storage.disk import DIRECTORY, converting
from paddock.storage.locks import call_after_fork, try_lock, unlock, wait_for_lock


class StoreLock:
    """flock(2) on the store's directory, which a put shares until its content has a name.

    flock belongs to the open file, so a process has one of its own for this, which its
    threads share and count; a forked child opens another.
    """

    __slots__ = ("__weakref__", "_count", "_dir_fd", "_fd", "_mutex")

    def __init__(self, dir_fd: int) -> None:
        self._dir_fd = dir_fd
        self._mutex = threading.Lock()
        self._count = 0
        self._fd = -1
        call_after_fork(self, StoreLock._after_fork)

    def _after_fork(self) -> None:
        # The parent keeps its lock, with all the shares in it.
        self._mutex = threading.Lock()
        fd, self._fd, self._count = self._fd, -1, 0
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        with self._mutex:
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                unlock(fd)

    @contextmanager
    def shared(self) -> Generator[None]:
        """While it lasts nothing is pruned. May be taken again inside itself."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        """Share the lock until `release`. Raises: HostError, not in time."""
        with self._mutex:
            if self._count == 0:
                self._open()
                with converting("lock the history"):
                    wait_for_store(self._fd, fcntl.LOCK_SH)
            self._count += 1

    def release(self) -> None:
        """Give one share back."""
        with self._mutex:
            # None is left where a child was forked while it had this one.
            self._count = max(0, self._count - 1)
            if self._count == 0:
                self._unlock()

    @contextmanager
    def alone(self) -> Generator[bool]:
        """The lock for ourselves if it is free right now: whether it was."""
        with self._mutex:
            is_alone = not self._count and self._try_alone()
            try:
                yield is_alone
            finally:
                if is_alone:
                    self._unlock()

    def _open(self) -> None:
        if self._fd < 0:
            with converting("lock the history"):
                self._fd = os.open(".", DIRECTORY, dir_fd=self._dir_fd)

    def _try_alone(self) -> bool:
        self._open()
        return try_lock(self._fd)

    def _unlock(self) -> None:
        if self._fd >= 0:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def wait_for_store(fd: int, kind: int) -> None:
    """Take a lock of the store. Raises: HostError, not in time."""
    if not wait_for_lock(fd, kind):
        raise HostError(
            f"the history is locked by another process, for over {limits.path_lock_timeout_s:g} s",
            hint="try again",
        )
