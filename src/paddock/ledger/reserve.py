"""Space kept for entries that must be recorded: a ballast file that can be let go.

Reserved bytes are allocated in a file without a name, in the ledger's own
folder. Where an append finds the disk full, the ballast gives back what its
caller had reserved and the append is tried once more. The kernel frees the file
with its last descriptor, so a crash leaves nothing behind.

It grows in steps and is kept, so that a reservation in a running program costs
no system call.
"""

import os
import threading
from typing import Final

from paddock.ledger.segments import failing
from paddock.storage.disk import Disk
from paddock.storage.locks import call_after_fork

_STEP_BYTES: Final = 65_536
_BLOCK_BYTES: Final = 4096


class Ballast:
    __slots__ = ("__weakref__", "_descriptor", "_directory", "_disk", "_lock", "_reserved", "_size")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self._descriptor = -1
        self._reserved = 0
        self._size = 0
        call_after_fork(self, Ballast._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def reserve(self, size_bytes: int) -> "HeldReservation":
        """Keep space for entries of so many bytes."""
        blocks = -(-size_bytes // _BLOCK_BYTES) + 1
        held = HeldReservation(self, size_bytes, blocks * _BLOCK_BYTES)
        with self._lock:
            wanted = self._reserved + held.allocated_bytes
            if wanted > self._size:
                self._grow(-(-wanted // _STEP_BYTES) * _STEP_BYTES)
            self._reserved = wanted
        return held

    def give_back(self, held: "HeldReservation", *, to_disk: bool) -> None:
        """End a reservation; `to_disk` frees its space for whoever appends next."""
        with self._lock:
            if not held.is_held:
                return
            held.is_held = False
            self._reserved -= held.allocated_bytes
            if to_disk:
                self._shrink(self._reserved)

    def close(self) -> None:
        """Free everything."""
        with self._lock:
            if self._descriptor >= 0:
                self._disk.close(self._descriptor)
            self._descriptor, self._size, self._reserved = -1, 0, 0

    def _grow(self, size: int) -> None:
        with failing("space cannot be reserved", self._directory):
            if self._descriptor < 0:
                self._descriptor = self._open()
            # posix_fallocate(3): the blocks are there, or ENOSPC now.
            self._disk.allocate(self._descriptor, size)
        self._size = size

    def _shrink(self, size: int) -> None:
        with failing("reserved space cannot be freed", self._directory):
            self._disk.ftruncate(self._descriptor, size)
        self._size = size

    def _open(self) -> int:
        path = os.path.join(self._directory, f"ballast.{os.getpid()}.{id(self):x}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = self._disk.open(path, flags, 0o600)
        self._disk.unlink(None, path)
        return descriptor


class HeldReservation:
    """One reservation."""

    __slots__ = ("_ballast", "allocated_bytes", "is_held", "size_bytes")

    def __init__(self, ballast: Ballast, size_bytes: int, allocated_bytes: int) -> None:
        self._ballast = ballast
        self.size_bytes = size_bytes
        self.allocated_bytes = allocated_bytes
        self.is_held = True

    def release(self) -> None:
        """Give the space back. A second call does nothing."""
        self._ballast.give_back(self, to_disk=False)

    def release_to_disk(self) -> bool:
        """Free the space for the append that needs it now; False if it was free already."""
        was_held = self.is_held
        self._ballast.give_back(self, to_disk=True)
        return was_held
