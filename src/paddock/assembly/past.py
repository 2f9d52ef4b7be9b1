"""What a person asks of the history: what was changed, by whom, and to undo it."""

import os
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from paddock.assembly.history import open_history, open_journal
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project import Project
from paddock.assembly.runtimes import new_call_id
from paddock.errors import ConfigError, InternalError, PathError, TextError, UsageError
from paddock.history.keeping import History
from paddock.ledger.effects import find_effects
from paddock.ledger.query import BadRow
from paddock.runtime.approvals import Approval, ApprovalRequest, NoApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.judge import PolicyJudge
from paddock.runtime.past import OPERATOR, PastCall, ended_notes, find_call, past_calls
from paddock.runtime.past_diff import Differ, Diffs
from paddock.runtime.records import Caller
from paddock.runtime.registry import Registry
from paddock.runtime.undo import OperatorJudge, undo_tool
from paddock.runtime.undo_plan import changed_since, is_as_before, unkept
from paddock.tools.spec import Ports
from paddock.values.calls import ToolCall, ToolResult
from paddock.workspace import Workspace


@dataclass(frozen=True, slots=True)
class UndoAnswer:
    """What an undo came to; where the files changed since, how."""

    result: ToolResult
    since: Diffs | None


@dataclass(slots=True)
class Past:
    """The calls of a plane that changed something; see `open_past`."""

    project: Project
    history: History
    calls: tuple[PastCall, ...]
    """Oldest first."""
    bad: tuple[BadRow, ...]
    """Lines of the ledger that hold no entry."""
    _held: ExitStack
    _workspaces: dict[str, Workspace] = field(default_factory=dict[str, Workspace])
    _judges: dict[str, PolicyJudge] = field(default_factory=dict[str, PolicyJudge])

    def find(self, wanted: str) -> PastCall:
        """The call with this id, or that of its ledger entry. Raises: UsageError."""
        return find_call(self.calls, wanted)

    def of_path(self, path: str) -> list[PastCall]:
        """The calls that changed this path, or something below it.

        Relative to the workspace that the call worked on, or absolute inside it.
        """
        return [call for call in self.calls if self._touches(call, path)]

    def _touches(self, call: PastCall, path: str) -> bool:
        try:
            workspace = self.workspace(call.workspace_of)
            return call.touches(workspace.resolve_entry(path).path.relative)
        except (UsageError, ConfigError, PathError):
            return call.touches(path)

    def standing(self, call: PastCall) -> str:
        """Whether it can still be undone: `yes`, or why not in two words."""
        try:
            workspace = self.workspace(call.workspace_of)
            if not call.changes:
                return "not recorded"
            if changed_since(call.changes, workspace):
                is_before = is_as_before(call.changes, workspace)
                return "as before" if is_before else "changed since"
        except (UsageError, ConfigError):
            return "no workspace"
        except (PathError, TextError):
            return "changed since"
        return "not kept" if unkept(call.changes, self.history.store) else "yes"

    def is_shown(self, call: PastCall, path: str) -> bool:
        """Whether a path may be named: not what is secret by now."""
        try:
            self.workspace(call.workspace_of)
        except (UsageError, ConfigError):
            return self.project.policy.guards.find_secret(path) is None
        return self._judges[call.workspace_of].is_shown(path)

    def diff(self, call: PastCall) -> Diffs:
        """What a call changed. Raises: UsageError: there is no such agent any more."""
        return self._differ(call).of_call(call)

    def _differ(self, call: PastCall) -> Differ:
        workspace = self.workspace(call.workspace_of)
        return Differ(workspace, self.history.store, self._judges[call.workspace_of])

    def workspace(self, agent: str) -> Workspace:
        """An agent's workspace. Raises: UsageError, ConfigError."""
        found = self._workspaces.get(agent)
        if found is None:
            lineage = self.project.agents.lineage(agent)
            chain = tuple(record.agent for record in lineage)
            self._judges[agent] = PolicyJudge(self.project.policy_for(lineage[0]), chain)
            # An operator's undo keeps everything: also what policy says is generated.
            opened = Workspace.open(str(lineage[0].workspace), keeper=self.history.keeper())
            found = self._workspaces[agent] = self._held.enter_context(opened)
        return found

    def undo(self, call: PastCall) -> UndoAnswer:
        """Undo a call, as a call of its own.

        Raises: UsageError, ConfigError: its workspace is none any more. HostError,
            LedgerBusyError, LedgerFullError, IntegrityError.
        """
        workspace = self.workspace(call.workspace_of)
        judge = OperatorJudge(self._judges[call.workspace_of])
        with (
            closing(open_ledger(self.project, "ho1m")) as ledger,
            open_journal(self.project) as journal,
        ):
            context = Context(
                registry=Registry([undo_tool(call, self.history, journal)]),
                judge=judge,
                ports=Ports(workspace, judge),
                ledger=ledger,
                approver=NoApprover(),
                approvals=NothingAsked(),
                caller=Caller(judge.chain, f"SES-{os.urandom(8).hex()}"),
                randomness=os.urandom,
                history=self.history,
            )
            arguments = {"call": call.call_id, "agent": call.workspace_of}
            result = Dispatcher(context).dispatch(ToolCall(new_call_id(), "undo", arguments))
        is_changed = result.refusal is not None and self.standing(call) == "changed since"
        return UndoAnswer(result, self._differ(call).since(call) if is_changed else None)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Lists of effects that were too long for their entries."""

    history: History

    def read(self, digest: str) -> bytes | None:
        """None where it was pruned. Raises: IntegrityError, HostError."""
        store = self.history.store
        return store.read(digest) if store.has(digest) else None


class NothingAsked:
    """An operator's own call asks nobody."""

    def asked(self, request: ApprovalRequest) -> None:
        """Raises: InternalError."""
        raise InternalError(f"an undo asked for an approval: {request.reason}")

    def answered(self, request: ApprovalRequest, approval: Approval) -> None:
        """Raises: InternalError."""
        raise InternalError(f"an undo got an answer: {approval.by}")


@contextmanager
def open_past(project: Project) -> Generator[Past]:
    """Everything that changed something on this plane, from its ledger and its notes.

    Raises: HostError, ConfigError; StorageFullError where a killed process left a content
        that has no room.
    """
    path = project.layout.ledger_paths()["ho1m"]
    with ExitStack() as held:
        history = open_history(project)
        held.callback(history.close)
        calls: tuple[PastCall, ...] = ()
        bad: tuple[BadRow, ...] = ()
        if path.exists():
            history.store.recover()
            # The notes first: a call that ends between the two is in the ledger by then.
            notes = history.notes.read_all()
            effects = find_effects(str(path), (OPERATOR,))
            history.notes.tidy(ended_notes(effects, notes))
            stored = _Stored(history)
            calls, bad = past_calls(effects, notes, stored.read), effects.bad
        yield Past(project, history, calls, bad, held)
