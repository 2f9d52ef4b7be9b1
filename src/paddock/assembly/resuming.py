"""Running a kept call now, after somebody granted it: through the same door as any call."""

from paddock.assembly.approvals import open_inbox
from paddock.assembly.project import Project
from paddock.assembly.runtimes import open_runtime
from paddock.runtime.inbox_approver import ChangedSince
from paddock.values.calls import ToolResult


def resume_call(project: Project, wanted: str, by: str) -> ToolResult:
    """Grant a kept call and dispatch it as its agent: bound, resolved and decided anew.

    What has changed since it was asked about (content, policy, agent) voids the grant,
    and the call is refused with `approval.expired`.

    Raises:
        UsageError: no such request, or its agent is gone.
        ApprovalExpiredError: its time is over.
    """
    inbox = open_inbox(project)
    granted = inbox.grant(wanted, by)
    request = granted.request
    try:
        with open_runtime(project, agent=request.agent, approver=ChangedSince()) as runtime:
            return runtime.call(request.tool, request.arguments)
    finally:
        # A policy that allows or denies it by now has not used the grant.
        inbox.withdraw(granted)
