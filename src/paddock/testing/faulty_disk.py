"""A ledger's disk that fails at one call, in one way, and says what it was asked.

It stands where `paddock.ledger.disk.SystemDisk` stands and acts on real files.
`Fault` names the call, by its number or as the next of its kind, and how it
fails: not done, done all the same, or done by half. A `SimulatedCrash` ends
every later call too, as a dead process makes none; `bury` then closes what it
had open, which frees its locks.
"""

import os
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from paddock.ledger.disk import SystemDisk

_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The process is dead. No handler for errors may catch it."""


class How(StrEnum):
    """What has happened when the call fails."""

    BEFORE = "before"
    """Nothing."""
    AFTER = "after"
    """All of it."""
    HALF = "half"
    """Half of the bytes of a write; as BEFORE for other calls."""


class Fault(Struct, frozen=True):
    """Which call fails, and how.

    `call` is its number, from 0, or the name of the next one to fail. `error`
    is the errno; None is a crash. With `is_silent` a half-done write reports the
    bytes it wrote instead of failing, as write(2) may.
    """

    call: int | str
    how: How
    error: int | None = None
    is_silent: bool = False


class FaultyDisk:
    """Real files, one fault. `calls` are the names of the calls so far."""

    def __init__(self, fault: Fault | None = None, *, boot: bytes | None = None) -> None:
        self._disk = SystemDisk()
        self._boot = boot
        self._open: set[int] = set()
        self._is_dead = False
        self.fault = fault
        self.calls: list[str] = []

    def bury(self) -> None:
        """Close every descriptor, as the kernel does for a dead process."""
        self._is_dead = True
        for descriptor in self._open:
            self._disk.close(descriptor)
        self._open.clear()

    def open(self, path: str, flags: int, mode: int = 0o600, /) -> int:
        return self._call("open", lambda: self._open_and_note(path, flags, mode))

    def close(self, descriptor: int, /) -> None:
        """Close a descriptor. Always done: one that is left open would outlive the test."""
        if descriptor in self._open and not self._is_dead:
            self._open.remove(descriptor)
            self._disk.close(descriptor)

    def read(self, descriptor: int, size_bytes: int, offset: int, /) -> bytes:
        """As pread(2)."""
        return self._call("read", lambda: self._disk.read(descriptor, size_bytes, offset))

    def append(self, descriptor: int, data: bytes, /) -> int:
        """As write(2) on a descriptor that appends."""
        half = data[: len(data) // 2]
        return self._call(
            "append",
            lambda: self._disk.append(descriptor, data),
            lambda: self._disk.append(descriptor, half),
        )

    def write(self, descriptor: int, data: bytes, offset: int, /) -> int:
        """As pwrite(2)."""
        half = data[: len(data) // 2]
        return self._call(
            "write",
            lambda: self._disk.write(descriptor, data, offset),
            lambda: self._disk.write(descriptor, half, offset),
        )

    def truncate(self, descriptor: int, size_bytes: int, /) -> None:
        """As ftruncate(2)."""
        self._call("truncate", lambda: self._disk.truncate(descriptor, size_bytes))

    def datasync(self, descriptor: int, /) -> None:
        """As fdatasync(2)."""
        self._call("datasync", lambda: self._disk.datasync(descriptor))

    def sync(self, descriptor: int, /) -> None:
        """As fsync(2)."""
        self._call("sync", lambda: self._disk.sync(descriptor))

    def allocate(self, descriptor: int, offset: int, size_bytes: int, /) -> None:
        """As posix_fallocate(3)."""
        self._call("allocate", lambda: self._disk.allocate(descriptor, offset, size_bytes))

    def lock(self, descriptor: int, operation: int, /) -> None:
        """As flock(2)."""
        self._call("lock", lambda: self._disk.lock(descriptor, operation))

    def make_directory(self, path: str, mode: int, /) -> None:
        """As mkdir(2)."""
        self._call("make_directory", lambda: self._disk.make_directory(path, mode))

    def link(self, source: str, target: str, /) -> None:
        """Give a file a second name; never replaces one."""
        self._call("link", lambda: self._disk.link(source, target))

    def rename(self, source: str, target: str, /) -> None:
        """Move a name, replacing the target."""
        self._call("rename", lambda: self._disk.rename(source, target))

    def remove(self, path: str, /) -> None:
        """As unlink(2)."""
        self._call("remove", lambda: self._disk.remove(path))

    def list(self, path: str, /) -> list[str]:
        """The names in a directory."""
        return self._call("list", lambda: self._disk.list(path))

    def stat(self, path: str | int, /) -> os.stat_result:
        """What a path or a descriptor leads to."""
        return self._call("stat", lambda: self._disk.stat(path))

    def size(self, descriptor: int, /) -> int:
        return self._call("size", lambda: self._disk.size(descriptor))

    def boot(self) -> bytes:
        """The machine's, unless another was given."""
        return self._disk.boot() if self._boot is None else self._boot

    def _open_and_note(self, path: str, flags: int, mode: int) -> int:
        descriptor = self._disk.open(path, flags, mode)
        self._open.add(descriptor)
        return descriptor

    def _call(self, name: str, whole: Callable[[], _T], half: Callable[[], _T] | None = None) -> _T:
        if self._is_dead:
            raise SimulatedCrash
        number = len(self.calls)
        self.calls.append(name)
        fault = self.fault
        if fault is None or fault.call not in {number, name}:
            return whole()
        self.fault = None
        if fault.how is How.AFTER:
            whole()
        elif fault.how is How.HALF and half is not None:
            written = half()
            if fault.is_silent:
                return written
        elif fault.is_silent:
            return whole()
        if fault.error is None:
            self._is_dead = True
            raise SimulatedCrash
        raise OSError(fault.error, os.strerror(fault.error))
