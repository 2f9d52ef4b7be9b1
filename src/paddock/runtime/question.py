"""Ask the approver when policy says so: about the call, or about its effect.

To ask about the effect, a handler that can (`Staging`) acts first and holds the effect back,
which is recorded before it acts. A grant is for exactly that effect, a refusal discards it.
An answer counts only if it and its question are recorded.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    CallCancelledError,
    ConfigError,
    IntegrityError,
    InternalError,
    PaddockError,
    StorageFullError,
    ToolError,
)
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    Approver,
    Limited,
    answer_of,
    approval_digest,
    filled_in,
    unavailable,
)
from paddock.runtime.prepared import Context, Judged, Prepared
from paddock.runtime.records import (
    DigestsAlone,
    Recorder,
    approval_answered,
    approval_asked,
    kept_arguments,
)
from paddock.text.show import quote, show_name
from paddock.tools.spec import Confining, Pinning, Ports, Staging, StoppedCallError, ToolOutput
from paddock.values.calls import (
    ClosedConnection,
    LeftEffect,
    OpenedConnection,
    Refusal,
    RefusedConnection,
    ToolResult,
)
from paddock.values.decisions import Action, Decision, Outcome, rule_in_brief
from paddock.values.entries import Entry

if TYPE_CHECKING:
    from paddock.policy.network import Reach
    from paddock.runtime.inbox import Inbox
    from paddock.sandbox.staged import HeldCommand

CONNECTION_ASK_S: Final = 120.0
"""Seconds that a connection is held open for an answer."""


class Withheld(Struct, frozen=True):
    refusal: Refusal
    judged: Judged
    approval: Approval | None = None
    warnings: tuple[str, ...] = ()


def ask(context: Context, recorder: Recorder, ready: Prepared) -> Prepared | Withheld:
    handler = ready.tool.handler
    target_digest = ""
    try:
        if isinstance(handler, Pinning):
            plan, target_digest = handler.pin(ready.plan, context.ports)
            ready = ready._replace(plan=plan)
        if not isinstance(handler, Staging) or not handler.asks_about_effect(
            ready.plan, context.ports
        ):
            return _put(context, ready, target_digest, None)
        digests = DigestsAlone(context.randomness)
        kept = kept_arguments(ready.call.arguments, ready.tool, digests)
        context.ledger.append([recorder.staged(ready._replace(arguments=kept))])
        plan, held = handler.stage(ready.plan, ports_for(context, recorder, ready))
    except ToolError as error:
        return Withheld(refusal_of(error), ready.judged)
    except IntegrityError:
        raise
    except PaddockError as error:
        return Withheld(not_recorded(error), ready.judged)
    with ExitStack() as unless_granted:
        unless_granted.callback(held.close)
        if ready.bounds.cancel.is_cancelled:
            # The approver is not asked about an incomplete effect.
            return Withheld(STOPPED, ready.judged)
        answer = _put(context, ready._replace(plan=plan), held.digest, held)
        if isinstance(answer, Prepared):
            unless_granted.pop_all()
        return answer


def _put(
    context: Context, ready: Prepared, target_digest: str, held: "HeldCommand | None"
) -> Prepared | Withheld:
    request = _request(context, ready, target_digest, held)
    decision = ready.judged.decision
    try:
        approval = _answered(context, ready.bounds.approver or context.approver, request)
    except IntegrityError:
        raise
    except PaddockError as error:
        return Withheld(not_recorded(error), Judged(decision))
    judged = Judged(decision, approval.by, request.digest)
    if not approval.is_granted:
        if approval.code == CallCancelledError.code:
            return Withheld(STOPPED, judged)
        return Withheld(refusal_for(approval, decision), judged, approval, request.warnings)
    return ready._replace(judged=judged)


def keep_waiting(context: Context, ready: Prepared, output: ToolOutput) -> ToolOutput | Refusal:
    """Keep in the inbox those changes of a command that need a person's approval."""
    waiting = output.waiting
    if waiting is None:
        return output
    from paddock.tools.outcome import as_pending  # noqa: PLC0415 - few calls wait

    decision = replace(ready.judged.decision, reason=waiting.why)
    with closing(waiting.held) as held:
        asked = ready._replace(judged=Judged(decision))
        request = _request(context, asked, held.digest, held)
        approval = _answered(context, context.keeper, request)
    if approval.is_granted or not approval.request_id or not approval.changes_digest:
        return refusal_for(approval, decision)
    return as_pending(output, waiting.changes, waiting.why, approval.request_id)


def _answered(context: Context, approver: Approver, request: ApprovalRequest) -> Approval:
    """Ask, on record. Raises: PaddockError if question or answer cannot be recorded."""
    context.record_approval(approval_asked(request))
    approval = answer_of(approver, request)
    # The inbox itself has recorded that a kept grant was used.
    if not (approval.is_granted and approval.request_id):
        context.record_approval(approval_answered(request, approval))
    return approval


def _request(
    context: Context,
    ready: Prepared,
    target_digest: str = "",
    held: "HeldCommand | None" = None,
) -> ApprovalRequest:
    call, decision = ready.call, ready.judged.decision
    rule = decision.rule
    bound = ready.tool.binder.values(call.arguments)
    effects = () if held is None else held.warnings
    digest = approval_digest(
        tool=call.tool,
        arguments=bound,
        agents=context.caller.chain_json(),
        policy_digest=decision.policy_digest,
        target_digest=target_digest,
        actions=ready.actions,
    )
    return ApprovalRequest(
        digest=digest,
        tool=call.tool,
        # A copy: the approver may change it, and the record must not change with it.
        arguments=dict(call.arguments),
        actions=tuple(ready.actions),
        agent=context.caller.agent,
        reason=decision.reason,
        rule="" if rule is None else f"{rule.text} ({rule.place})",
        policy_digest=decision.policy_digest,
        target_digest=target_digest,
        call_id=call.id,
        session_id=context.caller.session_id,
        filled=filled_in(call.arguments, bound),
        warnings=tuple(dict.fromkeys((*decision.warnings, *effects))),
        diff="" if held is None else held.diff,
        parking=held,
        cancel=ready.bounds.cancel,
    )


def ports_for(context: Context, recorder: Recorder, ready: Prepared) -> Ports:
    ports = ready.bounds.over(context.ports, ready.call.id)
    if ready.tool.reads_only or not isinstance(ready.tool.handler, Confining):
        return ports
    return replace(ports, network=CallNetwork(context, recorder, ready))


class CallNetwork(Struct, frozen=True):
    context: Context
    recorder: Recorder
    ready: Prepared
    remedy: str = "paddock network allow {}"

    def ask(self, action: Action, reach: "Reach") -> bool:
        """Ask the call's approver. False if it is not answered in time, or cannot be recorded."""
        context, text, judge = self.context, str(action), self.context.judge
        reason = "the command wants to reach this, and waits for the answer"
        decision = Decision(Outcome.ASK, text, reason, reach.rule, "", judge.policy_digest)
        asked = self.ready._replace(actions=(text,), judged=Judged(decision))
        request = replace(_request(context, asked), filled={}, can_wait=False)
        approver = Limited(asked.bounds.approver or context.approver, CONNECTION_ASK_S)
        try:
            return _answered(context, approver, request).is_granted
        except PaddockError:
            return False

    def opened(self, event: OpenedConnection) -> None:
        """Record it durably. Raises: PaddockError; then the connection must not be opened."""
        self._append(self.recorder.opened(self.ready, event))

    def closed(self, event: ClosedConnection) -> None:
        self._append(self.recorder.closed(self.ready, event))

    def refused(self, event: RefusedConnection) -> None:
        self._append(self.recorder.unreached(self.ready, event))

    def _append(self, entry: Entry) -> None:
        self.context.ledger.append([entry])


# Refusals of calls that were not approved, or could not be recorded.


def refusal_of(error: ToolError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


STOPPED: Final = refusal_of(StoppedCallError(LeftEffect.NONE))
"""The refusal of a call that was cancelled before it had an effect."""


def not_recorded(error: PaddockError) -> Refusal:
    # An entry that no ledger line can hold is a defect in Paddock, not a full disk.
    code = error.code if isinstance(error, ToolError | InternalError) else StorageFullError.code
    hint = f"this call had no effect; {error.hint}" if error.hint else ""
    return Refusal(code, f"the ledger cannot commit: {error.message}", hint)


def refusal_for(approval: Approval, decision: Decision) -> Refusal:
    refusal = refusal_without(approval, decision.action)
    return replace(refusal, rule=rule_in_brief(decision.rule))


def refusal_without(approval: Approval, action: str) -> Refusal:
    """Return the refusal without its rule, for when only the action is still known."""
    said = f": {show_name(approval.note)}" if approval.note else ""
    usual = _APPROVAL_HINTS.get(approval.code, "do not repeat it unchanged; ask what is wanted")
    hint = approval.hint or usual
    if approval.request_id and approval.code != ApprovalRefusedError.code:
        kept = _CHANGES_KEPT_HINT if approval.changes_digest else _KEPT_HINT
        hint = kept.format(id=approval.request_id)
    message = f"{quote(action)} needs an approval, and was not approved{said}"
    return Refusal(approval.code, message, hint)


def with_question(
    result: ToolResult, approval: Approval, warnings: Sequence[str] = ()
) -> ToolResult:
    result = with_warnings(result, warnings)
    if not approval.request_id:
        return result
    return result._replace(details={**result.details, "approval": approval.request_id})


def with_warnings(result: ToolResult, warnings: Sequence[str]) -> ToolResult:
    if not warnings:
        return result
    rows = (f"\n[warning: {show_name(warning)}]" for warning in warnings)
    details = {**result.details, "warnings": list(warnings)}
    return result._replace(content=result.content + "".join(rows), details=details)


_KEPT_HINT: Final = (
    "ask a person to review and answer it: paddock approvals show {id}, then grant or refuse; "
    "after a grant, repeat exactly the same call"
)
_CHANGES_KEPT_HINT: Final = (
    "it has run, and its changes wait: ask a person to review and answer them: paddock "
    "approvals show {id}, then grant or refuse; a grant commits exactly what is shown there, so "
    "do not repeat the call"
)
_APPROVAL_HINTS: Final = {
    ApprovalUnavailableError.code: "a person has to be present to ask (at a terminal, or --yes), "
    "or a rule has to allow it",
    ApprovalExpiredError.code: "ask again",
}


CANCELLED: Final = "the call was cancelled while it was asked about"


class InboxApprover(Struct, frozen=True):
    approver: Approver
    open_inbox: "Callable[[], Inbox]"
    """Called for each question: most runtimes never ask one."""

    def answer(self, request: ApprovalRequest) -> Approval:
        """Return the kept answer, or the approver's, or keep the request and say so.

        The request of a cancelled call is not kept. Raises: IntegrityError; HostError or
        ConfigError if the inbox cannot be used, which counts as a refusal.
        """
        inbox = self.open_inbox()
        try:
            before = inbox.take(request)
        except ConfigError:
            broken = inbox.list_broken(request)
            if not broken:
                raise
            # Without the file's path: a model reads it.
            broken_id = broken[0].id
            note = f"the request {broken_id}, which may be for this call, does not load"
            answer = f"paddock approvals refuse {broken_id}"
            hint = f"ask a person to move it away: {answer}; then call again"
            return unavailable("inbox", note, hint)
        if before is not None and before.code != ApprovalExpiredError.code:
            return before
        said = answer_of(self.approver, request)
        if said.is_granted or said.code == ApprovalRefusedError.code:
            # The request that an earlier, equal call left in the inbox is now answered.
            inbox.forget_waiting(request)
            return said
        if said.code != ApprovalUnavailableError.code or not request.can_wait:
            return said
        if request.cancel.is_cancelled:
            # Threat: calls that are made and cancelled at once would fill the inbox.
            return Approval(False, said.by, CallCancelledError.code, CANCELLED)
        code, note = said.code, said.note
        if before is not None:
            code, note = before.code, f"{before.note}; {note}"
        try:
            parked = inbox.keep(request)
        except ApprovalUnavailableError as error:
            note = f"{note}; it is not kept: {error.message}"
            return Approval(False, said.by, code, note, hint=error.hint)
        note = f"{note}; it is kept as {parked.id}"
        return Approval(False, said.by, code, note, parked.id, parked.changes_digest)
