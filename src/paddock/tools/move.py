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
    workspace_details,
)
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, EntryVersion, WritePath
from paddock.workspace.single import delete_entry, entry_version, move_entry


class EntryPlan(Struct, frozen=True):
    entry: EntryPath
    if_version: str | EntryVersion | None
    actions: tuple[Action, ...]
    to: WritePath | None = None  # where it moves; None: it goes


class _ChangesEntry:
    """The entry itself, never what a link leads to."""

    def pin(self, plan: EntryPlan, ports: Ports) -> tuple[EntryPlan, str]:
        with telling_what_changed(plan.if_version, plan.entry.path, ports):
            found = entry_version(ports.workspace, plan.entry)
            pinned(plain_version(plan.if_version), found.version, plan.entry.path)
        return replace(plan, if_version=found), str(found)

    def run(self, plan: EntryPlan, ports: Ports) -> ToolOutput:
        entry, to, version = plan.entry, plan.to, plan.if_version
        with telling_what_changed(version, entry.path, ports):
            if to is None:
                receipt = delete_entry(ports.workspace, entry, if_version=version)
            else:
                receipt = move_entry(ports.workspace, entry, to, if_version=version)
        action, name = receipt.doing.kind, show_name(entry.path.relative)
        said, own = f"{action} {name}", {}
        if to is not None:
            said = f"{said} to {show_name(to.real.relative)}"
            own = {"to": absolute(ports.workspace, to.real)}
        details = workspace_details(ports, entry.path, action, **own)
        return ToolOutput(said, details, (change_of_doing(receipt.doing),))


class MoveFileArguments(ArgumentType):
    path: str = needed_text("What to move, relative to the workspace root.")
    to: str = needed_text("Its new path, relative to the workspace root; nothing may be there.")
    if_version: str | None = optional_text(IF_VERSION)


def _disclosing_actions(entry: EntryPath, to: WritePath, ports: Ports) -> tuple[Action, ...]:
    """To view it, where a file that may not be viewed becomes one that may.

    Threat: an agent that may delete and create, and not view, reads by moving.
    """
    source, target = entry.path.relative, to.real.relative
    if not ports.shown.may_view(source) and ports.shown.may_view(target):
        return (Action("file", "view", source),)
    return ()


class MoveFile(_ChangesEntry):
    """Never overwrites."""

    def resolve(self, arguments: MoveFileArguments, ports: Ports) -> EntryPlan:
        entry = ports.workspace.resolve_entry(arguments.path)
        to = ports.workspace.resolve_write(arguments.to)
        actions = (
            Action("file", "delete", entry.path.relative),
            *path_actions("file", "create", to),
            *_disclosing_actions(entry, to, ports),
        )
        return EntryPlan(entry, arguments.if_version, actions, to)


MOVE_FILE: Final = Tool(
    ToolSpec(
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
    ),
    MoveFile(),
)


class DeleteFileArguments(ArgumentType):
    path: str = needed_text("What to delete, relative to the workspace root.")
    if_version: str | None = optional_text(IF_VERSION)


class DeleteFile(_ChangesEntry):
    def resolve(self, arguments: DeleteFileArguments, ports: Ports) -> EntryPlan:
        entry = ports.workspace.resolve_entry(arguments.path)
        actions = (Action("file", "delete", entry.path.relative),)
        return EntryPlan(entry, arguments.if_version, actions)


DELETE_FILE: Final = Tool(
    ToolSpec(
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
    ),
    DeleteFile(),
)
