"""Show a person the past changes and their authors, and undo them.

Undo and the commit of kept changes are dispatched calls of the operator, to tools no agent has.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from paddock.assembly.audit import verify_not_gone
from paddock.assembly.history import open_history, open_journal, read_history, workspace_with_git
from paddock.assembly.ledgers import ledger_of, open_ledger
from paddock.assembly.project import Project, new_call_id, new_session_id
from paddock.assembly.questions import require_past_agent
from paddock.errors import ConfigError, InternalError, PathError, TextError, UsageError
from paddock.ledger.append import Ledger
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import (
    BadRow,
    FoundEffects,
    effects_in,
    find_declarations,
    find_effects,
)
from paddock.ledger.read import stands
from paddock.plane.agents import AgentRecord
from paddock.plane.layout import LedgerName
from paddock.runtime import prepared
from paddock.runtime.approvals import NoApprover
from paddock.runtime.changes import Differ, Diffs, PastCall, ended_notes, find_call, past_calls
from paddock.runtime.dispatch import Dispatcher
from paddock.runtime.undo import UndoStatus, undo_tool, why_no_undo
from paddock.storage.history import History
from paddock.storage.notes import Note, read_notes
from paddock.storage.objects import StoreReader
from paddock.text.show import quote
from paddock.tools.effects import change_json
from paddock.tools.spec import Change, Ports, Tool
from paddock.values.calls import Json, ToolCall, ToolResult
from paddock.values.decisions import OPERATOR
from paddock.values.entries import AGENT_CHANGED, Entry
from paddock.workspace import Workspace


class OperatorDispatcher(Struct, frozen=True):
    shown: prepared.PolicyJudge
    """The view of the workspace's agent: the operator is shown no more."""
    workspace: Workspace
    ledger: Ledger
    history: History

    def call(
        self, tool: Tool[Any], arguments: Mapping[str, Json], bounds: prepared.Bounds
    ) -> ToolResult:
        judge = prepared.OperatorJudge(tool.name, self.shown)
        context = prepared.Context(
            tools=prepared.Tools([tool]),
            judge=judge,
            ports=Ports(self.workspace, judge),
            ledger=self.ledger,
            approver=NoApprover(),
            record_approval=_refuse_approval,
            caller=prepared.Caller(judge.chain, new_session_id()),
            randomness=os.urandom,
            history=self.history,
        )
        return Dispatcher(context).dispatch(ToolCall(new_call_id(), tool.name, arguments), bounds)


def _refuse_approval(entry: Entry) -> None:
    raise InternalError(f"an operator's call asked for an approval: {entry.reason}")


# A call's paths are relative to its agent's workspace, and an agent that was removed can be
# created again under its name, on another one. There the same paths are other files.
class PastWorkspaces(Struct, frozen=True):
    declared: Mapping[str, Sequence[StoredEntry]]
    """By the agent's name, oldest first."""
    began: Mapping[str, str]
    """By the session's id: a session keeps the workspace with which it began."""

    def left_since(self, call: PastCall, now: AgentRecord) -> str:
        rows = self.declared.get(call.workspace_of, ())
        began = self.began.get(call.session_id, call.timestamp)
        earlier = [row for row in rows if row.timestamp <= began]
        if not earlier:
            return ""
        then, last = earlier[-1], rows[-1]
        # Compare records with records, since a plane can be moved; but a declaration edited by
        # hand is recorded only once its agent has been opened again.
        is_recorded = last.entry.metadata.get("digest") == now.digest
        present = _workspace(last) if is_recorded else str(now.workspace)
        return "" if _workspace(then) in {"", present} else _workspace(then)


def _workspace(stored: StoredEntry) -> str:
    value = stored.entry.metadata.get("workspace")
    return value if isinstance(value, str) else ""


def past_workspaces(governance: Path, calls: Sequence[PastCall]) -> PastWorkspaces:
    declared: dict[str, list[StoredEntry]] = {}
    for stored in find_declarations(str(governance)) if stands(governance) else ():
        declared.setdefault(stored.entry.agent, []).append(stored)
    began: dict[str, str] = {}
    for call in calls:
        began[call.session_id] = min(call.timestamp, began.get(call.session_id, call.timestamp))
    return PastWorkspaces(declared, began)


class UndoAnswer(Struct, frozen=True):
    result: ToolResult
    since: Diffs | None


class _Opened(NamedTuple):
    workspace: Workspace
    record: AgentRecord
    judge: prepared.PolicyJudge


class Past(Struct):
    project: Project
    seen: StoreReader
    history: History
    calls: tuple[PastCall, ...]
    """Oldest first."""
    bad: tuple[BadRow, ...]
    ended: frozenset[Note]
    then: PastWorkspaces
    _held: ExitStack
    _opened: dict[str, _Opened] = field(default_factory=dict[str, _Opened])

    def find(self, wanted: str) -> PastCall:
        return find_call(self.calls, wanted, self.is_shown)

    def require_agent(self, agent: str) -> None:
        if not any(call.workspace_of == agent for call in self.calls):
            require_past_agent(self.project, agent)

    def of_path(self, path: str) -> list[PastCall]:
        return [call for call in self.calls if self._touches(call, path)]

    def _touches(self, call: PastCall, path: str) -> bool:
        try:
            workspace = self._workspace_of(call)
            return call.touches(workspace.resolve_entry(path).path.relative)
        except (UsageError, ConfigError, PathError):
            return call.touches(path)

    def undo_status(self, call: PastCall) -> UndoStatus:
        try:
            workspace = self.workspace(call.workspace_of)
            if self._left_since(call):
                return UndoStatus.OTHER_WORKSPACE
            obstacle = why_no_undo(call, workspace, self.seen)
        except (UsageError, ConfigError):
            return UndoStatus.NO_WORKSPACE
        except (PathError, TextError):
            return UndoStatus.CHANGED
        return UndoStatus.UNDOABLE if obstacle is None else obstacle.status

    def is_shown(self, call: PastCall, change: Change) -> bool:
        # Threat: a digest confirms a guess of the content.
        names = {change.path, change.to or change.path}
        return all(self._is_path_shown(call, name) for name in names)

    def _is_path_shown(self, call: PastCall, path: str) -> bool:
        try:
            self.workspace(call.workspace_of)
        except (UsageError, ConfigError):
            return self.project.policy.guards.find_secret(path) is None
        return self._opened[call.workspace_of].judge.is_shown(path)

    def call_json(self, call: PastCall, undone: Mapping[str, str]) -> dict[str, Json]:
        shown = [change for change in call.changes if self.is_shown(call, change)]
        status = self.undo_status(call)
        return {
            "call": call.call_id,
            "entry": call.entry_id,
            "timestamp": call.timestamp,
            "agent": call.agent,
            "workspace_of": call.workspace_of,
            "session": call.session_id,
            "tool": call.tool,
            "outcome": call.outcome,
            "undoes": call.undoes,
            "undone_by": undone.get(call.call_id, ""),
            "changes": [change_json(change) for change in shown],
            "secret_changes": len(call.changes) - len(shown),
            "can_undo": status is UndoStatus.UNDOABLE,
            "standing": status,
        }

    def diff(self, call: PastCall) -> Diffs:
        return self._differ(call).of_call(call)

    def _differ(self, call: PastCall) -> Differ:
        workspace = self._workspace_of(call)
        return Differ(workspace, self.seen, self._opened[call.workspace_of].judge)

    def _left_since(self, call: PastCall) -> str:
        return self.then.left_since(call, self._opened[call.workspace_of].record)

    def _workspace_of(self, call: PastCall) -> Workspace:
        workspace = self.workspace(call.workspace_of)
        left = self._left_since(call)
        if left:
            # Threat: the same paths are other files there.
            raise UsageError(
                f"agent {quote(call.workspace_of)} worked in {quote(left)} when it made this "
                "call, and has another workspace now",
                hint="it can be shown and undone while an agent of that name works there",
            )
        return workspace

    def workspace(self, agent: str) -> Workspace:
        if agent not in self._opened:
            record, policy, chain = self.project.acting(self._declared(agent))
            # Keep every content that an undo replaces, also of paths that policy calls generated.
            workspace = self._held.enter_context(workspace_with_git(record, self.history.keeper()))
            self._opened[agent] = _Opened(workspace, record, prepared.PolicyJudge(policy, chain))
        return self._opened[agent].workspace

    def _declared(self, agent: str) -> str:
        """Return the agent whose policy decides what is shown; for a program's, the default one."""
        rows = self.then.declared.get(agent, ())
        is_given = {row.entry.event_type for row in rows} == {AGENT_CHANGED}
        is_here = is_given and _workspace(rows[-1]) == str(self.project.root.path)
        if not is_here or self.project.agents.is_known(agent):
            return agent
        return self.project.default_agent

    def undo(self, call: PastCall, bounds: prepared.Bounds = prepared.FREE) -> UndoAnswer:
        """Undo a call, by a separate call."""
        workspace = self._workspace_of(call)
        self.history.store.recover()
        self.history.notes.tidy(self.ended)
        with (
            closing(open_ledger(self.project, LedgerName.HO1M)) as ledger,
            open_journal(self.project) as journal,
        ):
            judge = self._opened[call.workspace_of].judge
            result = OperatorDispatcher(judge, workspace, ledger, self.history).call(
                undo_tool(call, self.history, journal),
                {"call": call.call_id, "agent": call.workspace_of},
                bounds,
            )
        is_changed = result.refusal is not None and self.undo_status(call) is UndoStatus.CHANGED
        return UndoAnswer(result, self._differ(call).since(call) if is_changed else None)


@contextmanager
def open_past(project: Project, rows: Sequence[StoredEntry] | None = None) -> Generator[Past]:
    """Open all past changes, or those by the calls of these entries."""
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    with ExitStack() as held:
        seen = held.enter_context(read_history(project))
        history = open_history(project)
        held.callback(history.close)
        effects, notes = FoundEffects((), (), ()), ()
        verify_not_gone(ledger_of(project, LedgerName.HO1M))
        if path.exists():
            # The notes first: a call that ends between the two is in the ledger by then.
            notes = read_notes(seen)
            # Only an undo's arguments name a workspace and a call.
            whose = (OPERATOR,)
            effects = find_effects(str(path), whose) if rows is None else effects_in(rows, whose)
        calls = past_calls(effects, notes, seen.find)
        then = past_workspaces(project.layout.ledger_paths()[LedgerName.GOVERNANCE], calls)
        ended = ended_notes(effects, notes)
        yield Past(project, seen, history, calls, effects.bad, ended, then, held)
