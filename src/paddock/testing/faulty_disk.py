"""A disk that fails at one call, in one way, and says what it was asked.

    disk = FaultyDisk()                                    # counts: `disk.calls` are their names
    disk = FaultyDisk(Fault(3, How.BEFORE, errno.ENOSPC))  # the fourth call fails
    disk = FaultyDisk(Fault(3, How.HALF, "kill"))          # the process dies by SIGKILL there

It stands where `paddock.storage.disk.Disk` stands and acts on real files; for one thread.
`Fault` names the call, by its number or as the next of its kind, and how it
fails: not done, done all the same, or done by half. A `SimulatedCrash` ends
every later call too, as a dead process makes none; `bury` then closes what it
had open, which frees its locks.
"""

import functools
import os
import signal
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Literal

from msgspec import Struct

from paddock.storage.disk import Disk


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
    is the errno, or "kill" for SIGKILL; None is a simulated crash. With `is_silent` a half-done
    write reports the bytes it wrote instead of failing, as write(2) may.
    """

    call: int | str
    how: How = How.BEFORE
    error: int | Literal["kill"] | None = None
    is_silent: bool = False


class FaultyDisk(Disk):
    """Real files, one fault. `calls` are the names of the calls so far."""

    def __init__(self, fault: Fault | None = None, *, boot: bytes | None = None) -> None:
        self.fault = fault
        self.calls: list[str] = []
        self.boot = boot
        """Since when the machine runs, if not what it says itself."""
        self.held: set[int] = set()
        """Descriptors that are open."""
        self._is_dead = False

    def bury(self) -> None:
        """Close every descriptor, as the kernel does for a dead process."""
        self._is_dead = True
        for descriptor in self.held:
            os.close(descriptor)
        self.held.clear()

    def close(self, fd: int) -> None:
        """Close a descriptor. Always done: one that is left open would outlive the test."""
        if fd in self.held and not self._is_dead:
            self.held.remove(fd)
            os.close(fd)

    def make(
        self, name: str, call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Do one call, or let it fail."""
        if self._is_dead:
            raise SimulatedCrash
        number = len(self.calls)
        self.calls.append(name)
        fault = self.fault
        if fault is None or fault.call not in {number, name}:
            return call(*given, **named)
        self.fault = None
        is_half = fault.how is How.HALF and name in {"write", "pwrite"}
        if is_half:
            fd, content, *place = given
            half = len(content) // 2
            written = call(fd, content[:half], *place)
            if fault.is_silent:
                # `write` goes on by itself with what is left.
                return written if place else written + call(fd, content[half:])
        elif fault.is_silent:
            return call(*given, **named)
        try:
            if fault.how is How.AFTER:
                done = call(*given, **named)
                if name in {"open_unnamed", "create"} and done is not None:
                    os.close(done)
        finally:
            # Also where nothing stood that was to be removed, which is how most names end.
            self._strike(fault)
        return None

    def _strike(self, fault: Fault) -> None:
        if fault.error == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error))
        self._is_dead = True
        raise SimulatedCrash


def _failing(name: str, call: Any) -> Callable[..., Any]:
    @functools.wraps(call)
    def made(disk: FaultyDisk, *given: Any, **named: Any) -> Any:
        return disk.make(name, call.__get__(disk), given, named)

    return made


def _open(disk: FaultyDisk, path: str, flags: int, mode: int = 0o600) -> int:
    descriptor = os.open(path, flags, mode)
    disk.held.add(descriptor)
    return descriptor


_OF_OTHERS: Final = "begin_sync move_new_by_link files_in open_directory sync_all take".split()
"""What they do are other calls, each counted, or nothing that anybody relies on."""

for _name, _call in {**vars(Disk), "open": _open}.items():
    if callable(_call) and not _name.startswith("_") and _name not in {"close", *_OF_OTHERS}:
        setattr(FaultyDisk, _name, _failing(_name, _call))
