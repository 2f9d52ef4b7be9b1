"""Being held without namespaces: what a child does to itself, and how a tree of them ends.

Only this folder and `kernel` are loaded here.

The supervisor of one command is a program of its own.
"""

from __future__ import annotations

import _socket
import errno
import os
import resource
import sys
import time

from paddock.kernel import processes
from paddock.kernel.landlock import restrict_self
from paddock.kernel.processes import (
    adopt_orphans,
    send_signal,
    set_death_signal,
    set_no_new_privileges,
    use_default_action,
)
from paddock.kernel.seccomp import install_filter
from paddock.sandbox.inside import init
from paddock.sandbox.inside.init import (
    DEFAULT_SIGNALS,
    environment_of,
    find_program,
    limit_processor_time,
    receive_order,
    send_report,
    watch,
)
from paddock.sandbox.inside.protocol import (
    NOT_CONFINED,
    NOT_STARTED,
    UNHELD,
    CommandReport,
    Start,
)

_KILL_SIGNAL = 9
_STOP_SIGNAL = 19
"""The same on every machine we know: the module `signal` loads `enum`."""
_ROUNDS_MAX = 200
_ROUND_S = 0.005
"""One second in which nobody new appears: what a kill needs is far less, and a process that
the kernel itself holds (an NFS server that is gone) would never end."""


class Hold:
    __slots__ = ("program", "ruleset_fd")

    def __init__(self, ruleset_fd: int, program: bytes) -> None:
        self.ruleset_fd = ruleset_fd
        self.program = program


def hold(held: Hold | None, identity: tuple[int, int] | None) -> None:
    """Give up, in the calling process and for good, all that the rule set does not allow.

    None: only a change of user and no new privileges. The user first, for that takes a privilege;
    the filter last, for it may refuse what comes before it. Raises: OSError: the caller must not
    exec; PermissionError: it would still be the host's root.
    """
    if identity is not None:
        uid, gid = identity
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        # With the last of them the kernel takes every capability as well (capabilities(7)).
        os.setresuid(uid, uid, uid)
    # After the last change of credentials, which makes the kernel forget it.
    set_death_signal(_KILL_SIGNAL)
    # Threat: uid 0 without a namespace of its own owns /proc/sys and every root-owned file.
    if 0 in os.getresuid():
        raise PermissionError("a command never runs as the host's root")
    set_no_new_privileges()
    if held is not None:
        restrict_self(held.ruleset_fd)
        install_filter(held.program)


class Process:
    """One process at one moment: a pid is given again, a pid with its start time is not."""

    __slots__ = ("parent", "pid", "start", "state")

    def __init__(self, pid: int, parent: int, start: int, state: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        self.state = state


def descendants(ancestor: int) -> list[Process]:
    found: dict[int, list[Process]] = {}
    for pid in _pids():
        process = _read(pid)
        if process is not None:
            found.setdefault(process.parent, []).append(process)
    below: list[Process] = []
    waiting = [ancestor]
    while waiting:
        children = found.get(waiting.pop(), [])
        below += children
        waiting += [child.pid for child in children]
    return below


class Ended:
    __slots__ = ("reaped", "running", "seen")

    def __init__(self) -> None:
        self.reaped: list[tuple[int, int]] = []
        self.running: set[int] = set()
        self.seen: set[tuple[int, int]] = set()


def end_descendants() -> Ended:
    """Kill everything below this process and reap what became ours.

    All are stopped first, until no new one appears: what is stopped cannot fork.
    Threat: a chain of processes that fork and end. Nobody is reaped before all have ended: zombies
    count (RLIMIT_NPROC, getrlimit(2)), so the chain fills its own limit and stays to be killed.
    """
    ended = Ended()
    if _has_living():
        _stop_all(ended)
        _kill_all(ended)
    ended.reaped = reap()
    return ended


def _stop_all(ended: Ended) -> None:
    for _ in range(_ROUNDS_MAX):
        before = len(ended.seen)
        _signal_all(_STOP_SIGNAL, ended)
        if len(ended.seen) == before:
            return


def _kill_all(ended: Ended) -> None:
    idle = 0
    while idle < _ROUNDS_MAX and _has_living():
        before = len(ended.seen)
        _signal_all(_KILL_SIGNAL, ended)
        idle = idle + 1 if len(ended.seen) == before else 0
        time.sleep(_ROUND_S)


def _signal_all(number: int, ended: Ended) -> None:
    for process in descendants(os.getpid()):
        if process.state not in "ZX":
            ended.seen.add((process.pid, process.start))
            ended.running.add(process.pid)
            _send(process, number)


def _has_living() -> bool:
    # Asked of the kernel, at one stroke: a chain of forks hides between two looks at /proc. Waiting
    # for stops alone leaves those unreaped that have ended.
    try:
        os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def used_kb(limit_kb: int) -> int:
    """Return the memory below this process, in KiB: shared pages count at most once a process."""
    tree = [each.pid for each in descendants(os.getpid())]
    estimate = sum(init.resident_kb(b"%d" % pid) for pid in tree)
    return estimate if estimate <= limit_kb else sum(_proportional_kb(pid) for pid in tree)


def count_threads(uid: int) -> int:
    found = 0
    for pid in _pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found += int(_stat_fields(init.read_proc(b"/proc/%d/stat" % pid))[17])
        except (OSError, IndexError):
            continue  # It ended while it was looked at.
    return found


def reap() -> list[tuple[int, int]]:
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def _send(process: Process, number: int) -> None:
    """Send a signal to this very process, or to none.

    Threat: its pid is another's by now. A pidfd names one process; compare what it names.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = _read(process.pid)
        if now is not None and now.start == process.start:
            send_signal(pidfd, number)
    except OSError:
        return
    finally:
        os.close(pidfd)


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _read(pid: int) -> Process | None:
    fields = _stat_fields(init.read_proc(b"/proc/%d/stat" % pid))
    if len(fields) < 20:
        return None
    state = fields[0].decode("ascii")
    if state in "ZX" and init.is_alive(b"%d" % pid):
        state = "S"  # its first thread has ended, another has not
    return Process(pid, int(fields[1]), int(fields[19]), state)


def _stat_fields(content: bytes) -> list[bytes]:
    """From the state on (proc_pid_stat(5), field 3): the name before it may hold anything."""
    return content.rpartition(b")")[2].split()


def _proportional_kb(pid: int) -> int:
    for line in init.read_proc(b"/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1])
    return init.resident_kb(b"%d" % pid)


# It starts the command held to a Landlock rule set, keeps its time and memory, adopts its orphans
# (never restricted itself), and kills what is left. It speaks what `first` speaks. Started by its
# path, with the descriptors of a socket, a rule set and a filter, and the numbers of `Terms`.

# This file is a program: the package's own __init__ is not run, for it loads what is not needed.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _name, _path in (("paddock", _PACKAGE), ("paddock.sandbox", f"{_PACKAGE}/sandbox")):
    if _name not in sys.modules:
        sys.modules[_name] = type(sys)(_name)
        sys.modules[_name].__path__ = [_path]


_OPEN_FILES_MAX = 4096
_DESCRIPTOR_LAST = 0x7FFFFFFF
_CODE_BYTES = 64


class Terms:
    __slots__ = ("cpu_s", "file_mb", "gid", "memory_kb", "processes", "scratch", "uid")

    def __init__(self, arguments: list[str]) -> None:
        """`uid` and `gid` are -1 where the command stays who started it."""
        *numbers, self.scratch = arguments
        self.uid, self.gid, self.processes, memory_mb, self.file_mb, self.cpu_s = map(int, numbers)
        self.memory_kb = memory_mb * 1024


class CommandSupervisor:
    def __init__(self, control: _socket.socket, held: Hold | None, terms: Terms) -> None:
        """`held` None: nothing holds the command, for the operator wants it so."""
        self._control = control
        self._held = held
        self._terms = terms
        self._main = -1
        self._status = 0

    def serve(self) -> None:
        order = receive_order(self._control)
        if order is None:
            return
        start, streams = order
        try:
            failure = self._spawn(start, streams)
        finally:
            for fd in streams:
                os.close(fd)
        if failure is not None:
            end_descendants()
            self._report(failure)
            return
        deadline_s = time.monotonic() + start.timeout_ms / 1000
        limit_kb = self._terms.memory_kb
        ending, memory_kb = watch(self._main, (self._control.fileno(),), deadline_s, self, limit_kb)
        survivors = self._end_all()
        self._report(
            CommandReport(ending, status=self._status, survivors=survivors, memory_kb=memory_kb)
        )

    def _spawn(self, start: Start, streams: list[int]) -> CommandReport | None:
        said, say = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            step = NOT_CONFINED + b" start"
            try:
                step = self._become(start, streams, say)
            except OSError as error:
                step = b"%b %d %b" % (NOT_CONFINED, error.errno or 0, b"Landlock")
            finally:
                os.write(say, step[:_CODE_BYTES])
                processes.end_process(126)
        os.close(say)
        # Nothing comes, and the end, when exec has closed the other end.
        told = os.read(said, _CODE_BYTES)
        os.close(said)
        if not told:
            return None
        kind = NOT_STARTED if told.startswith(NOT_STARTED) else NOT_CONFINED
        code, _, where = told.removeprefix(kind).strip().partition(b" ")
        return CommandReport(kind, code=int(code) if code.isdigit() else errno.EPERM, where=where)

    def _become(self, start: Start, streams: list[int], say: int) -> bytes:
        terms = self._terms
        os.setsid()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        # Threat: a descriptor of ours that comes along; `say` closes itself at exec.
        held = self._held
        for low, high in _around({say} if held is None else {say, held.ruleset_fd}):
            os.closerange(low, high)
        for number in DEFAULT_SIGNALS:
            use_default_action(number)
        self._limit()
        identity = None if terms.uid < 0 else (terms.uid, terms.gid)
        hold(held, identity)
        # Without the filter's leave none of these could be done after it; all are allowed.
        if held is not None:
            os.close(held.ruleset_fd)
        scratch = os.fsencode(terms.scratch)
        # There is no root of its own in which they could stand where a sandbox has them.
        own = {b"HOME": scratch + b"/home", b"TMPDIR": scratch + b"/tmp"}
        if held is not None:
            # The host's /etc/gitconfig is there and closed: git ends where it cannot read one.
            own[b"GIT_CONFIG_NOSYSTEM"] = b"1"
        environment = environment_of(start) | own
        try:
            os.chdir(start.directory)
            program = find_program(start.argv[0], environment)
            os.execve(program, start.argv, environment)  # noqa: S606 - no shell is meant
        except OSError as error:
            where = os.fsencode(str(error.filename or ""))
            return b"%b %d %b" % (NOT_STARTED, error.errno or 0, where)

    def _limit(self) -> None:
        terms = self._terms
        uid = os.getuid() if terms.uid < 0 else terms.uid
        for what, most in (
            # Of a byte: with none, a host's handler of core dumps would be started (core(5)).
            (resource.RLIMIT_CORE, 1),
            (resource.RLIMIT_FSIZE, terms.file_mb << 20),
            (resource.RLIMIT_NOFILE, _OPEN_FILES_MAX),
            # Threat: a user who may have real-time priority starves who keeps the time.
            (resource.RLIMIT_RTPRIO, 0),
            (resource.RLIMIT_NICE, 0),
            # Without a user namespace the kernel counts every thread of the user.
            (resource.RLIMIT_NPROC, count_threads(uid) + terms.processes),
        ):
            _, hard = resource.getrlimit(what)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
        limit_processor_time(terms.cpu_s)

    def reap(self) -> None:
        self._take_in(reap())

    def used_kb(self) -> int:
        return used_kb(self._terms.memory_kb)

    def _end_all(self) -> int:
        ended = end_descendants()
        survivors = sum(pid != self._main for pid in ended.running)
        self._take_in(ended.reaped)
        return survivors

    def _take_in(self, reaped: list[tuple[int, int]]) -> None:
        for pid, status in reaped:
            if pid == self._main:
                self._status = status
                # Its number may be another's from now on.
                self._main = -1

    def _report(self, report: CommandReport) -> None:
        send_report(self._control.fileno(), report)


def _around(kept: set[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    low = 3
    for fd in sorted(kept):
        ranges.append((low, fd))
        low = fd + 1
    return [*ranges, (low, _DESCRIPTOR_LAST)]


def main(arguments: list[str]) -> None:
    control, ruleset, filter_, *terms = arguments
    held = None
    if UNHELD not in (ruleset, filter_):
        program_fd = int(filter_)
        held = Hold(int(ruleset), os.pread(program_fd, os.fstat(program_fd).st_size, 0))
        os.close(program_fd)
    adopt_orphans()
    CommandSupervisor(_socket.socket(fileno=int(control)), held, Terms(terms)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
