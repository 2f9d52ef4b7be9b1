"""Since when a change counts as somebody else's: a moment, in the stamps of the file system.

The kernel stamps a file from a clock that ticks (4 ms and more), so what happened just
before a command and what happens just after its start can bear the same stamp. A moment
divides them: what was done before bears an earlier stamp, and nothing done after does.

A file of our own is stamped twice. All that was done before the first time bears a stamp
that is no later than the first; all that is done after the second time bears none that is
earlier than the second. So the second is a moment as soon as it is later than the first:
after the next tick, or at once where the file system has fine stamps (Linux 6.13: ext4,
xfs, btrfs, tmpfs), for there a file whose stamp was looked at gets an exact one.

That needs our file on the workspace's own file system. Elsewhere the clock that ticks is
waited for; a file system with stamps of a second or two then misses changes of others
that fall into the second of the start.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import IO, Final

_CLOCK_REALTIME_COARSE: Final = 5
"""clock_gettime(2), which `time` has no name for: the kernel stamps files from it."""
_AGAIN_S: Final = 0.0005
_STAMPS_MAX: Final = 40
"""Twenty milliseconds: longer than any tick. With stamps coarser than that both are the same,
and what was done in the same second before counts as somebody else's: too much is refused."""
_CLOCK_SET_NS: Final = 1_000_000_000
"""A clock that is so far behind was set back: it is not waited for."""


class Moments:
    """Finds the moment for each command; holds one file, without a name. Safe for threads."""

    __slots__ = ("_device", "_file")

    def __init__(self, directory: Path) -> None:
        """`directory` is ours, best on the workspace's file system. Raises: OSError."""
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - held until `close`
        self._device = os.fstat(self._file.fileno()).st_dev

    def close(self) -> None:
        self._file.close()

    def now(self, workspace_fd: int) -> int:
        """A moment, in ns. Takes some microseconds, at most a tick."""
        if os.fstat(workspace_fd).st_dev != self._device:
            return wait_for_a_tick(time.time_ns())
        first_ns = self._stamp()
        for attempt in range(_STAMPS_MAX):
            moment_ns = self._stamp()
            if moment_ns > first_ns:
                return moment_ns
            if attempt:
                time.sleep(_AGAIN_S)
        return first_ns

    def _stamp(self) -> int:
        fd = self._file.fileno()
        os.fchmod(fd, 0o600)
        return os.fstat(fd).st_ctime_ns


def coarse_now_ns() -> int:
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def wait_for_a_tick(after_ns: int) -> int:
    """Wait until nothing that happened before `after_ns` can bear a stamp from now on.

    `after_ns` is of the fine clock. Returns the coarse time: the start of what follows.
    """
    now_ns = coarse_now_ns()
    while now_ns <= after_ns and after_ns - now_ns < _CLOCK_SET_NS:
        time.sleep((after_ns - now_ns) / 1e9 + _AGAIN_S)
        now_ns = coarse_now_ns()
    return now_ns
