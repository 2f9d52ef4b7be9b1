"""Committing what a command left, after somebody looked at the difference and said yes.

It is a tool that no model has, as undo is: bound, recorded before it acts and after, kept
in the history. Nothing runs again: exactly what was shown comes into the workspace, or
nothing where something else stands there by now.
"""

import os
from dataclasses import dataclass
from typing import Final

from paddock.errors import ApprovalExpiredError, FileChangedError, PathError
from paddock.history.journal import Journal
from paddock.history.keeping import History, current_call
from paddock.history.objects import ObjectStore
from paddock.sandbox.committing import Noting
from paddock.sandbox.parking import digests_of
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.effects import change_json, change_of_path, within_entry
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.workspace.changes import (
    UNWITNESSED,
    MakeDirectory,
    MakeLink,
    Phases,
    SetMetadata,
    StagedChange,
    WriteFile,
)

_ROWS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class CommitArguments(ArgumentType):
    """Arguments of a commit."""

    request: str = needed_text("The request whose changes are committed.")
    agent: str = needed_text("The agent whose command made them.")


@dataclass(frozen=True, slots=True)
class _Plan:
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class CommitParked:
    """Commits one parked set: all of it or nothing."""

    phases: Phases
    history: History
    journal: Journal

    def resolve(self, arguments: CommitArguments, ports: Ports) -> _Plan:
        """Raises: ApprovalExpiredError: the history has pruned a content of it."""
        del arguments, ports
        store = self.history.store
        for digest in digests_of(self.phases):
            if not store.has(digest):
                raise ApprovalExpiredError(
                    "what was to be committed is not kept any more", hint="run the command again"
                )
            store.verify(digest)
        return _Plan(tuple(_action(change) for phase in self.phases for change in phase))

    def run(self, plan: _Plan, ports: Ports) -> ToolOutput:
        """Raises: ApprovalExpiredError: something else stands there; nothing has changed."""
        del plan
        store, running = self.history.store, current_call()
        witness = UNWITNESSED if running is None else Noting(self.history, running)
        try:
            with store.held():
                self._keep_links(ports, store)
                receipt = ports.workspace.commit(
                    self.phases,
                    store,
                    self.journal,
                    label="" if running is None else running.mark.call_id,
                    witness=witness,
                )
        except (FileChangedError, PathError) as error:
            raise ApprovalExpiredError(
                f"the workspace has changed since the command ran: {error.message}",
                hint="nothing was changed; run the command again",
            ) from error
        rows = [change for row in receipt.changes if (change := change_of_path(row)) is not None]
        said = [f"committed {len(rows)} changes", *(f"  {r.kind} {quote(r.path)}" for r in rows)]
        if len(rows) > _ROWS_MAX:
            said[_ROWS_MAX + 1 :] = [f"  [and {len(rows) - _ROWS_MAX} more]"]
        details = {"changes": [change_json(change) for change in rows]}
        listed, stored = within_entry(tuple(rows), self.history.keep_for_ledger)
        return ToolOutput("\n".join(said), details, listed, 0, stored)

    def _keep_links(self, ports: Ports, store: ObjectStore) -> None:
        """The texts of links that go away: the history keeps them as contents."""
        for phase in self.phases:
            for change in phase:
                entry = ports.workspace.resolve_entry(change.path.relative)
                state = ports.workspace.entry_state(entry)
                if state is not None and state.link_text is not None:
                    store.put_bytes(os.fsencode(state.link_text))
        store.sync()


def _action(change: StagedChange) -> Action:
    operation = "delete"
    if isinstance(change, WriteFile | MakeDirectory):
        operation = "create"
    elif isinstance(change, MakeLink):
        operation = "link"
    elif isinstance(change, SetMetadata):
        operation = "mode"
    return Action("file", operation, change.path.relative)


SPEC: Final = ToolSpec(
    name="commit_parked",
    title="Commit kept changes",
    description="Commit what a command left, after it was approved. For people, not for models.",
    toolset="operator",
    arguments=CommitArguments,
    effects=Effects(reads_only=False, is_destructive=True),
    output_schema=result_schema({"changes": {"type": "array", "items": {"type": "object"}}}),
)


def commit_tool(phases: Phases, history: History, journal: Journal) -> Tool[CommitArguments]:
    """The tool that commits just these changes."""
    return Tool(SPEC, CommitParked(phases, history, journal))
