"""One command from its start to its end: what is sent into the sandbox, what comes out."""

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
"""HOME in a sandbox: empty but for git's configuration, gone afterwards."""
TEMPORARY: Final = "/tmp"  # noqa: S108 - private to the sandbox, gone afterwards

_TERMINAL_KIND: Final = "xterm-256color"
"""As TERM says it: a kind that every terminfo database has."""
_REPORT_BYTES_MAX: Final = 4096
_LEFT_BYTES_MAX: Final = 1_048_576
_WRITE_BYTES: Final = 1_048_576
_PROGRESS_S: Final = 1.0
_LATE_S: Final = 15.0
"""Over the command's time: then its first process, which keeps the time, must be broken."""
_DRAIN_S: Final = 2.0
_STOP_WAIT_S: Final = 10.0


class Observed(Struct, frozen=True):
    spools: tuple[Spool | None, Spool | None] = (None, None)
    """Of its output, and of its errors."""
    progress: Progress | None = None
    cancel: Cancel = NEVER
    on_output: OnOutput | None = None
    network: "NetworkTerms | None" = None
    """For a plan whose network is `policy`."""
    witness: "Witness | None" = None
    """Of a command in a session, whose network is decided for all its commands."""
    on_begun: Callable[[], None] | None = None
    """Called when the command was sent into its sandbox."""
    on_terminal: Callable[[int], None] | None = None
    """Called with the other end of the command's terminal, which stays the conversation's."""


NOBODY: Final = Observed()


def start_inside(
    program: str, arguments: list[str], fds: tuple[int, ...], errors: int
) -> subprocess.Popen[bytes]:
    """Raises: HostError."""
    # Isolated, without site: nothing of the user's and nothing slow is loaded. Never
    # preexec_fn, which copies this whole process and may deadlock in a threaded one.
    path = Path(__file__).with_name("inside") / f"{program}.py"
    with host_error(f"the sandbox's {program} cannot be started", sys.executable):
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
    """Wait for one whose socket was closed: it ends once its commands are gone."""
    try:
        process.wait(_STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def receive_served(control: socket.socket, count: int) -> list[int]:
    """Wait for a network that is made for a sandbox, and return its descriptors.

    See `inside.confine.open_network`. Raises: SandboxUnavailableError, HostError.
    """
    with host_error("a sandbox cannot be listened to"):
        said, fds, _, _ = socket.recv_fds(
            control, _REPORT_BYTES_MAX, count, socket.MSG_CMSG_CLOEXEC
        )
    if said == protocol.SERVED and len(fds) == count:
        return fds
    for fd in fds:
        os.close(fd)
    if not said:
        raise HostError("a sandbox ended without a report")
    report = CommandReport.decode(said)
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
        """`user` is who the command will be on the host. Raises: ValueError for a NUL, OSError."""
        order = _start(request).encode()
        self._control = control
        self._timeout_s = request.timeout_s
        self._began = time.monotonic()
        self._report: CommandReport | None = None
        self._left = b""
        self._events = select.poll()
        self._waiting: set[int] = set()
        self._heeded_s = 0.0
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
        """Listen to the end. Raises: SandboxUnavailableError, HostError, what a listener raises."""
        observed = self._observed
        if observed.on_output is not None:
            self._stdout.listener = partial(self._pass_on, observed.on_output, "stdout")
            self._stderr.listener = partial(self._pass_on, observed.on_output, "stderr")
        if observed.on_begun is not None:
            observed.on_begun()
        with held_open(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)) as wish:
            undo = observed.cancel.on_cancel(lambda: os.eventfd_write(wish, 1))
            try:
                self._listen(wish)
            finally:
                undo()
        return self._end()

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _listen(self, wish: int) -> None:
        progress, control = self._observed.progress, self._control.fileno()
        self._events.register(wish, select.POLLIN)
        for fd in (control, *self._sources):
            self._hear_from(fd)
        told = self._began
        heard = float("inf")
        while self._waiting:
            for fd, _ in self._events.poll(int(_PROGRESS_S * 1000)):
                if fd == wish:
                    self._events.unregister(wish)
                    # The command's first process sees our end close, and kills all.
                    self._control.shutdown(socket.SHUT_WR)
                elif fd == control:
                    self._hear()
                elif fd in self._sources and not self._sources[fd].read():
                    self._forget(fd)
            if self._network is not None:
                self._hear_network(self._network)
            now = time.monotonic()
            heard = heard if control in self._waiting else min(heard, now)
            if now - heard > _DRAIN_S:
                # Everything is dead that can die; what hangs in the kernel holds a pipe.
                return
            if now - self._began - self._heeded_s > self._timeout_s + _LATE_S:
                raise HostError("a sandbox did not end its command in time")
            if progress is not None and now - told >= _PROGRESS_S:
                told = now
                progress(now - self._began, self._stdout.total_bytes + self._stderr.total_bytes)

    def _hear_network(self, network: "Wall") -> None:
        """Pass on what was refused; while somebody is asked, the command's time stands still."""
        on_output = self._observed.on_output
        for line in network.notices():
            if on_output is not None:
                self._pass_on(on_output, "stderr", line)
        more_s = network.decisions.granted_s - self._granted_s
        if more_s:
            self._granted_s += more_s
            self._heeded_s += more_s
            with contextlib.suppress(OSError):
                # It has ended, and needs none.
                self._control.send(b"%d" % (more_s * 1000))

    def _hear_from(self, fd: int) -> None:
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
        self._heeded_s += time.monotonic() - began

    def _hear(self) -> None:
        try:
            said, fds, _, _ = self._receive()
        except ConnectionResetError:
            # It closed with our order unread, having failed before; its report comes after this.
            said, fds, _, _ = self._receive()
        if said == protocol.TERMINAL:
            self._attach(*fds)
            return
        for fd in fds:
            with held_open(fd):
                # Threat: what a command left there is anything, and as long as it likes.
                found = os.fstat(fd)
                if stat.S_ISREG(found.st_mode) and found.st_size <= _LEFT_BYTES_MAX:
                    self._left = os.pread(fd, _LEFT_BYTES_MAX, 0)
        if said:
            self._report = CommandReport.decode(said)
        self._forget(self._control.fileno())

    def _receive(self) -> tuple[bytes, list[int], int, object]:
        return socket.recv_fds(self._control, _REPORT_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)

    def _attach(self, terminal: int) -> None:
        """Hear the terminal in place of the pipe."""
        pipe = self._stdout.fileno()
        self._forget(pipe)
        self._sources[terminal] = self._sources.pop(pipe)
        self._stdout.turn_to(terminal)
        os.set_blocking(terminal, False)
        self._hear_from(terminal)
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
        # By its name, /dev/stderr, a pipe is opened anew: by its owner alone.
        os.fchown(into, *user)
    # Threat: who may open the pipe may read it too, between our poll and our read. A read
    # that waited would hear no wish to stop.
    os.set_blocking(out, False)
    return out, into


def _input(content: bytes) -> int:
    """Return a whole file, so nobody has to write while the command runs.

    Threat: a file in memory made longer is memory that nobody counts; so it is sealed.
    """
    if not content:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    with held_open(os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)) as made:
        written = 0
        while written < len(content):
            written += os.write(made, content[written : written + _WRITE_BYTES])
        seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
        fcntl.fcntl(made, fcntl.F_ADD_SEALS, seals)
        # By a name of /proc it is opened anew: for reading, and from its beginning.
        return os.open(f"/proc/self/fd/{made}", os.O_RDONLY | os.O_CLOEXEC)


def _send(control: socket.socket, order: bytes, *streams: int) -> None:
    """Send a file in memory: arguments may be longer than a message."""
    with (
        held_open(os.memfd_create("start", os.MFD_CLOEXEC)) as order_fd,
        # Then the sandbox could not be made, and why is waiting for us to be heard.
        contextlib.suppress(BrokenPipeError),
    ):
        os.write(order_fd, order)
        socket.send_fds(control, [b"go"], [order_fd, *streams])


def _exit_code(ending: Ending, report: CommandReport) -> int:
    if ending is Ending.TIMED_OUT:
        return -1
    if ending is Ending.FAILED:
        # As a shell says it: not found, or found and not to be executed.
        return 127 if report.code == 2 else 126
    code = os.waitstatus_to_exitcode(report.status)
    return code if code >= 0 else 128 - code


def variables_of(request: CommandRequest) -> dict[str, str]:
    """Return the variables that a command is started with."""
    plan = request.plan
    caches = cache_variables(f"{HOME}/.cache", plan.downloads) if plan.caches else {}
    environment = dict(plan.git_config.variables) | dict(plan.environment) | caches
    if request.terminal[1]:
        # Not of the host's kind, which may be none (`dumb`), nor of its size.
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
        # What bash reads before its line (bash(1), BASH_ENV); the script unsets it first of all.
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
