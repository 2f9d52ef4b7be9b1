"""Undo: what a person asks for, through the same door as every call.

It is a tool that no model has. Its call is bound, decided, recorded before it acts and
after, and what it replaces is kept: so an undo can be undone.
"""

import contextlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock.errors import FileChangedError, PathNotFoundError, ToolError
from paddock.runtime.past import PastCall
from paddock.runtime.undo_plan import (
    Tree,
    UndoPlan,
    changed_since,
    is_as_before,
    is_only_touched,
    leaves_left,
    refusal_of_changed,
    refusal_of_unkept,
    unkept,
    verify_kept,
)
from paddock.storage.history import History
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.effects import (
    change_json,
    change_of_move,
    changes_of,
    within_entry,
)
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Change, Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.workspace import EntryPath, Workspace, WritePath
from paddock.workspace.apply import NotingWitness
from paddock.workspace.move import DIRECTORY_VERSION

_ROWS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class UndoArguments(ArgumentType):
    call: str = needed_text("The call to undo.")
    agent: str = needed_text("The agent whose workspace it changed.")


@dataclass(frozen=True, slots=True)
class _Move:
    """The way back of a moved entry: a move too, so that it stays the same entry."""

    entry: EntryPath
    to: WritePath
    version: str | None


@dataclass(frozen=True, slots=True)
class _Ready:
    """What will be done."""

    actions: tuple[Action, ...]
    set: UndoPlan
    moved: _Move | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Takes one call back: all of its paths or none."""

    call: PastCall
    history: History
    journal: Journal

    def resolve(self, arguments: UndoArguments, ports: Ports) -> _Ready:
        """Look whether it can be undone, and how.

        Raises:
            FileChangedError: something else stands there by now.
            PathNotFoundError: the history has the old content no more.
            IntegrityError: the old content is damaged.
        """
        call, workspace, store = self.call, ports.workspace, self.history.store
        require_undoable(call, workspace, store)
        verify_kept(call.changes, store)
        left = Tree(workspace, leaves_left(call.changes))
        plan = UndoPlan(left, store, overrides_read_only=call.is_by_command)
        first = call.changes[0]
        if first.kind == "moved" and first.to is not None:
            entry, back = workspace.resolve_entry(first.to), workspace.resolve_write(first.path)
            plan.remove_made(call.changes, {first.to})
            actions = (Action("file", "delete", first.to), Action("file", "create", first.path))
            return _Ready((*actions, *plan.actions), plan, _Move(entry, back, first.after))
        plan.add_all(call.changes)
        return _Ready(tuple(plan.actions), plan)

    def run(self, plan: _Ready, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing has changed."""
        if plan.moved is None:
            return self._output(self._commit(plan.set, ports))
        changes = [_move(plan.moved, ports)]
        # Where somebody uses a directory that the call had made, it stays: the move is undone.
        with contextlib.suppress(ToolError):
            changes += self._commit(plan.set, ports)
        return self._output(changes)

    def _output(self, changes: Sequence[Change]) -> ToolOutput:
        said = [f"undone: {self.call.tool} {self.call.call_id}"]
        said += [f"  {describe(change)}" for change in changes[:_ROWS_MAX]]
        if len(changes) > _ROWS_MAX:
            said.append(f"  [and {len(changes) - _ROWS_MAX} more]")
        details = {
            "undone": self.call.call_id,
            "changes": [change_json(change) for change in changes],
        }
        listed, stored = within_entry(tuple(changes), self.history.keep_for_ledger)
        return ToolOutput("\n".join(said), details, listed, 0, stored)

    def _commit(self, plan: UndoPlan, ports: Ports) -> list[Change]:
        if not plan.staged:
            return []
        receipt = ports.workspace.commit(
            [plan.staged],
            self.history.store,
            self.journal,
            label=self.call.call_id,
            witness=NotingWitness(self.history),
        )
        return changes_of(receipt.changes)


def require_undoable(call: PastCall, workspace: Workspace, store: ObjectStore) -> None:
    """Refuse a call that cannot be taken back.

    Raises:
        FileChangedError: something else stands there by now, or nothing is to be undone.
        PathNotFoundError: the history has the old content no more.
    """
    if not call.changes:
        raise PathNotFoundError(
            f"no change of the call {quote(call.call_id)} is on record",
            hint="paddock history lists the calls that changed something",
        )
    if is_only_touched(call.changes) and not call.undoes:
        raise FileChangedError(
            f"there is nothing to undo: {quote(call.call_id)} set the times of files alone",
            hint="their contents and modes are as they were",
        )
    changed = changed_since(call.changes, workspace)
    if changed:
        if is_as_before(call.changes, workspace):
            raise FileChangedError(
                f"there is nothing to undo: all is as it was before {quote(call.call_id)}",
                hint=f"paddock diff {shlex.quote(call.call_id)} shows what it changed",
            )
        raise refusal_of_changed(changed)
    missing = unkept(call.changes, store)
    if missing:
        raise refusal_of_unkept(missing)


def _move(moved: _Move, ports: Ports) -> Change:
    version = moved.version or DIRECTORY_VERSION
    receipt = ports.workspace.move(moved.entry, moved.to, if_version=version)
    return change_of_move(receipt)


def describe(change: Change) -> str:
    path = show_name(change.path)
    what = "" if change.entry == "file" else f" ({change.entry})"
    return f"{change.kind} {path}{what}" + (f" to {show_name(change.to)}" if change.to else "")


SPEC: Final = ToolSpec(
    name="undo",
    title="Undo a call",
    description="Bring back what a call replaced. For people, not for models.",
    toolset="operator",
    arguments=UndoArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=result_schema(
        {"undone": {"type": "string"}, "changes": {"type": "array", "items": {"type": "object"}}}
    ),
)


def undo_tool(call: PastCall, history: History, journal: Journal) -> Tool[UndoArguments]:
    return Tool(SPEC, Undo(call, history, journal))
