"""Putting the question where policy asks: about the call, or about what it would change.

A handler that can act and hold its effect back (`Staging`) does so first where policy
wants the question to be about the effect: what is then granted is just that, and what is
refused is let go. That it acts is on record before it does.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    CallCancelledError,
    ConfigError,
    IntegrityError,
    PaddockError,
    ToolError,
)
from paddock.runtime.answers import STOPPED, not_recorded, refusal_for, refusal_of
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    Approver,
    Limited,
    answer_of,
    approval_digest,
    filled_in,
)
from paddock.runtime.judge import Context
from paddock.runtime.prepared import Bounds, Judged
from paddock.runtime.records import (
    DigestsAlone,
    Recorder,
    approval_answered,
    approval_asked,
    kept_arguments,
)
from paddock.tools.spec import Confining, Pinning, Plan, Ports, Staging, Tool, ToolOutput
from paddock.values.calls import (
    ClosedConnection,
    OpenedConnection,
    Refusal,
    RefusedConnection,
    ToolCall,
)
from paddock.values.decisions import Action, Decision, Outcome
from paddock.values.entries import Entry

if TYPE_CHECKING:
    from paddock.policy.network import Reach
    from paddock.runtime.inbox import BrokenRequest, Inbox
    from paddock.sandbox.values import HeldLine

E = TypeVar("E")

CONNECTION_ASK_S: Final = 120.0
"""So long a connection is held open for an answer."""


class AskedQuestion(NamedTuple):
    call: ToolCall
    tool: Tool[Any]
    plan: Plan
    actions: Sequence[str]
    decision: Decision
    bounds: Bounds


class Granted(NamedTuple):
    plan: Plan
    judged: Judged


class Withheld(Struct, frozen=True):
    refusal: Refusal
    judged: Judged
    approval: Approval | None = None
    warnings: tuple[str, ...] = ()


def ask(context: Context, recorder: Recorder, question: AskedQuestion) -> Granted | Withheld:
    handler = question.tool.handler
    judged = Judged(question.decision)
    target_digest = ""
    try:
        if isinstance(handler, Pinning):
            plan, target_digest = handler.pin(question.plan, context.ports)
            question = question._replace(plan=plan)
        if not isinstance(handler, Staging) or not handler.asks_about_effect(
            question.plan, context.ports
        ):
            return _put(context, question, target_digest, None)
        _record_staging(context, recorder, question)
        ports = ports_for(context, recorder, question)
        plan, held = handler.stage(question.plan, ports)
    except ToolError as error:
        return Withheld(refusal_of(error), judged)
    except IntegrityError:
        raise
    except PaddockError as error:
        return Withheld(not_recorded(error), judged)
    with ExitStack() as unless_granted:
        unless_granted.callback(held.close)
        if question.bounds.cancel.is_cancelled:
            # What was stopped half-way is nothing that anybody wants to be asked about.
            return Withheld(STOPPED, judged)
        answer = _put(context, question._replace(plan=plan), held.digest, held)
        if isinstance(answer, Granted):
            unless_granted.pop_all()
        return answer


def keep_waiting(
    context: Context, question: AskedQuestion, output: ToolOutput
) -> ToolOutput | Refusal:
    from paddock.tools.outcome import as_pending  # noqa: PLC0415 - late on purpose

    waiting = output.waiting
    if waiting is None:
        return output
    decision = replace(question.decision, reason=waiting.why)
    with closing(waiting.held) as held:
        request = _request(context, question._replace(decision=decision), held.digest, held)
        approval = _answered(context, context.keeper, request)
    if approval.is_granted or not approval.request_id or not approval.changes_digest:
        return refusal_for(approval, decision)
    return as_pending(output, waiting.changes, waiting.why, approval.request_id)


def _record_staging(context: Context, recorder: Recorder, question: AskedQuestion) -> None:
    call = question.call
    kept = kept_arguments(call.arguments, question.tool, DigestsAlone(context.randomness))
    judged = Judged(question.decision)
    entry = recorder.staged(call, kept, question.actions, judged, question.bounds)
    context.ledger.append([entry])


def _put(
    context: Context, question: AskedQuestion, target_digest: str, held: "HeldLine | None"
) -> Granted | Withheld:
    request = _request(context, question, target_digest, held)
    decision = question.decision
    try:
        approver = question.bounds.approver or context.approver
        approval = _answered(context, approver, request)
    except IntegrityError:
        raise
    except PaddockError as error:
        return Withheld(not_recorded(error), Judged(decision))
    judged = Judged(decision, approval.by, request.digest)
    if not approval.is_granted:
        if approval.code == CallCancelledError.code:
            return Withheld(STOPPED, judged)
        refusal = refusal_for(approval, decision)
        return Withheld(refusal, judged, approval, request.warnings)
    return Granted(question.plan, judged)


def _answered(context: Context, approver: Approver, request: ApprovalRequest) -> Approval:
    """Ask; question and answer are on record, or this raises and nothing counts."""
    context.record_approval(approval_asked(request))
    approval = answer_of(approver, request)
    # That a kept request's answer was used the inbox has put on record.
    if not (approval.is_granted and approval.request_id):
        context.record_approval(approval_answered(request, approval))
    return approval


def _request(
    context: Context,
    question: AskedQuestion,
    target_digest: str = "",
    held: "HeldLine | None" = None,
) -> ApprovalRequest:
    call, decision, rule = question.call, question.decision, question.decision.rule
    bound = question.tool.binder.values(call.arguments)
    effects = () if held is None else held.warnings
    digest = approval_digest(
        tool=call.tool,
        arguments=bound,
        agents=context.caller.chain_json(),
        policy_digest=decision.policy_digest,
        target_digest=target_digest,
        actions=question.actions,
    )
    return ApprovalRequest(
        digest=digest,
        tool=call.tool,
        # A copy: whoever answers may change it, and the record must not follow.
        arguments=dict(call.arguments),
        actions=tuple(question.actions),
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
        cancel=question.bounds.cancel,
    )


def ports_for(context: Context, recorder: Recorder, question: AskedQuestion) -> Ports:
    ports = question.bounds.over(context.ports, question.call.id)
    if question.tool.reads_only or not isinstance(question.tool.handler, Confining):
        return ports
    return replace(ports, network=CallNetwork(context, recorder, question))


class CallNetwork(Struct, frozen=True):
    context: Context
    recorder: Recorder
    question: AskedQuestion

    def ask(self, action: Action, reach: "Reach") -> bool:
        """Ask whoever answers for this door. Nobody, too late, or not to be recorded: no."""
        context, text, judge = self.context, str(action), self.context.judge
        reason = "the command wants to reach this, and waits for the answer"
        decision = Decision(Outcome.ASK, text, reason, reach.rule, "", judge.policy_digest)
        question = self.question._replace(actions=(text,), decision=decision)
        request = replace(_request(context, question), filled={}, can_wait=False)
        try:
            approver = self.question.bounds.approver or context.approver
            approval = _answered(context, Limited(approver, CONNECTION_ASK_S), request)
        except PaddockError:
            return False
        return approval.is_granted

    def opened(self, event: OpenedConnection) -> None:
        """Return when it is durable. Raises: PaddockError; then nothing is to be opened."""
        self._append(self.recorder.opened, event)

    def closed(self, event: ClosedConnection) -> None:
        self._append(self.recorder.closed, event)

    def refused(self, event: RefusedConnection) -> None:
        self._append(self.recorder.unreached, event)

    def _append(self, entry_of: Callable[[ToolCall, E, Bounds], Entry], event: E) -> None:
        question = self.question
        self.context.ledger.append([entry_of(question.call, event, question.bounds)])


CANCELLED: Final = "the call was cancelled while it was asked about"


class InboxApprover:
    __slots__ = ("_approver", "_open_inbox")

    def __init__(self, approver: Approver, open_inbox: "Callable[[], Inbox]") -> None:
        """`open_inbox` is called at each question: most runtimes have none."""
        self._approver = approver
        self._open_inbox = open_inbox

    def answer(self, request: ApprovalRequest) -> Approval:
        """What was answered before, what the approver says, or that it was kept.

        A call that was cancelled is not kept. Raises: HostError, ConfigError: the inbox cannot be
        used; that is a no. IntegrityError.
        """
        inbox = self._open_inbox()
        try:
            before = inbox.take(request)
        except ConfigError:
            broken = inbox.broken_for(request)
            if not broken:
                raise
            return _held_up(broken[0])
        if before is not None and before.code != ApprovalExpiredError.code:
            return before
        said = answer_of(self._approver, request)
        if said.is_granted or said.code == ApprovalRefusedError.code:
            # Nobody has to look any more at what was kept when this was asked before.
            inbox.forget_waiting(request)
            return said
        if said.code != ApprovalUnavailableError.code or not request.can_wait:
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
            parked = self._open_inbox().keep(request)
        except ApprovalUnavailableError as error:
            note = f"{said.note}; it is not kept: {error.message}"
            return Approval(False, said.by, said.code, note, hint=error.hint)
        note = f"{said.note}; it is kept as {parked.id}"
        return Approval(False, said.by, said.code, note, parked.id, parked.changes_digest)


def _held_up(broken: "BrokenRequest") -> Approval:
    """A no without the file's place: a model reads it."""
    note = f"the request {broken.id}, which may be for this call, does not load"
    hint = f"ask a person to move it away: paddock approvals refuse {broken.id}; then call again"
    return Approval(False, "inbox", ApprovalUnavailableError.code, note, hint=hint)
