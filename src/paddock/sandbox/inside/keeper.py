"""The keeper of one command without namespaces: a program, one for each command.

It starts the command held to a Landlock rule set, keeps its time and memory, adopts its orphans
(never restricted itself), and kills what is left. It speaks what `init` speaks. Started by its
path, with the descriptors of a socket, a rule set and a filter, and the numbers of `Terms`.
"""

from __future__ import annotations

import _socket
import errno
import os
import resource
import sys
import time

# This file is a program: the package's own __init__ is not run, for it loads what is not needed.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for _name, _path in (("paddock", _PACKAGE), ("paddock.sandbox", f"{_PACKAGE}/sandbox")):
    if _name not in sys.modules:
        sys.modules[_name] = type(sys)(_name)
        sys.modules[_name].__path__ = [_path]

from paddock.kernel import processes  # noqa: E402 - after the path
from paddock.kernel.processes import adopt_orphans, use_default_action  # noqa: E402 - after the path
from paddock.sandbox.inside import landlocked  # noqa: E402 - after the path
from paddock.sandbox.inside.init import (  # noqa: E402 - after the path
    DEFAULT_SIGNALS,
    environment_of,
    find_program,
    limit_processor_time,
    receive_order,
    send_report,
    watch,
)
from paddock.sandbox.inside.protocol import (  # noqa: E402 - after the path
    NOT_CONFINED,
    NOT_STARTED,
    UNHELD,
    CommandReport,
    Start,
)

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
    def __init__(self, control: _socket.socket, held: landlocked.Hold | None, terms: Terms) -> None:
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
            landlocked.end_descendants()
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
        landlocked.hold(held, identity)
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
            (resource.RLIMIT_NPROC, landlocked.count_threads(uid) + terms.processes),
        ):
            _, hard = resource.getrlimit(what)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(what, (most, most))
        limit_processor_time(terms.cpu_s)

    def reap(self) -> None:
        self._take_in(landlocked.reap())

    def used_kb(self) -> int:
        return landlocked.used_kb(self._terms.memory_kb)

    def _end_all(self) -> int:
        ended = landlocked.end_descendants()
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
        held = landlocked.Hold(int(ruleset), os.pread(program_fd, os.fstat(program_fd).st_size, 0))
        os.close(program_fd)
    adopt_orphans()
    CommandSupervisor(_socket.socket(fileno=int(control)), held, Terms(terms)).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
