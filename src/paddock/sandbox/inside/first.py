"""The first process of a pid namespace: starts the command, reaps, watches, ends it all.

Signals from within reach it only where it asked for them, and with it the kernel kills everything
in the namespace: the end of the command is the end of all that it started.
"""

from __future__ import annotations

import _socket
import os
import select
import time

from paddock.sandbox.inside import serving
from paddock.sandbox.inside.orders import ENDED_IN, EXITED, NOT_STARTED, CommandReport, Start
from paddock.sandbox.inside.serving import (
    DEFAULT_SIGNALS,
    KILL_SIGNAL,
    count_unreached,
    environment_of,
    find_program,
    receive_order,
    send_report,
    watch,
)

_END_WAIT_S = 5.0
"""For killed processes to be gone; one that hangs in the kernel is reported."""

_YIELD_S = 0.001
_WHERE_BYTES_MAX = 2048
"""Of a report, which has to fit into one message."""


class First:
    def __init__(
        self, control: _socket.socket, life: int, memory_limit_kb: int, *, has_own_network: bool
    ) -> None:
        self._has_own_network = has_own_network
        self._control = control
        self._life = life
        self._memory_limit_kb = memory_limit_kb
        self._main = -1
        self._status = 0

    def serve(self) -> None:
        """Run the command and report; return when nobody needs the sandbox any more.

        The namespaces stay until the stage is closed: the end of one delays the next.
        """
        order = self._receive()
        if order is not None:
            self._serve(*order)
            self._wait()

    def _serve(self, start: Start, streams: list[int]) -> None:
        try:
            self._main = _spawn(start, *streams)
        except OSError as error:
            where = os.fsencode(error.filename or start.argv[0])
            self._report(CommandReport(NOT_STARTED, code=error.errno or 0, where=where))
            return
        finally:
            for fd in streams:
                os.close(fd)
        deadline_s = time.monotonic() + start.timeout_ms / 1000
        callers = (self._control.fileno(), self._life)
        ending, memory_kb = watch(self._main, callers, deadline_s, self, self._memory_limit_kb)
        survivors = self._end_all()
        where = _ended_in() if ending == EXITED else b""
        unreached = 0
        if self._has_own_network and (ending != EXITED or self._status):
            unreached = count_unreached()
        self._report(
            CommandReport(
                ending,
                status=self._status,
                survivors=survivors,
                memory_kb=memory_kb,
                where=where,
                unreached=unreached,
            )
        )

    def _receive(self) -> tuple[Start, list[int]] | None:
        return None if self._wait() else receive_order(self._control)

    def _wait(self) -> bool:
        waiting = select.poll()
        waiting.register(self._control.fileno(), select.POLLIN)
        waiting.register(self._life, select.POLLIN)
        return any(fd == self._life for fd, _ in waiting.poll())

    def used_kb(self) -> int:
        return serving.used_kb(self._memory_limit_kb)

    def reap(self) -> bool:
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
        if not self.reap():
            return 0
        left = [process for process in serving.find_processes() if serving.is_alive(process)]
        survivors = sum(process != b"%d" % self._main for process in left)
        # -1: every process of the namespace but us, at one stroke; a fork that runs at the
        # same time sees the signal and does not happen.
        try:
            os.kill(-1, KILL_SIGNAL)
        except ProcessLookupError:
            survivors = 0
        began = time.monotonic()
        while self.reap() and time.monotonic() < began + _END_WAIT_S:
            # They need the processor more than we do; few need more than a millisecond of it.
            if time.monotonic() < began + _YIELD_S:
                os.sched_yield()
            else:
                time.sleep(_YIELD_S)
        return survivors

    def _report(self, report: CommandReport) -> None:
        send_report(self._control.fileno(), report)


def _ended_in() -> bytes:
    """Return where the command's shell ended: its word and no more.

    Threat: it is a pipe that nobody writes to, a link, or without an end.
    """
    try:
        fd = os.open(ENDED_IN, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        said = os.read(fd, _WHERE_BYTES_MAX + 1)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return said if len(said) <= _WHERE_BYTES_MAX else b""


def _spawn(start: Start, stdin: int, stdout: int, stderr: int) -> int:
    """Start it, a session of its own. Raises: OSError with the name that failed.

    posix_spawn(3) borrows our memory until exec instead of copying its tables.
    """
    environment = environment_of(start)
    os.chdir(start.directory)
    program = find_program(start.argv[0], environment)
    return os.posix_spawn(
        program,
        start.argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_DUP2, stdin, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=DEFAULT_SIGNALS,
    )
