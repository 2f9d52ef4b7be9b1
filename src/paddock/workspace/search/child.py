"""One run of ripgrep: started without a shell, read within limits, never left behind.

Rules kept here:
  * its working directory is a descriptor that the workspace opened, so that a directory
    swapped for a link cannot move it;
  * it has a process group of its own, and is killed and waited for however the block ends;
  * it is given until its time is over; nothing it prints can keep us longer;
  * what it says of failures is never shown: names and texts of places outside could stand
    in it. It is only counted, and names in it are looked up by ourselves.
"""

import fcntl
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, Self

from paddock import limits
from paddock.errors import HostError, InternalError
from paddock.workspace.search.program import ENVIRONMENT
from paddock.workspace.search.until import Until

_READ_BYTES: Final = 1 << 18
_ON_LINUX: Final = sys.platform.startswith("linux")
_SET_PIPE_SIZE: Final[int | None] = getattr(fcntl, "F_SETPIPE_SZ", None)


class Child:
    """A running ripgrep. A context manager: at its end the process is gone."""

    __slots__ = ("_err", "_out", "_process", "_until", "errors", "is_late")

    def __init__(self, command: list[str], directory_fd: int, until: Until) -> None:
        """Start it in that directory. Raises: HostError."""
        self._until = until
        self.errors = b""
        self.is_late = False
        try:
            # No preexec_fn: with one, Python forks the whole process instead of vfork(2).
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=_name_of(directory_fd),
                env=ENVIRONMENT,
                process_group=0,
                bufsize=0,
            )
        except OSError as failure:
            raise HostError(f"ripgrep could not be started: {failure.strerror}") from failure
        self._out, self._err = _pipes(self._process)
        self._limit()

    def _limit(self) -> None:
        """Bound what it may take; failing to do so stops nothing."""
        if not _ON_LINUX:
            return
        try:
            most = limits.search_memory_bytes_max
            # Threat: a file of many gigabytes without a line end is one line in memory.
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, (most, most))
        except (OSError, ValueError):
            return  # it is over already, or the host holds it to less

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Kill it if it runs, wait for it, and return its exit code; negative for a signal."""
        process = self._process
        code = process.poll()
        if code is None:
            try:
                # The group is its own, and it starts nothing: this is all of it.
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
            code = process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def finish(self) -> int:
        """Its exit code, once `output` has come to its end; then it is ending, or late."""
        if not self.is_late:
            # Not with a timeout, for which Python looks again and again, with sleeps between.
            self._process.wait()
        return self.stop()

    def output(self) -> Iterator[bytes]:
        poll = select.poll()
        for pipe in (self._out, self._err):
            poll.register(pipe, select.POLLIN)
        _widen(self._out)
        # Until both are closed, which ripgrep does by ending.
        still_open = {self._out, self._err}
        while still_open:
            ready = poll.poll(self._until.wait_ms)
            if self._until.is_over:
                self.is_late = True
                return
            for pipe, _ in ready:
                piece = os.read(pipe, _READ_BYTES)
                if not piece:
                    poll.unregister(pipe)
                    still_open.discard(pipe)
                elif pipe == self._out:
                    yield piece
                else:
                    room = limits.search_errors_bytes_max - len(self.errors)
                    self.errors += piece[: max(0, room)]


def require_enterable(directory_fd: int) -> None:
    """Make sure that a program can be started in a directory that was opened for listing.

    Of the program's own failure to go there it could not be told whose fault it is.

    Raises: PermissionError where this user may list it and not enter it.
    """
    os.stat(".", dir_fd=directory_fd)


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    out, err = process.stdout, process.stderr
    if out is None or err is None:
        raise InternalError("ripgrep was started without pipes")
    return out.fileno(), err.fileno()


def _widen(pipe: int) -> None:
    """Let ripgrep run ahead; a host that refuses leaves the pipe as it is."""
    if _SET_PIPE_SIZE is None:
        return
    try:
        fcntl.fcntl(pipe, _SET_PIPE_SIZE, limits.search_pipe_bytes)
    except OSError:
        return


def _name_of(directory_fd: int) -> str:
    """A name by which the child finds the directory of a descriptor that it inherits.

    The child changes its directory before Python closes what is not passed on.
    """
    folder = "/proc/self/fd" if _ON_LINUX else "/dev/fd"
    return f"{folder}/{directory_fd}"
