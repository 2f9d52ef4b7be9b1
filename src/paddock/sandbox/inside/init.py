"""Act as the first process of a pid namespace: start the command, enforce limits, report, kill.

Processes inside can only send it signals that it handles. When it ends, the kernel kills
everything in the namespace, so every process that the command started ends with it.
"""

from __future__ import annotations

import _socket
import errno
import fcntl
import os
import resource
import select
import struct
import termios
import time

from paddock.sandbox.inside.protocol import (
    BEGIN,
    CANCELLED,
    ENDED_IN,
    EXITED,
    HELD,
    HOLD,
    MEMORY,
    NOT_STARTED,
    TERMINAL,
    TERMINATE,
    TIMED_OUT,
    CommandReport,
    Start,
    ViewChange,
)

KILL_SIGNAL = 9
_TERMINATE_SIGNAL = 15
STOP_SIGNAL = 19
_CONTINUE_SIGNAL = 18
DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ: Python ignores them, and an ignored signal stays ignored after exec.
Numbers, the same on every supported machine: the module `signal` loads `enum`."""

_OPEN_FILES_MAX = 4096
_DESCRIPTOR_LAST = 0x7FFFFFFF
_TICK_S = 0.05
"""The interval for reaping orphans, and the shortest interval for memory checks."""
_TICK_SHARE = 20
"""Memory checks take at most this fraction (1/N) of the time."""


def send_report(control: int, report: CommandReport, *fds: int) -> None:
    """Send the report; the reader may be gone."""
    try:
        send(control, report.encode(), *fds)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            raise


def send(control: int, message: bytes, *fds: int) -> None:
    sock = _socket.socket(fileno=control)
    try:
        rights = struct.pack(f"{len(fds)}i", *fds)
        sock.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)] if fds else [])
    finally:
        sock.detach()


def receive(control: _socket.socket, bytes_max: int, fds_max: int) -> tuple[bytes, list[int]]:
    """Return a message, empty at the end of the stream, and its descriptors."""
    space = _socket.CMSG_SPACE(4 * fds_max)
    message, extra, _, _ = control.recvmsg(bytes_max, space, _socket.MSG_CMSG_CLOEXEC)
    return message, [fd for _, _, data in extra for fd in struct.unpack(f"{len(data) // 4}i", data)]


def count_unreached() -> int:
    """Count this network namespace's packets that had no route (proc_pid_net(5): snmp)."""
    count = 0
    try:
        with open("/proc/self/net/snmp", "rb") as table:
            names, values = [line.split() for line in table if line.startswith(b"Ip:")]
        count += int(values[names.index(b"OutNoRoutes")])
        with open("/proc/self/net/snmp6", "rb") as table:
            count += sum(int(line.split()[1]) for line in table if line.startswith(b"Ip6OutNoR"))
    except (OSError, ValueError, IndexError):
        # The kernel lacks one of these tables.
        return count
    return count


def limit_resources(processes: int, file_mb: int, cpu_s: int) -> None:
    """Limit every process started from now on; `cpu_s` 0 means no limit."""
    for what, most in (
        # One byte: a limit of 0 would still start the host's core dump handler (core(5)).
        (resource.RLIMIT_CORE, 1),
        (resource.RLIMIT_FSIZE, file_mb << 20),
        (resource.RLIMIT_NOFILE, _OPEN_FILES_MAX),
        # Threat: with real-time priority the command could starve this process.
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_NPROC, processes),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if cpu_s > 0 and (hard == resource.RLIM_INFINITY or cpu_s < hard):
        # One second more for the hard limit, where the kernel kills without sending SIGXCPU.
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))


def close_all_but(kept: set[int]) -> None:
    """Threat: the command inherits a descriptor of another sandbox, or of the host."""
    low = 3
    for fd in sorted(fd for fd in kept if fd >= low):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, _DESCRIPTOR_LAST)


def environment_of(start: Start) -> dict[bytes, bytes]:
    pairs = (entry.partition(b"=") for entry in start.environment)
    return {name: value for name, _, value in pairs}


def find_program(name: bytes, environment: dict[bytes, bytes]) -> bytes:
    """Search like execvp(3), but in the command's PATH. Raises: FileNotFoundError."""
    if b"/" in name:
        return name
    for directory in environment.get(b"PATH", b"").split(b":"):
        candidate = directory + b"/" + name
        if directory and os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


# Memory use, for hosts that delegate no cgroup. A quick estimate counts shared pages once
# per process and so is never too low. The exact figure is read only if the estimate is over
# the limit, because the kernel has to walk page tables for it.

_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
_EXACT_FIELDS = (b"Pss_Anon:", b"SwapPss:")
_SHARED_FIELD = b"Pss_Shmem:"


def find_processes() -> list[bytes]:
    return [name for name in os.listdir(b"/proc") if name.isdigit() and name != b"1"]


def is_alive(process: bytes) -> bool:
    """Return True if one of its threads still runs; a zombie's do not."""
    if _runs(b"/proc/%b" % process):
        return True
    # Threat: a process whose first thread has ended looks like a zombie but still runs.
    return any(_runs(thread) for thread in _threads(process))


def _runs(task: bytes) -> bool:
    return _state(task) not in (b"", b"Z", b"X")


def _state(task: bytes) -> bytes:
    """Return the state letter; empty if the task has ended."""
    return b"".join(stat_fields(task)[:1])


def stat_fields(task: bytes) -> list[bytes]:
    """Return the fields from the state on (proc_pid_stat(5), 3): a name may contain any bytes."""
    return read_proc(task + b"/stat").rpartition(b")")[2].split()


def _threads(process: bytes) -> list[bytes]:
    folder = b"/proc/%b/task" % process
    try:
        return [b"%b/%b" % (folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def used_kb(processes: list[bytes], files: int, limit_kb: int) -> int:
    """Return KiB; `files`: in private file systems. Up to the limit an estimate, never too low."""
    estimate = files + sum(resident_kb(process) for process in processes)
    if estimate <= limit_kb:
        return estimate
    private = shared = 0
    for process in processes:
        own, common = _proportional_kb(process)
        private += own
        shared += common
    return private + max(shared, files)


def _files_kb() -> int:
    """Count the private tmpfs, and System V segments, which may be mapped by no process."""
    # The root itself, not /tmp, where the workspace or a host directory may be mounted.
    private = os.statvfs(b"/")
    used = (private.f_blocks - private.f_bfree) * private.f_frsize // 1024
    for line in read_proc(b"/proc/sysvipc/shm").splitlines()[1:]:
        resident, swapped = line.split()[-2:]
        used += (int(resident) + int(swapped)) // 1024
    return used


def resident_kb(process: bytes) -> int:
    found = _pages_kb(b"/proc/%b" % process)
    if found is None:
        # Threat: see `is_alive`; any live thread reports the memory of its process.
        found = max((_pages_kb(thread) or 0 for thread in _threads(process)), default=0)
    return found


def _pages_kb(task: bytes) -> int | None:
    """Return a task's resident KiB; None if it has ended, or another thread reports them."""
    fields = read_proc(task + b"/statm").split()
    if len(fields) < 2 or fields[0] == b"0":
        return None
    return int(fields[1]) * _PAGE_KB


def _proportional_kb(process: bytes) -> tuple[int, int]:
    content = read_proc(b"/proc/%b/smaps_rollup" % process) or _first_rollup(process)
    if not content:
        # It has ended, or made itself unreadable: then count all its memory as private.
        return resident_kb(process), 0
    own = shared = 0
    for line in content.splitlines():
        if line.startswith(_EXACT_FIELDS):
            own += int(line.split()[1])
        elif line.startswith(_SHARED_FIELD):
            shared += int(line.split()[1])
    return own, shared


def _first_rollup(process: bytes) -> bytes:
    for thread in _threads(process):
        content = read_proc(thread + b"/smaps_rollup")
        if content:
            return content
    return b""


def read_proc(path: bytes) -> bytes:
    """Return empty bytes if the process has ended or may not be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""
    finally:
        os.close(fd)


_END_WAIT_S = 5.0
"""Time for killed processes to end. One stuck in the kernel may not end in time."""

_YIELD_S = 0.001


class InitProcess:
    STATE_FILE = ENDED_IN

    def __init__(
        self,
        control: _socket.socket,
        others: tuple[int, ...],
        memory_limit_kb: int,
        *,
        has_own_network: bool = False,
    ) -> None:
        """`others` become readable when the runtime is gone."""
        self._has_own_network = has_own_network
        self._control = control
        self._others = others
        self._memory_limit_kb = memory_limit_kb
        self._main = -1
        self._status = 0

    def serve(self) -> None:
        # The namespaces stay until the stage is closed: removing them delays the next command.
        if not self._wait() and self.serve_order():
            self._wait()

    def serve_order(self) -> bool:
        """Run one command and report its end; return False if the runtime orders none."""
        content, fds = receive(self._control, 16, 4)
        if not content:
            return False
        order_fd, *streams = fds
        try:
            start = Start.decode(os.pread(order_fd, os.fstat(order_fd).st_size, 0))
            report = self._spawn(start, streams)
        finally:
            for fd in fds:
                os.close(fd)
        left = -1
        if report is None:
            ending, memory_kb = self._watch(time.monotonic() + start.timeout_ms / 1000)
            report = CommandReport(ending, survivors=self._end_all(), memory_kb=memory_kb)
            report.status = self._status
            if self._has_own_network and (ending != EXITED or self._status):
                report.unreached = count_unreached()
            left = self._open_left() if ending == EXITED else -1
        send_report(self._control.fileno(), report, *([left] if left >= 0 else []))
        return True

    def _watch(self, deadline_s: float) -> tuple[bytes, int]:
        """Watch until it ends, reaches its time or memory limit, or the runtime stops waiting.

        Return which, and the most memory seen, in KiB. Orphans are reaped meanwhile, because each
        counts against the command's process limit. On `control` the runtime can add or subtract
        time (milliseconds as text) or hold the processes.
        """
        events = select.poll()
        ended = os.pidfd_open(self._main)
        control = self._control.fileno()
        for fd in (ended, control, *self._others):
            events.register(fd, select.POLLIN)
        next_check_s = 0.0
        seen_kb = 0
        try:
            while True:
                left = deadline_s - time.monotonic()
                ready = [fd for fd, _ in events.poll(max(0, int(min(left, _TICK_S) * 1000) + 1))]
                if ended in ready:
                    return EXITED, seen_kb
                if ready:
                    more = self._handle() if ready == [control] else None
                    if more is None:
                        return CANCELLED, seen_kb
                    deadline_s += more
                    continue
                began = time.monotonic()
                if began >= deadline_s:
                    return TIMED_OUT, seen_kb
                self.reap()
                if began < next_check_s:
                    continue
                now_kb = self.used_kb()
                seen_kb = max(seen_kb, now_kb)
                if now_kb > self._memory_limit_kb:
                    return MEMORY, seen_kb
                now = time.monotonic()
                next_check_s = now + _TICK_SHARE * (now - began)
        finally:
            os.close(ended)

    def _handle(self) -> float | None:
        """Handle a message; return seconds to add to the deadline, None if the runtime is gone."""
        try:
            message, fds = receive(self._control, 32, 1)
        except OSError:
            return None
        if message == TERMINATE:
            self.terminate()
            return 0.0
        if message != HOLD:
            return int(message) / 1000 if message else None
        began = time.monotonic()
        channel = _socket.socket(fileno=fds[0])
        try:
            self.hold(channel)
        finally:
            channel.close()
        return time.monotonic() - began

    def _spawn(self, start: Start, streams: list[int]) -> CommandReport | None:
        """Start the command; return why it does not run, None if it does."""
        try:
            self._main = self._start(start, streams)
        except OSError as error:
            where = os.fsencode(error.filename or start.argv[0])
            return CommandReport(NOT_STARTED, code=error.errno or 0, where=where)
        return None

    def _start(self, start: Start, streams: list[int]) -> int:
        if start.script:
            _write_new(BEGIN, start.script)
        if not start.rows:
            return _spawn(start, [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate(streams)])
        master, slave = os.openpty()
        try:
            # struct winsize of tty_ioctl(4): rows, columns, and two unused fields.
            size = struct.pack("4H", start.rows, start.columns, 0, 0)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
            # Opened by name in a new session, it becomes the controlling terminal.
            opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0)
            copies = [(os.POSIX_SPAWN_DUP2, 0, at) for at in (1, 2)]
            send(self._control.fileno(), TERMINAL, master)
            return _spawn(start, [opened, *copies])
        finally:
            os.close(master)
            os.close(slave)

    def _wait(self) -> bool:
        waiting = select.poll()
        for fd in (self._control.fileno(), *self._others):
            waiting.register(fd, select.POLLIN)
        return any(fd in self._others for fd, _ in waiting.poll())

    def terminate(self) -> None:
        _signal_all(_TERMINATE_SIGNAL)

    def used_kb(self) -> int:
        return used_kb(find_processes(), _files_kb(), self._memory_limit_kb)

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
                # Its pid may be reused from now on.
                self._main = -1

    def hold(self, channel: _socket.socket) -> None:
        """Stop every process, apply the requested changes, then resume those that were running."""
        stopped = {each for each in find_processes() if _state(b"/proc/%b" % each) == b"T"}
        try:
            if _signal_all(STOP_SIGNAL) and not _await_stopped():
                return
            channel.send(HELD)
            while True:
                message, fds = receive(channel, _CHANGE_BYTES_MAX, 1)
                if not message:
                    return
                channel.send(b"%d" % _apply(ViewChange.decode(message), *fds))
        except OSError:
            # The runtime is gone.
            return
        finally:
            # Children first: a shell that waits for one must not find it stopped.
            for process in sorted(set(find_processes()) - stopped, key=int, reverse=True):
                try:
                    os.kill(int(process), _CONTINUE_SIGNAL)
                except ProcessLookupError:
                    continue

    def _open_left(self) -> int:
        """Threat: it may be a pipe without a writer, or a link. The reader checks its type."""
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(self.STATE_FILE, flags)
        except OSError:
            return -1

    def _end_all(self) -> int:
        if not self.reap():
            return 0
        left = [process for process in find_processes() if is_alive(process)]
        survivors = sum(process != b"%d" % self._main for process in left)
        # -1: every other process of the namespace, atomically; a fork at the same time sees the
        # signal and fails.
        if not _signal_all(KILL_SIGNAL):
            survivors = 0
        until_s = time.monotonic() + _END_WAIT_S
        while self.reap() and time.monotonic() < until_s:
            time.sleep(_YIELD_S)
        return survivors


def _signal_all(signal: int) -> bool:
    try:
        os.kill(-1, signal)
    except ProcessLookupError:
        return False
    return True


_STOP_WAIT_S = 2.0
_CHANGE_BYTES_MAX = 16_384


def _await_stopped() -> bool:
    """Wait until no thread runs: a thread stops only after its current system call."""
    until_s = time.monotonic() + _STOP_WAIT_S
    while not all(
        _state(thread) in (b"T", b"t", b"Z", b"X", b"")
        for process in find_processes()
        for thread in _threads(process)
    ):
        if time.monotonic() > until_s:
            return False
        time.sleep(_YIELD_S)
    return True


def _apply(change: ViewChange, content: int = -1) -> int:
    """Apply one change; return an errno, 0 for success. The processes are stopped meanwhile."""
    parent, name = os.path.split(change.path)
    draft = b"%b/.%b.%b" % (parent, name[:200], os.urandom(4).hex().encode())
    try:
        if change.kind == b"directory":
            if os.path.islink(change.path) or not os.path.isdir(change.path):
                os.mkdir(change.path, change.mode)
                os.chmod(change.path, change.mode)
        elif change.kind == b"gone":
            _remove(change.path)
        elif change.kind == b"link":
            os.symlink(change.text, draft)
            os.rename(draft, change.path)
        else:
            _copy(content, draft, change.mode)
            os.utime(draft, ns=(change.modified_ns, change.modified_ns))
            os.rename(draft, change.path)
    except OSError as error:
        if os.path.lexists(draft):
            # For example, the target is a directory.
            os.unlink(draft)
        return error.errno or errno.EIO
    finally:
        if content >= 0:
            os.close(content)
    return 0


def _remove(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
        return
    if not os.path.lexists(path):
        # It vanished from the lower layer without an event: create it, so that watchers see one.
        _write_new(path, b"")
    os.unlink(path)


def _copy(content: int, path: bytes, mode: int) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while os.sendfile(target, content, None, 1 << 20):
            continue
        os.fchmod(target, mode)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(target)


def _write_new(path: bytes, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)


def _spawn(start: Start, actions: list[tuple[object, ...]]) -> int:
    """Use posix_spawn(3), which does not copy memory. Raises: OSError with the failing name."""
    environment = environment_of(start)
    os.chdir(start.directory)
    program = find_program(start.argv[0], environment)
    return os.posix_spawn(
        program,
        start.argv,
        environment,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=DEFAULT_SIGNALS,
    )
