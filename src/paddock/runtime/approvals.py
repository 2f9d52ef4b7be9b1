"""Someone's answer to an `ask`, bound to a digest of exactly what will run.

The question is about the call, or about what it would change: a handler that can act and hold
its effect back (`Staging`) does so first where policy wants that. What is then granted is just
that, and what is refused is let go. That it acts is on record before it does.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    CallCancelledError,
    IntegrityError,
    InternalError,
    PaddockError,
    StorageFullError,
    ToolError,
)
from paddock.runtime.prepared import Context, Judged, Prepared
from paddock.runtime.records import DigestsAlone, Recorder, kept_arguments, kept_name
from paddock.text.show import cut, quote, show_name, show_unseen
from paddock.tools.spec import (
    SCHEMA_VERSION,
    Confining,
    Pinning,
    Ports,
    Staging,
    StoppedCallError,
    ToolOutput,
)
from paddock.values.calls import (
    NEVER,
    Cancel,
    ClosedConnection,
    Json,
    LeftEffect,
    OpenedConnection,
    Refusal,
    RefusedConnection,
    ToolResult,
)
from paddock.values.decisions import Action, Decision, Outcome, rule_in_brief
from paddock.values.entries import (
    APPROVAL_ANSWERED,
    APPROVAL_ASKED,
    Entry,
    clean,
    digest_of_json,
)

if TYPE_CHECKING:
    from paddock.policy.network import Reach
    from paddock.runtime.inbox import Parked
    from paddock.sandbox.values import HeldLine

E = TypeVar("E")

CONNECTION_ASK_S: Final = 120.0
"""So long a connection is held open for an answer."""


class Parking(Protocol):
    def park(self, name: str) -> Json:
        """The effect as data that outlives the call; what it needs stays under `name`."""
        ...


class ApprovalRequest(Struct, frozen=True):
    """What is shown to whoever is asked. `digest` names exactly this call."""

    digest: str
    tool: str
    arguments: Mapping[str, Json]
    actions: tuple[str, ...]
    agent: str
    reason: str
    rule: str
    """Text and place of the rule that asks."""
    policy_digest: str = ""
    target_digest: str = ""
    """Of what stands at the target, or `absent`; empty where the call has none."""
    call_id: str = ""
    session_id: str = ""
    filled: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Arguments that count with another value than was given, or with none: the defaults."""
    warnings: tuple[str, ...] = ()
    """What policy warns of besides; it changes nothing, and whoever answers is to know it."""
    diff: str = ""
    """Where the question is about what the call would change: the difference."""
    parking: Parking | None = None
    """What was held back for that question, to be kept if nobody can answer now."""
    can_wait: bool = True
    """Whether an answer that comes later still counts: not of a connection that is held open."""
    cancel: Cancel = NEVER
    """Cancelled when nobody waits for the answer any more."""


class Approval(Struct, frozen=True):
    """The answer. `by` says who or what gave it, for the ledger.

    `code` is that of the refusal where it was not granted.
    """

    is_granted: bool
    by: str
    code: str = ApprovalRefusedError.code
    note: str = ""
    request_id: str = ""
    """Of the inbox: the kept request, or the one whose grant was used up for this."""
    changes_digest: str = ""
    """Of the changes that were kept with the request."""
    hint: str = ""
    """What to do about a no, where that is not what its code says."""


class Approver(Protocol):
    """Whoever can be asked. Answers once, for this digest, within the time limit."""

    def answer(self, request: ApprovalRequest) -> Approval:
        """Yes or no; anything unclear is no."""
        ...


def unavailable(by: str, note: str, hint: str = "") -> Approval:
    return Approval(False, by, ApprovalUnavailableError.code, note, hint=hint)


class NoApprover:
    def answer(self, request: ApprovalRequest) -> Approval:
        del request
        return unavailable("nobody", "there is no approver")


class YesApprover:
    def __init__(self, by: str) -> None:
        self._by = by

    def answer(self, request: ApprovalRequest) -> Approval:
        del request
        return Approval(True, self._by)


class CallbackApprover:
    """Asks the program's function in a thread: `True` is yes; after `timeout_s` it is a no."""

    def __init__(
        self, ask: Callable[[ApprovalRequest], bool], timeout_s: float = limits.approval_timeout_s
    ) -> None:
        self._ask = ask
        self._timeout_s = timeout_s

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(self._ask, request), self._timeout_s)
        if not problem and type(said) is not bool:
            problem = "the approver gave no clear answer: True is yes, False is no"
        return unavailable("callback", problem) if problem else Approval(bool(said), "callback")


class Limited(Struct, frozen=True):
    approver: Approver
    timeout_s: float

    def answer(self, request: ApprovalRequest) -> Approval:
        said, problem = _in_time(partial(answer_of, self.approver, request), self.timeout_s)
        return said if isinstance(said, Approval) else unavailable("callback", problem)


def _in_time(ask: Callable[[], object], timeout_s: float) -> tuple[object, str]:
    said: list[object] = []
    problems: list[str] = []

    def run() -> None:
        try:
            said.append(ask())
        except Exception as error:  # The embedding program's code: whatever it raises is a no.
            problems.append(f"the approver raised {type(error).__name__}")

    asking = threading.Thread(target=run, name="paddock-approval", daemon=True)
    asking.start()
    asking.join(timeout_s)
    if asking.is_alive():
        return None, f"no answer within {timeout_s:g} s"
    return (said[0], "") if said else (None, "".join(problems))


def answer_of(approver: Approver, request: ApprovalRequest) -> Approval:
    try:
        said = cast("object", approver.answer(request))
    except IntegrityError:
        raise
    except Exception as error:  # The embedding program's code: whatever it raises is a no.
        return unavailable("approver", f"the approver raised {type(error).__name__}")
    if not isinstance(said, Approval) or type(said.is_granted) is not bool:
        return unavailable("approver", "the approver gave no clear answer")
    return said


def filled_in(given: Mapping[str, Json], bound: Mapping[str, Json]) -> dict[str, Json]:
    return {
        name: value
        for name, value in bound.items()
        if name not in given or type(given[name]) is not type(value) or given[name] != value
    }


def shown_digest(request: ApprovalRequest) -> str:
    shown = [request.reason, request.rule, list(request.warnings), request.diff]
    return digest_of_json([*shown, dict(request.filled)])


def approval_digest(
    *,
    tool: str,
    arguments: Mapping[str, Json],
    agents: Sequence[Json],
    policy_digest: str,
    target_digest: str,
    actions: Sequence[str],
) -> str:
    """SHA-256 over everything that an approval is for: it never counts for anything else.

    `arguments` are the bound ones; `agents` the whole chain, which no policy digest covers;
    `actions` what the arguments come to here and now, in order.

    Threat: a link is shown with what it leads to, and leads elsewhere when the call runs; a
    name that was free is taken, and the next one is written.
    """
    call = [tool, SCHEMA_VERSION, dict(arguments), list(actions)]
    bound = [*call, list(agents), policy_digest, target_digest]
    return digest_of_json(bound)


# Threat: arguments and a cloned policy's reasons are written by others: with line
# breaks, terminal sequences or direction overrides they would draw a question of
# their own. Everything is escaped, each part on one line, and a cut is said.

_SHOWN_CHARS_MAX: Final = 2000
_DIFF_LINES_MAX: Final = 1000


def question_of(request: ApprovalRequest) -> str:
    arguments = json.dumps(dict(request.arguments), ensure_ascii=True)
    shown = cut(arguments, _SHOWN_CHARS_MAX)
    rows = [
        f"agent {_seen(request.agent)} asks to run {_seen(request.tool)} {shown}",
        *(f"  action: {_seen(action)}" for action in request.actions),
        f"  why asked: {_seen(request.reason)}",
        *(f"  warning: {_seen(warning)}" for warning in request.warnings),
    ]
    if request.rule:
        rows.append(f"  rule: {_seen(request.rule)}")
    if request.diff:
        rows += ["  it would change:", *_diff_rows(request.diff)]
    return "\n".join(rows)


def _seen(text: str) -> str:
    return show_unseen(text)[0]


def _diff_rows(diff: str) -> list[str]:
    lines = diff.split("\n")
    rows = [f"    {_seen(line)}" for line in lines[:_DIFF_LINES_MAX]]
    missing = len(lines) - _DIFF_LINES_MAX
    return [*rows, f"    … {missing} more lines"] if missing > 0 else rows


# Putting the question. Question and answer are on record, or nothing counts.


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
            # What was stopped half-way is nothing that anybody wants to be asked about.
            return Withheld(STOPPED, ready.judged)
        answer = _put(context, ready._replace(plan=plan), held.digest, held)
        if isinstance(answer, Prepared):
            unless_granted.pop_all()
        return answer


def _put(
    context: Context, ready: Prepared, target_digest: str, held: "HeldLine | None"
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
    from paddock.tools.outcome import as_pending  # noqa: PLC0415 - late on purpose

    waiting = output.waiting
    if waiting is None:
        return output
    decision = replace(ready.judged.decision, reason=waiting.why)
    with closing(waiting.held) as held:
        asked = ready._replace(judged=Judged(decision))
        request = _request(context, asked, held.digest, held)
        approval = _answered(context, context.keeper or NoApprover(), request)
    if approval.is_granted or not approval.request_id or not approval.changes_digest:
        return refusal_for(approval, decision)
    return as_pending(output, waiting.changes, waiting.why, approval.request_id)


def _answered(context: Context, approver: Approver, request: ApprovalRequest) -> Approval:
    """Ask. Raises: PaddockError where question or answer cannot be recorded."""
    context.record_approval(approval_asked(request))
    approval = answer_of(approver, request)
    # That a kept request's answer was used the inbox has put on record.
    if not (approval.is_granted and approval.request_id):
        context.record_approval(approval_answered(request, approval))
    return approval


def _request(
    context: Context,
    ready: Prepared,
    target_digest: str = "",
    held: "HeldLine | None" = None,
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
        # A copy: whoever answers may change it, and the record must not follow.
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

    def ask(self, action: Action, reach: "Reach") -> bool:
        """Ask whoever answers for this door. Nobody, too late, or not to be recorded: no."""
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
        """Return when it is durable. Raises: PaddockError; then nothing is to be opened."""
        self._append(self.recorder.opened, event)

    def closed(self, event: ClosedConnection) -> None:
        self._append(self.recorder.closed, event)

    def refused(self, event: RefusedConnection) -> None:
        self._append(self.recorder.unreached, event)

    def _append(self, entry_of: Callable[[Prepared, E], Entry], event: E) -> None:
        self.context.ledger.append([entry_of(self.ready, event)])


# What a call is told that is not approved.


def refusal_of(error: ToolError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


STOPPED: Final = refusal_of(StoppedCallError(LeftEffect.NONE))
"""Of a call that was cancelled before anything of it stood."""


def not_recorded(error: PaddockError) -> Refusal:
    # An entry that no line can hold is a defect of ours: nobody needs to look for space.
    code = error.code if isinstance(error, ToolError | InternalError) else StorageFullError.code
    hint = f"nothing came of this call; {error.hint}" if error.hint else ""
    return Refusal(code, f"the ledger cannot commit: {error.message}", hint)


def refusal_for(approval: Approval, decision: Decision) -> Refusal:
    refusal = refusal_without(approval, decision.action)
    return replace(refusal, rule=rule_in_brief(decision.rule))


def refusal_without(approval: Approval, action: str) -> Refusal:
    """As `refusal_for`, where what decided is not known any more, but what it was about."""
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
    "ask a person to look at it and answer: paddock approvals show {id}, then grant or refuse; "
    "after a grant, make the very same call again"
)
_CHANGES_KEPT_HINT: Final = (
    "it has run, and what it changed waits: ask a person to look at it and answer: paddock "
    "approvals show {id}, then grant or refuse; a grant brings in just what is shown there, so "
    "do not make the call again"
)
_APPROVAL_HINTS: Final = {
    ApprovalUnavailableError.code: "a person has to be there to ask (at a terminal, or --yes), "
    "or a rule has to allow it",
    ApprovalExpiredError.code: "ask again",
}


# It is also what counts: a grant that is kept in the inbox is one only if it was
# recorded here, and none that was recorded as used. Arguments never stand here, the
# digest does.

GRANTED: Final = "granted"
"""Somebody answered a kept request; it waits for its call."""
REFUSED: Final = "refused"
ALWAYS: Final = "always"
"""A rule was written that allows it from now on."""
USED: Final = "used"
"""The grant was used up by the call that this entry names."""
KEPT: Final = "kept"
"""Nobody could be asked; the request was put into the inbox."""


def approval_asked(request: ApprovalRequest) -> Entry:
    return _entry(APPROVAL_ASKED, request, "ask", {})._replace(reason=clean(request.reason))


def approval_answered(request: ApprovalRequest, approval: Approval) -> Entry:
    answer: dict[str, Json] = {"by": clean(approval.by), "note": clean(approval.note)}
    if not approval.is_granted:
        answer["code"] = approval.code
    if approval.request_id:
        answer["request"] = approval.request_id
        is_no = approval.code == ApprovalRefusedError.code
        answer["answer"] = USED if approval.is_granted else REFUSED if is_no else KEPT
    if answer.get("answer") == KEPT:
        # Of what was asked, not of what stands in its file by now.
        answer["shown"] = shown_digest(request)
    if approval.changes_digest:
        answer["changes"] = approval.changes_digest
    return _entry(APPROVAL_ANSWERED, request, "allow" if approval.is_granted else "deny", answer)


def answered_later(parked: "Parked", answer: str) -> Entry:
    told: dict[str, Json] = {
        "by": clean(parked.answered_by),
        "note": clean(parked.note),
        "request": parked.id,
        "answer": answer,
        "expires_at": parked.expires_at,
    }
    decision = "deny" if answer == REFUSED else "allow"
    return _entry(APPROVAL_ANSWERED, parked.request, decision, told)


def _entry(event: str, request: ApprovalRequest, decision: str, more: Mapping[str, Json]) -> Entry:
    return Entry(
        event_type=event,
        decision=decision,
        session_id=request.session_id,
        agent=request.agent,
        call_id=kept_name(request.call_id),
        metadata={
            "digest": request.digest,
            "tool": request.tool,
            "actions": [clean(action) for action in request.actions],
            "rule": clean(request.rule),
            **more,
        },
    )
