"""What `run_shell` and `run_shell_dev` do: one line of shell, held to the policy.

The line is judged before it runs, command by command; what it changed is judged after,
path by path, and only then comes into the workspace. Where policy wants a question to be
about the difference and not about the line, the line runs first and is held back.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.pattern import lazy_pattern
from paddock.policy.profiles import written_path
from paddock.sandbox.sessions.shared_state import NEW
from paddock.sandbox.values import (
    CommandWatch,
    Ending,
    HeldLine,
    PreparedLine,
    ShellLine,
)
from paddock.text.show import quote
from paddock.tools.arguments import (
    ArgumentType,
    clamped_integer,
    content_text,
    filled_text,
    flag,
    needed_text,
    optional_text,
    text_map,
)
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

_DEV_TIMEOUT_DEFAULT_S: Final = 30
_ENV_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")

_COMMAND: Final = "The line, read by bash where there is one, else by sh."
_TIMEOUT: Final = "Seconds until it is ended with everything that it started."
_CWD: Final = "Directory to run it in, relative to the workspace root."
_DRY_RUN: Final = (
    "Run it, show what it would change, and change nothing: outside of the workspace "
    "everything is read-only, and the host's network is closed."
)


class ShellArguments(ArgumentType):
    command: str = needed_text(_COMMAND)
    timeout: int = clamped_integer(
        f"{_TIMEOUT} Policy may say otherwise how long that is at most.",
        limits.shell_timeout_default_s,
        minimum=1,
        limit="shell_timeout_s",
    )
    cwd: str = filled_text(_CWD, ".")
    dry_run: bool = flag(_DRY_RUN, default=False)
    stdin: str = content_text("Text for the command's standard input.")
    env: Mapping[str, str] | None = text_map(
        "Variables for the command, besides those that it has; policy says which may be set."
    )
    session: str | None = optional_text(
        "A name: the command begins where the last one of this session ended, with its directory, "
        "variables, functions and options, and they share /tmp and a loopback."
    )
    reset: bool = flag("Begin the session anew, and end what runs in it.", default=False)
    background: bool = flag(
        "Return at once; shell_output, shell_input, shell_sync and shell_stop go on with it. It "
        "runs until it ends or is stopped; what it changed is brought in then.",
        default=False,
    )
    tty: bool = flag(
        "In the background: give it a terminal of its own, an xterm-256color.", default=False
    )
    columns: int = clamped_integer("Of the terminal.", 80, minimum=20, maximum=500)
    rows: int = clamped_integer("Of the terminal.", 24, minimum=5, maximum=200)


class ShellDevArguments(ArgumentType):
    command: str = needed_text(_COMMAND)
    timeout: int = clamped_integer(
        _TIMEOUT,
        _DEV_TIMEOUT_DEFAULT_S,
        minimum=1,
        maximum=limits.shell_dev_timeout_s,
        limit="shell_timeout_s",
    )
    cwd: str = filled_text(_CWD, ".")
    dry_run: bool = flag(_DRY_RUN, default=False)


class ShellPlan(Struct, frozen=True):
    line: ShellLine
    actions: tuple[Action, ...]
    prepared: PreparedLine | None = None
    held: HeldLine | None = None  # it has run already, and what it changed was granted
    in_background: bool = False


class LineRun:
    """A planned line, from what holds it to what it came to."""

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
        # What goes on running changes things later: then the question is about the command.
        return is_asked and not plan.line.is_dry_run and not plan.in_background

    def stage(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, HeldLine]:
        prepared = plan.prepared or shell_of(ports).prepare(plan.line)
        held = shell_of(ports).stage(prepared, _watch(ports))
        return replace(plan, held=held), held

    def run(self, plan: ShellPlan, ports: Ports) -> ToolOutput:
        if plan.held is not None:
            outcome = plan.held.commit()
        else:
            prepared = plan.prepared or shell_of(ports).prepare(plan.line)
            if plan.in_background:
                # Who hears this call does not hear what is printed after it.
                watch = CommandWatch(network=ports.network)
                name = shell_of(ports).start(prepared, watch).name
                said = f"{name} runs in the background; shell_output shows what it prints"
                return ToolOutput(said, {"process": name, "running": True})
            outcome = shell_of(ports).run(prepared, _watch(ports))
        if outcome.ending is Ending.CANCELLED:
            raise StoppedCallError(LeftEffect.NONE if outcome.is_staged else LeftEffect.UNKNOWN)
        return shell_output(outcome, ports)

    def release(self, plan: ShellPlan) -> None:
        """Let go of what was held back; what was committed stands."""
        if plan.held is not None:
            plan.held.close()


class RunShell(LineRun):
    """One implementation; the two tools differ in name and in who has them."""

    def resolve(self, arguments: ShellArguments | ShellDevArguments, ports: Ports) -> ShellPlan:
        """Raises: InvalidArgumentsError (a NUL, or too long to run), PathError (the directory)."""
        require_runnable(arguments.command)
        cwd = resolve_directory(arguments.cwd, ports)
        line = ShellLine(arguments.command, cwd, arguments.timeout, arguments.dry_run)
        if isinstance(arguments, ShellArguments):
            _require_input(arguments)
            env = tuple(sorted((arguments.env or {}).items()))
            line = replace(line, stdin=arguments.stdin.encode(), env=env)
            line = _lasting_line(line, arguments, ports)
        actions = (Action("shell", "run", line.preamble + line.text), *writes_from(line))
        if getattr(arguments, "background", False):
            return ShellPlan(line, (*actions, Action("shell", "process")), in_background=True)
        return ShellPlan(line, actions)


def _watch(ports: Ports) -> CommandWatch:
    return CommandWatch(ports.cancel, ports.on_output, ports.network)


def require_runnable(command: str, bytes_max: int = limits.command_bytes_max) -> None:
    if "\0" in command:
        raise errors.InvalidArgumentsError(
            "command holds a NUL", where="command", hint="no program takes one in an argument"
        )
    size = len(command.encode())
    if size > bytes_max:
        raise errors.InvalidArgumentsError(
            f"command has {size} bytes, {bytes_max} are allowed",
            where="command",
            hint="write it into a file, and run that",
        )


def _require_input(arguments: ShellArguments) -> None:
    size = len(arguments.stdin.encode())
    if size > limits.content_bytes_max:
        raise errors.InvalidArgumentsError(
            f"stdin has {size} bytes, {limits.content_bytes_max} are allowed",
            where="stdin",
            hint="write it into a file, and let the command read that",
        )
    env = arguments.env or {}
    require_variables(env)
    taken = sum(len(name) + len(value.encode()) + 2 for name, value in env.items())
    if len(env) > limits.shell_env_names_max or taken > limits.shell_env_bytes_max:
        raise errors.InvalidArgumentsError(
            f"env has {len(env)} variables of {taken} bytes; {limits.shell_env_names_max} of "
            f"{limits.shell_env_bytes_max} bytes together are allowed",
            where="env",
            hint="give what is long as stdin",
        )


def require_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if _ENV_NAME.fullmatch(name) is None or "\0" in value:
            raise errors.InvalidArgumentsError(
                f"env: {quote(name)} is no name of a variable, or its value holds a NUL",
                where="env",
                hint='give names of letters, digits and _, as {"CI": "1"}',
            )


_BACKGROUND_SESSION: Final = "background"  # the session of what goes on running and names none
_SESSION_NAME: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _lasting_line(line: ShellLine, given: ShellArguments, ports: Ports) -> ShellLine:
    """Return the line as its session has it. Raises: InvalidArgumentsError."""
    session = given.session or (_BACKGROUND_SESSION if given.background else "")
    if session and _SESSION_NAME.fullmatch(session) is None:
        raise errors.InvalidArgumentsError(
            f"session: {quote(session)} is no name",
            where="session",
            hint="1 to 64 letters, digits, dots, underscores or hyphens",
        )
    for name, is_given in (("reset", given.reset and not session), ("tty", given.tty)):
        if is_given and not given.background:
            needs = "background" if name == "tty" else "session"
            raise errors.InvalidArgumentsError(
                f"{name} is for a command with {needs}", where=name, hint=f"give {needs} as well"
            )
    if given.background and (given.dry_run or given.stdin):
        raise errors.InvalidArgumentsError(
            "a command in the background has no dry run, and no stdin",
            where="background",
            hint="give it text with shell_input",
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
    return replace(line, cwd=_stands_in(snapshot.directory, line.cwd, ports))


def _stands_in(directory: str, cwd: str, ports: Ports) -> str:
    """Return where in the workspace a session's line begins, for what it writes is judged there."""
    root = ports.workspace.root
    if cwd != "." or not f"{directory}/".startswith(f"{root}/"):
        return cwd
    relative = directory[len(root) + 1 :] or "."
    try:
        return resolve_directory(relative, ports)
    except errors.PathError:
        # It is gone, and the command says so.
        return cwd


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
    """The redirections of a line that does not run at the root, where policy takes them from."""
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
            "Run one line of shell in a sandbox over the workspace. Each file that it changed is "
            "then judged by the policy: allowed changes land, others are refused and listed. "
            "HOME and /tmp are private and gone afterwards but for the caches of tools, there is "
            "no network outside unless policy grants it, and nothing goes on running when it ends; "
            "with session it keeps its state for the next, with background it goes on."
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
            "Run one line of shell in a sandbox over the workspace. Which commands may run is not "
            "restricted; where they may write is: each file that it changed is judged by the "
            "policy, allowed changes land, others are refused and listed. Standard input is empty, "
            "HOME and /tmp are private, and nothing goes on running when it ends."
        ),
        toolset="development",
        arguments=ShellDevArguments,
        effects=Effects(reads_only=False, is_destructive=True),
        output_schema=SHELL_SCHEMA,
    ),
    RunShell(),
)
