"""The life of one call. No interface has a short cut round it.

bind → resolve → decide → approve → record the intent → run → record the outcome.
A tool that only reads runs first, and its intent and result are recorded with
one sync before the result is released: there the act is the disclosure.
"""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from paddock.errors import IntegrityError, LedgerUnknownError, PaddockError, ToolError
from paddock.history.keeping import CallHistory, NoHistory
from paddock.ledger.ports import Ledger, Reservation
from paddock.runtime.approvals import (
    Approval,
    ApprovalLog,
    ApprovalRequest,
    Approver,
    answer_of,
    approval_digest,
)
from paddock.runtime.judge import Judge
from paddock.runtime.records import Caller, Judged, Recorder, kept_arguments
from paddock.runtime.registry import Registry
from paddock.text.show import quote, show_name
from paddock.tools.spec import Plan, Ports, Tool, ToolOutput
from paddock.values.calls import Json, Refusal, ToolCall, ToolResult
from paddock.values.decisions import Decision, Outcome, RuleMatch
from paddock.values.entries import Entry
from paddock.values.quick import quick

_FRAMES_KEPT_MAX: Final = 8
_NO_HISTORY: Final = NoHistory()
RESULT_RESERVE_BYTES: Final = 16_384
"""Space kept for a writer's result before it runs."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a dispatcher works with; all of it given by the host.

    `randomness(n)` returns n unpredictable bytes; `monotonic_ns` measures durations.
    """

    registry: Registry
    judge: Judge
    ports: Ports
    ledger: Ledger
    approver: Approver
    approvals: ApprovalLog
    caller: Caller
    randomness: Callable[[int], bytes]
    history: CallHistory = _NO_HISTORY
    monotonic_ns: Callable[[], int] = time.monotonic_ns


class _Ready(NamedTuple):
    """A call that may run: bound, resolved, decided and, where asked, approved."""

    call: ToolCall
    tool: Tool[Any]
    plan: Plan
    clamped: Mapping[str, int]
    arguments: Mapping[str, Json]
    actions: Sequence[str]
    judged: Judged


@dataclass(frozen=True, slots=True)
class _Failed:
    refusal: Refusal
    frames: tuple[str, ...] = ()


_Outcome = ToolOutput | _Failed


class Dispatcher:
    """Runs calls for one agent and session. Safe to use from several threads."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._recorder = Recorder(context.caller)
        self._closed_by: Refusal | None = None
        """Set when an outcome could not be recorded: no further call runs."""

    def dispatch(self, call: ToolCall) -> ToolResult:
        """Run one call and return its result; refusals are results.

        Raises: IntegrityError where the ledger is damaged; nothing ran.
        """
        if self._closed_by is not None:
            return _refused(call, None, self._closed_by)
        try:
            ready = self._prepare(call)
        except IntegrityError:
            raise
        except Exception as error:  # The door: a defect of ours is a refusal, not a traceback.
            return self._internal(call, error)
        if isinstance(ready, ToolResult):
            return ready
        if ready.tool.reads_only:
            return self._read(ready)
        return self._write(ready)

    def refuse(self, call: ToolCall, refusal: Refusal) -> ToolResult:
        """Record and answer a call that a door could not even read. It does not run."""
        return self._deny(call, None, (), refusal)

    # Before anything runs

    def _prepare(self, call: ToolCall) -> _Ready | ToolResult:
        context = self._context
        try:
            tool = context.registry.get(call.tool)
        except ToolError as error:
            return self._deny(call, None, (), _refusal_of(error))
        try:
            arguments, clamped = tool.binder.bind(call.arguments)
            plan: Plan = tool.handler.resolve(arguments, context.ports)
        except ToolError as error:
            return self._deny(call, tool, (), _refusal_of(error))
        decision = context.judge.decide(plan.actions)
        # One action's decision has its text already.
        actions = [decision.action] if len(plan.actions) == 1 else list(map(str, plan.actions))
        if decision.outcome is Outcome.DENY:
            return self._deny(call, tool, actions, _refusal_by(decision), Judged(decision))
        judged = quick(Judged, (decision, "", ""))
        if decision.outcome is Outcome.ASK:
            asked = self._ask(call, tool, plan, actions, decision)
            if isinstance(asked, ToolResult):
                return asked
            plan, judged = asked
        kept = kept_arguments(call.arguments, tool, context.randomness)
        return quick(_Ready, (call, tool, plan, clamped, kept, actions, judged))

    def _ask(
        self,
        call: ToolCall,
        tool: Tool[Any],
        plan: Plan,
        actions: Sequence[str],
        decision: Decision,
    ) -> tuple[Plan, Judged] | ToolResult:
        """Put the question; the plan that comes back is tied to what was shown."""
        context = self._context
        target_digest = ""
        pin = getattr(tool.handler, "pin", None)
        if pin is not None:
            try:
                plan, target_digest = pin(plan, context.ports)
            except ToolError as error:
                return self._deny(call, tool, actions, _refusal_of(error), Judged(decision))
        digest = approval_digest(
            tool=call.tool,
            arguments=call.arguments,
            agents=tuple(agent.name for agent in context.caller.chain),
            policy_digest=decision.policy_digest,
            target_digest=target_digest,
        )
        rule = decision.rule
        request = ApprovalRequest(
            digest=digest,
            tool=call.tool,
            # A copy: whoever answers may change it, and the record must not follow.
            arguments=dict(call.arguments),
            actions=tuple(actions),
            agent=context.caller.agent,
            reason=decision.reason,
            rule="" if rule is None else f"{rule.text} ({_place(rule.file, rule.line)})",
        )
        try:
            context.approvals.asked(request)
            approval = answer_of(context.approver, request)
            context.approvals.answered(request, approval)
        except IntegrityError:
            raise
        except PaddockError as error:
            return self._deny(call, tool, actions, _not_recorded(error), Judged(decision))
        judged = Judged(decision, approval.by, digest)
        if not approval.is_granted:
            return self._deny(call, tool, actions, _refusal_for(approval, decision), judged)
        return plan, judged

    # Running

    def _read(self, ready: _Ready) -> ToolResult:
        monotonic_ns = self._context.monotonic_ns
        started = monotonic_ns()
        outcome = self._run(ready)
        duration_us = (monotonic_ns() - started) // 1000
        # Recorded with one sync before anything is released: what was read and is
        # not on record is withheld.
        intent = self._recorder.intent(ready.call, ready.arguments, ready.actions, ready.judged)
        try:
            self._context.ledger.append([intent, self._outcome(ready, outcome, duration_us)])
        except IntegrityError:
            raise
        except PaddockError as error:
            return _refused(ready.call, ready.tool, _not_recorded(error))
        return _result(ready, outcome)

    def _write(self, ready: _Ready) -> ToolResult:
        ledger, history = self._context.ledger, self._context.history
        call, recorder = ready.call, self._recorder
        # Space for the result is kept before the act: a full disk must not leave an
        # effect without its record.
        try:
            reservation = ledger.reserve(RESULT_RESERVE_BYTES)
            try:
                intent = recorder.intent(call, ready.arguments, ready.actions, ready.judged)
                ledger.append([intent])
            except BaseException:
                reservation.release()
                raise
        except IntegrityError:
            raise
        except PaddockError as error:
            return _refused(ready.call, ready.tool, _not_recorded(error))
        started = self._context.monotonic_ns()
        try:
            with history.running(recorder.mark(call)) as running:
                outcome = self._run(ready)
            duration_us = (self._context.monotonic_ns() - started) // 1000
            ledger.append([self._outcome(ready, outcome, duration_us)], reservation=reservation)
        except PaddockError as error:
            return self._unknown(ready, error.message, reservation)
        except Exception as error:  # The door: what cannot be put on record is not known.
            return self._unknown(ready, type(error).__name__, reservation)
        except BaseException as stop:
            # An interrupt or an exit: nobody knows how far it came.
            self._unknown(ready, type(stop).__name__, reservation)
            raise
        if isinstance(outcome, ToolOutput):
            history.recorded(running)
        return _result(ready, outcome)

    def _run(self, ready: _Ready) -> _Outcome:
        try:
            return ready.tool.handler.run(ready.plan, self._context.ports)
        except ToolError as error:
            return _Failed(_refusal_of(error))
        except Exception as error:  # The door: see dispatch.
            return self._defect(error)

    # Records

    def _outcome(self, ready: _Ready, outcome: _Outcome, duration_us: int) -> Entry:
        if isinstance(outcome, ToolOutput):
            return self._recorder.result(ready.call, outcome, duration_us)
        known = outcome.refusal.code != "internal"
        return self._recorder.failure(
            ready.call, outcome.refusal, duration_us, known, outcome.frames
        )

    def _deny(
        self,
        call: ToolCall,
        tool: Tool[Any] | None,
        actions: Sequence[str],
        refusal: Refusal,
        judged: Judged | None = None,
        frames: Sequence[str] = (),
    ) -> ToolResult:
        """A refused call is one entry. It did not run; an unrecorded refusal stays one."""
        kept = kept_arguments(call.arguments, tool, self._context.randomness)
        entry = self._recorder.denied(call, kept, actions, refusal, judged, frames)
        try:
            self._context.ledger.append([entry])
        except IntegrityError:
            raise
        except PaddockError as error:
            refusal = Refusal(
                refusal.code,
                refusal.error,
                f"{refusal.hint}; this refusal could not be recorded: {error.message}".lstrip("; "),
                refusal.rule,
            )
        return _refused(call, tool, refusal)

    def _unknown(self, ready: _Ready, why: str, reservation: Reservation) -> ToolResult:
        """The call ran and its outcome is not on record: say so, and stop."""
        reservation.release()
        refusal = Refusal(
            LedgerUnknownError.code,
            f"{ready.call.tool} ran, and its outcome could not be recorded: {why}",
            "look at the target before doing anything else; further calls are refused "
            "until the workspace is opened anew",
        )
        self._closed_by = refusal
        return _refused(ready.call, ready.tool, refusal)

    def _internal(self, call: ToolCall, error: Exception) -> ToolResult:
        failed = self._defect(error)
        return self._deny(call, None, (), failed.refusal, frames=failed.frames)

    def _defect(self, error: Exception) -> _Failed:
        """A defect of ours: an id to report for the model, the frames for the ledger."""
        report = self._context.randomness(6).hex()
        frames = [
            f"{PurePath(frame.filename).name}:{frame.lineno} {frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)[-_FRAMES_KEPT_MAX:]
        ]
        refusal = Refusal(
            "internal",
            f"internal error {report}",
            "this is a defect of Paddock; report it with this id",
        )
        return _Failed(refusal, (f"{type(error).__name__} ({report})", *frames))


def _result(ready: _Ready, outcome: _Outcome) -> ToolResult:
    if isinstance(outcome, _Failed):
        return _refused(ready.call, ready.tool, outcome.refusal)
    content = outcome.content
    warnings = ready.judged.decision.warnings
    if not ready.clamped and not warnings:
        call = ready.call
        return quick(ToolResult, (call.id, call.tool, content, outcome.details, None))
    details = dict(outcome.details)
    if ready.clamped:
        details["clamped"] = dict(ready.clamped)
        used = ", ".join(f"{name}={value}" for name, value in ready.clamped.items())
        content = f"{content}\n[clamped: {used}]"
    if warnings:
        details["warnings"] = list(warnings)
        shown = (f"[warning: {show_name(warning)}]" for warning in warnings)
        content = "\n".join([content, *shown])
    return ToolResult(ready.call.id, ready.call.tool, content, details)


def _refused(call: ToolCall, tool: Tool[Any] | None, refusal: Refusal) -> ToolResult:
    details = {} if tool is None else dict(tool.spec.failure_details)
    return ToolResult(call.id, call.tool, refusal.as_text(), details, refusal)


def _refusal_of(error: ToolError) -> Refusal:
    return Refusal(error.code, error.message, error.hint)


def _place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def _refusal_by(decision: Decision) -> Refusal:
    rule = decision.rule
    if rule is None:
        return Refusal(decision.code, f"{quote(decision.action)} is denied: {decision.reason}")
    place = _place(rule.file, rule.line)
    # Threat: a cloned policy may deny, and its reason is text of its own making.
    reason = show_name(decision.reason)
    says_all = rule.source.endswith(".permissions.forbidden")
    return Refusal(
        decision.code,
        reason if says_all else f"{quote(decision.action)} is denied: {reason}",
        show_name(_denial_hint(rule, place)),
        {"text": rule.text, "file": rule.file, "line": rule.line},
    )


def _denial_hint(rule: RuleMatch, place: str) -> str:
    if rule.source == "paths.own":
        return "no rule opens Paddock's own files; only a person changes them"
    stands = f"{rule.text} ({rule.source}, {place})"
    return f"choose another way, or ask a person to change the rule {stands}"


def _refusal_for(approval: Approval, decision: Decision) -> Refusal:
    said = f": {approval.note}" if approval.note else ""
    rule = decision.rule
    return Refusal(
        approval.code,
        f"{quote(decision.action)} needs an approval, and was not approved{said}",
        _APPROVAL_HINTS.get(approval.code, "do not repeat it unchanged; ask what is wanted"),
        None if rule is None else {"text": rule.text, "file": rule.file, "line": rule.line},
    )


_APPROVAL_HINTS: Final = {
    "approval.unavailable": "a person has to be there to ask (at a terminal, or --yes), "
    "or a rule has to allow it",
    "approval.expired": "ask again",
}


def _not_recorded(error: PaddockError) -> Refusal:
    """Nothing ran, or nothing is released, because it could not be recorded."""
    code = error.code if isinstance(error, ToolError) else "storage.full"
    return Refusal(code, f"the ledger cannot commit: {error.message}", error.hint)
