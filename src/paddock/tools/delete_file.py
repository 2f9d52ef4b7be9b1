"""`delete_file`: remove a file, an empty directory or a link."""

from dataclasses import dataclass, replace
from typing import Final

from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType, needed_text, optional_text
from paddock.tools.effects import change_of_delete
from paddock.tools.outputs import WORKSPACE_FAILURE, workspace_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.targets import absolute
from paddock.tools.versions import IF_VERSION, pinned_entry, telling_what_changed
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, EntryVersion


@dataclass(frozen=True, slots=True)
class DeleteFileArguments(ArgumentType):
    """Arguments of `delete_file`."""

    path: str = needed_text("What to delete, relative to the workspace root.")
    if_version: str | None = optional_text(IF_VERSION)


@dataclass(frozen=True, slots=True)
class DeleteFilePlan:
    entry: EntryPath
    if_version: str | EntryVersion | None
    actions: tuple[Action, ...]


class DeleteFile:
    """Removes the entry itself, never what a link leads to."""

    def resolve(self, arguments: DeleteFileArguments, ports: Ports) -> DeleteFilePlan:
        """Raises: ToolError for a path that cannot be used."""
        entry = ports.workspace.resolve_entry(arguments.path)
        actions = (Action("file", "delete", entry.path.relative),)
        return DeleteFilePlan(entry, arguments.if_version, actions)

    def pin(self, plan: DeleteFilePlan, ports: Ports) -> tuple[DeleteFilePlan, str]:
        """Tied to what stands there now, and to its kind."""
        found = pinned_entry(plan.if_version, plan.entry, ports)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: DeleteFilePlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then it still stands."""
        with telling_what_changed(plan.if_version, plan.entry.path, ports):
            receipt = ports.workspace.delete(plan.entry, if_version=plan.if_version)
        path = plan.entry.path
        details = {
            "path": absolute(ports.workspace, path),
            "action": "deleted",
            "success": True,
            "error": None,
        }
        return ToolOutput(
            f"deleted {show_name(path.relative)}", details, (change_of_delete(receipt),)
        )


SPEC: Final = ToolSpec(
    name="delete_file",
    title="Delete file",
    description=(
        "Delete a file, an empty directory or a symbolic link (the link itself, "
        "not what it leads to)."
    ),
    toolset="workspace",
    arguments=DeleteFileArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=workspace_schema(["deleted"], {}),
    failure_details=WORKSPACE_FAILURE,
)


def delete_file_tool() -> Tool[DeleteFileArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, DeleteFile())
