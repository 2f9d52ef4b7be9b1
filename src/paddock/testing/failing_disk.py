"""A disk of which one chosen step fails, in one of three ways.

    disk = FailingDisk()                          # counts: `disk.steps` names what was done
    disk = FailingDisk(Fault(3, errno.ENOSPC))    # the fourth step fails
    disk = FailingDisk(Death(3))                  # the process dies by SIGKILL there

The steps are the calls of `paddock.workspace.disk.Disk`, in the order in which they
happen; everything else goes to the real disk.
"""

import os
import signal
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from paddock.workspace.disk import Disk


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


@dataclass(slots=True)
class Fault:
    """The step with this index (from 0) fails with an errno."""

    step: int
    code: int
    moment: Moment = Moment.BEFORE

    def strike(self) -> None:
        raise OSError(self.code, os.strerror(self.code))


@dataclass(slots=True)
class Death:
    """At the step with this index (from 0) the process is killed."""

    step: int
    moment: Moment = Moment.BEFORE

    def strike(self) -> None:
        """Die, without any clean-up."""
        os.kill(os.getpid(), signal.SIGKILL)


class FailingDisk(Disk):
    """Counts the steps and lets the chosen one go wrong. For one thread."""

    __slots__ = ("_trouble", "steps")

    def __init__(self, trouble: Trouble | None = None) -> None:
        self._trouble = trouble
        self.steps: list[str] = []

    def _begin(self, name: str) -> Trouble | None:
        """Count a step; the trouble that awaits it, struck already if it comes before."""
        trouble = self._trouble
        mine = trouble if trouble is not None and trouble.step == len(self.steps) else None
        self.steps.append(name)
        if mine is not None and mine.moment is not Moment.AFTER and name != "write":
            mine.strike()
        return mine

    @staticmethod
    def _end(trouble: Trouble | None) -> None:
        if trouble is not None:
            trouble.strike()

    def open_unnamed(self, dir_fd: int, mode: int) -> int | None:
        trouble = self._begin("open_unnamed")
        fd = super().open_unnamed(dir_fd, mode)
        if trouble is not None and fd is not None:
            os.close(fd)
        self._end(trouble)
        return fd

    def create(self, dir_fd: int, name: str, mode: int) -> int:
        trouble = self._begin("create")
        fd = super().create(dir_fd, name, mode)
        if trouble is not None:
            os.close(fd)
        self._end(trouble)
        return fd

    def write(self, fd: int, content: bytes | memoryview) -> None:
        trouble = self._begin("write")
        if trouble is not None and trouble.moment is not Moment.AFTER:
            if trouble.moment is Moment.HALFWAY:
                super().write(fd, content[: len(content) // 2])
            trouble.strike()
        super().write(fd, content)
        self._end(trouble)

    def sync(self, fd: int) -> None:
        trouble = self._begin("sync")
        super().sync(fd)
        self._end(trouble)

    def sync_file_system(self, fd: int) -> None:
        trouble = self._begin("sync_file_system")
        super().sync_file_system(fd)
        self._end(trouble)

    def link_unnamed(self, fd: int, dir_fd: int, name: str) -> None:
        trouble = self._begin("link_unnamed")
        super().link_unnamed(fd, dir_fd, name)
        self._end(trouble)

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        trouble = self._begin("move_new")
        super().move_new(from_fd, name, to_fd, to)
        self._end(trouble)

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        trouble = self._begin("exchange")
        done = super().exchange(dir_fd, name, other)
        self._end(trouble)
        return done

    def move_directory(self, dir_fd: int, name: str, to: str) -> None:
        trouble = self._begin("move_directory")
        super().move_directory(dir_fd, name, to)
        self._end(trouble)

    def replace(self, dir_fd: int, name: str, over: str) -> None:
        trouble = self._begin("replace")
        super().replace(dir_fd, name, over)
        self._end(trouble)

    def unlink(self, dir_fd: int, name: str) -> None:
        trouble = self._begin("unlink")
        try:
            super().unlink(dir_fd, name)
        finally:
            # Also where nothing stood there, which is how most temporary names end.
            self._end(trouble)

    def make_directory(self, dir_fd: int, name: str) -> None:
        trouble = self._begin("make_directory")
        super().make_directory(dir_fd, name)
        self._end(trouble)

    def remove_directory(self, dir_fd: int, name: str) -> None:
        trouble = self._begin("remove_directory")
        super().remove_directory(dir_fd, name)
        self._end(trouble)

    def make_link(self, dir_fd: int, name: str, text: str) -> None:
        trouble = self._begin("make_link")
        super().make_link(dir_fd, name, text)
        self._end(trouble)

    def set_owner(self, fd: int, uid: int, gid: int) -> None:
        trouble = self._begin("set_owner")
        super().set_owner(fd, uid, gid)
        self._end(trouble)

    def set_mode(self, fd: int, mode: int) -> None:
        trouble = self._begin("set_mode")
        super().set_mode(fd, mode)
        self._end(trouble)

    def set_attribute(self, fd: int, name: str, value: bytes) -> None:
        trouble = self._begin("set_attribute")
        super().set_attribute(fd, name, value)
        self._end(trouble)

    def remove_attribute(self, fd: int, name: str) -> None:
        trouble = self._begin("remove_attribute")
        super().remove_attribute(fd, name)
        self._end(trouble)

    def set_mode_held(self, fd: int, mode: int) -> None:
        trouble = self._begin("set_mode_held")
        super().set_mode_held(fd, mode)
        self._end(trouble)

    def set_modified(self, fd: int, modified_ns: int) -> None:
        trouble = self._begin("set_modified")
        super().set_modified(fd, modified_ns)
        self._end(trouble)
