"""A disk of which one chosen step fails, in one of three ways.

    disk = FailingDisk()                          # counts: `disk.steps` names what was done
    disk = FailingDisk(Fault(3, errno.ENOSPC))    # the fourth step fails
    disk = FailingDisk(Death(3))                  # the process dies by SIGKILL there

The steps are the calls of `paddock.storage.disk.Disk`, in the order in which they
happen; everything else goes to the real disk.
"""

import functools
import os
import signal
from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from msgspec import Struct

from paddock.storage.disk import Disk


class Moment(Enum):
    """When, in relation to the step itself."""

    BEFORE = "before"
    """The step is refused: nothing of it happens."""
    AFTER = "after"
    """The step happens, and is reported as failed all the same."""
    HALFWAY = "halfway"
    """A write writes half of its bytes; any other step is as BEFORE."""


class Trouble(Protocol):
    step: int
    moment: Moment

    def strike(self) -> None:
        """Do it: raise, or never return."""
        ...


class StepFault(Struct):
    """The step with this index (from 0) fails with an errno."""

    step: int
    code: int
    moment: Moment = Moment.BEFORE

    def strike(self) -> None:
        raise OSError(self.code, os.strerror(self.code))


class Death(Struct):
    """At the step with this index (from 0) the process is killed."""

    step: int
    moment: Moment = Moment.BEFORE

    def strike(self) -> None:
        """Die, without any clean-up."""
        os.kill(os.getpid(), signal.SIGKILL)


class FailingDisk(Disk):
    """Counts the steps and lets the chosen one go wrong. For one thread."""

    __slots__ = ("steps", "trouble")

    def __init__(self, trouble: Trouble | None = None) -> None:
        self.trouble = trouble
        self.steps: list[str] = []


def _counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def step(disk: FailingDisk, *arguments: Any, **named: Any) -> Any:
        trouble, number = disk.trouble, len(disk.steps)
        disk.steps.append(name)
        if trouble is None or trouble.step != number:
            return call(disk, *arguments, **named)
        if trouble.moment is not Moment.AFTER:
            if trouble.moment is Moment.HALFWAY and name == "write":
                fd, content = arguments
                call(disk, fd, content[: len(content) // 2])
            trouble.strike()
        try:
            done = call(disk, *arguments, **named)
            if name in {"open_unnamed", "create"} and done is not None:
                os.close(done)
        finally:
            # Also where nothing stood that was to be removed, which is how most names end.
            trouble.strike()
        return done

    return step


_OF_OTHERS = frozenset({"move_new_by_link", "sync_all", "take"})
"""What they do are other calls, each a step."""

for _name, _call in vars(Disk).items():
    if callable(_call) and not _name.startswith("_") and _name not in _OF_OTHERS:
        setattr(FailingDisk, _name, _counted(_name, _call))
