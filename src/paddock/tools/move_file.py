"""`move_file`: give a file, an empty directory or a link another name."""

from dataclasses import dataclass, replace
from typing import Final

from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType, needed_text, optional_text
from paddock.tools.effects import change_of_move
from paddock.tools.outputs import WORKSPACE_FAILURE, workspace_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import absolute, path_actions
from paddock.tools.versions import IF_VERSION, pinned_entry, telling_what_changed
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, EntryVersion, WritePath


@dataclass(frozen=True, slots=True)
class MoveFileArguments(ArgumentType):
    """Arguments of `move_file`."""

    path: str = needed_text("What to move, relative to the workspace root.")
    to: str = needed_text("Its new path, relative to the workspace root; nothing may be there.")
    if_version: str | None = optional_text(IF_VERSION)


@dataclass(frozen=True, slots=True)
class MoveFilePlan:
    entry: EntryPath
    to: WritePath
    if_version: str | EntryVersion | None
    actions: tuple[Action, ...]


def _disclosing_actions(entry: EntryPath, to: WritePath, ports: Ports) -> tuple[Action, ...]:
    """To view it, where a file that may not be viewed becomes one that may.

    Threat: an agent that may delete and create, and not view, reads by moving.
    """
    source, target = entry.path.relative, to.real.relative
    if not ports.shown.may_view(source) and ports.shown.may_view(target):
        return (Action("file", "view", source),)
    return ()


class MoveFile:
    """Never overwrites, never follows a link: the link itself moves."""

    def resolve(self, arguments: MoveFileArguments, ports: Ports) -> MoveFilePlan:
        """Raises: ToolError for paths that cannot be used."""
        entry = ports.workspace.resolve_entry(arguments.path)
        to = ports.workspace.resolve_write(arguments.to)
        actions = (
            Action("file", "delete", entry.path.relative),
            *path_actions("file", "create", to),
            *_disclosing_actions(entry, to, ports),
        )
        return MoveFilePlan(entry, to, arguments.if_version, actions)

    def pin(self, plan: MoveFilePlan, ports: Ports) -> tuple[MoveFilePlan, str]:
        """Tied to what stands there now, and to its kind."""
        found = pinned_entry(plan.if_version, plan.entry, ports)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: MoveFilePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing has moved."""
        with telling_what_changed(plan.if_version, plan.entry.path, ports):
            receipt = ports.workspace.move(plan.entry, plan.to, if_version=plan.if_version)
        source, target = plan.entry.path, plan.to.real
        details = {
            "path": absolute(ports.workspace, source),
            "to": absolute(ports.workspace, target),
            "action": "moved",
            "success": True,
            "error": None,
        }
        said = f"moved {show_name(source.relative)} to {show_name(target.relative)}"
        return ToolOutput(said, details, (change_of_move(receipt),))


SPEC: Final = ToolSpec(
    name="move_file",
    title="Move file",
    description=(
        "Move or rename a file, an empty directory or a symbolic link (the link itself). "
        "Directories on the way are created. Nothing is ever overwritten."
    ),
    toolset="workspace",
    arguments=MoveFileArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=workspace_schema(["moved"], {"to": {"type": "string"}}),
    failure_details=WORKSPACE_FAILURE,
)


def move_file_tool() -> Tool[MoveFileArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, MoveFile())
