"""Putting the question where policy asks: about the call, or about what it would change.

A handler that can act and hold its effect back (`Staging`) does so first where policy
wants the question to be about the effect: what is then granted is just that, and what is
refused is let go. That it acts is on record before it does.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from paddock.errors import CallCancelledError, IntegrityError, PaddockError, ToolError
from paddock.runtime.answers import STOPPED, not_recorded, refusal_for, refusal_of
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    answer_of,
    approval_digest,
    filled_in,
)
from paddock.runtime.contents import DigestsAlone
from paddock.runtime.context import Context
from paddock.runtime.prepared import Bounds, Judged
from paddock.runtime.records import Recorder, kept_arguments
from paddock.sandbox.values import HeldLine
from paddock.tools.shell import as_pending
from paddock.tools.spec import Pinning, Plan, Staging, Tool, ToolOutput
from paddock.values.calls import Refusal, ToolCall
from paddock.values.decisions import Decision


class Question(NamedTuple):
    call: ToolCall
    tool: Tool[Any]
    plan: Plan
    actions: Sequence[str]
    decision: Decision
    bounds: Bounds


class Granted(NamedTuple):
    """It may run, as it was shown."""

    plan: Plan
    judged: Judged


@dataclass(frozen=True, slots=True)
class Withheld:
    """It may not, and why; `approval` where somebody was asked."""

    refusal: Refusal
    judged: Judged
    approval: Approval | None = None
    warnings: tuple[str, ...] = ()
    """What policy warned of, where somebody was asked."""


def ask(context: Context, recorder: Recorder, question: Question) -> Granted | Withheld:
    """Put the question; the plan that comes back is tied to what was shown.

    Raises: IntegrityError where the ledger is damaged.
    """
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
        ports = question.bounds.over(context.ports)
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


def keep_waiting(context: Context, question: Question, output: ToolOutput) -> ToolOutput | Refusal:
    """Keep what a call changed for a person; why it is not kept, and then it is let go.

    Raises: PaddockError: question or answer cannot be recorded.
    """
    waiting = output.waiting
    if waiting is None:
        return output
    decision = replace(question.decision, reason=waiting.why)
    with closing(waiting.held) as held:
        request = _request(context, question._replace(decision=decision), held.digest, held)
        context.approvals.asked(request)
        approval = answer_of(context.keeper, request)
        context.approvals.answered(request, approval)
    if approval.is_granted or not approval.request_id or not approval.changes_digest:
        return refusal_for(approval, decision)
    return as_pending(output, waiting.changes, waiting.why, approval.request_id)


def _record_staging(context: Context, recorder: Recorder, question: Question) -> None:
    call = question.call
    kept = kept_arguments(call.arguments, question.tool, DigestsAlone(context.randomness))
    judged = Judged(question.decision)
    entry = recorder.staged(call, kept, question.actions, judged, question.bounds)
    context.ledger.append([entry])


def _put(
    context: Context, question: Question, target_digest: str, held: HeldLine | None
) -> Granted | Withheld:
    request = _request(context, question, target_digest, held)
    decision = question.decision
    try:
        context.approvals.asked(request)
        approval = answer_of(context.approver, request)
        context.approvals.answered(request, approval)
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


def _request(
    context: Context, question: Question, target_digest: str, held: HeldLine | None
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
