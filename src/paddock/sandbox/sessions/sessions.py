"""The sessions of one agent's shell, and its background commands."""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock.errors import (
    HostError,
    InvalidArgumentsError,
    SandboxUnavailableError,
    SessionChangedError,
)
from paddock.sandbox.conversation import Observed, variables_of
from paddock.sandbox.sessions.process import SHOWN_MAX, Process
from paddock.sandbox.sessions.shared_state import NEW, SharedSpace, Snapshot, read_snapshot
from paddock.sandbox.staged import StagedCommand, host_failures
from paddock.sandbox.values import (
    CommandEnd,
    CommandRequest,
    Ending,
    PreparedLine,
    ShellOutcome,
    Stream,
)
from paddock.text.show import quote

if TYPE_CHECKING:
    from paddock.network.decisions import Witness
    from paddock.network.wall import Wall
    from paddock.sandbox.shell import SandboxShell

PROGRAM: Final = "@program"
"""The session of the embedding program's commands; no call can name it."""
PROCESSES_MAX: Final = 16
_SESSIONS_MAX: Final = 16
_UNUSED_S: Final = 3600.0
_ENDED_KEPT: Final = 16
_SAID_LATER: Final = Stream(""), Stream("")
"""Empty: the output of a running command is read separately."""


class ShellSession:
    """Commands run in turn, with a shared network and /tmp, each from the last one's state.

    The embedding program's commands start without state, and do not wait for each other.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.keeps_state = name != PROGRAM
        self.turn = threading.Lock()
        self.space: SharedSpace | None = None
        self.snapshot = NEW
        self.used_s = time.monotonic()

    def close(self) -> None:
        space, self.space, self.snapshot = self.space, None, NEW
        if space is not None:
            space.close()

    def take(self, end: CommandEnd, request: CommandRequest) -> bool:
        """Keep the state that a command's shell left; return False if it cannot be read."""
        if not self.keeps_state or end.ending is not Ending.EXITED:
            return True
        never = (
            ()
            if self.space is None or self.space.network is None
            else (name for name, _ in self.space.network.placeholders())
        )
        found = read_snapshot(end.left, variables_of(request), frozenset(never))
        if found is not None:
            self.snapshot = found
        return found is not None


class Sessions:
    def __init__(self, shell: "SandboxShell") -> None:
        self._shell = shell
        self._lock = threading.Lock()
        self._sessions: dict[str, ShellSession] = {}
        self._processes: dict[str, Process] = {}
        self.on_end: Callable[[str], None] = lambda _: None
        """Called with the name of a process that has ended, in its thread, to conclude it.

        Until a runtime sets it, changes are dropped with the shell.
        """

    # --- sessions ---------------------------------------------------------------------

    def snapshot(self, name: str) -> Snapshot:
        with self._lock:
            session = self._sessions.get(name)
            return NEW if session is None else session.snapshot

    @contextlib.contextmanager
    def turn(
        self, prepared: PreparedLine, witness: "Witness | None"
    ) -> Generator[tuple[ShellSession, SharedSpace]]:
        """Hold a session for one command. Raises: SessionChangedError, HostError."""
        line = prepared.line
        session = self._find(line.session)
        with contextlib.ExitStack() as turn:
            turn.enter_context(session.turn)
            if line.starts_anew:
                self._end_processes(session.name)
                session.close()
            if session.snapshot.preamble != line.preamble:
                raise SessionChangedError(
                    f"the session {quote(line.session)} has changed since this line was judged",
                    hint="call again",
                )
            if session.space is None:
                session.space = self._shell.share(prepared, witness)
            elif session.space.network is not None and witness is not None:
                # It asks and records for the command that was started last.
                session.space.network.terms.witness = witness
            session.used_s = time.monotonic()
            space = session.space
            if not session.keeps_state:
                turn.close()
            yield session, space

    def end(self, name: str) -> None:
        """End a session and its running commands. Raises: InvalidArgumentsError."""
        with self._lock:
            session = self._sessions.pop(name, None)
        if session is None:
            raise InvalidArgumentsError(
                f"no session named {quote(name)}",
                where="session",
                hint="shell_list names the open sessions",
            )
        self._end_processes(name)
        with session.turn:
            session.close()

    def names(self) -> list[str]:
        with self._lock:
            return sorted(name for name, each in self._sessions.items() if each.keeps_state)

    def network(self, name: str) -> "Wall | None":
        """Return the wall of the network that a session's commands share."""
        with self._lock:
            session = self._sessions.get(name)
        return None if session is None or session.space is None else session.space.network

    def _find(self, name: str) -> ShellSession:
        self._end_unused()
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                if len(self._sessions) >= _SESSIONS_MAX:
                    raise SandboxUnavailableError(
                        f"{_SESSIONS_MAX} sessions are open already",
                        hint="end one with shell_stop, or continue in one that shell_list names",
                    )
                session = self._sessions[name] = ShellSession(name)
            return session

    def _end_unused(self) -> None:
        busy = {each.prepared.line.session for each in self.running()}
        now = time.monotonic()
        with self._lock:
            unused = [
                each
                for each in self._sessions.values()
                if each.keeps_state
                and now - each.used_s > _UNUSED_S
                and each.name not in busy
                and not each.turn.locked()
            ]
            for each in unused:
                del self._sessions[each.name]
        for each in unused:
            each.close()

    # --- processes --------------------------------------------------------------------

    def start(self, prepared: PreparedLine, request: CommandRequest, observed: Observed) -> Process:
        """Start a background command. Raises: SandboxUnavailableError, HostError."""
        with self._lock:
            if sum(each.is_running for each in self._processes.values()) >= PROCESSES_MAX:
                raise SandboxUnavailableError(
                    f"{PROCESSES_MAX} commands are running already",
                    hint="end one with shell_stop; shell_list names them",
                )
            process = Process(f"SHP-{secrets.token_hex(4)}", prepared, self._shell.open_spooling())
            self._processes[process.name] = process
            ended = [name for name, each in self._processes.items() if each.outcome is not None]
            for name in ended[:-_ENDED_KEPT]:
                del self._processes[name]
        try:
            self._begin(process, request, observed)
        except BaseException:
            with self._lock:
                del self._processes[process.name]
            process.spooling.close()
            raise
        return process

    def _begin(self, process: Process, request: CommandRequest, observed: Observed) -> None:
        observed = replace(
            observed,
            spools=process.spooling.spools,
            on_output=observed.on_output or process.transcript.add,
            on_terminal=process.take_terminal,
            on_begun=process.begun.set,
        )
        with self.turn(process.prepared, observed.witness) as (session, space):
            if not process.has_terminal:
                request = replace(request, stdin=process.open_input())
            request = replace(request, script=session.snapshot.script())

            process.begin(
                lambda: self._shell.run_in_stage(request, observed, space, process.show),
                lambda: self.on_end(process.name),
            )

    def process(self, name: str) -> Process:
        """Raises: InvalidArgumentsError: no process has that name."""
        with self._lock:
            process = self._processes.get(name)
        if process is None:
            raise InvalidArgumentsError(
                f"no process named {quote(name)}",
                where="process",
                hint="shell_list names the processes",
            )
        return process

    def all(self) -> list[Process]:
        with self._lock:
            return list(self._processes.values())

    def running(self) -> list[Process]:
        return [each for each in self.all() if each.is_running]

    def finish(self, process: Process) -> ShellOutcome:
        """End it if it still runs, and land its changes, once. Raises: PaddockError."""
        with process.turn:
            if process.outcome is not None:
                return process.outcome
            process.stop()
            if process.command is None:
                with host_failures():
                    raise process.failure or HostError("a command ended without a report")
            with contextlib.closing(process.spooling):
                streams = process.spooling.streams(process.command.end)
                outcome = self._shell.conclude(process.prepared, process.command, streams)
            process.outcome = replace(outcome, changed=(), waiting=None)
            # It has a copy of some of the output.
            process.command = None
            return outcome

    def discard(self, process: Process) -> None:
        """End it, and discard its changes since they were last landed."""
        with process.turn:
            process.stop()
            process.spooling.close()
            if process.command is not None:
                process.command.close()
        with self._lock:
            self._processes.pop(process.name, None)

    def sync(self, process: Process) -> ShellOutcome:
        """Land its changes so far, while it keeps running. Raises: PaddockError."""
        with process.turn:
            view = process.view
            if view is None or not process.is_running:
                raise InvalidArgumentsError(
                    f"{process.name} has ended", where="process", hint="shell_output says how"
                )
            with host_failures():
                copied, ran = view.copy()
            ran = replace(ran, on_landed=partial(self.changed, by=process))
            command = StagedCommand(view.place, ran)
            outcome = self._shell.conclude(process.prepared, command, _SAID_LATER)
            landed = {each.path.relative for each in outcome.changed}
            # A path that is the same on both sides counts as landed.
            view.landed(copied.marks.keys() - (command.paths - landed), copied.marks)
            return outcome

    def changed(self, paths: Iterable[str], by: Process | None = None) -> None:
        """Show every running command the changes of another process or tool."""
        listed = list(paths)
        for process in self.running():
            view = process.view
            if process is by or view is None or not listed:
                continue
            if len(listed) > SHOWN_MAX:
                view.unseen.update(listed)
            else:
                view.update(listed)

    def hide(self, closed: Iterable[str]) -> None:
        """Hide paths from every running command that were closed after its start."""
        names = frozenset(closed)
        for process in self.running():
            view = process.view
            if view is not None and (new := names - view.hidden) and view.update(new):
                view.hidden |= new

    def close(self) -> None:
        for process in self.running():
            if process.view is not None:
                process.view.end()
        for process in self.all():
            process.stop()
            if process.outcome is None and process.command is not None:
                process.command.close()
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()

    def _end_processes(self, session: str) -> None:
        """Stop a session's processes and wait until `on_end` has handled each of them."""
        ended = [each for each in self.running() if each.prepared.line.session == session]
        for process in ended:
            process.stop()
        for process in ended:
            process.join()
