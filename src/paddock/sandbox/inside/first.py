"""The first process of a pid namespace: starts the command, reaps, watches, ends it all.

It is ours, confined like the command but for being the first: signals from within
reach it only where it asked for them, and when it ends, the kernel kills everything
in the namespace. So the end of the command is the end of every process that it
started, whatever they did to get away.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import struct
import time

from paddock.sandbox.inside import memory
from paddock.sandbox.inside.orders import (
    CANCELLED,
    EXITED,
    MEMORY,
    NOT_STARTED,
    TIMED_OUT,
    Report,
    Start,
)

_TICK_S = 0.05
"""Between two looks at the memory, and at orphans to reap."""
_TICK_SHARE = 20
"""A look takes at most one part in so many of the time."""
_END_WAIT_S = 5.0
"""For killed processes to be gone; one that hangs in the kernel is reported."""

_YIELD_S = 0.001
_KILL_SIGNAL = 9
_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ: Python ignores them, and an ignored signal stays so through exec.
Numbers, the same on every machine we know: the module `signal` loads `enum`."""


class First:
    """The loop around one command. `control` leads to who asked; `life` ends with the launcher."""

    def __init__(self, control: _socket.socket, life: int, memory_limit_kb: int) -> None:
        self._control = control
        self._life = life
        self._memory_limit_kb = memory_limit_kb
        self._memory_kb = 0
        self._main = -1
        self._status = 0

    def serve(self) -> None:
        """Wait for the command, run it, report; return when nobody needs the sandbox any more.

        When the report is sent, nothing of the command is left. The namespaces stay until
        the stage is closed: the end of one network namespace delays the beginning of
        another, and the next sandbox is in the making now.
        """
        order = self._receive()
        if order is not None:
            self._serve(*order)
            self._wait()

    def _serve(self, start: Start, outputs: list[int]) -> None:
        try:
            self._main = _spawn(start, *outputs)
        except OSError as error:
            where = os.fsencode(error.filename or start.argv[0])
            self._report(Report(NOT_STARTED, code=error.errno or 0, where=where))
            return
        finally:
            for fd in outputs:
                os.close(fd)
        ending = self._watch(time.monotonic() + start.timeout_ms / 1000)
        survivors = self._end_all()
        self._report(
            Report(
                ending,
                status=self._status,
                survivors=survivors,
                memory_kb=self._memory_kb,
            )
        )

    def _receive(self) -> tuple[Start, list[int]] | None:
        """The command and its two outputs; None when nobody wants it any more."""
        if self._wait():
            return None
        content, extra, _, _ = self._control.recvmsg(
            16, _socket.CMSG_SPACE(3 * 4), _socket.MSG_CMSG_CLOEXEC
        )
        if not content:
            return None
        ((_, _, data),) = extra
        order_fd, *outputs = struct.unpack("3i", data)
        try:
            return Start.decode(os.pread(order_fd, os.fstat(order_fd).st_size, 0)), outputs
        finally:
            os.close(order_fd)

    def _wait(self) -> bool:
        """Until the other side says something or closes. True when the launcher has ended."""
        waiting = select.poll()
        waiting.register(self._control.fileno(), select.POLLIN)
        waiting.register(self._life, select.POLLIN)
        return any(fd == self._life for fd, _ in waiting.poll())

    def _watch(self, deadline: float) -> bytes:
        """Until the command ends, its time is up, its memory too large, or nobody waits."""
        waiting = select.poll()
        main_fd = os.pidfd_open(self._main)
        for fd in (main_fd, self._control.fileno(), self._life):
            waiting.register(fd, select.POLLIN)
        pause = _TICK_S
        while True:
            left = deadline - time.monotonic()
            ready = [fd for fd, _ in waiting.poll(max(0, int(min(left, pause) * 1000) + 1))]
            if main_fd in ready:
                return EXITED
            if ready:
                return CANCELLED
            if time.monotonic() >= deadline:
                return TIMED_OUT
            began = time.monotonic()
            self._reap()
            used = memory.used_kb(self._memory_limit_kb)
            self._memory_kb = max(self._memory_kb, used)
            if used > self._memory_limit_kb:
                return MEMORY
            pause = max(_TICK_S, _TICK_SHARE * (time.monotonic() - began))

    def _reap(self) -> bool:
        """Take in who has ended. False when there is no child at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._status = status

    def _end_all(self) -> int:
        """Kill what is left and wait until it is gone. How many there were besides the command."""
        if not self._reap():
            return 0
        left = [process for process in memory.find_processes() if memory.is_alive(process)]
        survivors = sum(process != b"%d" % self._main for process in left)
        # -1: every process of the namespace but us, at one stroke; a fork that runs at the
        # same time sees the signal and does not happen.
        try:
            os.kill(-1, _KILL_SIGNAL)
        except ProcessLookupError:
            survivors = 0
        began = time.monotonic()
        while self._reap() and time.monotonic() < began + _END_WAIT_S:
            # They need the processor more than we do; few need more than a millisecond of it.
            if time.monotonic() < began + _YIELD_S:
                os.sched_yield()
            else:
                time.sleep(_YIELD_S)
        return survivors

    def _report(self, report: Report) -> None:
        try:
            self._control.send(report.encode())
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                raise


def _spawn(start: Start, stdout: int, stderr: int) -> int:
    """Start the command: an empty input, two outputs, a session of its own.

    posix_spawn(3) borrows our memory until exec instead of copying its tables.
    Raises: OSError with the name that failed.
    """
    environment: dict[bytes, bytes] = {}
    for entry in start.environment:
        name, _, value = entry.partition(b"=")
        environment[name] = value
    os.chdir(start.directory)
    program = _find_program(start.argv[0], environment.get(b"PATH", b""))
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            program,
            start.argv,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
    finally:
        os.close(nothing)


def _find_program(name: bytes, path: bytes) -> bytes:
    """As execvp(3) looks for it, with the command's PATH and not ours."""
    if b"/" in name:
        return name
    for directory in path.split(b":"):
        candidate = directory + b"/" + name
        if directory and os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
