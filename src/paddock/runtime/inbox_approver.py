"""Asking, with the inbox behind it: an answer that was given before, else somebody, else kept."""

from typing import Final

from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    CallCancelledError,
    ConfigError,
)
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    Approver,
    CallbackApprover,
    answer_of,
)
from paddock.runtime.inbox import Inbox
from paddock.runtime.inbox_broken import BrokenRequest

POLICY_CHANGED: Final = "the policy has changed since it was asked about"
AGENT_CHANGED: Final = (
    "the agent, its permissions, the tool or the kept request has changed since it was asked about"
)
ACTIONS_CHANGED: Final = "what the call comes to has changed since it was asked about"
TARGET_CHANGED: Final = "what stands at its target has changed since it was asked about"
SANDBOX_CHANGED: Final = "what its sandbox would let it do has changed since it was asked about"
CANCELLED: Final = "the call was cancelled while it was asked about"


class InboxApprover:
    """Wraps the approver of a door. Every door has one, so that no ask is lost."""

    __slots__ = ("_approver", "_inbox")

    def __init__(self, approver: Approver, inbox: Inbox) -> None:
        self._approver = approver
        self._inbox = inbox

    def answer(self, request: ApprovalRequest) -> Approval:
        """What was answered before, what the approver says, or that it was kept.

        What nobody waits for any more is not kept: a call that was cancelled meanwhile.
        A kept request that does not load holds its call up, whoever could be asked.

        Raises: HostError, ConfigError: the inbox cannot be used; that is a no. IntegrityError.
        """
        try:
            before = self._inbox.take(request)
        except ConfigError:
            broken = self._inbox.broken_for(request)
            if not broken:
                raise
            return _held_up(broken[0])
        if before is not None and before.code != ApprovalExpiredError.code:
            return before
        said = answer_of(self._approver, request)
        if said.is_granted or said.code == ApprovalRefusedError.code:
            # Nobody has to look any more at what was kept when this was asked before.
            self._inbox.forget_waiting(request)
            return said
        if said.code != ApprovalUnavailableError.code:
            return said
        if request.cancel.is_cancelled:
            # Threat: calls that are made and cancelled would take every place that there is.
            return Approval(False, said.by, CallCancelledError.code, CANCELLED)
        if before is not None:
            said = Approval(
                False, said.by, ApprovalExpiredError.code, f"{before.note}; {said.note}"
            )
        return self._kept(request, said)

    def _kept(self, request: ApprovalRequest, said: Approval) -> Approval:
        try:
            parked = self._inbox.keep(request)
        except ApprovalUnavailableError as error:
            note = f"{said.note}; it is not kept: {error.message}"
            return Approval(False, said.by, said.code, note, hint=error.hint)
        note = f"{said.note}; it is kept as {parked.id}"
        return Approval(False, said.by, said.code, note, parked.id, parked.changes_digest)


def _held_up(broken: BrokenRequest) -> Approval:
    """A no without the file's place: a model reads it."""
    note = f"the request {broken.id}, which may be for this call, does not load"
    hint = f"ask a person to move it away: paddock approvals refuse {broken.id}; then call again"
    return Approval(False, "inbox", ApprovalUnavailableError.code, note, hint=hint)


class ChangedSince:
    """Stands where a kept call is resumed and its grant does not fit any more."""

    __slots__ = ("_kept",)

    def __init__(self, kept: ApprovalRequest) -> None:
        self._kept = kept

    def answer(self, request: ApprovalRequest) -> Approval:
        """Always `approval.expired`, with what has changed; nobody is asked, nothing is kept."""
        return Approval(False, "inbox", ApprovalExpiredError.code, _change(self._kept, request))


def _change(kept: ApprovalRequest, now: ApprovalRequest) -> str:
    """What has changed from one to the other: the first that does, of all that digests cover."""
    if now.policy_digest != kept.policy_digest:
        return POLICY_CHANGED
    if now.actions != kept.actions:
        return ACTIONS_CHANGED
    if now.target_digest != kept.target_digest:
        is_command = any(action.startswith("tool:shell:") for action in kept.actions)
        return SANDBOX_CHANGED if is_command else TARGET_CHANGED
    if now.digest != kept.digest:
        return AGENT_CHANGED
    return "its grant was used, or withdrawn, meanwhile"


class Limited:
    """Somebody else's approver, which may take for ever: after the time limit it is a no."""

    __slots__ = ("_approver", "_timeout_s")

    def __init__(self, approver: Approver, timeout_s: float) -> None:
        self._approver = approver
        self._timeout_s = timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        """Its answer, or `approval.unavailable`; what it says later counts for nothing."""
        said: list[Approval] = []
        asking = CallbackApprover(_Keeping(self._approver, said), self._timeout_s)
        asked = asking.answer(request)
        return said[0] if asked.is_granted and said else asked


class _Keeping:
    """Keeps what an approver says; true when it said something."""

    __slots__ = ("_approver", "_said")

    def __init__(self, approver: Approver, said: list[Approval]) -> None:
        self._approver = approver
        self._said = said

    def __call__(self, request: ApprovalRequest) -> bool:
        self._said.append(answer_of(self._approver, request))
        return True
