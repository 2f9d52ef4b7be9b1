"""A lock between processes and threads, waited for no longer than a bound.

flock(2) excludes open file descriptions, not threads, so a thread lock stands
before it. It is released by the kernel when its holder dies; a holder that is
stopped keeps it, which is why waiting has an end and names the holder.
"""

import errno
import fcntl
import os
import threading
from typing import Final

from paddock.errors import LedgerBusyError
from paddock.ledger.disk import Disk, Waiting, failure
from paddock.ledger.yielding import Yielding

_TRIES_AT_ONCE: Final = 20
"""Longer than the lock is held: a holder that runs on another processor is done by then, and
whoever waits like this has all it needs at hand."""
_TRIES_MAX: Final = 16
"""The holder may be waiting for this processor: a sleep takes longer than a few turns of others."""
_SLEEP_MIN_S: Final = 20e-6
_SLEEP_MAX_S: Final = 2e-3
_TAKE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_GIVE: Final = fcntl.LOCK_UN
_HELD: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_UNWRITABLE: Final = (
    "what cannot be recorded is not done: check permissions and that the file system is writable"
)


class FileLock:
    """One lock file, opened by this object alone: its description is its identity."""

    __slots__ = ("_disk", "_flock", "_threads", "_waiting", "_yielding", "descriptor", "path")

    def __init__(self, disk: Disk, path: str, waiting: Waiting) -> None:
        self.path = path
        self._disk = disk
        self._flock = disk.lock
        self._waiting = waiting
        self._yielding = Yielding(waiting.monotonic)
        self._threads = threading.Lock()
        try:
            self.descriptor = disk.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as fault:
            raise failure(
                fault, "the ledger's lock file cannot be opened", path, _UNWRITABLE
            ) from fault

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LedgerBusyError: not within `Waiting.lock_timeout_s`; the message has
                the holder's process id where the system tells it.
            HostError: the file system does not lock.
        """
        # Positional: a keyword costs as much again as taking a free lock.
        if not self._threads.acquire(False) and not self._threads.acquire(
            timeout=self._waiting.lock_timeout_s
        ):
            raise _busy(os.getpid(), self._waiting.lock_timeout_s)
        try:
            self._flock(self.descriptor, _TAKE)
        except OSError as fault:
            self._wait_after(fault)
        except BaseException:
            self._threads.release()
            raise

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            taken = self._try_file()
        except BaseException:
            self._threads.release()
            raise
        if not taken:
            self._threads.release()
        return taken

    def release(self) -> None:
        """Give the lock up. An explicit unlock: a forked child may still share the description."""
        try:
            self._flock(self.descriptor, _GIVE)
        except OSError as fault:
            raise failure(fault, "the ledger's lock cannot be released", self.path) from fault
        finally:
            self._threads.release()

    def holder(self) -> int | None:
        """The process that holds the lock file, where the system tells it."""
        status = self._disk.stat(self.descriptor)
        return find_holder(_read_locks(), status.st_dev, status.st_ino)

    def busy(self, waited_s: float) -> LedgerBusyError:
        """What to raise when whoever holds this lock did not let go."""
        return _busy(self.holder(), waited_s)

    def _try_file(self) -> bool:
        try:
            self._flock(self.descriptor, _TAKE)
        except OSError as fault:
            if fault.errno in _HELD:
                return False
            raise failure(fault, "the ledger cannot be locked", self.path) from fault
        return True

    def _wait_after(self, fault: OSError) -> None:
        """Go on where the file lock was not free at once; the thread lock is held."""
        try:
            if fault.errno not in _HELD:
                raise failure(fault, "the ledger cannot be locked", self.path) from fault
            self._wait_for_file()
        except BaseException:
            self._threads.release()
            raise

    def _wait_for_file(self) -> None:
        for _ in range(_TRIES_AT_ONCE):
            if self._try_file():
                return
        for _ in self._yielding.tries(_TRIES_MAX):
            if self._try_file():
                return
        waiting = self._waiting
        deadline = waiting.monotonic() + waiting.lock_timeout_s
        pause = _SLEEP_MIN_S
        while waiting.monotonic() < deadline:
            waiting.sleep(pause)
            if self._try_file():
                return
            pause = min(pause * 1.5, _SLEEP_MAX_S)
        raise self.busy(waiting.lock_timeout_s)


def find_holder(locks: str, device: int, inode: int) -> int | None:
    """Return who holds the flock on a file, by the text of proc_locks(5).

    A waiting process has `->` in its line; a holder in another pid namespace
    is shown as 0.
    """
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4]) or None if fields[4].isdigit() else None
    return None


def _read_locks() -> str:
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _busy(holder: int | None, waited_s: float) -> LedgerBusyError:
    who = "an unknown process" if holder is None else f"process {holder}"
    return LedgerBusyError(
        f"the ledger is locked by {who}; waited {waited_s:g} s",
        hint="is it stopped? the lock is free as soon as it goes on or ends",
    )
