"""Committing what a command left, after somebody looked at the difference and said yes.

It is a tool that no model has, as undo is: bound, recorded before it acts and after, kept
in the history. Nothing runs again: exactly what was shown comes into the workspace, or
nothing where something else stands there by now.
"""

from dataclasses import dataclass
from typing import Final

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
)
from paddock.policy.settings import Git
from paddock.sandbox.changes.footing import Footing
from paddock.sandbox.changes.parking import ParkedSet, digests_of
from paddock.storage.history import History, current_call
from paddock.storage.journal import Journal
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.effects import change_json, changes_of, within_entry
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Effects, Ports, RefusedPath, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.values.calls import Json
from paddock.workspace.apply import NotingWitness
from paddock.workspace.changes import (
    ChangeReceipt,
    MakeDirectory,
    MakeLink,
    SetMetadata,
    StagedChange,
    WriteFile,
)

_ROWS_MAX: Final = 50
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
"""What a set meets where somebody has changed the workspace. Anything else is in its way."""
_USED_UP: Final = (
    "nothing was changed, and the grant is used up: see to what is in the way, then run the"
    " command again"
)


@dataclass(frozen=True, slots=True)
class CommitArguments(ArgumentType):
    request: str = needed_text("The request whose changes are committed.")
    agent: str = needed_text("The agent whose command made them.")


@dataclass(frozen=True, slots=True)
class _Plan:
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class CommitParked:
    """Commits one parked set: all of it or nothing."""

    parked: ParkedSet
    history: History
    journal: Journal
    git: Git
    """The preset that holds for the command's agents."""

    def resolve(self, arguments: CommitArguments, ports: Ports) -> _Plan:
        """Raises: ApprovalExpiredError: the history has pruned a content of it."""
        del arguments, ports
        store = self.history.store
        for digest in digests_of(self.parked.phases):
            if not store.has(digest):
                raise ApprovalExpiredError(
                    "what was to be committed is not kept any more", hint="run the command again"
                )
            store.verify(digest)
        return _Plan(tuple(_action(change) for phase in self.parked.phases for change in phase))

    def run(self, plan: _Plan, ports: Ports) -> ToolOutput:
        """Nothing has changed where this raises what follows, and the grant is used up.

        Raises:
            ApprovalExpiredError: something else stands there.
            PathError, StorageFullError: a directory stays locked or is closed to us, or there
                is no space.
        """
        del plan
        running = current_call()
        try:
            receipt = ports.workspace.commit(
                self.parked.phases,
                self.history.store,
                self.journal,
                label="" if running is None else running.mark.call_id,
                witness=NotingWitness(self.history),
                condition=self._footing(ports),
            )
        except _CHANGED as error:
            raise ApprovalExpiredError(
                f"the workspace has changed since the command ran: {error.message}",
                hint="nothing was changed; run the command again",
            ) from error
        except (PathError, StorageFullError) as error:
            raise type(error)(error.message, where=error.where, hint=_USED_UP) from error
        return self._told(receipt)

    def _footing(self, ports: Ports) -> Footing:
        tree, parked, store = ports.workspace.tree, self.parked, self.history.store
        return Footing(tree.root_fd, parked.phases, store, self.git, parked.above, tree.resolution)

    def _told(self, receipt: ChangeReceipt) -> ToolOutput:
        rows = changes_of(receipt.changes)
        count = "1 change" if len(rows) == 1 else f"{len(rows)} changes"
        said = [f"committed {count}", *(f"  {r.kind} {quote(r.path)}" for r in rows)]
        if len(rows) > _ROWS_MAX:
            said[_ROWS_MAX + 1 :] = [f"  [and {len(rows) - _ROWS_MAX} more]"]
        refused, more = self.parked.refused, self.parked.refused_more
        details: dict[str, Json] = {
            "changes": [change_json(change) for change in rows],
            "changes_refused": [{"path": each.path, "rule": each.rule} for each in refused],
        }
        if more:
            details["not_listed"] = {"changes_refused": more}
        listed, stored = within_entry(tuple(rows), self.history.keep_for_ledger)
        return ToolOutput(
            "\n".join([*said, *self._refused_rows()]),
            details,
            listed,
            stored=stored,
            refused=tuple(RefusedPath(each.path, each.code, each.rule) for each in refused),
            refused_more=more,
        )

    def _refused_rows(self) -> list[str]:
        """What the command changed besides, and that stays as it was."""
        refused = self.parked.refused
        count = len(refused) + self.parked.refused_more
        if not count:
            return []
        rows = [f"  {show_name(r.path)}: {show_name(r.rule)}" for r in refused[:_ROWS_MAX]]
        more = [f"  [and {count - _ROWS_MAX} more]"] if count > _ROWS_MAX else []
        return [f"changes refused: {count}", *rows, *more]


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
    output_schema=result_schema(
        {
            "changes": {"type": "array", "items": {"type": "object"}},
            "changes_refused": {"type": "array", "items": {"type": "object"}},
            "not_listed": {"type": "object", "description": "How many paths the lists leave out."},
        }
    ),
)


def commit_tool(
    parked: ParkedSet, history: History, journal: Journal, git: Git
) -> Tool[CommitArguments]:
    """The tool that commits just these changes."""
    return Tool(SPEC, CommitParked(parked, history, journal, git))
