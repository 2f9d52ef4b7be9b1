"""A disk on which one chosen call fails, and that records its calls.

    disk = FaultyDisk()                                    # counts: `disk.calls` are their names
    disk = FaultyDisk(Fault(3, How.BEFORE, errno.ENOSPC))  # the fourth call fails
    disk = FaultyDisk(Fault(3, How.HALF, "kill"))          # the process dies by SIGKILL there

It replaces `paddock.storage.disk.Disk` and acts on real files; for one thread.
`Fault` selects the call, by its number or by its name, and how it fails: not
done, done nevertheless, or half done. After a `SimulatedCrash` every later call
raises too, as a dead process makes none; `bury` then closes its descriptors,
which releases their locks.
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
    """The process is dead. Error handlers must not catch it."""


class How(StrEnum):
    """The effect of the failing call."""

    BEFORE = "before"
    """None."""
    AFTER = "after"
    """The whole effect."""
    HALF = "half"
    """Half of the bytes of a write; other calls: none."""


class Fault(Struct, frozen=True):
    """A failing call.

    `call` is its number, from 0, or the name of the next one to fail. `error`
    is the errno, or "kill" for SIGKILL; None simulates a crash. With `is_silent`, a half-done
    write returns the number of bytes written instead of failing, as write(2) may.
    """

    call: int | str
    how: How = How.BEFORE
    error: int | Literal["kill"] | None = None
    is_silent: bool = False


class FaultyDisk(Disk):
    """A disk with real files and one fault. `calls` are the names of the calls so far."""

    def __init__(self, fault: Fault | None = None, *, boot: bytes | None = None) -> None:
        self.fault = fault
        self.calls: list[str] = []
        self.boot = boot
        """Replaces the machine's boot id, if set."""
        self.held: set[int] = set()
        """Open descriptors."""
        self._is_dead = False

    def bury(self) -> None:
        """Close every descriptor, as the kernel does for a dead process."""
        self._is_dead = True
        for descriptor in self.held:
            os.close(descriptor)
        self.held.clear()

    def close(self, fd: int) -> None:
        """Close a descriptor. Never fails: an open one would outlive the test."""
        if fd in self.held and not self._is_dead:
            self.held.remove(fd)
            os.close(fd)

    def make(
        self, name: str, call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        """Make a call, or fail it."""
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
                # For `write`, do the rest too: it loops over short writes.
                return written if place else written + call(fd, content[half:])
        elif fault.is_silent:
            return call(*given, **named)
        try:
            if fault.how is How.AFTER:
                done = call(*given, **named)
                if name in {"open_unnamed", "create"} and done is not None:
                    os.close(done)
        finally:
            # Also if the call raised because there was nothing to remove, as is common.
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
"""Not counted: they consist of other calls, or no caller relies on their effect."""

for _name, _call in {**vars(Disk), "open": _open}.items():
    if callable(_call) and not _name.startswith("_") and _name not in {"close", *_OF_OTHERS}:
        setattr(FaultyDisk, _name, _failing(_name, _call))
