"""`memory_view`, `memory_create` and others: what an agent remembers, in its own directory.

The tools for files do the work, on the plane's directory of that agent in the place of the
workspace: nothing else is in it, and no name leads out of it. Each step is judged as
`tool:memory:OPERATION /memories/…`. What was replaced is not kept, so nothing is undone.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    InvalidPathError,
    PathExistsError,
    PathNotFoundError,
    SandboxUnavailableError,
    ToolError,
    ToolFailedError,
)
from paddock.policy.rules import MEMORIES
from paddock.text.show import show_name
from paddock.tools.effects import ABSENT
from paddock.tools.move import (
    DeleteFile,
    DeleteFileArguments,
    MoveFile,
    MoveFileArguments,
    delete_file_tool,
    move_file_tool,
)
from paddock.tools.replace import InsertText, StrReplace, insert_text_tool, str_replace_tool
from paddock.tools.spec import Handler, Plan, Ports, Shown, Tool, ToolOutput
from paddock.tools.view import View, ViewPlan, view_tool
from paddock.tools.write import CreateFile, CreateFileArguments, create_file_tool
from paddock.values.decisions import Action
from paddock.workspace import EntryKind, Workspace, WorkspacePath
from paddock.workspace.listing import DirectoryEntry, is_directory, list_directory

ENTRIES_MAX: Final = 1_000
"""So many files and directories are listed, moved or deleted by one call."""
_LISTED_DEPTH: Final = 2
_UNITS: Final = "BKMG"


class _Step(Struct, frozen=True):
    handler: Handler[Any, Any]
    plan: Plan


class MemoryPlan(Struct, frozen=True):
    steps: tuple[_Step, ...]
    actions: tuple[Action, ...]


class _ShownMemories(Struct, frozen=True):
    shown: Shown

    def is_shown(self, relative: str) -> bool:
        del relative
        return True

    def may_view(self, relative: str) -> bool:
        return self.allows(Action("memory", "view", relative))

    def allows(self, action: Action) -> bool:
        return self.shown.allows(_judged(action))


def _judged(action: Action) -> Action:
    # Threat: a rule about the workspace's `notes.md` must say nothing about the memory's.
    return Action("memory", action.operation, name_of(action.target))


def name_of(relative: str) -> str:
    return MEMORIES if relative in ("", ".") else f"{MEMORIES}/{relative}"


def _within(ports: Ports) -> Ports:
    if ports.memory is None:
        raise SandboxUnavailableError(
            "this workspace was opened without a memory", hint="keep it in a file"
        )
    shown = _ShownMemories(ports.shown)
    return replace(ports, workspace=ports.memory(), shown=shown, earlier=None)


class InMemory:
    """A tool for files, on the memory."""

    def __init__(self, handler: Handler[Any, Any]) -> None:
        self._handler = handler

    def steps(self, arguments: Any, ports: Ports) -> Iterator[_Step]:
        yield _Step(self._handler, self._handler.resolve(arguments, ports))

    def resolve(self, arguments: Any, ports: Ports) -> MemoryPlan:
        steps = tuple(self.steps(arguments, _within(ports)))
        actions = (_judged(action) for step in steps for action in step.plan.actions)
        return MemoryPlan(steps, tuple(dict.fromkeys(actions)))

    def run(self, plan: MemoryPlan, ports: Ports) -> ToolOutput:
        within, outputs = _within(ports), list[ToolOutput]()
        for step in plan.steps:
            try:
                outputs.append(step.handler.run(step.plan, within))
            except ToolError as error:
                if not outputs:
                    raise
                raise ToolFailedError(
                    f"{len(outputs)} of {len(plan.steps)} steps were done: {error.message}",
                    hint="view the memory before going on",
                ) from error
        # Of a path of the workspace the changes would speak to whoever undoes.
        return outputs[-1]._replace(changes=())


class _Creating(InMemory):
    """Never overwrites."""

    def steps(self, arguments: CreateFileArguments, ports: Ports) -> Iterator[_Step]:
        plan = self._handler.resolve(arguments, ports)
        if plan.path.exists:
            raise PathExistsError(
                f"{plan.path.asked.shown} exists already", hint="edit it, or use another path"
            )
        yield _Step(self._handler, replace(plan, if_version=plan.if_version or ABSENT))


class _Deleting(InMemory):
    """With all that is below."""

    def steps(self, arguments: DeleteFileArguments, ports: Ports) -> Iterator[_Step]:
        path = ports.workspace.resolve_entry(arguments.path).path
        below = _below(ports.workspace, path, "deleted")
        for each in (*(entry.path for entry in reversed(below)), path):
            version = arguments.if_version if each == path else None
            given = DeleteFileArguments(path=each.relative, if_version=version)
            yield _Step(self._handler, self._handler.resolve(given, ports))


class _Renaming(InMemory):
    """With all that is below: each file by itself, then what is empty by then goes."""

    def steps(self, arguments: MoveFileArguments, ports: Ports) -> Iterator[_Step]:
        path = ports.workspace.resolve_entry(arguments.path).path
        to = ports.workspace.resolve_write(arguments.to)
        below = _below(ports.workspace, path, "renamed")
        if to.exists:
            raise PathExistsError(f"{to.asked.shown} exists already", hint="nothing is overwritten")
        if to.real.parts[: len(path.parts)] == path.parts:
            raise InvalidPathError(f"{path.shown} cannot be moved into itself")
        full = {entry.path.parent for entry in below}
        delete = DeleteFile()
        for each in (*(entry.path for entry in reversed(below)), path):
            if each in full:
                continue
            target = to.real.relative + each.relative[len(path.relative) :]
            version = arguments.if_version if each == path else None
            given = MoveFileArguments(path=each.relative, to=target, if_version=version)
            yield _Step(self._handler, self._handler.resolve(given, ports))
        for each in sorted(full, key=lambda each: -len(each.parts)):
            plan = delete.resolve(DeleteFileArguments(path=each.relative), ports)
            yield _Step(delete, plan)


def _below(workspace: Workspace, path: WorkspacePath, done: str) -> Sequence[DirectoryEntry]:
    if path.is_root:
        raise InvalidPathError(f"the {MEMORIES} directory itself is not {done}")
    if not workspace.resolve_entry(path.relative).exists:
        raise PathNotFoundError(f"{path.shown} does not exist")
    if not is_directory(workspace, path):
        return ()
    listing = list_directory(workspace, path, limits.path_depth_max, ENTRIES_MAX)
    if listing.total > ENTRIES_MAX or listing.unreadable:
        raise InvalidPathError(
            f"{path.shown} holds {listing.total} entries, {ENTRIES_MAX} are {done} at once",
            hint="begin with the directories below it",
        )
    return listing.entries


class _Viewing(View):
    """Of a directory the sizes and names below it, as the provider documents them."""

    def run(self, plan: ViewPlan, ports: Ports) -> ToolOutput:
        directory = plan.path.real
        if not is_directory(ports.workspace, directory):
            return super().run(plan, ports)
        listing = list_directory(ports.workspace, directory, limits.path_depth_max, ENTRIES_MAX)
        above = 0 if directory.is_root else len(directory.parts)
        shown = [
            entry
            for entry in listing.entries
            if len(entry.path.parts) - above <= _LISTED_DEPTH and not _is_hidden(entry.path, above)
        ]
        rows = [_row(directory, EntryKind.DIRECTORY, listing.entries)]
        rows += [_row(entry.path, entry.kind, listing.entries) for entry in shown]
        if listing.total > len(listing.entries):
            rows.append(f"[of {listing.total} entries the first {ENTRIES_MAX} were looked at]")
        details = {"entries_total": listing.total, "truncated": listing.total > ENTRIES_MAX}
        return ToolOutput("\n".join(rows), details)


def _is_hidden(path: WorkspacePath, above: int) -> bool:
    return any(part.startswith(".") or part == "node_modules" for part in path.parts[above:])


def _row(path: WorkspacePath, kind: EntryKind, entries: Sequence[DirectoryEntry]) -> str:
    depth = len(path.parts)
    own = (entry for entry in entries if entry.path.parts[:depth] == path.parts)
    slash = "/" if kind is EntryKind.DIRECTORY and not path.is_root else ""
    return f"{_size(sum(each.size_bytes for each in own))}\t{show_name(name_of(str(path)))}{slash}"


def _size(size_bytes: int) -> str:
    unit = min(max(0, size_bytes.bit_length() - 1) // 10, len(_UNITS) - 1)
    size = size_bytes / 1024**unit
    return f"{size:.0f}{_UNITS[unit]}" if size == int(size) else f"{size:.1f}{_UNITS[unit]}"


def _tool(name: str, of: Tool[Any], handler: Handler[Any, Any]) -> Tool[Any]:
    spec = replace(of.spec, name=name, title=f"Memory: {of.spec.title.lower()}")
    return Tool(spec, handler)


def memory_view_tool() -> Tool[Any]:
    return _tool("memory_view", view_tool(), InMemory(_Viewing()))


def memory_create_tool() -> Tool[Any]:
    return _tool("memory_create", create_file_tool(), _Creating(CreateFile()))


def memory_str_replace_tool() -> Tool[Any]:
    return _tool("memory_str_replace", str_replace_tool(), InMemory(StrReplace()))


def memory_insert_tool() -> Tool[Any]:
    return _tool("memory_insert", insert_text_tool(), InMemory(InsertText()))


def memory_delete_tool() -> Tool[Any]:
    return _tool("memory_delete", delete_file_tool(), _Deleting(DeleteFile()))


def memory_rename_tool() -> Tool[Any]:
    return _tool("memory_rename", move_file_tool(), _Renaming(MoveFile()))
