"""Run one command from start to end: send its order to the sandbox, collect output and report."""

import contextlib
import fcntl
import os
import select
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from paddock.errors import HostError
from paddock.sandbox.inside import protocol
from paddock.sandbox.inside.protocol import CommandReport, Start
from paddock.sandbox.staging_area import cache_variables
from paddock.sandbox.streams import Capture, Spool
from paddock.sandbox.values import (
    CommandEnd,
    CommandRequest,
    ConfinementError,
    Ending,
    OnOutput,
    Progress,
)
from paddock.storage.atomic import held_open, host_error
from paddock.values.calls import NEVER, Cancel

if TYPE_CHECKING:
    from paddock.network.decisions import NetworkTerms, Witness
    from paddock.network.wall import Wall

HOME: Final = "/run/home"
"""HOME in a sandbox: holds only git's configuration, removed afterwards."""
TEMPORARY: Final = "/tmp"  # noqa: S108 - private to the sandbox, removed afterwards

_TERMINAL_KIND: Final = "xterm-256color"
"""The value of TERM: a terminal type that every terminfo database has."""
_REPORT_BYTES_MAX: Final = 4096
_LEFT_BYTES_MAX: Final = 1_048_576
_WRITE_BYTES: Final = 1_048_576
_PROGRESS_S: Final = 1.0
_LATE_S: Final = 15.0
"""Grace period after the timeout, which the sandbox's first process enforces itself."""
_DRAIN_S: Final = 2.0
_STOP_WAIT_S: Final = 10.0


class Observed(Struct, frozen=True):
    spools: tuple[Spool | None, Spool | None] = (None, None)
    """Spools of stdout and of stderr."""
    progress: Progress | None = None
    cancel: Cancel = NEVER
    on_output: OnOutput | None = None
    network: "NetworkTerms | None" = None
    """Only for a plan whose network is `policy`."""
    witness: "Witness | None" = None
    """Only for a command in a session, whose network terms are shared by all its commands."""
    on_begun: Callable[[], None] | None = None
    """Called when the command was sent into its sandbox."""
    on_terminal: Callable[[int], None] | None = None
    """Called with our end of the command's terminal; the conversation keeps and closes it."""


UNOBSERVED: Final = Observed()


def start_inside(
    program: str, arguments: list[str], fds: tuple[int, ...], errors: int
) -> subprocess.Popen[bytes]:
    """Raises: HostError."""
    # Isolated and without site: no user code and nothing slow is loaded. Never preexec_fn:
    # it forks this whole process and may deadlock in a threaded one.
    path = Path(__file__).with_name("inside") / f"{program}.py"
    with host_error(f"cannot start the sandbox's {program}", sys.executable):
        return subprocess.Popen(
            [sys.executable, "-I", "-S", path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            pass_fds=fds,
            cwd="/",
            env={},
            start_new_session=True,
        )


def await_end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process whose socket was closed: it exits once its commands are gone."""
    try:
        process.wait(_STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def receive_served(control: socket.socket, count: int) -> list[int]:
    """Wait until a sandbox has created its network, and return the descriptors.

    See `inside.confine.open_network`. Raises: SandboxUnavailableError, HostError.
    """
    with host_error("cannot receive from a sandbox"):
        message, fds, _, _ = socket.recv_fds(
            control, _REPORT_BYTES_MAX, count, socket.MSG_CMSG_CLOEXEC
        )
    if message == protocol.SERVED and len(fds) == count:
        return fds
    for fd in fds:
        os.close(fd)
    if not message:
        raise HostError("a sandbox ended without a report")
    report = CommandReport.decode(message)
    raise ConfinementError(os.fsdecode(report.where), report.code)


class CommandConversation:
    def __init__(
        self,
        control: socket.socket,
        request: CommandRequest,
        observed: Observed,
        user: tuple[int, int] | None = None,
        network: "Wall | None" = None,
    ) -> None:
        """`user`: the command's uid and gid on the host. Raises: ValueError for a NUL, OSError."""
        order = _start(request).encode()
        self._control = control
        self._timeout_s = request.timeout_s
        self._began = time.monotonic()
        self._report: CommandReport | None = None
        self._left = b""
        self._events = select.poll()
        self._waiting: set[int] = set()
        self._paused_s = 0.0
        self._observed = observed
        self._network = network
        self._granted_s = 0.0 if network is None else network.decisions.granted_s
        most = request.output_bytes_max
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as sent:
            out, error = (_pipe(undo, sent, user) for _ in range(2))
            self._stdout = Capture(out[0], most, observed.spools[0])
            self._stderr = Capture(error[0], most, observed.spools[1])
            self._sources: dict[int, Capture] = {out[0]: self._stdout, error[0]: self._stderr}
            given = request.stdin if isinstance(request.stdin, int) else _input(request.stdin)
            sent.callback(os.close, given)
            _send(control, order, given, out[1], error[1])
            undo.pop_all()

    def hold(self) -> CommandEnd:
        """Wait for the end. Raises: SandboxUnavailableError, HostError, a listener's error."""
        observed = self._observed
        if observed.on_output is not None:
            self._stdout.listener = partial(self._pass_on, observed.on_output, "stdout")
            self._stderr.listener = partial(self._pass_on, observed.on_output, "stderr")
        if observed.on_begun is not None:
            observed.on_begun()
        with held_open(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)) as cancelled:
            undo = observed.cancel.on_cancel(lambda: os.eventfd_write(cancelled, 1))
            try:
                self._listen(cancelled)
            finally:
                undo()
        return self._end()

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _listen(self, cancelled: int) -> None:
        progress, control = self._observed.progress, self._control.fileno()
        self._events.register(cancelled, select.POLLIN)
        for fd in (control, *self._sources):
            self._watch(fd)
        reported = self._began
        ended = float("inf")
        while self._waiting:
            for fd, _ in self._events.poll(int(_PROGRESS_S * 1000)):
                if fd == cancelled:
                    self._events.unregister(cancelled)
                    # The command's first process sees our end close, and kills everything.
                    self._control.shutdown(socket.SHUT_WR)
                elif fd == control:
                    self._receive_report()
                elif fd in self._sources and not self._sources[fd].read():
                    self._forget(fd)
            if self._network is not None:
                self._poll_network(self._network)
            now = time.monotonic()
            ended = ended if control in self._waiting else min(ended, now)
            if now - ended > _DRAIN_S:
                # All processes are dead, except one that hangs in the kernel and holds a pipe.
                return
            if now - self._began - self._paused_s > self._timeout_s + _LATE_S:
                raise HostError("a sandbox did not end its command in time")
            if progress is not None and now - reported >= _PROGRESS_S:
                reported = now
                progress(now - self._began, self._stdout.total_bytes + self._stderr.total_bytes)

    def _poll_network(self, network: "Wall") -> None:
        """Pass on refusals; the time spent waiting for an approver extends the timeout."""
        on_output = self._observed.on_output
        for line in network.notices():
            if on_output is not None:
                self._pass_on(on_output, "stderr", line)
        more_s = network.decisions.granted_s - self._granted_s
        if more_s:
            self._granted_s += more_s
            self._paused_s += more_s
            # It fails where the sandbox has ended.
            with contextlib.suppress(OSError):
                self._control.send(b"%d" % (more_s * 1000))

    def _watch(self, fd: int) -> None:
        self._events.register(fd, select.POLLIN)
        self._waiting.add(fd)

    def _forget(self, fd: int) -> None:
        if fd in self._waiting:
            self._events.unregister(fd)
            self._waiting.remove(fd)

    def _pass_on(
        self, on_output: OnOutput, name: Literal["stdout", "stderr"], chunk: bytes
    ) -> None:
        began = time.monotonic()
        on_output(name, chunk)
        self._paused_s += time.monotonic() - began

    def _receive_report(self) -> None:
        try:
            message, fds, _, _ = self._receive()
        except ConnectionResetError:
            # It failed early and closed without reading our order; its report follows.
            message, fds, _, _ = self._receive()
        if message == protocol.TERMINAL:
            self._attach(*fds)
            return
        for fd in fds:
            with held_open(fd):
                # Threat: the command chose the type, content and length of this file.
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and found.st_size <= _LEFT_BYTES_MAX:
                    self._left = os.pread(fd, _LEFT_BYTES_MAX, 0)
        if message:
            self._report = CommandReport.decode(message)
        self._forget(self._control.fileno())

    def _receive(self) -> tuple[bytes, list[int], int, object]:
        return socket.recv_fds(self._control, _REPORT_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)

    def _attach(self, terminal: int) -> None:
        """Read stdout from the terminal instead of the pipe."""
        pipe = self._stdout.fileno()
        self._forget(pipe)
        self._sources[terminal] = self._sources.pop(pipe)
        self._stdout.turn_to(terminal)
        os.set_blocking(terminal, False)
        self._watch(terminal)
        if self._observed.on_terminal is not None:
            self._observed.on_terminal(terminal)

    def _end(self) -> CommandEnd:
        report = self._report
        if report is None:
            raise HostError("a sandbox ended without a report")
        if report.ending == protocol.NOT_CONFINED:
            raise ConfinementError(os.fsdecode(report.where), report.code)
        ending = Ending(report.ending.decode())
        where = os.fsdecode(report.where)
        is_failed, is_exited = ending is Ending.FAILED, ending is Ending.EXITED
        return CommandEnd(
            ending=ending,
            exit_code=_exit_code(ending, report),
            stdout=self._stdout.captured(),
            stderr=self._stderr.captured(),
            duration_s=time.monotonic() - self._began,
            survivors=report.survivors,
            memory_kb=report.memory_kb,
            unreached=report.unreached,
            reason=f"{where}: {os.strerror(report.code)}" if is_failed else "",
            left=self._left if is_exited else b"",
        )


def _pipe(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack, user: tuple[int, int] | None
) -> tuple[int, int]:
    out, into = os.pipe()
    ours.callback(os.close, out)
    theirs.callback(os.close, into)
    if user is not None:
        # Opening /dev/stderr opens the pipe again, which only its owner may do.
        os.fchown(into, *user)
    # Threat: a command opens the pipe and reads it between our poll and our read. A blocking
    # read would then miss a cancellation.
    os.set_blocking(out, False)
    return out, into


def _input(content: bytes) -> int:
    """Return a file with the whole input, so that nothing is written while the command runs.

    Threat: a command enlarges the memory file, whose memory no limit counts: it is sealed.
    """
    if not content:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    with held_open(os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)) as made:
        written = 0
        while written < len(content):
            written += os.write(made, content[written : written + _WRITE_BYTES])
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
        # Opened again through /proc: read-only, and from the beginning.
        return os.open(f"/proc/self/fd/{made}", os.O_RDONLY | os.O_CLOEXEC)


def _send(control: socket.socket, order: bytes, *streams: int) -> None:
    """Send the order as a memory file: arguments may be longer than a message."""
    with (
        held_open(os.memfd_create("start", os.MFD_CLOEXEC)) as order_fd,
        # The sandbox could not be created; its report explains why.
        contextlib.suppress(BrokenPipeError),
    ):
        os.write(order_fd, order)
        socket.send_fds(control, [b"go"], [order_fd, *streams])


def _exit_code(ending: Ending, report: CommandReport) -> int:
    if ending is Ending.TIMED_OUT:
        return -1
    if ending is Ending.FAILED:
        # A shell's exit codes: not found, or found but not executable.
        return 127 if report.code == 2 else 126
    code = os.waitstatus_to_exitcode(report.status)
    return code if code >= 0 else 128 - code


def variables_of(request: CommandRequest) -> dict[str, str]:
    plan = request.plan
    caches = cache_variables(f"{HOME}/.cache", plan.downloads) if plan.caches else {}
    environment = dict(plan.git_config.variables) | dict(plan.environment) | caches
    if request.terminal[1]:
        # Not the host's terminal type, which may be `dumb`, nor its size.
        environment = {
            name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")
        } | {"TERM": _TERMINAL_KIND}
    environment |= dict(request.env)
    return environment | {"HOME": HOME, "TMPDIR": TEMPORARY, "PWD": _directory_of(request)}


def _directory_of(request: CommandRequest) -> str:
    return os.path.normpath(os.path.join(request.plan.workspace, request.cwd))


def _start(request: CommandRequest) -> Start:
    environment = variables_of(request)
    if request.script:
        # bash reads it before the command line (bash(1), BASH_ENV); the script unsets it first.
        environment["BASH_ENV"] = os.fsdecode(protocol.BEGIN)
    columns, rows = request.terminal
    return Start(
        directory=os.fsencode(_directory_of(request)),
        timeout_ms=max(1, int(request.timeout_s * 1000)),
        argv=[os.fsencode(argument) for argument in request.argv],
        environment=[os.fsencode(f"{name}={value}") for name, value in environment.items()],
        script=request.script,
        columns=columns,
        rows=rows,
    )
