"""Find the closed names in a workspace without walking it each time.

An index of directories: their closed entries and subdirectories, with the identity and change
times from *before* they were read. A later lookup costs one fstatat for each directory; only a
changed one is read again. Any change of an entry changes the directory's ctime, which cannot be
set back; a replaced directory has another inode or device. Parents are checked first.

Limits:
  * a directory that changed shortly before it was read is read again the next time;
  * names that appear later: survey directly before a command starts, and again at its end;
  * a network file system may return old times.
Symlinks are never closed and never followed: the target's own name is judged instead.
"""

import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from paddock import limits
from paddock.errors import SandboxUnavailableError
from paddock.sandbox.plan import Closing, NameJudge
from paddock.storage.atomic import held_open
from paddock.workspace.workspace import READ_DIRECTORY, Resolution, detect_resolution

_PATH_BYTES_MAX: Final = limits.path_bytes_max - 1024
"""Leaves room for the path of the hiding layer, and for one more name."""
_SETTLED_NS: Final = 3_000_000_000
"""Longer than the coarsest time stamp of a file system (vfat: 2 s)."""

_Identity = tuple[int, int, int, int]


class KnownDirectory(Struct, frozen=True):
    identity: _Identity
    mode: int
    is_settled: bool
    closed: tuple[str, ...]
    below: tuple[str, ...]


class Survey(Struct, frozen=True):
    closed: tuple[str, ...]
    """The closed names, workspace-relative, sorted; none is below a sealed one."""
    directories: Mapping[str, KnownDirectory]
    """Every directory by its path, the root as `.`; none is below a sealed one."""


class NameIndex:
    def __init__(
        self,
        judge: NameJudge,
        resolution: Resolution | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.judge = judge
        self._resolution = resolution or detect_resolution()
        self._clock_ns = clock_ns
        self._known: Mapping[str, KnownDirectory] = {}
        self._lock = threading.Lock()

    def find(self, root_fd: int) -> tuple[str, ...]:
        return self.survey(root_fd).closed

    def survey(self, root_fd: int) -> Survey:
        """Return the closed names, and the directories that were searched.

        Raises: OSError, or SandboxUnavailableError over `limits.closed_directories_max` and
        `limits.closed_names_max`.
        """
        # Never changed after the loop: surveys share it.
        known: dict[str, KnownDirectory] = {}
        closed: list[str] = []
        waiting = ["."]
        with self._lock:
            while waiting:
                path = waiting.pop()
                directory = self._look(root_fd, path)
                if directory is None:
                    continue
                known[path] = directory
                closed += directory.closed
                waiting += directory.below
                if len(known) > limits.closed_directories_max:
                    raise _too_many("directories", limits.closed_directories_max)
                if len(closed) > limits.closed_names_max:
                    raise _too_many("names that commands may not touch", limits.closed_names_max)
            self._known = known
        return Survey(tuple(sorted(closed)), known)

    def _look(self, root_fd: int, path: str) -> KnownDirectory | None:
        known = self._known.get(path)
        if known is not None and known.is_settled:
            try:
                found = os.stat(path, dir_fd=root_fd, follow_symlinks=False)
            except OSError:
                return None
            if known.identity == _identity(found):
                return known
        return self._read(root_fd, path)

    def _read(self, root_fd: int, path: str) -> KnownDirectory | None:
        try:
            fd = self._resolution.open(root_fd, path, READ_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            if path == ".":
                raise
            return _closed(path)
        with held_open(fd):
            if path != "." and not _is_entered(fd):
                return _closed(path)
            return self._scan(fd, path)

    def _scan(self, fd: int, path: str) -> KnownDirectory:
        found = os.fstat(fd)
        read_at_ns = self._clock_ns()
        prefix = "" if path == "." else f"{path}/"
        closed: list[str] = []
        below: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                name = prefix + entry.name
                is_directory = entry.is_dir(follow_symlinks=False)
                if not is_directory and entry.is_symlink():
                    continue
                closing = self.judge.judge(name, is_directory)
                if closing is not Closing.OPEN:
                    closed.append(name)
                if is_directory and closing is not Closing.SEALED:
                    # A directory too deep to search is closed, as is an unreadable one.
                    is_long = len(os.fsencode(name)) > _PATH_BYTES_MAX
                    if is_long or name.count("/") >= limits.path_depth_max:
                        closed.append(name)
                    else:
                        below.append(name)
        changed_ns = max(found.st_mtime_ns, found.st_ctime_ns)
        return KnownDirectory(
            _identity(found),
            stat.S_IMODE(found.st_mode),
            is_settled=read_at_ns - changed_ns >= _SETTLED_NS,
            closed=tuple(closed),
            below=tuple(below),
        )


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _closed(path: str) -> KnownDirectory:
    """Threat: the command's user may be able to read it. An unknown directory is closed."""
    return KnownDirectory((0, 0, 0, 0), 0, is_settled=False, closed=(path,), below=())


def _is_entered(fd: int) -> bool:
    """Without search permission a command's changes could not be compared with the entries."""
    # path_resolution(7): "." below a descriptor needs search permission of its directory.
    try:
        os.stat(".", dir_fd=fd)
    except PermissionError:
        return False
    return True


def _too_many(what: str, limit: int) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f"the workspace has more than {limit} {what}",
        hint="give the agent a smaller workspace, or name whole directories in the policy",
    )


# The kernel stamps files from a coarse clock (ticks of 4 ms and more), so changes just before
# and just after a command's start can have the same time stamp. A moment separates them:
# earlier changes have an earlier stamp, later changes do not.
#
# Paddock stamps a private file twice. Changes before the first stamp have no later stamp;
# changes after the second have no earlier one. So the second is a moment as soon as it is
# later than the first: after the next tick, or immediately on a file system with fine stamps
# (Linux 6.13: ext4, xfs, btrfs, tmpfs), where a file whose stamp was read gets an exact one.
#
# That needs a private file on the workspace's file system. Otherwise Paddock waits for a tick
# of the coarse clock; on a file system with stamps of a second or two it then misses other
# processes' changes in the second of the start.

_CLOCK_REALTIME_COARSE: Final = 5
"""The clock that the kernel stamps files from (clock_gettime(2)); `time` has no name for it."""
_AGAIN_S: Final = 0.0005
_STAMPS_MAX: Final = 40
"""Twenty milliseconds: longer than any tick. With coarser stamps both are equal, and earlier
changes in the same second count as another process's: too much is refused."""
_CLOCK_SET_NS: Final = 1_000_000_000
"""A clock that is this far behind was set back: do not wait for it."""


class Moments:
    def __init__(self, directory: Path) -> None:
        """`directory` is private, best on the workspace's file system. Raises: OSError."""
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - held until `close`
        self._device = os.fstat(self._file.fileno()).st_dev

    def close(self) -> None:
        self._file.close()

    def now(self, workspace_fd: int) -> int:
        """Return a moment in ns; takes between microseconds and one tick."""
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
    """Wait until the coarse clock has passed `after_ns` (fine clock); return the coarse time."""
    now_ns = coarse_now_ns()
    while now_ns <= after_ns and after_ns - now_ns < _CLOCK_SET_NS:
        time.sleep((after_ns - now_ns) / 1e9 + _AGAIN_S)
        now_ns = coarse_now_ns()
    return now_ns
