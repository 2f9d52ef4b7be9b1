"""Undo, and the commit of kept changes: acts of the operator, dispatched like other calls.

They are tools that no model has. Their calls are bound, decided, recorded before they act
and after, and the content that they replace is kept, so an undo can be undone.
"""

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import (
    ApprovalExpiredError,
    DirectoryNotEmptyError,
    FileChangedError,
    PathError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PathThroughLinkError,
    SpecialFileError,
    StorageFullError,
    ToolError,
)
from paddock.policy.settings import Git
from paddock.runtime.changes import PastCall, state_at
from paddock.sandbox.changes.commit import CommitCondition
from paddock.sandbox.changes.pending import ParkedSet, digests_of
from paddock.storage.history import History, current_call
from paddock.storage.journal import Journal
from paddock.storage.notes import DoingEntry
from paddock.storage.objects import StoreReader
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.effects import change_json, change_of_doing, changes_of, within_entry
from paddock.tools.spec import (
    Change,
    Effects,
    GivenPlan,
    Ports,
    RefusedPath,
    Tool,
    ToolOutput,
    ToolSpec,
)
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import EntryPath, Workspace, WorkspacePath, WritePath
from paddock.workspace.apply import commit_changes, note_changes
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    ChangeReceipt,
    EntryState,
    MakeDirectory,
    MakeLink,
    Old,
    RemoveDirectory,
    RemoveFile,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
    entry_seen,
)
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import escapes_root, join_parts, parse_asked
from paddock.workspace.single_change import DIRECTORY_VERSION, move_entry

# A path is restored only if it is still as the call left it, which the change set checks
# again under its locks: each change says which version the path must have.

_NAMED_MAX: Final = 5
_ENTRIES_MAX: Final = 10_000
"""Entries of a directory that an undo would remove; a larger one is kept."""


def _unkept(changes: Sequence[Change], store: StoreReader) -> tuple[str, ...]:
    return tuple(
        change.path
        for change in changes
        if _needs_content(change)
        and (not change.kept or change.before is None or not store.has(change.before))
    )


def _needs_content(change: Change) -> bool:
    return change.kind in {"overwritten", "edited", "deleted"} and change.entry != "directory"


def _changed_since(changes: Sequence[Change], workspace: Workspace) -> Iterator[str]:
    left = UndoTree(workspace, _leaves_left(changes))
    for change in changes:
        if change.kind == "touched":
            continue  # Only a time: whether it was set again since cannot be known.
        path = change.to if change.kind == "moved" and change.to is not None else change.path
        now = left.state(path)
        if not _is_as_left(change, now):
            yield quote(path)
        elif now is not None and change.mode_after not in {None, now.mode}:
            yield _mode_named(change, now.mode)
        if change.kind == "moved" and left.state(change.path) is not None:
            yield quote(change.path)


def _mode_named(change: Change, now: int) -> str:
    return f"the mode of {quote(change.path)} ({now:04o}, the call left {change.mode_after:04o})"


def _inverse(change: Change) -> Change:
    path, to = (change.path, None) if change.to is None else (change.to, change.path)
    kind = {"created": "deleted", "deleted": "created"}.get(change.kind, change.kind)
    return replace(
        change,
        path=path,
        kind=kind,
        before=change.after,
        after=change.before,
        to=to,
        entry=change.entry_after or change.entry,
        entry_after=change.entry,
        mode=change.mode_after,
        mode_after=change.mode,
    )


def _leaves_left(changes: Sequence[Change]) -> frozenset[str]:
    return frozenset(
        change.path if change.to is None else change.to
        for change in changes
        if change.kind != "deleted" and (change.entry_after or change.entry) != "directory"
    )


class UndoTree(Struct, frozen=True):
    """The workspace as a call left it.

    There is nothing below `leaves`, the paths of its links and files: the entries of a former
    directory are not looked up through a symlink that replaced it.
    """

    workspace: Workspace
    leaves: frozenset[str]

    def state(self, path: str) -> EntryState | None:
        return None if self._is_below_leaf(path) else state_at(self.workspace, path)

    def path(self, path: str) -> WorkspacePath:
        if not self._is_below_leaf(path):
            return self.workspace.resolve_entry(path).path
        asked = parse_asked(path, ())
        if ".." in asked.parts:
            raise escapes_root(path)
        return join_parts(asked.parts)

    def _is_below_leaf(self, path: str) -> bool:
        above = path.rpartition("/")[0]
        while above and above not in self.leaves:
            above = above.rpartition("/")[0]
        return above != ""


def _is_as_left(change: Change, now: EntryState | None) -> bool:
    if change.kind == "deleted":
        return now is None
    if now is None or now.kind.value != (change.entry_after or change.entry):
        return False
    # If only the mode changed, the content may not have been read.
    return now.version == change.after or (change.kind == "mode" and change.after is None)


class UndoPlan(Struct):
    left: UndoTree
    store: StoreReader
    overrides_read_only: bool
    """True for changes of commands, which may write files that no tool may."""
    staged: list[StagedChange] = field(default_factory=list[StagedChange])
    _made: set[str] = field(default_factory=set[str])

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(map(_action, self.staged))

    def add_all(self, changes: Sequence[Change]) -> None:
        gone = {change.path for change in changes if change.kind == "created"}
        for change in changes:
            self._add(change)
        self.remove_made(changes, gone)

    def remove_made(self, changes: Sequence[Change], gone: set[str]) -> None:
        made = {name for change in changes for name in change.made}
        # The deepest first.
        for directory in sorted(made, key=lambda name: (-name.count("/"), name)):
            if self._holds_only(directory, gone):
                gone.add(directory)
                self.staged.append(RemoveDirectory(self.left.path(directory)))

    def _add(self, change: Change) -> None:
        if change.kind == "touched":
            return
        path = self.left.path(change.path)
        if change.kind == "mode":
            workspace = self.left.workspace
            seen = entry_seen(workspace, workspace.resolve_entry(change.path))
            if seen is not None:
                # The set compares with the state read here, so it must be as the call left it.
                if change.mode_after not in {None, seen.status.permissions}:
                    raise _refusal_of_changed((_mode_named(change, seen.status.permissions),))
                self.staged.append(SetMetadata(path, seen, change.mode))
        elif change.kind == "created":
            self._remove(path, change.entry, change.after)
        else:
            old: Old = Absent()
            if change.kind == "deleted":
                self._make_parents(path)
            elif (change.entry_after or change.entry) == "directory":
                self._remove(path, "directory", None)
            else:
                old = AtVersion(change.after or "")
            self._restore(path, change, old)

    def _restore(self, path: WorkspacePath, change: Change, old: Old) -> None:
        overrides = self.overrides_read_only
        if change.entry == "directory":
            made = MakeDirectory(path, old, change.mode, overrides_read_only=overrides)
            self._made.add(change.path)
            self.staged.append(made)
        elif change.entry == "link":
            text = os.fsdecode(self.store.read(change.before or ""))
            self.staged.append(MakeLink(path, text, old, overrides_read_only=overrides))
        else:
            content = StoredContent(change.before or "")
            written = WriteFile(path, content, old, change.mode, overrides_read_only=overrides)
            self.staged.append(written)

    def _remove(self, path: WorkspacePath, entry: DoingEntry, version: str | None) -> None:
        if entry == "directory":
            self.staged.append(RemoveDirectory(path))
            return
        old = AtVersion(version or "")
        self.staged.append(RemoveFile(path, old, overrides_read_only=self.overrides_read_only))

    def _make_parents(self, path: WorkspacePath) -> None:
        missing: list[WorkspacePath] = []
        parent = path.parent
        while parent.relative not in self._made and self.left.state(parent.relative) is None:
            missing.append(parent)
            parent = parent.parent
        for directory in reversed(missing):
            self._made.add(directory.relative)
            self.staged.append(MakeDirectory(directory, Absent()))

    def _holds_only(self, directory: str, gone: set[str]) -> bool:
        path = self.left.path(directory)
        state = self.left.state(directory)
        if state is None or state.kind.value != "directory":
            return False
        listing = list_directory(self.left.workspace, path, 1, _ENTRIES_MAX)
        is_whole = listing.total == len(listing.entries)
        return is_whole and all(e.path.relative in gone for e in listing.entries)


def _refusal_of_changed(named: Sequence[str]) -> FileChangedError:
    return FileChangedError(
        f"{_listed(named)} changed since the call",
        hint="undo what came after it first, or edit by hand; nothing was changed",
    )


def _listed(named: Sequence[str]) -> str:
    shown = ", ".join(named[:_NAMED_MAX])
    more = len(named) - _NAMED_MAX
    return f"{shown} and {more} more" if more > 0 else shown


_ROWS_MAX: Final = 50


class UndoArguments(ArgumentType):
    call: str = needed_text("The call to undo.")
    agent: str = needed_text("The agent whose workspace it changed.")


class _Move(Struct, frozen=True):
    entry: EntryPath
    to: WritePath
    version: str | None


class _Ready(Struct, frozen=True):
    actions: tuple[Action, ...]
    set: UndoPlan
    moved: _Move | None = None


class Undo(Struct, frozen=True):
    call: PastCall
    history: History
    journal: Journal

    def resolve(self, arguments: UndoArguments, ports: Ports) -> _Ready:
        call, workspace, store = self.call, ports.workspace, self.history.store
        if (obstacle := why_no_undo(call, workspace, store)) is not None:
            raise obstacle.error
        for change in call.changes:
            if _needs_content(change) and change.before is not None:
                store.verify(change.before)
        left = UndoTree(workspace, _leaves_left(call.changes))
        plan = UndoPlan(left, store, overrides_read_only=call.is_by_command)
        first = call.changes[0]
        if first.kind == "moved" and first.to is not None:
            entry, back = workspace.resolve_entry(first.to), workspace.resolve_write(first.path)
            plan.remove_made(call.changes, {first.to})
            actions = (Action("file", "delete", first.to), Action("file", "create", first.path))
            return _Ready(actions + plan.actions, plan, _Move(entry, back, first.after))
        plan.add_all(call.changes)
        return _Ready(plan.actions, plan)

    def run(self, plan: _Ready, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing has changed."""
        if plan.moved is None:
            return self._output(self._commit(plan.set, ports))
        changes = [_move(plan.moved, ports)]
        # A directory that the call created, and that is now in use, is kept.
        with contextlib.suppress(ToolError):
            changes += self._commit(plan.set, ports)
        return self._output(changes)

    def _output(self, changes: Sequence[Change]) -> ToolOutput:
        said = [f"undone: {self.call.tool} {self.call.call_id}"]
        said += _cut([f"  {_described(change)}" for change in changes])
        details = {
            "undone": self.call.call_id,
            "changes": [change_json(change) for change in changes],
        }
        listed, stored = within_entry(tuple(changes), self.history.keep_for_ledger)
        return ToolOutput("\n".join(said), details, listed, 0, stored)

    def _commit(self, plan: UndoPlan, ports: Ports) -> list[Change]:
        if not plan.staged:
            return []
        receipt = commit_changes(
            ports.workspace,
            [plan.staged],
            self.history.store,
            self.journal,
            label=self.call.call_id,
            witness=partial(note_changes, self.history),
        )
        return changes_of(receipt.changes)


class UndoStatus(StrEnum):
    UNDOABLE = "yes"
    OTHER_WORKSPACE = "other workspace"
    NOT_RECORDED = "not recorded"
    AS_BEFORE = "as before"
    CHANGED = "changed since"
    NO_WORKSPACE = "no workspace"
    NOT_KEPT = "not kept"


class NoUndo(NamedTuple):
    status: UndoStatus
    error: ToolError


def why_no_undo(call: PastCall, workspace: Workspace, store: StoreReader) -> NoUndo | None:
    """Return why it cannot be undone in this workspace, or None. Raises: PathError, TextError."""
    name = quote(call.call_id)
    if not call.changes:
        said = f"no change of the call {name} is on record"
        hint = "paddock history lists the calls that changed something"
        return NoUndo(UndoStatus.NOT_RECORDED, PathNotFoundError(said, hint=hint))
    is_touched = not call.undoes and all(change.kind == "touched" for change in call.changes)
    changed = list(_changed_since(call.changes, workspace))
    # The first path that differs from before is enough: the rest is not checked.
    not_undone = _changed_since([_inverse(change) for change in call.changes], workspace)
    if is_touched or (changed and next(not_undone, None) is None):
        why = f"everything is as it was before {name}"
        if is_touched:
            why = f"{name} changed only the times of files"
        said = f"there is nothing to undo: {why}"
        hint = f"paddock diff {shlex.quote(call.call_id)} shows what it changed"
        return NoUndo(UndoStatus.AS_BEFORE, FileChangedError(said, hint=hint))
    if changed:
        return NoUndo(UndoStatus.CHANGED, _refusal_of_changed(changed))
    missing = _unkept(call.changes, store)
    if missing:
        said = f"the history does not have the old content of {_listed(list(map(quote, missing)))}"
        hint = "it was pruned to keep to [history] bytes_max, or only commands write it"
        return NoUndo(UndoStatus.NOT_KEPT, PathNotFoundError(said, hint=hint))
    return None


def _move(moved: _Move, ports: Ports) -> Change:
    version = moved.version or DIRECTORY_VERSION
    receipt = move_entry(ports.workspace, moved.entry, moved.to, if_version=version)
    return change_of_doing(receipt.doing)


def _described(change: Change) -> str:
    path = show_name(change.path)
    what = "" if change.entry == "file" else f" ({change.entry})"
    return f"{change.kind} {path}{what}" + (f" to {show_name(change.to)}" if change.to else "")


def undo_tool(call: PastCall, history: History, journal: Journal) -> Tool[Any]:
    said = "Bring back what a call replaced."
    spec = _operator_spec("undo", "Undo a call", said, UndoArguments)
    return Tool(spec, Undo(call, history, journal))


def _operator_spec(
    name: str, title: str, said: str, arguments: type[ArgumentType]
) -> ToolSpec[Any]:
    effects = Effects(reads_only=False, is_destructive=True)
    said = f"{said} For people, not for models."
    return ToolSpec(name, title, said, "operator", arguments, effects)


# The commit of a command's kept changes. Nothing runs again: exactly what was shown is
# committed, or nothing if the workspace has changed there.

_CHANGED: Final = (
    DirectoryNotEmptyError,
    FileChangedError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    PathThroughLinkError,
    SpecialFileError,
)
"""Errors of a commit if the workspace was changed since. Any other error is an obstacle."""
_USED_UP: Final = (
    "nothing was changed, and the grant is used up: remove the obstacle, then run the command again"
)


class CommitArguments(ArgumentType):
    request: str = needed_text("The request whose changes are committed.")
    agent: str = needed_text("The agent whose command made them.")


class CommitParked(Struct, frozen=True):
    parked: ParkedSet
    history: History
    journal: Journal
    git: Git

    def resolve(self, arguments: CommitArguments, ports: Ports) -> GivenPlan[CommitArguments]:
        """Raises: ApprovalExpiredError if the history has pruned one of the contents."""
        del ports
        store = self.history.store
        for digest in digests_of(self.parked.phases):
            if not store.has(digest):
                raise ApprovalExpiredError(
                    "the changes are no longer kept", hint="run the command again"
                )
            store.verify(digest)
        changes = (change for phase in self.parked.phases for change in phase)
        return GivenPlan(arguments, tuple(map(_action, changes)))

    def run(self, plan: GivenPlan[CommitArguments], ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing has changed, and the grant is used up."""
        del plan
        running, tree, store = current_call(), ports.workspace, self.history.store
        try:
            receipt = commit_changes(
                tree,
                self.parked.phases,
                store,
                self.journal,
                label="" if running is None else running.mark.call_id,
                witness=partial(note_changes, self.history),
                condition=CommitCondition(
                    tree.root_fd,
                    self.parked.phases,
                    store,
                    self.git,
                    self.parked.above,
                    tree.resolution,
                ),
            )
        except _CHANGED as error:
            raise ApprovalExpiredError(
                f"the workspace has changed since the command ran: {error.message}",
                hint="nothing was changed; run the command again",
            ) from error
        except (PathError, StorageFullError) as error:
            raise type(error)(error.message, where=error.where, hint=_USED_UP) from error
        return self._output(receipt)

    def _output(self, receipt: ChangeReceipt) -> ToolOutput:
        rows = changes_of(receipt.changes)
        count = "1 change" if len(rows) == 1 else f"{len(rows)} changes"
        said = [f"committed {count}", *_cut([f"  {r.kind} {quote(r.path)}" for r in rows])]
        refused, more = self.parked.refused, self.parked.refused_more
        if refused or more:
            said.append(f"changes refused: {len(refused) + more}")
            said += _cut([f"  {show_name(r.path)}: {show_name(r.rule)}" for r in refused], more)
        details: dict[str, Json] = {
            "changes": [change_json(change) for change in rows],
            "changes_refused": [{"path": each.path, "rule": each.rule} for each in refused],
        }
        if more:
            details["not_listed"] = {"changes_refused": more}
        listed, stored = within_entry(tuple(rows), self.history.keep_for_ledger)
        return ToolOutput(
            "\n".join(said),
            details,
            listed,
            stored=stored,
            refused=tuple(RefusedPath(each.path, each.code, each.rule) for each in refused),
            refused_more=more,
        )


def _cut(rows: list[str], more: int = 0) -> list[str]:
    more += max(0, len(rows) - _ROWS_MAX)
    return [*rows[:_ROWS_MAX], *([f"  [and {more} more]"] if more else [])]


def _action(change: StagedChange) -> Action:
    operation = "delete"
    if isinstance(change, WriteFile | MakeDirectory):
        operation = "create"
    elif isinstance(change, MakeLink):
        operation = "link"
    elif isinstance(change, SetMetadata):
        operation = "mode"
    return Action("file", operation, change.path.relative)


def commit_tool(parked: ParkedSet, history: History, journal: Journal, git: Git) -> Tool[Any]:
    said = "Commit what a command left, after it was approved."
    spec = _operator_spec("commit_parked", "Commit kept changes", said, CommitArguments)
    return Tool(spec, CommitParked(parked, history, journal, git))
