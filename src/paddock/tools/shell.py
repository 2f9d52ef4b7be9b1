"""`run_shell` and `run_shell_dev`: run one line of shell under the policy.

The line is judged before it runs, command by command; its changes are judged after it,
path by path, before they reach the workspace. If policy asks about the diff and not
about the line, the line runs first and its changes are held back.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.pattern import lazy_pattern
from paddock.policy.profiles import written_path
from paddock.sandbox.sessions.shared_state import NEW
from paddock.sandbox.values import CommandWatch, Ending, PreparedLine, ShellLine
from paddock.text.show import quote
from paddock.tools import arguments as fields
from paddock.tools.outcome import SHELL_SCHEMA, shell_output
from paddock.tools.spec import (
    Effects,
    Ports,
    StoppedCallError,
    Tool,
    ToolOutput,
    ToolSpec,
    shell_of,
)
from paddock.values.calls import LeftEffect
from paddock.values.decisions import HELD_WHOLE, Action, Held
from paddock.workspace.listing import is_directory

if TYPE_CHECKING:
    from paddock.sandbox.staged import HeldCommand

_DEV_TIMEOUT_DEFAULT_S: Final = 30
_ENV_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")

_COMMAND: Final = "The shell line to run, by bash if available, else by sh."
_TIMEOUT: Final = "Seconds until the command and all its child processes are killed."
_CWD: Final = "Directory to run it in, relative to the workspace root."
_DRY_RUN: Final = (
    "Run it and show what it would change, but change nothing. Everything outside of the "
    "workspace is read-only, and the host's network is unavailable."
)


class ShellArguments(fields.ArgumentType):
    command: str = fields.needed_text(_COMMAND)
    timeout: int = fields.clamped_integer(
        f"{_TIMEOUT} Policy may set another maximum.",
        limits.shell_timeout_default_s,
        minimum=1,
        limit="shell_timeout_s",
    )
    cwd: str = fields.filled_text(_CWD, ".")
    dry_run: bool = fields.flag(_DRY_RUN, default=False)
    stdin: str = fields.content_text("Text for the command's standard input.")
    env: Mapping[str, str] | None = fields.text_map(
        "Additional environment variables for the command; policy limits which may be set."
    )
    session: str | None = fields.optional_text(
        "Session name. The command continues from the session's last command: same directory, "
        "variables, functions and options. Commands of a session share /tmp and loopback."
    )
    reset: bool = fields.flag(
        "Start the session from scratch and stop its background commands.", default=False
    )
    background: bool = fields.flag(
        "Start the command and return at once; use shell_output, shell_input, shell_sync and "
        "shell_stop with it. It runs until it ends or is stopped, without timeout; then its "
        "changes are brought in.",
        default=False,
    )
    tty: bool = fields.flag(
        "With background: give it a terminal (TERM=xterm-256color).", default=False
    )
    columns: int = fields.clamped_integer("Width of the terminal.", 80, minimum=20, maximum=500)
    rows: int = fields.clamped_integer("Height of the terminal.", 24, minimum=5, maximum=200)


class ShellDevArguments(fields.ArgumentType):
    command: str = fields.needed_text(_COMMAND)
    timeout: int = fields.clamped_integer(
        _TIMEOUT,
        _DEV_TIMEOUT_DEFAULT_S,
        minimum=1,
        maximum=limits.shell_dev_timeout_s,
        limit="shell_timeout_s",
    )
    cwd: str = fields.filled_text(_CWD, ".")
    dry_run: bool = fields.flag(_DRY_RUN, default=False)


class ShellPlan(Struct, frozen=True):
    line: ShellLine
    actions: tuple[Action, ...]
    prepared: PreparedLine | None = None
    held: "HeldCommand | None" = None  # set if it has run and its changes were approved
    in_background: bool = False


class LineRun:
    def confine(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, Held]:
        prepared = shell_of(ports).prepare(plan.line)
        held = prepared.held
        return replace(plan, prepared=replace(prepared, is_confined=held == HELD_WHOLE)), held

    def pin(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, str]:
        prepared = plan.prepared or shell_of(ports).prepare(plan.line)
        return replace(plan, prepared=prepared), prepared.digest

    def asks_about_effect(self, plan: ShellPlan, ports: Ports) -> bool:
        prepared = plan.prepared
        is_asked = prepared is not None and shell_of(ports).asks_about_diff(prepared)
        # A background command makes changes later, so the approval is about the command.
        return is_asked and not plan.line.is_dry_run and not plan.in_background

    def stage(self, plan: ShellPlan, ports: Ports) -> "tuple[ShellPlan, HeldCommand]":
        prepared = plan.prepared or shell_of(ports).prepare(plan.line)
        held = shell_of(ports).stage(prepared, _watch(ports))
        return replace(plan, held=held), held

    def run(self, plan: ShellPlan, ports: Ports) -> ToolOutput:
        if plan.held is not None:
            outcome = plan.held.commit()
        else:
            prepared = plan.prepared or shell_of(ports).prepare(plan.line)
            if plan.in_background:
                # No output callback: the call ends before the command prints.
                watch = CommandWatch(network=ports.network)
                name = shell_of(ports).start(prepared, watch).name
                session = plan.line.session
                said = (
                    f"{name} runs in the background, in session {session}: give session={session}"
                    " to reach its ports; shell_output shows what it prints"
                )
                return ToolOutput(said, {"process": name, "running": True})
            outcome = shell_of(ports).run(prepared, _watch(ports))
        if outcome.ending is Ending.CANCELLED:
            raise StoppedCallError(LeftEffect.NONE if outcome.is_staged else LeftEffect.UNKNOWN)
        return shell_output(outcome, ports)

    def release(self, plan: ShellPlan) -> None:
        """Discard what was held back, but nothing that was committed."""
        if plan.held is not None:
            plan.held.close()


class RunShell(LineRun):
    def resolve(self, arguments: ShellArguments | ShellDevArguments, ports: Ports) -> ShellPlan:
        """Raises: InvalidArgumentsError (a NUL, or too long to run), PathError (the directory)."""
        require_runnable(arguments.command)
        cwd = resolve_directory(arguments.cwd, ports)
        line = ShellLine(arguments.command, cwd, arguments.timeout, arguments.dry_run)
        if isinstance(arguments, ShellArguments):
            _require_input(arguments)
            env = tuple(sorted((arguments.env or {}).items()))
            line = replace(line, stdin=arguments.stdin.encode(), env=env)
            line = _session_line(line, arguments, ports)
        actions = (Action("shell", "run", line.preamble + line.text), *writes_from(line))
        if getattr(arguments, "background", False):
            return ShellPlan(line, (*actions, Action("shell", "process")), in_background=True)
        return ShellPlan(line, actions)


def _watch(ports: Ports) -> CommandWatch:
    return CommandWatch(ports.cancel, ports.on_output, ports.network)


def require_runnable(command: str, bytes_max: int = limits.command_bytes_max) -> None:
    if "\0" in command:
        raise errors.InvalidArgumentsError(
            "command has a NUL character", where="command", hint="arguments cannot hold NUL"
        )
    size = len(command.encode())
    if size > bytes_max:
        raise errors.InvalidArgumentsError(
            f"command has {size} bytes, {bytes_max} are allowed",
            where="command",
            hint="write it to a file and run that",
        )


def _require_input(arguments: ShellArguments) -> None:
    size = len(arguments.stdin.encode())
    if size > limits.content_bytes_max:
        raise errors.InvalidArgumentsError(
            f"stdin has {size} bytes, {limits.content_bytes_max} are allowed",
            where="stdin",
            hint="write it to a file and let the command read that",
        )
    env = arguments.env or {}
    require_variables(env)
    taken = sum(len(name) + len(value.encode()) + 2 for name, value in env.items())
    if len(env) > limits.shell_env_names_max or taken > limits.shell_env_bytes_max:
        raise errors.InvalidArgumentsError(
            f"env has {len(env)} variables of {taken} bytes; {limits.shell_env_names_max} of "
            f"{limits.shell_env_bytes_max} bytes together are allowed",
            where="env",
            hint="pass long values as stdin",
        )


def require_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if _ENV_NAME.fullmatch(name) is None or "\0" in value:
            raise errors.InvalidArgumentsError(
                f"env: {quote(name)} is not a variable name, or its value has a NUL character",
                where="env",
                hint='use letters, digits and _ in names, as in {"CI": "1"}',
            )


_BACKGROUND_SESSION: Final = "background"  # the default session of background commands
_SESSION_NAME: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _session_line(line: ShellLine, given: ShellArguments, ports: Ports) -> ShellLine:
    """Return the line with the state of its session. Raises: InvalidArgumentsError."""
    session = given.session or (_BACKGROUND_SESSION if given.background else "")
    if session and _SESSION_NAME.fullmatch(session) is None:
        raise errors.InvalidArgumentsError(
            f"session: {quote(session)} is not a valid name",
            where="session",
            hint="use 1 to 64 letters, digits, dots, underscores or hyphens",
        )
    for name, is_given in (("reset", given.reset and not session), ("tty", given.tty)):
        if is_given and not given.background:
            needs = "background" if name == "tty" else "session"
            raise errors.InvalidArgumentsError(
                f"{name} needs {needs}", where=name, hint=f"give {needs} as well"
            )
    if given.background and (given.dry_run or given.stdin):
        raise errors.InvalidArgumentsError(
            "a background command takes neither dry_run nor stdin",
            where="background",
            hint="send it text with shell_input",
        )
    if not session:
        return line
    snapshot = NEW if given.reset else shell_of(ports).sessions.snapshot(session)
    terminal = (given.columns, given.rows) if given.tty else (0, 0)
    line = replace(
        line,
        session=session,
        preamble=snapshot.preamble,
        starts_anew=given.reset,
        terminal=terminal,
    )
    return replace(line, cwd=_session_cwd(snapshot.directory, line.cwd, ports))


def _session_cwd(directory: str, cwd: str, ports: Ports) -> str:
    """Return the working directory of a session's line, from which its writes are judged."""
    root = ports.workspace.root
    if cwd != "." or not f"{directory}/".startswith(f"{root}/"):
        return cwd
    relative = directory[len(root) + 1 :] or "."
    try:
        return resolve_directory(relative, ports)
    except errors.PathError:
        return cwd  # it was removed; the command reports that


def resolve_directory(cwd: str, ports: Ports) -> str:
    try:
        path = ports.workspace.resolve_read(cwd).real
    except errors.PathTraversalError as error:
        raise errors.PathTraversalError(f"cwd: {error.message}", hint=error.hint) from error
    except errors.PathNotADirectoryError as error:
        raise _no_directory(cwd) from error
    except errors.PathError as error:
        raise errors.InvalidPathError(f"cwd: {error.message}", hint=error.hint) from error
    is_named = path.is_root or ports.shown.is_shown(path.relative)
    if not is_named or not is_directory(ports.workspace, path):
        raise _no_directory(cwd)
    return path.relative


def _no_directory(cwd: str) -> errors.PathNotADirectoryError:
    return errors.PathNotADirectoryError(
        f"cwd is not a directory: {quote(cwd)}", hint="name a directory of the workspace"
    )


def writes_from(line: ShellLine) -> list[Action]:
    """Return actions for the line's redirections: policy alone resolves them from the root."""
    if line.cwd == ".":
        return []
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - for few calls of one tool

    found = (written_path(target, line.cwd) for target in parse_line(line.text).writes)
    return [Action("file", "create", path) for path in dict.fromkeys(found) if path]


RUN_SHELL: Final = Tool(
    ToolSpec(
        name="run_shell",
        title="Run command",
        description=(
            "Run one shell line in a sandbox over the workspace. Policy then judges each changed "
            "file: allowed changes are kept, others are refused and listed. HOME and /tmp are "
            "private and deleted afterwards, except tool caches. There is no network access "
            "unless policy grants it. All its processes end with it. Use session to keep the "
            "shell's state for the next call, background to keep it running."
        ),
        toolset="shell",
        arguments=ShellArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=SHELL_SCHEMA,
    ),
    RunShell(),
)


RUN_SHELL_DEV: Final = Tool(
    ToolSpec(
        name="run_shell_dev",
        title="Run command (development)",
        description=(
            "Run one shell line in a sandbox over the workspace. Any command may run. Policy "
            "then judges each changed file: allowed changes are kept, others are refused and "
            "listed. Standard input is empty, HOME and /tmp are private, and all its processes "
            "end with it."
        ),
        toolset="development",
        arguments=ShellDevArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=SHELL_SCHEMA,
    ),
    RunShell(),
)
