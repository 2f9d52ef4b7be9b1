"""A client's answer about changes that wait: they are brought in, and nothing runs again.

In the era in which a call is answered with its question and made again with the answer, a
command whose effect differs from run to run would never be what was approved. What it left
when it was asked about is kept, and that is what the answer is for.
"""

from collections.abc import Mapping
from dataclasses import replace

from paddock.apps.mcp.asking import (
    ANSWERED_BEFORE,
    ASK_ANEW,
    Returned,
    ReturningAsker,
    approval_of,
)
from paddock.apps.mcp.served import Served
from paddock.assembly.resuming import grant_here, resume
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ConfigError,
    UsageError,
)
from paddock.runtime.answers import refusal_without, with_question
from paddock.runtime.approvals import Approval
from paddock.runtime.parked import Parked
from paddock.runtime.prepared import Bounds
from paddock.runtime.records import REFUSED
from paddock.values.calls import Json, ToolResult


def settle_changes(
    served: Served, asker: ReturningAsker, tool: str, arguments: Mapping[str, Json], bounds: Bounds
) -> ToolResult | None:
    """What came of the answer; None where no changes wait for it: then the call is made.

    Threat: whatever comes back is the client's to forge, keep and send again. The state is
    sealed; what it names is looked up and compared, and its changes are taken once.

    Raises: UsageError: the runtime is closed. IntegrityError, ConfigError, HostError.
    """
    returned = asker.returned
    parked = None if returned is None else _find(served, returned)
    if returned is None or parked is None or parked.changes is None or parked.state != "waiting":
        return None
    request = parked.request
    if (request.agent, request.tool, request.arguments) != (served.agent, tool, arguments):
        return None
    approval = approval_of(returned.said, asker.name)
    if approval.is_granted:
        return _bring_in(served, parked, approval, bounds)
    if approval.code == ApprovalRefusedError.code:
        served.inbox.book.answered(replace(parked, answered_by=approval.by), REFUSED)
        served.inbox.forget_waiting(request)
        return _refused(served, parked, approval, bounds)
    kept = replace(
        approval,
        note=f"{approval.note}; it is kept as {parked.id}",
        request_id=parked.id,
        changes_digest=parked.changes_digest,
    )
    return with_question(_refused(served, parked, kept, bounds), kept)


def _find(served: Served, returned: Returned) -> Parked | None:
    try:
        parked = served.inbox.find(returned.identity)
    except (UsageError, ConfigError):
        # It is gone, or does not load: what becomes of the call is said where it is asked about.
        return None
    return parked if parked.request.digest == returned.digest else None


def _bring_in(served: Served, parked: Parked, approval: Approval, bounds: Bounds) -> ToolResult:
    try:
        granted = grant_here(served.project, parked.id, approval.by)
        return resume(served.project, granted, bounds)
    except ApprovalExpiredError as error:
        note, hint = error.message, error.hint
    except UsageError:
        note, hint = ANSWERED_BEFORE, ASK_ANEW
    # Nobody can say yes to it any more: the call is asked about anew.
    served.inbox.forget_waiting(parked.request)
    late = Approval(False, approval.by, ApprovalExpiredError.code, note, hint=hint)
    return _refused(served, parked, late, bounds)


def _refused(served: Served, parked: Parked, approval: Approval, bounds: Bounds) -> ToolResult:
    request = parked.request
    refusal = refusal_without(approval, request.actions[0])
    return served.runtime.refuse(request.tool, refusal, bounds)
