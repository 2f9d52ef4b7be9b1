"""The head file of an open ledger, the locks of its writers, and the space they keep.

flock(2) excludes open file descriptions, not threads, so a thread lock stands before it.
It is released by the kernel when its holder dies; a holder that is stopped keeps it, which
is why waiting has an end and names the holder.

Reserved bytes are allocated in a ballast file without a name. Where an append finds the disk full,
the ballast gives back what its caller had reserved and the append is tried once more. It grows in
steps and is kept: a reservation in a running program costs no system call.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from paddock import limits
from paddock.errors import LedgerBusyError
from paddock.ledger.segments import failing, failure
from paddock.ledger.tail import HEAD_BYTES, HeadFile, wait_for_lock

if TYPE_CHECKING:
    from paddock.storage.disk import Disk

_UNWRITABLE: Final = (
    "what cannot be recorded is not done: check permissions and that the file system is writable"
)


_NEW_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Waiting(NamedTuple):
    lock_timeout_s: float = limits.ledger_lock_timeout_s
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def open_head(disk: "Disk", path: str) -> HeadFile:
    with failing("the ledger's head file cannot be opened", path):
        head = HeadFile(disk, disk.open(path, _NEW_FLAGS | os.O_NONBLOCK, 0o600))
    try:
        size = disk.stat(head.descriptor).st_size
        if size < HEAD_BYTES:
            # The whole page now, so that no later write needs a new block. What
            # is left of a file that was cut stays: it may show that the ledger was.
            disk.pwrite(head.descriptor, bytes(HEAD_BYTES - size), size)
            disk.sync(head.descriptor)
    except OSError as fault:
        disk.close(head.descriptor)
        raise failure(fault, "the ledger's head file cannot be made", path) from fault
    return head


class FileLock:
    """One lock file, opened by this object alone: its description is its identity."""

    __slots__ = ("_disk", "_threads", "_waiting", "descriptor", "path")

    def __init__(self, disk: "Disk", path: str, waiting: Waiting) -> None:
        self.path = path
        self._disk = disk
        self._waiting = waiting
        self._threads = threading.Lock()
        with failing("the ledger's lock file cannot be opened", path, _UNWRITABLE):
            self.descriptor = disk.open(path, _NEW_FLAGS, 0o600)

    def acquire(self) -> None:
        waiting = self._waiting
        if not self._threads.acquire(timeout=waiting.lock_timeout_s):
            raise _busy(os.getpid(), waiting.lock_timeout_s)
        try:
            with failing("the ledger cannot be locked", self.path):
                is_ours = wait_for_lock(self._disk.lock, self.descriptor, *waiting)
            if not is_ours:
                status = self._disk.stat(self.descriptor)
                holder = find_holder(read_proc("/proc/locks"), status.st_dev, status.st_ino)
                raise _busy(holder, waiting.lock_timeout_s)
        except BaseException:
            self._threads.release()
            raise

    def release(self, *_: object) -> None:
        """Give the lock up. An explicit unlock: a forked child may still share the description."""
        try:
            with failing("the ledger's lock cannot be released", self.path):
                self._disk.lock(self.descriptor, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    __enter__, __exit__ = acquire, release


def find_holder(locks: str, device: int, inode: int) -> int | None:
    """Who holds the flock on a file, by proc_locks(5); 0 in another pid namespace."""
    wanted = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    for line in locks.splitlines():
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted:
            return int(fields[4]) or None if fields[4].isdigit() else None
    return None


def read_proc(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _busy(holder: int | None, waited_s: float) -> LedgerBusyError:
    who = "an unknown process" if holder is None else f"process {holder}"
    return LedgerBusyError(
        f"the ledger is locked by {who}; waited {waited_s:g} s",
        hint="is it stopped? the lock is free as soon as it goes on or ends",
    )


_STEP_BYTES: Final = 65_536
_BLOCK_BYTES: Final = 4096


class Ballast:
    def __init__(self, disk: "Disk", directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.lock = threading.Lock()
        self._descriptor = -1
        self._reserved = self._size = 0

    def reserve(self, size_bytes: int) -> "HeldReservation":
        allocated = (-(-size_bytes // _BLOCK_BYTES) + 1) * _BLOCK_BYTES
        with self.lock:
            wanted = self._reserved + allocated
            if wanted > self._size:
                self._grow(-(-wanted // _STEP_BYTES) * _STEP_BYTES)
            self._reserved = wanted
        return HeldReservation(self, allocated)

    def give_back(self, held: "HeldReservation", *, to_disk: bool) -> bool:
        with self.lock:
            was_held, held.is_held = held.is_held, False
            if was_held:
                self._reserved -= held.allocated_bytes
                if to_disk:
                    with failing("reserved space cannot be freed", self._directory):
                        self._disk.ftruncate(self._descriptor, self._reserved)
                    self._size = self._reserved
        return was_held

    def close(self) -> None:
        with self.lock:
            if self._descriptor >= 0:
                self._disk.close(self._descriptor)
            self._descriptor, self._size, self._reserved = -1, 0, 0

    def _grow(self, size: int) -> None:
        with failing("space cannot be reserved", self._directory):
            if self._descriptor < 0:
                path = os.path.join(self._directory, f"ballast.{os.getpid()}.{id(self):x}")
                self._descriptor = self._disk.open(path, _NEW_FLAGS | os.O_EXCL, 0o600)
                self._disk.unlink(None, path)
            # posix_fallocate(3): the blocks are there, or ENOSPC now.
            self._disk.allocate(self._descriptor, size)
        self._size = size


class HeldReservation:
    __slots__ = ("_ballast", "allocated_bytes", "is_held")

    def __init__(self, ballast: Ballast, allocated_bytes: int) -> None:
        self._ballast = ballast
        self.allocated_bytes = allocated_bytes
        self.is_held = True

    def release(self) -> None:
        self._ballast.give_back(self, to_disk=False)

    def release_to_disk(self) -> bool:
        return self._ballast.give_back(self, to_disk=True)
