"""What the governance ledger says of questions and answers. Pure.

It is also what counts: a grant that is kept in the inbox is one only if it was
recorded here, and none that was recorded as used. Arguments never stand here, the
digest does.
"""

from collections.abc import Mapping
from typing import Final

from paddock.errors import ApprovalRefusedError
from paddock.runtime.approvals import Approval, ApprovalRequest, shown_digest
from paddock.runtime.parked import Parked
from paddock.runtime.records import kept_name
from paddock.values.calls import Json
from paddock.values.entries import APPROVAL_ANSWERED, APPROVAL_ASKED, Entry, clean

GRANTED: Final = "granted"
"""Somebody answered a kept request; it waits for its call."""
REFUSED: Final = "refused"
ALWAYS: Final = "always"
"""A rule was written that allows it from now on."""
USED: Final = "used"
"""The grant was used up by the call that this entry names."""
KEPT: Final = "kept"
"""Nobody could be asked; the request was put into the inbox."""


def approval_asked(request: ApprovalRequest, session_id: str) -> Entry:
    return Entry(
        event_type=APPROVAL_ASKED,
        decision="ask",
        reason=clean(request.reason),
        session_id=session_id,
        agent=request.agent,
        call_id=kept_name(request.call_id),
        metadata=_request_json(request),
    )


def approval_answered(request: ApprovalRequest, approval: Approval, session_id: str) -> Entry:
    answer: dict[str, Json] = {"by": clean(approval.by), "note": clean(approval.note)}
    if not approval.is_granted:
        answer["code"] = approval.code
    if approval.request_id:
        answer["request"] = approval.request_id
        answer["answer"] = USED if approval.is_granted else _refused_as(approval)
    if answer.get("answer") == KEPT:
        # Of what was asked, not of what stands in its file by now.
        answer["shown"] = shown_digest(request)
    if approval.changes_digest:
        answer["changes"] = approval.changes_digest
    return Entry(
        event_type=APPROVAL_ANSWERED,
        decision="allow" if approval.is_granted else "deny",
        session_id=session_id,
        agent=request.agent,
        call_id=kept_name(request.call_id),
        metadata={**_request_json(request), **answer},
    )


def _refused_as(approval: Approval) -> str:
    return REFUSED if approval.code == ApprovalRefusedError.code else KEPT


def answered_later(parked: Parked, answer: str) -> Entry:
    """Somebody answered a kept request, or used the answer; `answer` and until when it counts."""
    request = parked.request
    return Entry(
        event_type=APPROVAL_ANSWERED,
        decision="deny" if answer == REFUSED else "allow",
        session_id=request.session_id,
        agent=request.agent,
        call_id=kept_name(request.call_id),
        metadata={
            **_request_json(request),
            "by": clean(parked.answered_by),
            "note": clean(parked.note),
            "request": parked.id,
            "answer": answer,
            "expires_at": parked.expires_at,
        },
    )


def _request_json(request: ApprovalRequest) -> Mapping[str, Json]:
    return {
        "digest": request.digest,
        "tool": request.tool,
        "actions": [clean(action) for action in request.actions],
        "rule": clean(request.rule),
    }
