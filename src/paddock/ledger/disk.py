"""The system calls that the store makes on its files, as a port.

`SystemDisk` is the operating system; `paddock.testing` has one that fails where
a test says. Everything else in this folder reaches files through it, so that
what happens at each failing call can be shown.

`Waiting` is how the store waits for a lock.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, LedgerFullError, PaddockError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""No space, no quota, or the process's own file size limit (setrlimit(2))."""


_seek: Final = os.lseek
_END: Final = os.SEEK_END


class LedgerDisk(Protocol):
    """What the store asks of the operating system. Raises OSError as the calls do."""

    def open(self, path: str, flags: int, mode: int = 0o600, /) -> int: ...

    def close(self, descriptor: int, /) -> None: ...

    def read(self, descriptor: int, size_bytes: int, offset: int, /) -> bytes:
        """As pread(2)."""
        ...

    def append(self, descriptor: int, data: bytes, /) -> int:
        """As write(2) on a descriptor that appends."""
        ...

    def write(self, descriptor: int, data: bytes, offset: int, /) -> int:
        """As pwrite(2)."""
        ...

    def truncate(self, descriptor: int, size_bytes: int, /) -> None:
        """As ftruncate(2)."""
        ...

    def datasync(self, descriptor: int, /) -> None:
        """As fdatasync(2)."""
        ...

    def sync(self, descriptor: int, /) -> None:
        """As fsync(2)."""
        ...

    def allocate(self, descriptor: int, offset: int, size_bytes: int, /) -> None:
        """As posix_fallocate(3)."""
        ...

    def lock(self, descriptor: int, operation: int, /) -> None:
        """As flock(2)."""
        ...

    def make_directory(self, path: str, mode: int, /) -> None:
        """As mkdir(2)."""
        ...

    def link(self, source: str, target: str, /) -> None:
        """Give a file a second name; never replaces one."""
        ...

    def rename(self, source: str, target: str, /) -> None:
        """Move a name, replacing the target."""
        ...

    def remove(self, path: str, /) -> None:
        """As unlink(2)."""
        ...

    def list(self, path: str, /) -> list[str]:
        """The names in a directory."""
        ...

    def stat(self, path: str | int, /) -> os.stat_result:
        """What a path or a descriptor leads to."""
        ...

    def size(self, descriptor: int, /) -> int: ...

    def boot(self) -> bytes:
        """Sixteen bytes that change when the machine starts anew; zeros where unknown.

        What the page cache holds is what was written, until then; afterwards a
        file is what the disk kept of it.
        """
        ...


class SystemDisk:
    """The operating system, its calls bound once: an append makes six of them."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    read = staticmethod(os.pread)
    append = staticmethod(os.write)
    write = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    datasync = staticmethod(os.fdatasync if hasattr(os, "fdatasync") else os.fsync)
    sync = staticmethod(os.fsync)
    allocate = staticmethod(os.posix_fallocate)
    lock = staticmethod(fcntl.flock)
    make_directory = staticmethod(os.mkdir)
    link = staticmethod(os.link)
    rename = staticmethod(os.rename)
    remove = staticmethod(os.unlink)
    list = staticmethod(os.listdir)
    stat = staticmethod(os.stat)

    def size(self, descriptor: int, /) -> int:
        """See `LedgerDisk.size`: lseek(2), a third of the price of fstat(2).

        The store appends (O_APPEND) and reads by position, so the descriptor's
        own position means nothing.
        """
        return _seek(descriptor, 0, _END)

    def boot(self) -> bytes:
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return bytes.fromhex(file.read(64).strip().replace("-", ""))[:16].ljust(16, b"\0")
        except (OSError, ValueError):
            return bytes(16)


def open_new(disk: LedgerDisk, path: str) -> int:
    """Open a file that is made now, to write; another one of that name is removed. Raises: OSError.

    Threat: a pipe that was put in a draft's place would hold up whoever opens it, and a link
    would be written through. What is left of a draft is nobody's.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return disk.open(path, flags, 0o600)
    except FileExistsError:
        disk.remove(path)
        return disk.open(path, flags, 0o600)


class Waiting(Struct, frozen=True):
    """How long to wait for others, and by which clock. Seconds."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    lock_timeout_s: float = limits.ledger_lock_timeout_s


def is_full(fault: OSError) -> bool:
    """Whether there is no space, rather than something wrong."""
    return fault.errno in _FULL


def failure(fault: OSError, what: str, path: str, hint: str = "") -> PaddockError:
    """The one place where an OSError of the ledger's disk becomes ours.

    `hint` is for what only a person can mend; a full disk has its own.
    """
    if is_full(fault):
        return LedgerFullError(
            f"no space for the ledger: {os.strerror(fault.errno or 0)}",
            hint="free some space",
        )
    reason = os.strerror(fault.errno) if fault.errno else str(fault)
    return HostError(f"{what}: {reason}", where=ascii(path), hint=hint)
