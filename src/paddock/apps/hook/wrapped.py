"""Run a client's command in Paddock's sandbox, started by the client's shell.

The rewritten line (`lean.flow.wrap_input`) starts `exec.py`, which runs the command as the
agent's `run_shell`, judged like any other call. A signal, the end of the client's shell or the
client's time limit ends the command and discards its changes: at its limit Claude Code would only
move the shell to the background. Afterwards the client's shell changes to the command's directory.

A background command has no time limit. A signal, or the end of the shell or of the client, is its
normal end: its changes are judged and land. It shares its network with the commands of its session.
"""

import argparse
import os
import select
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, Literal

from msgspec import Struct

from paddock.apps.hook.confinement import forget_host
from paddock.apps.hook.tickets import CommandAsked, TicketApprover, Tickets
from paddock.assembly.project import Project
from paddock.assembly.project_open import open_given
from paddock.assembly.runtimes import open_runtime
from paddock.errors import CallCancelledError, PaddockError, SandboxUnavailableError
from paddock.limits import shell_timeout_raised_s
from paddock.plane.environment import process_environment, process_variables, real_path
from paddock.policy.decide import shell_for
from paddock.policy.settings import covers
from paddock.providers.failures import CancelToken
from paddock.runtime.prepared import Bounds
from paddock.sandbox.sessions.client_session import ClientSession
from paddock.tools.outcome import has_lost_changes, last_words
from paddock.values.calls import Json, ToolResult
from paddock.values.decisions import client_kind

REFUSED: Final = 126
"""The status of a command that may not be executed (POSIX, Exit Status for Commands)."""
WAITS: Final = 125
"""The status if changes await approval; env(1) and timeout(1) use it when they fail themselves."""
TIMED_OUT: Final = 124
LOST: Final = 123
"""The status if it succeeded and some of its changes were refused, which `&&` must not miss."""
_STARTING_S: Final = 2.0
"""Reserved from the client's time limit for the sandbox to start and end, so that we end first."""
_STREAMS: Final = {"stdout": 1, "stderr": 2}
_DIRECTORY_FD: Final = 3
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WrappedCommand(Struct, frozen=True):
    command: str
    agent: str
    directory: str = "."
    kind: str = ""
    """The client's agent type, if it is not an agent of the plane."""
    shell: int = 0
    call_id: str = ""
    limit_ms: int = 0
    """The client's timeout for this command; 0 if it gave none."""
    session: str = ""
    """The directory of the client's session."""
    lock: int = -1
    """The descriptor by which this process has locked it already."""
    background: bool = False
    client: int = 0
    """The process that started the shell, for a background command."""
    ticket: str = ""
    """The ticket of the user's approval in the client, where policy asks."""


def run_wrapped(project: Project, wrapped: WrappedCommand) -> int:
    """Run it on this process's streams; return the status. Raises: as `open_runtime`."""
    ended_in: list[str] = []
    arguments: dict[str, Json] = {"command": wrapped.command, "cwd": wrapped.directory}
    if not wrapped.background:
        # The longest that policy permits: the client applies its own limit.
        arguments["timeout"] = shell_timeout_raised_s
    session = _session_of(wrapped)
    question = CommandAsked(wrapped.command, wrapped.agent, wrapped.kind, wrapped.directory)
    env = _named_variables(project, wrapped)
    if env:
        arguments["env"] = env
    with _ended_early(wrapped, session) as stop:
        bounds = Bounds(cancel=stop.token, client_call=wrapped.call_id, on_output=stop.pass_on)
        with open_runtime(
            project,
            agent=wrapped.agent,
            approver=TicketApprover(Tickets(project.layout), wrapped.ticket, question),
            # Without it, the shell becomes the command, and hears itself that it is to end.
            on_directory=None if wrapped.background else ended_in.append,
            kind=wrapped.kind,
            client=session,
        ) as runtime:
            result = runtime.call("run_shell", arguments, bounds=bounds)
        code = "" if result.refusal is None else result.refusal.code
        if code == CallCancelledError.code:
            return _report_end(stop, _limit_s(wrapped))
        if code == SandboxUnavailableError.code:
            forget_host(project.environment)
    _pass_directory(project, wrapped, ended_in)
    return _report(result)


def _session_of(wrapped: WrappedCommand) -> ClientSession | None:
    if not wrapped.session:
        return None
    who = wrapped.agent, wrapped.kind
    return ClientSession(
        Path(wrapped.session), who, is_background=wrapped.background, lock=wrapped.lock
    )


def _limit_s(wrapped: WrappedCommand) -> float:
    """Return the client's limit (default: two minutes) less the reserve; 0: no limit."""
    if wrapped.background:
        return 0.0
    variables = process_variables()
    given = variables.get("BASH_DEFAULT_TIMEOUT_MS", "")
    default_ms = int(given) if given.isdecimal() else 120_000
    limit_ms = wrapped.limit_ms or ("CLAUDECODE" in variables) * default_ms
    return max(limit_ms / 1000 - _STARTING_S, limit_ms / 2000)


def _report_end(stop: "_Stop", limit_s: float) -> int:
    kept = "its changes were discarded"
    if stop.number:
        _say(f"the command was stopped by {signal.Signals(stop.number).name}; {kept}")
        return 128 + stop.number
    _say(
        f"the command was stopped after {limit_s:g} s, the client's time limit; {kept}; "
        "run it again with a longer timeout"
    )
    return TIMED_OUT


def _named_variables(project: Project, wrapped: WrappedCommand) -> dict[str, Json]:
    """Return the shell's variables that a call may set. Raises: UsageError, ConfigError."""
    record = project.agents.read(wrapped.agent)
    chain = project.agents.chain(wrapped.agent)
    chain = client_kind(chain, wrapped.kind) if wrapped.kind else chain
    patterns = shell_for(project.policy_for(record), chain).env
    return {
        name: value
        for name, value in process_variables().items()
        if value.isprintable() and any(covers(pattern, name) for pattern in patterns)
    }


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("exec.py", allow_abbrev=False)
    parser.add_argument("--plane", required=True)
    parser.add_argument("--agent", required=True)
    parser.add_argument("--directory", default=".")
    parser.add_argument("--kind", default="")
    parser.add_argument("--call", dest="call_id", default="")
    parser.add_argument("--ticket", default="")
    parser.add_argument("--limit-ms", type=int, default=0)
    parser.add_argument("--session", default="")
    parser.add_argument("--lock", type=int, default=-1)
    parser.add_argument("--background", action="store_true")
    parser.add_argument("--shell", type=int, default=0)
    parser.add_argument("--client", type=int, default=0)
    parser.add_argument("command")
    options = vars(parser.parse_args(arguments))
    plane = Path(options.pop("plane"))
    try:
        return run_wrapped(open_given(plane, process_environment()), WrappedCommand(**options))
    except PaddockError as error:
        hint = f" ({error.hint})" if error.hint else ""
        _say(f"the command did not run: {error.message}{hint}")
    except Exception as error:  # Fail closed: report a bug in one line.
        _say(f"the command failed: a defect of Paddock, {type(error).__name__}")
    return REFUSED


class _Stop:
    """The early end of a command. Signal handlers call it in the main thread."""

    def __init__(self, session: ClientSession | None) -> None:
        self.token = CancelToken()
        self._session = session
        self.number = 0
        """The first signal; 0 for the time limit."""

    def end(self, number: int, _frame: FrameType | None) -> None:
        if self.number:
            return
        self.number = number
        # In a new thread: the interrupted one may hold the token's lock.
        threading.Thread(target=self._end, name="paddock-cancel", daemon=True).start()

    def _end(self) -> None:
        session = self._session
        if session is None or not session.is_background or not session.stop():
            self.token.cancel()

    def pass_on(self, stream: Literal["stdout", "stderr"], chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest and not self.token.is_cancelled:
            try:
                rest = rest[os.write(_STREAMS[stream], rest) :]
            except BrokenPipeError:
                # The reader has closed the pipe.
                self.end(signal.SIGPIPE, None)
                return


@contextmanager
def _ended_early(wrapped: WrappedCommand, session: ClientSession | None) -> Generator[_Stop]:
    stop = _Stop(session)
    with ExitStack() as held:
        for number in _ENDING:
            held.callback(signal.signal, number, signal.signal(number, stop.end))
        # Threat: the client is killed, and its shell lives on.
        for watched in filter(None, (wrapped.shell, wrapped.client)):
            threading.Thread(target=_watch, args=(watched,), daemon=True).start()
        limit_s = _limit_s(wrapped)
        if limit_s:
            timer = threading.Timer(limit_s, stop.token.cancel)
            timer.daemon = True
            timer.start()
            held.callback(timer.cancel)
        yield stop


def _watch(process: int) -> None:
    """End this process when the client, or its shell, ends, even if that was killed."""
    try:
        watched = os.pidfd_open(process)
    except OSError:
        os.kill(os.getpid(), signal.SIGHUP)
        return
    waiting = select.poll()
    waiting.register(watched, select.POLLIN)
    waiting.poll()
    os.kill(os.getpid(), signal.SIGHUP)


def _pass_directory(project: Project, wrapped: WrappedCommand, ended_in: list[str]) -> None:
    """Pass the shell's new working directory to the client's shell, if it has changed.

    Threat: the command chooses it. Only an existing directory of the workspace is accepted.
    """
    workspace = real_path(project.agents.read(wrapped.agent).workspace)
    if not ended_in or not os.path.isabs(ended_in[0]):
        return
    there = real_path(Path(ended_in[0]))
    is_inside = there == workspace or there.is_relative_to(workspace)
    if there == real_path(workspace / wrapped.directory) or not is_inside or not there.is_dir():
        return
    # The dot protects the name's own newlines: `$(…)` strips trailing ones.
    said = os.fsencode(f"{project.name_of(there)}/.")
    try:
        os.write(_DIRECTORY_FD, said)
    except OSError:
        # Started by hand: the descriptor is not open.
        return


def _report(result: ToolResult) -> int:
    details = result.details
    if result.refusal is not None:
        sys.stderr.write(f"{result.content}\n")
        return REFUSED
    for line in last_words(details):
        sys.stderr.write(f"{line}\n")
    if "pending" in details:
        return WAITS
    status = details.get("exit_code")
    if not isinstance(status, int) or status < 0:
        return TIMED_OUT
    return status or int("conflict" in details) or has_lost_changes(details) * LOST


def _say(text: str) -> None:
    sys.stderr.write(f"paddock: {text}\n")
