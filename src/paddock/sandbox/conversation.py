"""One command from its start to its end: what is sent into the sandbox, what comes out.

Head and tail of the output are kept while it runs; the whole is counted.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError, SandboxUnavailableError
from paddock.kernel.files import start_writing_back
from paddock.policy.engine import Policy
from paddock.sandbox.caches import cache_variables
from paddock.sandbox.host.known_hosts import select_entries
from paddock.sandbox.inside import protocol
from paddock.sandbox.inside.protocol import CommandReport, Start
from paddock.sandbox.values import (
    Captured,
    CommandEnd,
    CommandRequest,
    Ending,
    OnOutput,
    Progress,
    SandboxPlan,
)
from paddock.storage.atomic import held_open, host_error
from paddock.values.calls import Cancel
from paddock.values.decisions import AgentChain, Outcome

if TYPE_CHECKING:
    from paddock.network.credentials import Credential
    from paddock.network.decisions import NetworkTerms, Witness
    from paddock.network.egress import Egress
    from paddock.network.requests import Authority
    from paddock.network.wall import Wall
    from paddock.policy.network import NetworkJudge

# Memory is constant: one buffer. Small pieces cost a system call and two additions; looking at
# what came waits until the buffer is full. A spool takes the whole stream, up to its limit.

READ_BYTES: Final = 131_072
"""What is read before it is looked at. With the pipe it fits into a processor's cache."""
_PIPE_BYTES: Final = 1_048_576
"""What an unprivileged user may give one pipe (pipe(7), pipe-max-size)."""
_FULL_PIPE: Final = 65_536
"""A read of so much means that the writer waits: then, not before, the pipe is widened."""

_WRITTEN_BACK_BYTES: Final = 2_097_152
"""What is kept is handed to the device in pieces of this size."""


class Spool(Struct, frozen=True):
    open: Callable[[], int]
    bytes_max: int
    add: Callable[[memoryview], object] = len


class Capture:
    __slots__ = (
        *("_at", "_buffer", "_fd", "_head", "_head_max", "_is_wide", "_new_at"),
        *("_spool", "_spooled", "_started", "_tail_max", "_total", "listener"),
    )

    def __init__(
        self, fd: int, bytes_max: int, spool: Spool | None = None, read_bytes: int = READ_BYTES
    ) -> None:
        self._fd = fd
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        # Before `_new_at` stands the tail of what was looked at, from there to `_at` what was not.
        self._buffer = memoryview(bytearray(self._tail_max + read_bytes))
        self._new_at = self._at = 0
        self._total = 0
        self._is_wide = False
        self._spool = spool
        self._spooled = 0
        self._started = 0
        self.listener: Callable[[bytes], None] | None = None

    @property
    def total_bytes(self) -> int:
        return self._total

    def fileno(self) -> int:
        return self._fd

    def over(self, fd: int) -> "Capture":
        """Return a capture of another source, with the same terms; nothing was read yet."""
        bytes_max = self._head_max + self._tail_max
        other = Capture(fd, bytes_max, self._spool, len(self._buffer) - self._tail_max)
        other.listener = self.listener
        return other

    def read(self) -> bool:
        """Take in what is there; False at the end. Blocks on an empty pipe. Raises: OSError."""
        try:
            count = os.readv(self._fd, [self._buffer[self._at :]])
        except BlockingIOError:
            # Threat: a command reads its own output where we were told that there is some.
            return True
        except OSError as error:
            # So a terminal says that nobody has its other end open (tty_io.c, hung_up_tty).
            if error.errno != errno.EIO:
                raise
            count = 0
        self._at += count
        self._total += count
        if count > 0 and self.listener is not None:
            self.listener(bytes(self._buffer[self._at - count : self._at]))
        if count >= _FULL_PIPE and not self._is_wide:
            self._widen()
        if count == 0 or self._at == len(self._buffer):
            self._look()
        return count > 0

    def close(self) -> None:
        os.close(self._fd)

    def captured(self) -> Captured:
        self._look()
        return Captured(
            bytes(self._head), bytes(self._buffer[: self._at]), self._total, self._spooled
        )

    def _widen(self) -> None:
        self._is_wide = True
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            # The user's pipes together have their limit (pipe-user-pages-soft): it only costs time.
            return

    def _look(self) -> None:
        if self._spool is not None:
            room = self._spool.bytes_max - self._spooled
            self._save(self._buffer[self._new_at : self._at][:room], self._spool)
        missing = self._head_max - len(self._head)
        # Nothing is a tail before the head is full, so a head begins where the buffer does.
        behind = min(missing, self._at)
        self._head += self._buffer[:behind]
        kept = min(self._tail_max, self._at - behind)
        self._buffer[:kept] = bytes(self._buffer[self._at - kept : self._at])
        self._new_at = self._at = kept

    def _save(self, chunk: memoryview, spool: Spool) -> None:
        while chunk:
            count = os.write(spool.open(), chunk)
            spool.add(chunk[:count])
            self._spooled += count
            chunk = chunk[count:]
        if self._spooled - self._started >= _WRITTEN_BACK_BYTES:
            # It is to be on the device when the command's result is given: now there is time.
            start_writing_back(spool.open(), self._started, self._spooled - self._started)
            self._started = self._spooled


HOME: Final = "/run/home"
"""HOME in a sandbox: empty but for git's configuration, gone afterwards."""
TEMPORARY: Final = "/tmp"  # noqa: S108 - private to the sandbox, gone afterwards

_REPORT_BYTES_MAX: Final = 4096
_LEFT_BYTES_MAX: Final = 1_048_576
_WRITE_BYTES: Final = 1_048_576
_PROGRESS_S: Final = 1.0
_LATE_S: Final = 15.0
"""Over the command's time: then its first process, which keeps the time, must be broken."""
_DRAIN_S: Final = 2.0
_CA_VARIABLES: Final = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT"),
)
"""Variables by which programs are told which authorities to believe."""
_STOP_WAIT_S: Final = 10.0


class NetworkSecrets(Struct, frozen=True):
    """Of one runtime: its authority, what programs believe, and credentials with placeholders."""

    authority: "Authority"
    bundle: str
    credentials: "Callable[[], tuple[Credential, ...]]"
    """Read anew, with new placeholders, for each sandbox. Raises: ConfigError."""


def judges_requests(policy: Policy, judge: "NetworkJudge") -> bool:
    return bool(policy.settings.credentials) or judge.names_requests


class NetworkGround(Struct, frozen=True):
    """What commands that policy lets connect need of their runtime."""

    egress: "Callable[[], Egress]"
    policy_now: Callable[[], Policy | None]
    known_hosts: Callable[[], str]
    """What the user's ssh knows of servers."""
    indexes: Callable[[], dict[str, str]]
    """Variables that name the indexes of the user's package clients."""
    secrets: "Callable[[], NetworkSecrets]"
    """Only asked where a rule or a credential names requests. Raises: ConfigError."""

    def placed(
        self, plan: SandboxPlan, policy: Policy, chain: AgentChain, line: str | None
    ) -> SandboxPlan:
        """Return the plan for a line that may connect."""
        from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few commands connect

        judge = NetworkJudge(policy, chain, line)

        def may_reach(host: str, port: int) -> bool:
            return judge.connect(host, port).outcome is not Outcome.DENY

        if judges_requests(policy, judge):
            variables = ((name, os.fsdecode(protocol.AUTHORITIES)) for name in _CA_VARIABLES)
            plan = replace(
                plan,
                authorities=self.secrets().bundle,
                environment=(*plan.environment, *variables),
            )
        plan = replace(plan, environment=(*plan.environment, *self.indexes().items()))
        return replace(
            plan,
            network="policy",
            literals=tuple(str(each) for each, _ in judge.literals()),
            known_hosts=select_entries(self.known_hosts(), judge.names(), may_reach),
        )

    def terms(
        self, policy: Policy, chain: AgentChain, line: str | None, witness: "Witness"
    ) -> "NetworkTerms":
        from paddock.network.decisions import NetworkTerms  # noqa: PLC0415 - few commands connect
        from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few commands connect

        judge = NetworkJudge(policy, chain, line)

        def latest() -> NetworkJudge | None:
            now = self.policy_now()
            if now is policy:
                return judge
            return None if now is None else NetworkJudge(now, chain, line)

        if not judges_requests(policy, judge):
            return NetworkTerms(judge, latest, witness)
        secrets = self.secrets()
        try:
            credentials = secrets.credentials()
        except ConfigError as error:
            raise SandboxUnavailableError(error.message, hint=error.hint) from error
        return NetworkTerms(judge, latest, witness, secrets.authority, credentials)


class Observed(Struct, frozen=True):
    spools: tuple[Spool | None, Spool | None] = (None, None)
    """Of its output, and of its errors."""
    progress: Progress | None = None
    cancel: Cancel | None = None
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
    # Isolated, without site: nothing of the user's and nothing slow is loaded. Never
    # preexec_fn, which copies this whole process and may deadlock in a threaded one.
    path = Path(__file__).with_name("inside") / program
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


class ConfinementError(SandboxUnavailableError):
    """The sandbox could not be made: `step` and the errno `number` say where it stopped."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(
            f"the sandbox cannot be made here: {step}: {os.strerror(number)}",
            hint="paddock doctor says why, and what to do",
        )
        self.step = step
        self.number = number


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
        self._granted_s = 0.0 if network is None else network.granted_s()
        most = request.output_bytes_max
        with contextlib.ExitStack() as undo:
            out, out_end = _pipe(undo, user)
            error, error_end = _pipe(undo, user)
            self._stdout = Capture(out, most, observed.spools[0])
            self._stderr = Capture(error, most, observed.spools[1])
            self._sources: dict[int, Capture] = {out: self._stdout, error: self._stderr}
            given = _input(request.stdin) if isinstance(request.stdin, bytes) else request.stdin
            with held_open(given):
                _send(control, order, given, out_end, error_end)
            undo.pop_all()
        os.close(out_end)
        os.close(error_end)

    def hold(self) -> CommandEnd:
        """Listen to the end. Raises: SandboxUnavailableError, HostError, what a listener raises."""
        cancel, on_output = self._observed.cancel, self._observed.on_output
        if on_output is not None:
            self._stdout.listener = lambda chunk: self._pass_on(on_output, "stdout", chunk)
            self._stderr.listener = lambda chunk: self._pass_on(on_output, "stderr", chunk)
        if self._observed.on_begun is not None:
            self._observed.on_begun()
        wish = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        undo = cancel.on_cancel(lambda: os.eventfd_write(wish, 1)) if cancel is not None else None
        try:
            self._listen(wish)
        finally:
            if undo is not None:
                undo()
            os.close(wish)
        return self._end()

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _listen(self, wish: int) -> None:
        progress = self._observed.progress
        control = self._control.fileno()
        self._events.register(wish, select.POLLIN)
        self._waiting = {control, *self._sources}
        for fd in self._waiting:
            self._events.register(fd, select.POLLIN)
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
        more_s = network.granted_s() - self._granted_s
        if more_s:
            self._granted_s += more_s
            self._heeded_s += more_s
            with contextlib.suppress(OSError):
                # It has ended, and needs none.
                self._control.send(b"%d" % (more_s * 1000))

    def _forget(self, fd: int) -> None:
        self._events.unregister(fd)
        self._waiting.discard(fd)

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
                self._left = _read_left(fd)
        if said:
            self._report = CommandReport.decode(said)
        self._forget(self._control.fileno())

    def _receive(self) -> tuple[bytes, list[int], int, object]:
        return socket.recv_fds(self._control, _REPORT_BYTES_MAX, 1, socket.MSG_CMSG_CLOEXEC)

    def _attach(self, terminal: int) -> None:
        """Hear the terminal in place of the pipe."""
        pipe, self._stdout = self._stdout, self._stdout.over(terminal)
        if pipe.fileno() in self._waiting:
            self._forget(pipe.fileno())
        del self._sources[pipe.fileno()]
        pipe.close()
        os.set_blocking(terminal, False)
        self._sources[terminal] = self._stdout
        self._waiting.add(terminal)
        self._events.register(terminal, select.POLLIN)
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


def _pipe(undo: contextlib.ExitStack, user: tuple[int, int] | None) -> tuple[int, int]:
    ours, theirs = os.pipe()
    for end in (ours, theirs):
        undo.callback(os.close, end)
    if user is not None:
        # By its name, /dev/stderr, a pipe is opened anew: by its owner alone.
        os.fchown(theirs, *user)
    # Threat: who may open the pipe may read it too, between our poll and our read. A read
    # that waited would hear no wish to stop.
    os.set_blocking(ours, False)
    return ours, theirs


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


def _read_left(fd: int) -> bytes:
    # Threat: what a command left there is anything, and as long as it likes.
    found = os.fstat(fd)
    is_whole = stat.S_ISREG(found.st_mode) and found.st_size <= _LEFT_BYTES_MAX
    return os.pread(fd, _LEFT_BYTES_MAX, 0) if is_whole else b""


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
