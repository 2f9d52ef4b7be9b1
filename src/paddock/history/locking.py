"""Who may change the store when: many put at once, one prunes alone.

flock(2) on the store's own directory. A put shares it until whatever names the content
is on disk, so that pruning cannot take it away in between. Each lock opens the directory
anew, for flock belongs to the open file; threads of one process share one and count.
"""

import fcntl
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager

from paddock.history.disk import DIRECTORY, converting, wait_for_lock


class StoreLock:
    """The lock of one open store."""

    __slots__ = ("_count", "_dir_fd", "_fd", "_mutex")

    def __init__(self, dir_fd: int) -> None:
        self._dir_fd = dir_fd
        self._mutex = threading.Lock()
        self._count = 0
        self._fd = -1

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
                self._fd = self._open(fcntl.LOCK_SH)
            self._count += 1

    def release(self) -> None:
        """Give one share back."""
        with self._mutex:
            self._count -= 1
            if self._count == 0:
                fd, self._fd = self._fd, -1
                _unlock(fd)

    @contextmanager
    def alone(self) -> Generator[bool]:
        """The lock for ourselves if it is free right now: whether it was."""
        with self._mutex:
            fd = -1 if self._count else self._try_alone()
            try:
                yield fd >= 0
            finally:
                if fd >= 0:
                    _unlock(fd)

    def _open(self, operation: int) -> int:
        with converting("lock the history"):
            fd = os.open(".", DIRECTORY, dir_fd=self._dir_fd)
        try:
            wait_for_lock(fd, operation)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _try_alone(self) -> int:
        with converting("lock the history"):
            fd = os.open(".", DIRECTORY, dir_fd=self._dir_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        return fd


def _unlock(fd: int) -> None:
    # Before closing: a child forked meanwhile holds a copy and would keep the lock.
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)
