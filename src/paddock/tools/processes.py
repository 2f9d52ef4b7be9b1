"""Commands that go on running: what they print, what they are given, their changes, their end."""

from collections.abc import Mapping
from typing import Any, Final

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.sandbox.sessions.process import Printed, Process
from paddock.text.show import name_some, show_name
from paddock.tools.arguments import (
    BOOLEAN,
    INTEGER,
    TEXT,
    TEXTS,
    ArgumentType,
    clamped_integer,
    needed_text,
    optional_integer,
    optional_text,
    result_schema,
)
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

_PROCESS: Final = "The id that run_shell gave, SHP-…."
_ENDS: Final = Effects(reads_only=False, is_destructive=True)
_SHOWN_MAX: Final = 20


class _OfProcess:
    """A call about commands that were decided when they began: its own action has no target."""

    operation = "process"

    def resolve(self, arguments: ArgumentType, ports: Ports) -> GivenPlan[Any]:
        """Raises: SandboxUnavailableError: there is no shell."""
        shell_of(ports)
        return GivenPlan(arguments, (Action("shell", self.operation),))

    def confine(self, plan: GivenPlan[Any], ports: Ports) -> tuple[GivenPlan[Any], Held]:
        # Whatever runs in the background is staged: nothing else is started there.
        return plan, "full"


class ProcessArguments(ArgumentType):
    process: str = needed_text(_PROCESS)


class OutputArguments(ProcessArguments):
    wait_s: int = clamped_integer(
        "Seconds to wait for output or the end, if there is nothing new.",
        0,
        minimum=0,
        maximum=limits.shell_wait_s,
    )
    offset: int | None = optional_integer(
        "The byte to begin at; else what is new since it was last asked for.", None, minimum=0
    )


class ShellOutput(_OfProcess):
    arguments = OutputArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Raises: InvalidArgumentsError."""
        given: OutputArguments = plan.given
        process = shell_of(ports).sessions.process(given.process)
        printed = process.transcript.read(given.offset, given.wait_s, ports.cancel)
        return _printed(process, printed)


class InputArguments(ProcessArguments):
    text: str = needed_text(
        "What is typed, control characters too: \\n ends a line, \\u0003 interrupts in a "
        "terminal, a lone \\u0004 ends the input.",
        is_content=True,
    )


class ShellInput(_OfProcess):
    arguments, operation = InputArguments, "input"

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Raises: InvalidArgumentsError: it has ended, or takes no input."""
        given: InputArguments = plan.given
        process = shell_of(ports).sessions.process(given.process)
        size = len(given.text.encode("utf-8", "surrogateescape"))
        taken = process.write(given.text)
        said = f"{process.name} was given {taken} bytes"
        if taken < size:
            said += f" of {size}: it reads no more for now"
        return ToolOutput(said, {"process": process.name, "bytes": taken})


class StopArguments(ArgumentType):
    process: str | None = optional_text(_PROCESS)
    session: str | None = optional_text("A session: all that runs in it, and what it keeps.")


class ShellStop(_OfProcess):
    arguments = StopArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """End a process or a session. Raises: InvalidArgumentsError, SandboxUnavailableError."""
        given: StopArguments = plan.given
        lasting = shell_of(ports).sessions
        if (given.process is None) == (given.session is None):
            raise InvalidArgumentsError(
                "one of process and session is needed", where="process", hint="shell_list has both"
            )
        if given.session is not None:
            lasting.end(given.session)
            return ToolOutput(f"the session {show_name(given.session)} has ended", {})
        process = lasting.process(str(given.process))
        output = shell_output(lasting.finish(process), ports)
        return output._replace(details={**output.details, "process": process.name})


class ShellSync(_OfProcess):
    arguments = ProcessArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        """Bring in what it changed so far. Raises: as `ShellStop.run`."""
        lasting = shell_of(ports).sessions
        process = lasting.process(plan.given.process)
        output = shell_output(lasting.sync(process), ports)
        _, _, rest = output.content.partition("\n")
        content = f"{process.name} goes on\n{rest}{_differing_text(process)}"
        own = {"process": process.name, "running": True, **_differing(process)}
        details = {**output.details, **own}
        return output._replace(content=content, details=details, exit=None)


class ListArguments(ArgumentType):
    pass


class ShellList(_OfProcess):
    arguments = ListArguments

    def run(self, plan: GivenPlan[Any], ports: Ports) -> ToolOutput:
        lasting = shell_of(ports).sessions
        processes, sessions = lasting.all(), lasting.names()
        said = [f"sessions: {', '.join(map(show_name, sessions)) or 'none'}"]
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
        return ToolOutput("\n".join(said), {"sessions": list(sessions), "processes": listed})


def _state(process: Process) -> str:
    if process.is_running:
        return "running"
    if process.failure is not None:
        # Threat: what failed may name the host's paths. A call says it as calls do.
        return "failed: shell_stop says why"
    return "ended" if process.outcome is None else f"exit code {process.outcome.exit_code}"


def _printed(process: Process, printed: Printed) -> ToolOutput:
    said = [f"{process.name} {_state(process)}"]
    if printed.missing:
        said.append(f"[{printed.missing} bytes before this are not kept any more]")
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
    """Return where its view is not the workspace, but for what it changed alone."""
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
        why = "changed by somebody else, and before by this command, which keeps its own"
        said += f"\n[{why}: {name_some(sorted(view.own))}]"
    if view is not None and view.unseen:
        why = "changed by somebody else, and not seen by this command; end it and start it again"
        said += f"\n[{why}: {name_some(sorted(view.unseen))}]"
    return said


def _answer(**own: Json) -> Mapping[str, Json]:
    kept = "Paths of which it keeps its own although somebody else changed them."
    unseen = "Paths that somebody else changed and that it does not see as they are."
    state = {
        "process": TEXT,
        "running": BOOLEAN,
        "own_changes": {**TEXTS, "description": kept},
        "unseen_changes": {**TEXTS, "description": unseen},
    }
    return result_schema({**state, **own})


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
    "What a command that runs in the background has printed, and whether it still runs.",
    ShellOutput(),
    READS,
    _answer(
        output=TEXT,
        offset={"type": "integer", "description": "Where the next output begins."},
        missing_bytes=INTEGER,
        exit_code=INTEGER,
    ),
)
SHELL_INPUT: Final = _tool(
    "shell_input",
    "Type into a command",
    "Give text to a command that runs in the background, as if it were typed.",
    ShellInput(),
    Effects(reads_only=False),
    _answer(bytes=INTEGER),
)
SHELL_STOP: Final = _tool(
    "shell_stop",
    "End a command",
    "End a command that runs in the background, or a session with all that runs in it. "
    "What it changed is judged and brought in, as with run_shell. Of one that has ended "
    "by itself: how.",
    ShellStop(),
    _ENDS,
)
SHELL_SYNC: Final = _tool(
    "shell_sync",
    "Bring in changes",
    "Bring in what a command in the background has changed so far, judged as with "
    "run_shell; it stands still for that moment, and goes on.",
    ShellSync(),
    _ENDS,
)
SHELL_LIST: Final = _tool(
    "shell_list",
    "Sessions and commands",
    "The sessions that there are, and the commands that run in the background.",
    ShellList(),
    READS,
    _answer(sessions=TEXTS, processes={"type": "array", "items": {"type": "object"}}),
)
