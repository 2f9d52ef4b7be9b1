"""`move_file` and `delete_file`: of a file, an empty directory or a link."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.text.show import show_name
from paddock.tools.arguments import (
    WORKSPACE_FAILURE,
    ArgumentType,
    needed_text,
    optional_text,
    workspace_schema,
)
from paddock.tools.effects import (
    IF_VERSION,
    change_of_doing,
    plain_version,
    telling_what_changed,
)
from paddock.tools.spec import (
    Effects,
    Ports,
    Tool,
    ToolOutput,
    ToolSpec,
    absolute,
    path_actions,
    pinned,
)
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, EntryVersion, WritePath
from paddock.workspace.single import delete_entry, entry_version, move_entry


def pinned_entry(wanted: str | EntryVersion | None, entry: EntryPath, ports: Ports) -> EntryVersion:
    """Raises: FileChangedError where the caller wants another version; as `delete_entry`."""
    with telling_what_changed(wanted, entry.path, ports):
        found = entry_version(ports.workspace, entry)
        pinned(plain_version(wanted), found.version, entry.path)
    return found


class MoveFileArguments(ArgumentType):
    path: str = needed_text("What to move, relative to the workspace root.")
    to: str = needed_text("Its new path, relative to the workspace root; nothing may be there.")
    if_version: str | None = optional_text(IF_VERSION)


class MoveFilePlan(Struct, frozen=True):
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
        entry = ports.workspace.resolve_entry(arguments.path)
        to = ports.workspace.resolve_write(arguments.to)
        actions = (
            Action("file", "delete", entry.path.relative),
            *path_actions("file", "create", to),
            *_disclosing_actions(entry, to, ports),
        )
        return MoveFilePlan(entry, to, arguments.if_version, actions)

    def pin(self, plan: MoveFilePlan, ports: Ports) -> tuple[MoveFilePlan, str]:
        found = pinned_entry(plan.if_version, plan.entry, ports)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: MoveFilePlan, ports: Ports) -> ToolOutput:
        with telling_what_changed(plan.if_version, plan.entry.path, ports):
            receipt = move_entry(ports.workspace, plan.entry, plan.to, if_version=plan.if_version)
        source, target = plan.entry.path, plan.to.real
        details = {
            "path": absolute(ports.workspace, source),
            "to": absolute(ports.workspace, target),
            "action": "moved",
            "success": True,
            "error": None,
        }
        said = f"moved {show_name(source.relative)} to {show_name(target.relative)}"
        return ToolOutput(said, details, (change_of_doing(receipt.doing),))


MOVE_FILE: Final = ToolSpec(
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
    return Tool(MOVE_FILE, MoveFile())


class DeleteFileArguments(ArgumentType):
    path: str = needed_text("What to delete, relative to the workspace root.")
    if_version: str | None = optional_text(IF_VERSION)


class DeleteFilePlan(Struct, frozen=True):
    entry: EntryPath
    if_version: str | EntryVersion | None
    actions: tuple[Action, ...]


class DeleteFile:
    """Removes the entry itself, never what a link leads to."""

    def resolve(self, arguments: DeleteFileArguments, ports: Ports) -> DeleteFilePlan:
        entry = ports.workspace.resolve_entry(arguments.path)
        actions = (Action("file", "delete", entry.path.relative),)
        return DeleteFilePlan(entry, arguments.if_version, actions)

    def pin(self, plan: DeleteFilePlan, ports: Ports) -> tuple[DeleteFilePlan, str]:
        found = pinned_entry(plan.if_version, plan.entry, ports)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: DeleteFilePlan, ports: Ports) -> ToolOutput:
        with telling_what_changed(plan.if_version, plan.entry.path, ports):
            receipt = delete_entry(ports.workspace, plan.entry, if_version=plan.if_version)
        path = plan.entry.path
        details = {
            "path": absolute(ports.workspace, path),
            "action": "deleted",
            "success": True,
            "error": None,
        }
        return ToolOutput(
            f"deleted {show_name(path.relative)}", details, (change_of_doing(receipt.doing),)
        )


DELETE_FILE: Final = ToolSpec(
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
    return Tool(DELETE_FILE, DeleteFile())
