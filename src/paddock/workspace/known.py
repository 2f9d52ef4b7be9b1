"""What was found out about large files before: their version and where their lines are.

Reading on in a large file would otherwise hash and count all of it for each window. A
file is told again by device, inode, size and both its times. Within one tick of the
clock it could be rewritten without a trace in them, so nothing is remembered of a file
that changed shortly before it was read.

A stale answer can only come from writes that leave no trace in the times at once (a
memory mapping that is not synced). It then shows the bytes that stand there, perhaps
from a wrong line on, and a version that no write accepts.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from paddock.workspace.metadata import FileStatus
from paddock.workspace.window import LineIndex

WORTH_REMEMBERING_BYTES: Final = 1_048_576
_FILES_MAX: Final = 16
_SETTLED_NS: Final = 1_000_000_000
"""Far longer than the coarsest clock tick of a file system that has ticks (10 ms)."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """Of one file at one moment."""

    version: str | None
    lines: LineIndex | None


NOTHING_KNOWN: Final = KnownFile(None, None)


def wall_clock_ns() -> int:
    return time.time_ns()


class KnownFiles:
    """The last files, for one workspace. Each call is atomic under the interpreter's lock.

    `now_ns` is the clock that readings are told in.
    """

    __slots__ = ("_files", "now_ns")

    def __init__(self, now_ns: Callable[[], int] = wall_clock_ns) -> None:
        self.now_ns = now_ns
        self._files: OrderedDict[FileStatus, KnownFile] = OrderedDict()

    def find(self, status: FileStatus) -> KnownFile:
        return self._files.get(status, NOTHING_KNOWN)

    def keep(self, status: FileStatus, found: KnownFile, read_at_ns: int) -> None:
        """Remember what a reading found that began at `read_at_ns` of the wall clock."""
        changed_ns = max(status.modified_ns, status.changed_ns)
        if status.size_bytes < WORTH_REMEMBERING_BYTES or read_at_ns - changed_ns < _SETTLED_NS:
            return
        before = self.find(status)
        self._files[status] = KnownFile(
            found.version or before.version, found.lines or before.lines
        )
        while len(self._files) > _FILES_MAX:
            self._files.popitem(last=False)
