"""Supervise one command without namespaces: a program, started once per command.

It starts the command under a Landlock rule set, enforces time and memory limits, adopts its
orphans (it is not restricted itself), and kills the remaining processes. It uses the protocol of
`init`. It is started by path, with the descriptors of a socket, a rule set and a filter, and terms.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys
import time

# This file is a program: skip the package's __init__, which imports modules it does not need.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _name, _path in (("paddock", _PACKAGE), ("paddock.sandbox", f"{_PACKAGE}/sandbox")):
    if _name not in sys.modules:
        sys.modules[_name] = type(sys)(_name)
        sys.modules[_name].__path__ = [_path]

from paddock.kernel import syscalls  # noqa: E402 - after the path
from paddock.kernel.landlock import restrict_self  # noqa: E402 - after the path
from paddock.kernel.seccomp import install_filter  # noqa: E402 - after the path
from paddock.sandbox.inside import init  # noqa: E402 - after the path
from paddock.sandbox.inside.init import KILL_SIGNAL, STOP_SIGNAL  # noqa: E402 - after the path
from paddock.sandbox.inside.protocol import (  # noqa: E402 - after the path
    NOT_CONFINED,
    NOT_STARTED,
    UNHELD,
    CommandReport,
    Start,
)

_CODE_BYTES = 64
_ROUNDS_MAX = 200
_ROUND_S = 0.005
"""One second without a new process: a kill takes far less, and a process blocked in the kernel
(by an NFS server that is gone) would never end."""


Hold = tuple[int, bytes]
"""A rule set's descriptor, and a filter program."""


def hold(held: Hold | None, identity: tuple[int, int] | None) -> None:
    """Restrict the calling process permanently to what the rule set and the filter allow.

    `held` None: only change the user and set no new privileges. The user comes first, because that
    takes a privilege; the filter last, because it may refuse the other calls. Raises: OSError: the
    caller must not exec; PermissionError: it would still be the host's root.
    """
    if identity is not None:
        uid, gid = identity
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        # When no uid is 0 any more, the kernel drops all capabilities (capabilities(7)).
        os.setresuid(uid, uid, uid)
    # After the last change of credentials, which resets it.
    syscalls.set_death_signal(KILL_SIGNAL)
    # Threat: uid 0 without a user namespace owns /proc/sys and every root-owned file.
    if 0 in os.getresuid():
        raise PermissionError("a command never runs as the host's root")
    syscalls.set_no_new_privileges()
    if held is not None:
        ruleset_fd, program = held
        restrict_self(ruleset_fd)
        install_filter(program)


Process = tuple[int, int, int, str]
"""A process at one moment: pid, parent, start time and state. A pid can be reused, the pair of pid
and start time cannot."""


def descendants(ancestor: int) -> list[Process]:
    found: dict[int, list[Process]] = {}
    for pid in _pids():
        process = _read(pid)
        if process is not None:
            found.setdefault(process[1], []).append(process)
    below: list[Process] = []
    waiting = [ancestor]
    while waiting:
        children = found.get(waiting.pop(), [])
        below += children
        waiting += [pid for pid, *_ in children]
    return below


def end_descendants() -> set[int]:
    """Kill all descendants, which the caller reaps; return the pids that ran.

    First all are stopped, until no new one appears: a stopped process cannot fork.
    Threat: a chain of processes that fork and exit. None is reaped before all have ended: zombies
    count (RLIMIT_NPROC, getrlimit(2)), so the chain reaches its process limit and can be killed.
    """
    seen: set[tuple[int, int]] = set()
    if _has_living():
        for _ in range(_ROUNDS_MAX):
            if not _signal_all(STOP_SIGNAL, seen):
                break
        idle = 0
        while idle < _ROUNDS_MAX and _has_living():
            idle = 0 if _signal_all(KILL_SIGNAL, seen) else idle + 1
            time.sleep(_ROUND_S)
    return {pid for pid, _ in seen}


def _signal_all(number: int, seen: set[tuple[int, int]]) -> bool:
    """Signal all living descendants; return True if one was not in `seen`."""
    before = len(seen)
    for pid, _, start, state in descendants(os.getpid()):
        if state not in "ZX":
            seen.add((pid, start))
            _send(pid, start, number)
    return len(seen) > before


def _has_living() -> bool:
    # One atomic system call: a chain of forks can hide between two scans of /proc. Waiting only
    # for stops leaves ended children unreaped.
    try:
        os.waitid(os.P_ALL, 0, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def count_threads(uid: int) -> int:
    found = 0
    for pid in _pids():
        try:
            if os.stat(f"/proc/{pid}").st_uid == uid:
                found += int(init.stat_fields(b"/proc/%d" % pid)[17])
        except (OSError, IndexError):
            continue  # It ended meanwhile.
    return found


def _send(pid: int, start: int, number: int) -> None:
    """Threat: the pid may have been reused. A pidfd names one process; check its start time."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        now = _read(pid)
        if now is not None and now[2] == start:
            syscalls.send_signal(pidfd, number)
    except OSError:
        return
    finally:
        os.close(pidfd)


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def _read(pid: int) -> Process | None:
    fields = init.stat_fields(b"/proc/%d" % pid)
    if len(fields) < 20:
        return None
    state = fields[0].decode("ascii")
    if state in "ZX" and init.is_alive(b"%d" % pid):
        state = "S"  # its first thread has ended, another has not
    return pid, int(fields[1]), int(fields[19]), state


class CommandSupervisor(init.InitProcess):
    STATE_FILE = b""

    def __init__(self, control: _socket.socket, held: Hold | None, terms: list[str]) -> None:
        """`held` None: the command is not confined, at the operator's request.

        `terms` are user and group (-1: unchanged), processes, MB of memory, MB per file, seconds of
        processor time, and the command's private directory.
        """
        *numbers, scratch = terms
        self._uid, self._gid, self._processes, memory_mb, self._file_mb, self._cpu_s = map(
            int, numbers
        )
        self._scratch = os.fsencode(scratch)
        self._held = held
        super().__init__(control, (), memory_mb * 1024)

    def _spawn(self, start: Start, streams: list[int]) -> CommandReport | None:
        read_end, write_end = os.pipe()
        self._main = os.fork()
        if self._main == 0:
            step = NOT_CONFINED + b" start"
            try:
                step = self._become(start, streams, write_end)
            except OSError as error:
                step = b"%b %d %b" % (NOT_CONFINED, error.errno or 0, b"Landlock")
            finally:
                os.write(write_end, step[:_CODE_BYTES])
                syscalls.end_process(126)
        os.close(write_end)
        # Empty if exec succeeded and closed the other end.
        failure = os.read(read_end, _CODE_BYTES)
        os.close(read_end)
        if not failure:
            return None
        kind = NOT_STARTED if failure.startswith(NOT_STARTED) else NOT_CONFINED
        end_descendants()
        code, _, where = failure.removeprefix(kind).strip().partition(b" ")
        return CommandReport(kind, code=int(code) if code.isdigit() else errno.EPERM, where=where)

    def _become(self, start: Start, streams: list[int], write_end: int) -> bytes:
        os.setsid()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        held = self._held
        # `write_end` closes itself at exec.
        init.close_all_but({write_end} if held is None else {write_end, held[0]})
        for number in init.DEFAULT_SIGNALS:
            syscalls.use_default_action(number)
        uid = os.getuid() if self._uid < 0 else self._uid
        # Without a user namespace the kernel counts every thread of the user.
        most = count_threads(uid) + self._processes
        init.limit_resources(most, self._file_mb, self._cpu_s)
        hold(held, None if self._uid < 0 else (self._uid, self._gid))
        # Without a private root they cannot have the paths that they have in a sandbox.
        own = {b"HOME": self._scratch + b"/home", b"TMPDIR": self._scratch + b"/tmp"}
        # The filter is installed by now; it allows all the calls below.
        if held is not None:
            os.close(held[0])
            # The host's /etc/gitconfig exists but is unreadable, which makes git fail.
            own[b"GIT_CONFIG_NOSYSTEM"] = b"1"
        environment = init.environment_of(start) | own
        try:
            os.chdir(start.directory)
            program = init.find_program(start.argv[0], environment)
            os.execve(program, start.argv, environment)  # noqa: S606 - no shell is meant
        except OSError as error:
            where = os.fsencode(str(error.filename or ""))
            return b"%b %d %b" % (NOT_STARTED, error.errno or 0, where)

    # Only staged commands run in the background, and are terminated or held. Here there is no
    # process namespace, so a signal to all would reach every process of the user.

    def terminate(self) -> None:
        """Do nothing."""

    def hold(self, channel: _socket.socket) -> None:
        """Do nothing."""

    def used_kb(self) -> int:
        tree = [b"%d" % pid for pid, *_ in descendants(os.getpid())]
        return init.used_kb(tree, 0, self._memory_limit_kb)

    def _end_all(self) -> int:
        survivors = sum(pid != self._main for pid in end_descendants())
        self.reap()
        return survivors


def main(arguments: list[str]) -> None:
    control, ruleset, filter_, *terms = arguments
    held = None
    if UNHELD not in (ruleset, filter_):
        program_fd = int(filter_)
        held = int(ruleset), os.pread(program_fd, os.fstat(program_fd).st_size, 0)
        os.close(program_fd)
    syscalls.adopt_orphans()
    CommandSupervisor(_socket.socket(fileno=int(control)), held, terms).serve_order()


if __name__ == "__main__":
    main(sys.argv[1:])
