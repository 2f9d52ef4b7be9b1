"""Carrying a kept request out, as soon as somebody has granted it.

A call is dispatched again: bound, resolved and decided anew. What a command left behind,
shown as a difference, is committed as it was shown; nothing runs again.
"""

from contextlib import closing

from paddock.assembly.approvals import open_inbox
from paddock.assembly.granting import require_current
from paddock.assembly.history import open_history, open_journal, settle_sets
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.operator_calls import OperatorDoor
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime, tools_of
from paddock.assembly.workspaces import workspace_with_git
from paddock.errors import ApprovalExpiredError, UnknownToolError, UsageError
from paddock.plane.layout import LedgerName
from paddock.runtime.approvals import approval_digest
from paddock.runtime.asking import ChangedSince
from paddock.runtime.inbox import Inbox
from paddock.runtime.judge import PolicyJudge
from paddock.runtime.parked import Parked, commit_tool
from paddock.runtime.prepared import FREE, Bounds
from paddock.runtime.records import Caller
from paddock.sandbox.changes.parking import unpark_set
from paddock.sandbox.strictest import strictest_git
from paddock.text.show import quote
from paddock.values.calls import ToolResult


def grant_here(project: Project, wanted: str, by: str) -> Parked:
    """Answer yes to a kept request that is carried out at once, by this process; see `resume`.

    Raises:
        ApprovalExpiredError: as `grant`.
        UsageError: no such request, or its agent does not have the tool here: nothing is
            granted then, since the answer would be used up for nothing.
    """
    inbox = open_inbox(project)
    parked = inbox.find(wanted)
    require_current(project, parked)
    request = parked.request
    try:
        tools_of(project, request.agent).get(request.tool)
    except UnknownToolError as error:
        raise UsageError(
            f"agent {quote(request.agent)} does not have the tool {quote(request.tool)} here",
            hint=f"nothing was granted; the dual gate is {project.gate}: answer where it is open"
            if project.admin is not None
            else "nothing was granted",
        ) from error
    return inbox.grant(wanted, by)


def resume(project: Project, granted: Parked, bounds: Bounds = FREE) -> ToolResult:
    """Carry out a request that was granted just now, for whoever asks within these bounds.

    What changes from here on (content, policy, agent) voids the grant, and the call is
    refused with `approval.expired`; so is a command whose sandbox has changed.

    Raises:
        ApprovalExpiredError: what it was asked about has changed, or its file has.
    """
    inbox = open_inbox(project)
    if granted.changes is not None:
        return _commit_kept(project, inbox, granted, bounds)
    request = granted.request
    try:
        with open_runtime(project, agent=request.agent, approver=ChangedSince(request)) as runtime:
            return runtime.call(request.tool, request.arguments, bounds=bounds)
    finally:
        # A policy that allows or denies it by now has not used the grant.
        inbox.withdraw(granted)


def _commit_kept(project: Project, inbox: Inbox, granted: Parked, bounds: Bounds) -> ToolResult:
    if not inbox.take_changes(granted):
        raise ApprovalExpiredError(
            "the kept changes are not those that were asked about", hint="run the command again"
        )
    try:
        return _commit(project, granted, bounds)
    finally:
        # Whatever came of it: the grant is used up, and nobody can ask for them again.
        inbox.withdraw(granted)


def _commit(project: Project, granted: Parked, bounds: Bounds) -> ToolResult:
    settle_sets(project)
    request = granted.request
    lineage = project.agents.lineage(request.agent)
    policy, chain = project.policy_for(lineage[0]), tuple(each.agent for each in lineage)
    shown = PolicyJudge(policy, chain)
    _require_unchanged(project, granted, shown)
    with (
        closing(open_history(project)) as history,
        workspace_with_git(lineage[0], history.keeper()) as workspace,
        closing(open_ledger(project, LedgerName.HO1M)) as ledger,
        open_journal(project) as journal,
    ):
        parked = unpark_set(granted.changes)
        return OperatorDoor(shown, workspace, ledger, history).call(
            commit_tool(parked, history, journal, strictest_git(policy, chain)),
            {"request": granted.id, "agent": request.agent},
            bounds,
        )


def _require_unchanged(project: Project, granted: Parked, judge: PolicyJudge) -> None:
    request = granted.request
    tool = tools_of(project, request.agent).get(request.tool)
    now = approval_digest(
        tool=request.tool,
        arguments=tool.binder.values(request.arguments),
        agents=Caller(judge.chain, "").chain_json(),
        policy_digest=judge.policy_digest,
        target_digest=request.target_digest,
        # Nothing is resolved anew: what is committed are the changes that were shown.
        actions=request.actions,
    )
    if now != request.digest:
        raise ApprovalExpiredError(
            "policy or agent have changed since the command ran", hint="run the command again"
        )
