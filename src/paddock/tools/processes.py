"""Tools for background commands: read output, send input, bring in changes, stop, list."""

from collections.abc import Mapping
from typing import Any, Final

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.sandbox.sessions.process import Printed, Process
from paddock.text.show import name_some, show_name
from paddock.tools import arguments as fields
from paddock.tools.outcome import SHELL_SCHEMA, shell_output
from paddock.tools.spec import (
    READS,
    Effects,
    GivenPlan,
    Ports,
    Tool,
    ToolOutput,
    ToolSpec,
    shell_of,
)
from paddock.values.calls import Json
from paddock.values.decisions import Action, Held

_PROCESS: Final = "Process id that run_shell returned (SHP-…)."
_ENDS: Final = Effects(reads_only=False, is_destructive=True)
_SHOWN_MAX: Final = 20


class _ProcessCall:
    """A call on commands that were judged when they began: its action has no target."""

    operation = "process"

    def resolve(self, arguments: fields.ArgumentType, ports: Ports) -> GivenPlan[Any]:
        shell_of(ports)
        return GivenPlan(arguments, (Action("shell", self.operation),))

    def confine(self, plan: GivenPlan[Any], ports: Ports) -> tuple[GivenPlan[Any], Held]:
        # Every background command is staged: no other is started there.
        return plan, "full"


class ProcessArguments(fields.ArgumentType):
    process: str = fields.needed_text(_PROCESS)


class OutputArguments(ProcessArguments):
    wait_s: int = fields.clamped_integer(
        "Seconds to wait for new output or the end of the process.",
        0,
        minimum=0,
        maximum=limits.shell_wait_s,
    )
    offset: int | None = fields.optional_integer(
        "First byte to return; by default, what is new since the last call.", None, minimum=0
    )


class ShellOutput(_ProcessCall):
    arguments = OutputArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Raises: InvalidArgumentsError."""
        given: OutputArguments = plan.given
        process = shell_of(ports).sessions.process(given.process)
        printed = process.transcript.read(given.offset, given.wait_s, ports.cancel)
        return _printed(process, printed)


class InputArguments(ProcessArguments):
    text: str = fields.needed_text(
        "Text to type, control characters included: \\n ends a line, \\u0003 interrupts (in a "
        "terminal), \\u0004 alone ends the input.",
        is_content=True,
    )


class ShellInput(_ProcessCall):
    arguments, operation = InputArguments, "input"

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Raises: InvalidArgumentsError: it has ended, or takes no input."""
        given: InputArguments = plan.given
        process = shell_of(ports).sessions.process(given.process)
        size = len(given.text.encode("utf-8", "surrogateescape"))
        taken = process.write(given.text)
        said = f"sent {taken} bytes to {process.name}"
        if taken < size:
            said = f"sent {taken} of {size} bytes to {process.name}: it is not reading more now"
        return ToolOutput(said, {"process": process.name, "bytes": taken})


class StopArguments(fields.ArgumentType):
    process: str | None = fields.optional_text(_PROCESS)
    session: str | None = fields.optional_text(
        "Name of a session to end instead, with its processes and its state."
    )


class ShellStop(_ProcessCall):
    arguments = StopArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """End a process or a session. Raises: InvalidArgumentsError, SandboxUnavailableError."""
        given: StopArguments = plan.given
        sessions = shell_of(ports).sessions
        if (given.process is None) == (given.session is None):
            raise InvalidArgumentsError(
                "give either process or session",
                where="process",
                hint="shell_list lists both",
            )
        if given.session is not None:
            sessions.end(given.session)
            return ToolOutput(f"the session {show_name(given.session)} has ended", {})
        process = sessions.process(str(given.process))
        output = shell_output(sessions.finish(process), ports)
        return output._replace(details={**output.details, "process": process.name})


class ShellSync(_ProcessCall):
    arguments = ProcessArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Bring in its changes so far. Raises: as `ShellStop.run`."""
        sessions = shell_of(ports).sessions
        process = sessions.process(plan.given.process)
        output = shell_output(sessions.sync(process), ports)
        _, _, rest = output.content.partition("\n")
        content = f"{process.name} still runs\n{rest}{_differing_text(process)}"
        own = {"process": process.name, "running": True, **_differing(process)}
        details = {**output.details, **own}
        return output._replace(content=content, details=details, exit=None)


class ListArguments(fields.ArgumentType):
    pass


class ShellList(_ProcessCall):
    arguments = ListArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        sessions = shell_of(ports).sessions
        processes, names = sessions.all(), sessions.names()
        said = [f"sessions: {', '.join(map(show_name, names)) or 'none'}"]
        said.append(f"processes: {len(processes) or 'none'}")
        for each in processes:
            line = each.prepared.line
            where = f" in {show_name(line.session)}" if line.session else ""
            said.append(f"  {each.name} {_state(each)}{where}: {show_name(line.text)}")
        listed: list[Json] = [
            {
                "process": each.name,
                "session": each.prepared.line.session,
                "command": each.prepared.line.text,
                "running": each.is_running,
            }
            for each in processes
        ]
        return ToolOutput("\n".join(said), {"sessions": list(names), "processes": listed})


def _state(process: Process) -> str:
    if process.is_running:
        return "running"
    if process.failure is not None:
        # Threat: the failure may name the host's paths; a tool call's error hides them.
        return "failed: call shell_stop to see why"
    return "ended" if process.outcome is None else f"exit code {process.outcome.exit_code}"


def _printed(process: Process, printed: Printed) -> ToolOutput:
    said = [f"{process.name} {_state(process)}"]
    if printed.missing:
        said.append(f"[{printed.missing} bytes before this are no longer stored]")
    said.append(f"output: bytes {printed.begins} to {printed.ends}")
    if printed.text:
        said.append(printed.text.removesuffix("\n"))
    details: dict[str, Json] = {
        "process": process.name,
        "running": process.is_running,
        "output": printed.text,
        "offset": printed.ends,
        "missing_bytes": printed.missing,
        **_differing(process),
    }
    if process.outcome is not None:
        details["exit_code"] = process.outcome.exit_code
    return ToolOutput("\n".join(said) + _differing_text(process), details)


def _differing(process: Process) -> dict[str, Json]:
    """Return the paths that were changed outside of the process and that it does not see."""
    view = process.view
    sets = () if view is None else (("own_changes", view.own), ("unseen_changes", view.unseen))
    return {
        name: [show_name(path) for path in sorted(paths)[:_SHOWN_MAX]]
        for name, paths in sets
        if paths
    }


def _differing_text(process: Process) -> str:
    view = process.view
    said = ""
    if view is not None and view.own:
        why = "also changed outside of this command, which still sees its own version"
        said += f"\n[{why}: {name_some(sorted(view.own))}]"
    if view is not None and view.unseen:
        why = "changed outside of this command, which does not see that; stop and restart it"
        said += f"\n[{why}: {name_some(sorted(view.unseen))}]"
    return said


def _answer(**own: Json) -> Mapping[str, Json]:
    kept = "Paths also changed outside of the process, which still sees its own version."
    unseen = "Paths changed outside of the process, which does not see that."
    state = {
        "process": fields.TEXT,
        "running": fields.BOOLEAN,
        "own_changes": {**fields.TEXTS, "description": kept},
        "unseen_changes": {**fields.TEXTS, "description": unseen},
    }
    return fields.result_schema({**state, **own})


def _tool(
    name: str,
    title: str,
    description: str,
    handler: Any,
    effects: Effects,
    answer: Mapping[str, Json] = SHELL_SCHEMA,
) -> Tool[Any]:
    arguments = handler.arguments
    return Tool(
        ToolSpec(name, title, description, "shell", arguments, effects, {**answer}), handler
    )


SHELL_OUTPUT: Final = _tool(
    "shell_output",
    "Output of a command",
    "Return what a background command has printed, and whether it still runs.",
    ShellOutput(),
    READS,
    _answer(
        output=fields.TEXT,
        offset={"type": "integer", "description": "Offset of the next output."},
        missing_bytes=fields.INTEGER,
        exit_code=fields.INTEGER,
    ),
)
SHELL_INPUT: Final = _tool(
    "shell_input",
    "Type into a command",
    "Send text to a background command, as if typed.",
    ShellInput(),
    Effects(reads_only=False),
    _answer(bytes=fields.INTEGER),
)
SHELL_STOP: Final = _tool(
    "shell_stop",
    "End a command",
    "Stop a background command, or a session with all its processes. As with run_shell, its "
    "changes are judged and the allowed ones brought into the workspace. If the command has "
    "ended already, return its result.",
    ShellStop(),
    _ENDS,
)
SHELL_SYNC: Final = _tool(
    "shell_sync",
    "Bring in changes",
    "Bring the changes that a background command made so far into the workspace, judged as with "
    "run_shell. The command is paused meanwhile, then continues.",
    ShellSync(),
    _ENDS,
)
SHELL_LIST: Final = _tool(
    "shell_list",
    "Sessions and commands",
    "List the shell sessions and the background commands.",
    ShellList(),
    READS,
    _answer(sessions=fields.TEXTS, processes={"type": "array", "items": {"type": "object"}}),
)
