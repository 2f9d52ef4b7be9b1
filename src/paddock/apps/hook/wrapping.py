"""A command that a client runs, wrapped so that it runs in Paddock's sandbox.

The client gets a changed input: its shell starts `paddock hook exec`, which gets the
command as one argument, runs it as the agent's `run_shell` and says what it said.
"""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.apps.hook.lean.asked import Asked
from paddock.assembly.project import Project
from paddock.limits import shell_timeout_default_s
from paddock.values.calls import Json

REFUSED: Final = 126
"""As a shell says of a command that may not be run (POSIX, Exit Status for Commands)."""


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """Where a command runs: the project, whose sandbox, the directory below its workspace."""

    root: str
    agent: str
    directory: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What a wrapped command said."""

    out: str
    err: str
    status: int


def wrapped_input(asked: Asked, program: Sequence[str], place: CommandPlace) -> str:
    """JSON text of the changed input; empty where the command stays as it is.

    A background command stays: the client keeps it by its own means. `program` starts
    Paddock's command line.
    """
    command = asked.input.get("command")
    if asked.input.get("run_in_background") or not isinstance(command, str):
        return ""
    words = [*program, "hook", "exec", "--plane", place.root, "--agent", place.agent]
    words += ["--directory", place.directory, "--timeout", str(_timeout_s(asked.input))]
    changed: dict[str, Json] = dict(asked.input)
    changed["command"] = shlex.join([*words, "--", command])
    return json.dumps(changed)


def run_wrapped(project: Project, place: CommandPlace, command: str, timeout_s: int) -> Ran:
    """Run a command as the agent's `run_shell`; what it changed is judged by the policy.

    Raises:
        UsageError, ConfigError, HostError: as `open_runtime`.
    """
    # Here: a hook that only wraps loads no tool, and is waited for before each command.
    from paddock.assembly.runtimes import open_runtime  # noqa: PLC0415 - for `hook exec` alone
    from paddock.runtime.approvals import NoApprover  # noqa: PLC0415 - for `hook exec` alone

    arguments = {"command": command, "cwd": place.directory, "timeout": timeout_s}
    with open_runtime(project, agent=place.agent, approver=NoApprover()) as runtime:
        result = runtime.call("run_shell", arguments)
    details = result.details
    if result.refusal is not None:
        return Ran("", f"{result.content}\n", REFUSED)
    refused = details.get("changes_refused") or ()
    said = "".join(f"paddock: not changed: {_refused_text(each)}\n" for each in refused)
    status = details.get("exit_code")
    out, err = str(details.get("stdout", "")), str(details.get("stderr", ""))
    return Ran(out, err + said, status if isinstance(status, int) else REFUSED)


def _timeout_s(given: Mapping[str, Json]) -> int:
    asked = given.get("timeout")
    most = shell_timeout_default_s
    if not isinstance(asked, int) or isinstance(asked, bool):
        return most
    return min(max(asked // 1000, 1), most)


def _refused_text(refused: Json) -> str:
    return refused if isinstance(refused, str) else json.dumps(refused)


def command_program() -> tuple[str, ...]:
    """What starts Paddock's command line.

    Threat: the shell stands where an agent may have put a module of a well-known name,
    and its environment may name another place to look: -I takes neither.
    """
    parent = str(Path(__file__).parents[3])
    start = f"import sys; sys.path.append({parent!r}); from paddock.apps.cli.main import console"
    return (sys.executable, "-I", "-c", f"{start}; console()")
