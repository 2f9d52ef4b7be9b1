"""What `run_shell` and `run_shell_dev` do: one line of shell, held to the policy.

The line is judged before it runs, command by command; what it changed is judged after,
path by path, and only then comes into the workspace. Where policy wants a question to be
about the difference and not about the line, the line runs first and is held back.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from paddock import limits
from paddock.errors import (
    InvalidArgumentsError,
    InvalidPathError,
    PathError,
    PathNotADirectoryError,
    PathTraversalError,
)
from paddock.policy.lines import written_path
from paddock.sandbox.outcome import CommandLine, HeldLine, PreparedLine, ShellOutcome
from paddock.sandbox.values import Ending
from paddock.text.show import quote
from paddock.tools.arguments import (
    ArgumentType,
    clamped_integer,
    content_text,
    filled_text,
    flag,
    needed_text,
    text_map,
)
from paddock.tools.cancelling import StoppedCallError
from paddock.tools.shell_port import shell_of
from paddock.tools.shell_results import shell_output
from paddock.tools.spec import Ports, ToolOutput
from paddock.values.actions import Action
from paddock.values.cancelling import LeftEffect
from paddock.values.decisions import HELD_WHOLE, Held
from paddock.workspace.listing import is_directory

_DEV_TIMEOUT_DEFAULT_S: Final = 30
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_COMMAND: Final = "The line, read by bash where there is one, else by sh."
_TIMEOUT: Final = "Seconds until it is ended with everything that it started."
_CWD: Final = "Directory to run it in, relative to the workspace root."
_DRY_RUN: Final = (
    "Run it, show what it would change, and change nothing: outside of the workspace "
    "everything is read-only, and the host's network is closed."
)


@dataclass(frozen=True, slots=True)
class ShellArguments(ArgumentType):
    """Arguments of `run_shell`."""

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


@dataclass(frozen=True, slots=True)
class ShellDevArguments(ArgumentType):
    """Arguments of `run_shell_dev`."""

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


@dataclass(frozen=True, slots=True)
class ShellPlan:
    """The line that will run, with all that it would be judged as."""

    line: CommandLine
    actions: tuple[Action, ...]
    prepared: PreparedLine | None = None
    held: HeldLine | None = None
    """It has run already, and what it changed was granted."""


class RunShell:
    """One implementation; the two tools differ in name and in who has them."""

    def resolve(self, arguments: ShellArguments | ShellDevArguments, ports: Ports) -> ShellPlan:
        """Raises: InvalidArgumentsError (a NUL, or too long to run), PathError (the directory)."""
        _require_runnable(arguments.command)
        cwd = _resolve_directory(arguments.cwd, ports)
        line = CommandLine(arguments.command, cwd, arguments.timeout, arguments.dry_run)
        if isinstance(arguments, ShellArguments):
            _require_input(arguments)
            env = tuple(sorted((arguments.env or {}).items()))
            line = replace(line, stdin=arguments.stdin, env=env)
        return ShellPlan(line, (Action("shell", "run", line.text), *_writes_from(line)))

    def confine(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, Held]:
        """Tied to what it would be held to, and how far. Raises: SandboxUnavailableError."""
        prepared = shell_of(ports).prepare(plan.line)
        held = prepared.held
        return replace(plan, prepared=replace(prepared, is_confined=held == HELD_WHOLE)), held

    def pin(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, str]:
        """Tied to what it would be held to. Raises: SandboxUnavailableError."""
        prepared = plan.prepared or shell_of(ports).prepare(plan.line)
        return replace(plan, prepared=prepared), prepared.digest

    def asks_about_effect(self, plan: ShellPlan, ports: Ports) -> bool:
        """Whether a question about it is one about what it would change; of a pinned plan."""
        prepared = plan.prepared
        is_asked = prepared is not None and shell_of(ports).asks_about_diff(prepared)
        return is_asked and not plan.line.is_dry_run

    def stage(self, plan: ShellPlan, ports: Ports) -> tuple[ShellPlan, HeldLine]:
        """Run it and hold it back. Raises: SandboxUnavailableError, StorageFullError."""
        prepared = plan.prepared or shell_of(ports).prepare(plan.line)
        held = shell_of(ports).stage(prepared, ports.cancel, ports.on_output)
        return replace(plan, held=held), held

    def run(self, plan: ShellPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing has changed, but see `StoppedCallError`."""
        if plan.held is not None:
            outcome = plan.held.commit()
        else:
            prepared = plan.prepared or shell_of(ports).prepare(plan.line)
            outcome = shell_of(ports).run(prepared, ports.cancel, ports.on_output)
        _require_not_cancelled(outcome)
        return shell_output(outcome, shell_of(ports))

    def release(self, plan: ShellPlan) -> None:
        """Let go of what was held back; what was committed stands."""
        if plan.held is not None:
            plan.held.close()


def _require_runnable(command: str) -> None:
    if "\0" in command:
        raise InvalidArgumentsError(
            "command holds a NUL", where="command", hint="no program takes one in an argument"
        )
    size = len(command.encode())
    if size > limits.command_bytes_max:
        raise InvalidArgumentsError(
            f"command has {size} bytes, {limits.command_bytes_max} are allowed",
            where="command",
            hint="write it into a file, and run that",
        )


def _require_input(arguments: ShellArguments) -> None:
    size = len(arguments.stdin.encode())
    if size > limits.content_bytes_max:
        raise InvalidArgumentsError(
            f"stdin has {size} bytes, {limits.content_bytes_max} are allowed",
            where="stdin",
            hint="write it into a file, and let the command read that",
        )
    env = arguments.env or {}
    for name, value in env.items():
        if _ENV_NAME.fullmatch(name) is None or "\0" in value:
            raise InvalidArgumentsError(
                f"env: {quote(name)} is no name of a variable, or its value holds a NUL",
                where="env",
                hint='give names of letters, digits and _, as {"CI": "1"}',
            )
    taken = sum(len(name) + len(value.encode()) + 2 for name, value in env.items())
    if len(env) > limits.shell_env_names_max or taken > limits.shell_env_bytes_max:
        raise InvalidArgumentsError(
            f"env has {len(env)} variables of {taken} bytes; {limits.shell_env_names_max} of "
            f"{limits.shell_env_bytes_max} bytes together are allowed",
            where="env",
            hint="give what is long as stdin",
        )


def _require_not_cancelled(outcome: ShellOutcome) -> None:
    if outcome.ending is Ending.CANCELLED:
        raise StoppedCallError(LeftEffect.NONE if outcome.is_staged else LeftEffect.UNKNOWN)


def _resolve_directory(cwd: str, ports: Ports) -> str:
    """The directory's workspace-relative name, links followed."""
    try:
        path = ports.workspace.resolve_read(cwd).real
    except PathTraversalError as error:
        raise PathTraversalError(f"cwd: {error.message}", hint=error.hint) from error
    except PathNotADirectoryError as error:
        raise _no_directory(cwd) from error
    except PathError as error:
        raise InvalidPathError(f"cwd: {error.message}", hint=error.hint) from error
    is_named = path.is_root or ports.shown.is_shown(path.relative)
    if not is_named or not is_directory(ports.workspace.tree, path):
        raise _no_directory(cwd)
    return path.relative


def _no_directory(cwd: str) -> PathNotADirectoryError:
    return PathNotADirectoryError(
        f"cwd is not a directory: {quote(cwd)}", hint="name a directory of the workspace"
    )


def _writes_from(line: CommandLine) -> list[Action]:
    """The redirections of a line that does not run at the root, where policy takes them from."""
    if line.cwd == ".":
        return []
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - for few calls of one tool

    found = (written_path(target, line.cwd) for target in parse_line(line.text).writes)
    return [Action("file", "create", path) for path in dict.fromkeys(found) if path]
