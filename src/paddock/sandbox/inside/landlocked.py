"""Being held without namespaces: what a child does to itself, and how a tree of them ends.

Only this folder and `kernel` are loaded here.
"""

from __future__ import annotations

import os
import time

from paddock.kernel.landlock import restrict_self
from paddock.kernel.processes import send_signal, set_death_signal, set_no_new_privileges
from paddock.kernel.seccomp import install_filter
from paddock.sandbox.inside import init

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
