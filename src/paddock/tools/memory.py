"""`memory_view`, `memory_create` and others: an agent's memory, in a private directory.

The file tools do the work, with the agent's directory of the plane as the workspace: it
holds nothing else, and no path leads out of it. Each step is judged as
`tool:memory:OPERATION /memories/…`. Replaced content is not stored, so there is no undo.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.policy.rules import MEMORIES
from paddock.text.show import show_name
from paddock.tools import write
from paddock.tools.effects import ABSENT
from paddock.tools.replace import INSERT_TEXT, STR_REPLACE, InsertText, StrReplace
from paddock.tools.spec import Handler, Plan, Ports, ReadPlan, Shown, Tool, ToolOutput
from paddock.tools.view import VIEW, View
from paddock.values.decisions import Action
from paddock.workspace import EntryKind, Workspace, WorkspacePath
from paddock.workspace.listing import DirectoryEntry, is_directory, list_directory

ENTRIES_MAX: Final = 1_000  # files and directories that one call lists, moves or deletes


_Step: TypeAlias = tuple[Handler[Any, Any], Plan]
_Steps: TypeAlias = Iterator[_Step]


class MemoryPlan(Struct, frozen=True):
    steps: tuple[_Step, ...]
    actions: tuple[Action, ...]


class _ShownMemories(Struct, frozen=True):
    shown: Shown

    def is_shown(self, relative: str) -> bool:
        del relative
        return True

    def may_view(self, relative: str) -> bool:
        return self.allows(Action("file", "view", relative))

    def allows(self, action: Action) -> bool:
        return self.shown.allows(_judged(action))


def _judged(action: Action) -> Action:
    # Threat: a rule about the workspace's `notes.md` must not apply to the memory's.
    return Action("memory", action.operation, _name_of(action.target))


def _name_of(relative: str) -> str:
    return MEMORIES if relative == "." else f"{MEMORIES}/{relative}"


def _within(ports: Ports) -> Ports:
    if ports.memory is None:
        hint = "use a file of the workspace"
        raise errors.SandboxUnavailableError(
            "this workspace was opened without a memory", hint=hint
        )
    shown = _ShownMemories(ports.shown)
    return replace(ports, workspace=ports.memory(), shown=shown, earlier=None)


class InMemory(Struct, frozen=True):
    """A file tool on the memory; on a directory, it takes a step for each entry."""

    handler: Handler[Any, Any]

    def steps(self, arguments: Any, ports: Ports) -> _Steps:
        yield self.handler, self.handler.resolve(arguments, ports)

    def resolve(self, arguments: Any, ports: Ports) -> MemoryPlan:
        steps = tuple(self.steps(arguments, _within(ports)))
        actions = (_judged(action) for _, plan in steps for action in plan.actions)
        return MemoryPlan(steps, tuple(dict.fromkeys(actions)))

    def run(self, plan: MemoryPlan, ports: Ports) -> ToolOutput:
        within, outputs = _within(ports), list[ToolOutput]()
        for handler, step in plan.steps:
            try:
                outputs.append(handler.run(step, within))
            except errors.ToolError as error:
                if not outputs:
                    raise
                said = f"{len(outputs)} of {len(plan.steps)} steps were done: {error.message}"
                raise errors.ToolFailedError(
                    said, hint="view the memory before you continue"
                ) from error
        # No changes: undo would apply them to the workspace.
        return outputs[-1]._replace(changes=())


class _Creating(InMemory, frozen=True):
    def steps(self, arguments: write.CreateFileArguments, ports: Ports) -> _Steps:
        plan = write.CreateFile().resolve(arguments, ports)
        if plan.path.exists:
            raise errors.PathExistsError(
                f"{plan.path.asked.shown} already exists", hint="edit it instead"
            )
        yield self.handler, replace(plan, if_version=plan.if_version or ABSENT)


class _Deleting(InMemory, frozen=True):
    def steps(self, arguments: write.DeleteFileArguments, ports: Ports) -> _Steps:
        path = ports.workspace.resolve_entry(arguments.path).path
        for each in _below(ports.workspace, path):
            given = write.DeleteFileArguments(path=each.path.relative)
            yield self.handler, self.handler.resolve(given, ports)
        yield from super().steps(arguments, ports)


class _Renaming(InMemory, frozen=True):
    def steps(self, arguments: write.MoveFileArguments, ports: Ports) -> _Steps:
        path = ports.workspace.resolve_entry(arguments.path).path
        to = ports.workspace.resolve_write(arguments.to)
        below = _below(ports.workspace, path)
        if to.exists or (below and to.real.parts[: len(path.parts)] == path.parts):
            raise errors.PathExistsError(
                f"{to.asked.shown} already exists, or is inside the directory to move"
            )
        if not below:
            yield from super().steps(arguments, ports)
            return
        folders = [each.path for each in below if each.kind is EntryKind.DIRECTORY]
        for each in below:
            if each.kind is not EntryKind.DIRECTORY:
                target = to.real.relative + each.path.relative[len(path.relative) :]
                given = write.MoveFileArguments(path=each.path.relative, to=target)
                yield self.handler, self.handler.resolve(given, ports)
        for folder in (*folders, path):
            delete = write.DeleteFileArguments(path=folder.relative)
            yield write.DeleteFile(), write.DeleteFile().resolve(delete, ports)


def _below(workspace: Workspace, path: WorkspacePath) -> list[DirectoryEntry]:
    """Return the entries below a directory, deepest first."""
    if path.is_root:
        raise errors.InvalidPathError(f"cannot move or delete the {MEMORIES} directory itself")
    if not is_directory(workspace, path):
        return []
    listing = list_directory(workspace, path, limits.path_depth_max, ENTRIES_MAX)
    if listing.total > len(listing.entries) or listing.unreadable:
        said = f"{path.shown} has {listing.total} entries, one call can change {ENTRIES_MAX}"
        raise errors.InvalidPathError(said, hint="start with its subdirectories")
    return list(reversed(listing.entries))


class _Viewing(View):
    """Lists a directory's sizes and names two levels deep, in the provider's format."""

    def run(self, plan: ReadPlan[Any], ports: Ports) -> ToolOutput:
        path = plan.path.real
        if not is_directory(ports.workspace, path):
            return super().run(plan, ports)
        listing = list_directory(ports.workspace, path, limits.path_depth_max, ENTRIES_MAX)
        rows = [_row(_name_of(path.relative), path, listing.entries)]
        above = len(path.parts)
        for entry in listing.entries:
            parts = entry.path.parts[above:]
            is_hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
            if len(parts) <= 2 and not is_hidden:
                slash = "/" if entry.kind is EntryKind.DIRECTORY else ""
                name = show_name(_name_of(entry.path.relative)) + slash
                rows.append(_row(name, entry.path, listing.entries))
        if listing.total > ENTRIES_MAX:
            rows.append(f"[only the first {ENTRIES_MAX} of {listing.total} entries were read]")
        return ToolOutput("\n".join(rows), {"entries_total": listing.total})


def _row(name: str, path: WorkspacePath, entries: Sequence[DirectoryEntry]) -> str:
    depth = len(path.parts)
    own = (each.size_bytes for each in entries if each.path.parts[:depth] == path.parts)
    size, unit = float(sum(own)), 0
    while size >= 1024 and unit < 3:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + f"{'BKMG'[unit]}\t{name}"


def _of(tool: Tool[Any], name: str, handler: Handler[Any, Any]) -> Tool[Any]:
    spec = tool.spec
    return Tool(replace(spec, name=name, title=f"Memory: {spec.title.lower()}"), handler)


MEMORY_VIEW: Final = _of(VIEW, "memory_view", InMemory(_Viewing()))
MEMORY_CREATE: Final = _of(write.CREATE_FILE, "memory_create", _Creating(write.CreateFile()))
MEMORY_STR_REPLACE: Final = _of(STR_REPLACE, "memory_str_replace", InMemory(StrReplace()))
MEMORY_INSERT: Final = _of(INSERT_TEXT, "memory_insert", InMemory(InsertText()))
MEMORY_DELETE: Final = _of(write.DELETE_FILE, "memory_delete", _Deleting(write.DeleteFile()))
MEMORY_RENAME: Final = _of(write.MOVE_FILE, "memory_rename", _Renaming(write.MoveFile()))
