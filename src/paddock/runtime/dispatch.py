"""Run one call through all of its steps, which no interface can skip.

bind → resolve → decide → approve → record the intent → run → record the outcome.
A tool that only reads runs first; intent and result are recorded with one sync before the
result is released, because disclosure is its only effect. A call whose effect needs approval
acts in `prepare`, on record, with the effect held back (see `question`); `run` commits it.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    InternalError,
    LedgerUnknownError,
    PaddockError,
    SessionChangedError,
    StorageFullError,
    ToolError,
    ToolFailedError,
    UnknownToolError,
)
from paddock.ledger.append import Reservation
from paddock.runtime.messages import Asked, Malformed
from paddock.runtime.prepared import (
    FREE,
    Begun,
    Bounds,
    Caller,
    Contents,
    Context,
    Failed,
    Judged,
    Prepared,
    Ran,
)
from paddock.runtime.question import (
    STOPPED,
    Withheld,
    ask,
    keep_waiting,
    not_recorded,
    ports_for,
    refusal_of,
    with_question,
    with_warnings,
)
from paddock.runtime.records import DigestsAlone, Recorder, kept_arguments, kept_name
from paddock.storage.history import History
from paddock.text.show import quote, show_name
from paddock.tools.spec import Confining, Plan, StoppedCallError, Tool, ToolOutput
from paddock.values.calls import LeftEffect, Refusal, ToolCall, ToolResult
from paddock.values.decisions import Decision, Outcome, confined, rule_in_brief
from paddock.values.entries import clean
from paddock.workspace import Workspace

__all__ = ["Context", "Dispatcher"]

_FRAMES_KEPT_MAX: Final = 8
RESULT_RESERVE_BYTES: Final = 16_384
"""Ledger space reserved for the result of a call that writes, before it runs."""
WARNING_TURNED_OFF: Final = (
    "[said once a session: warned = [] in [paths] of paddock.toml turns these warnings off]"
)


class Dispatcher:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._recorder = Recorder(context.caller)
        self._digests = DigestsAlone(context.randomness)
        self._contents: Contents = context.contents or self._digests
        self._lowered = context.ports.limits.lowered()
        self._has_warned = False
        self._closed_by: Refusal | None = None
        """Set when an outcome could not be recorded: no further call runs."""

    @property
    def workspace(self) -> Workspace:
        return self._context.ports.workspace

    @property
    def monotonic_ns(self) -> Callable[[], int]:
        return self._context.monotonic_ns

    def dispatch(self, call: ToolCall, bounds: Bounds = FREE) -> ToolResult:
        """Run one call and return its result; refusals are results.

        Raises: IntegrityError if the ledger is damaged; nothing was changed or shown.
        """
        ready = self.prepare(call, bounds)
        return ready if isinstance(ready, ToolResult) else self.run(ready)

    def prepare(self, call: ToolCall, bounds: Bounds = FREE) -> Prepared | ToolResult:
        """Take every step up to the intent. A prepared call needs `run`, or `discard`."""
        if self._closed_by is not None:
            return refused(call, None, self._closed_by)
        begun = Begun(call, bounds)
        try:
            return self._prepare(begun)
        except IntegrityError:
            raise
        except ToolError as error:
            return self._deny(begun, refusal_of(error))
        except (ConfigError, HostError) as error:
            return self._deny(begun, refusal_by_host(error), _for_ledger(error))
        except Exception as error:  # The door: a defect in Paddock is a refusal, not a traceback.
            failed = self._defect(error)
            return self._deny(begun, failed.refusal, failed.frames)

    def run(self, ready: Prepared) -> ToolResult:
        """Run it; if another call changed its session meanwhile, judge it again behind that."""
        result = self._run_once(ready)
        if result.refusal is None or result.refusal.code != SessionChangedError.code:
            return result
        again = self.prepare(ready.call, ready.bounds)
        return again if isinstance(again, ToolResult) else self._run_once(again)

    def _run_once(self, ready: Prepared) -> ToolResult:
        try:
            if self._closed_by is not None:
                return refused(ready.call, ready.tool, self._closed_by)
            if ready.bounds.cancel.is_cancelled:
                return self._deny(ready, STOPPED)
            if ready.bounds.program is None:
                try:
                    self._context.tools.get(ready.call.tool)
                except UnknownToolError as gone:  # the gate closed while the approver was asked
                    return self._deny(ready, refusal_of(gone))
            result = self._read(ready) if ready.tool.reads_only else self._write(ready)
            if "warnings" not in result.details or self._has_warned:
                return result
            self._has_warned = True
            return result._replace(content=f"{result.content}\n{WARNING_TURNED_OFF}")
        finally:
            self.discard(ready)

    def discard(self, ready: Prepared) -> None:
        """Discard the effect held back for a call; does nothing once it is committed."""
        release = getattr(ready.tool.handler, "release", None)
        if release is not None:
            release(ready.plan)

    def refuse(self, call: ToolCall, refusal: Refusal, bounds: Bounds = FREE) -> ToolResult:
        return self._deny(Begun(call, bounds), refusal)

    def _prepare(self, begun: Begun) -> Prepared | ToolResult:
        context, call, bounds = self._context, begun.call, begun.bounds
        # A cancelled call is not asked about.
        stopped = STOPPED if bounds.cancel.is_cancelled else None
        refusal = unless_allowed(call.tool, bounds) or stopped
        if refusal is not None:
            return self._deny(begun, refusal)
        program = bounds.program
        tool = context.tools.get(call.tool) if program is None else program.tool
        begun.tool = tool
        arguments, clamped = tool.binder.bind(call.arguments, self._lowered)
        plan: Plan = tool.handler.resolve(arguments, bounds.over(context.ports, call.id))
        decision = context.judge.decide(plan.actions)
        begun.actions = actions = list(map(str, plan.actions))
        begun.judged = Judged(decision)
        if decision.outcome is Outcome.DENY:
            return self._deny(begun, refusal_by(decision, call, context.caller))
        if decision.outcome is Outcome.CONFINE:
            # Before the question: a call that cannot run is not asked about.
            plan, decision = self._confine(tool, plan, decision)
        ready = Prepared(call, tool, plan, clamped, {}, actions, Judged(decision), bounds)
        if decision.comes_to is Outcome.ASK:
            answer = ask(context, self._recorder, ready)
            if isinstance(answer, Withheld):
                denied = self._deny(ready._replace(judged=answer.judged), answer.refusal)
                if answer.approval is None:
                    return denied
                return with_question(denied, answer.approval, answer.warnings)
            ready = answer
        try:
            kept = kept_arguments(call.arguments, tool, self._contents)
            if dict in map(type, kept.values()):
                # Before the entry that names them, which could otherwise outlast them in a crash.
                self._contents.sync()
        except (ToolError, ConfigError, HostError) as error:
            # An entry needs its contents, and a call its entry.
            self.discard(ready)
            return self._deny(ready, not_recorded(error))
        return ready._replace(arguments=kept)

    def _confine(self, tool: Tool[Any], plan: Plan, decision: Decision) -> tuple[Plan, Decision]:
        """Bind the plan to its sandbox, so that the inspected plan is the one that runs."""
        if not isinstance(tool.handler, Confining):
            return plan, confined(decision, "none")
        held_plan, held = tool.handler.confine(plan, self._context.ports)
        return held_plan, confined(decision, held)

    def _read(self, ready: Prepared) -> ToolResult:
        monotonic_ns = self._context.monotonic_ns
        started = monotonic_ns()
        outcome = self._run(ready)
        duration_us = (monotonic_ns() - started) // 1000
        # A result that could not be recorded is not released.
        recorder = self._recorder
        entries = [recorder.intent(ready), recorder.outcome(ready, outcome, duration_us)]
        try:
            self._context.ledger.append(entries)
        except IntegrityError:
            raise
        except PaddockError as error:
            return refused(ready.call, ready.tool, not_recorded(error))
        return result_of(ready, outcome)

    def _write(self, ready: Prepared) -> ToolResult:
        ledger, history = self._context.ledger, self._context.history
        # Space for the result is reserved before the act: a full disk must not leave an
        # effect without its record.
        try:
            reservation = ledger.reserve(RESULT_RESERVE_BYTES)
            try:
                intent = ledger.append([self._recorder.intent(ready)]).ids[0]
            except BaseException:
                reservation.release()
                raise
        except IntegrityError:
            raise
        except PaddockError as error:
            return refused(ready.call, ready.tool, not_recorded(error))
        started = self._context.monotonic_ns()
        try:
            with History.running(self._recorder.mark(ready, intent)) as running:
                outcome = self._run(ready)
            duration_us = (self._context.monotonic_ns() - started) // 1000
            entry = self._recorder.outcome(ready, outcome, duration_us, intent)
            ledger.append([entry], reservation=reservation)
        except PaddockError as error:
            return self._unknown(ready, error.message, reservation)
        except Exception as error:  # A defect after the act: its outcome is unknown.
            return self._unknown(ready, type(error).__name__, reservation)
        except BaseException as stop:
            # An interrupt or an exit: how far the call got is unknown.
            self._unknown(ready, type(stop).__name__, reservation)
            raise
        is_whole = isinstance(outcome, ToolOutput) or outcome.is_known
        if history is not None and is_whole:
            history.recorded(running)
        is_command = isinstance(outcome, ToolOutput) and outcome.exit is not None
        self._context.after_write(
            [path for each in outcome.changes for path in (each.path, each.to) if path],
            "shell" if is_command else ready.tool.toolset,
        )
        return result_of(ready, outcome)

    def _run(self, ready: Prepared) -> Ran:
        try:
            ports = ports_for(self._context, self._recorder, ready)
            output = ready.tool.handler.run(ready.plan, ports)
            kept = keep_waiting(self._context, ready, output)
            return Failed(kept) if isinstance(kept, Refusal) else kept
        except StoppedCallError as stopped:
            return Failed(refusal_of(stopped), (), stopped.effect, stopped.changes)
        except ToolFailedError as error:
            frames = _frames(error.__cause__ or error)
            return Failed(refusal_of(error), frames, LeftEffect.UNKNOWN)
        except ToolError as error:
            return Failed(refusal_of(error))
        except (ConfigError, HostError) as error:
            # It may have failed half-way: its effect is unknown.
            return Failed(refusal_by_host(error), _for_ledger(error), LeftEffect.UNKNOWN)
        except Exception as error:  # As in prepare.
            return self._defect(error)

    def _deny(
        self, call: Begun | Prepared, refusal: Refusal, frames: Sequence[str] = ()
    ) -> ToolResult:
        kept = kept_arguments(call.call.arguments, call.tool, self._digests)
        try:
            self._context.ledger.append([self._recorder.denied(call, kept, refusal, frames)])
        except IntegrityError:
            raise
        except PaddockError as error:
            unrecorded = f"this refusal could not be recorded: {error.message}"
            hint = f"{refusal.hint}; {unrecorded}" if refusal.hint else unrecorded
            refusal = replace(refusal, hint=hint)
        return refused(call.call, call.tool, refusal)

    def _unknown(self, ready: Prepared, why: str, reservation: Reservation) -> ToolResult:
        reservation.release()
        refusal = Refusal(
            LedgerUnknownError.code,
            f"{ready.call.tool} ran, and its outcome could not be recorded: {why}",
            "check the target before doing anything else; further calls are refused "
            "until the workspace is opened again",
        )
        self._closed_by = refusal
        return refused(ready.call, ready.tool, refusal)

    def _defect(self, error: Exception) -> Failed:
        report = self._context.randomness(6).hex()
        refusal = Refusal(
            InternalError.code,
            f"internal error {report}",
            "this is a defect of Paddock; report it with this id",
        )
        name, *frames = _frames(error)
        return Failed(refusal, (f"{name} ({report})", *frames))


def _frames(error: BaseException) -> tuple[str, ...]:
    """Return the exception's type and places, but not its message, which may hold a secret."""
    import traceback  # noqa: PLC0415 - for a defect

    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_KEPT_MAX:]
    places = [f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames]
    return (type(error).__name__, *places)


def _for_ledger(error: PaddockError) -> tuple[str, ...]:
    """Return the error's text, for the ledger only: it may name the host's paths."""
    return (f"{type(error).__name__}: {clean(error.message)}",)


def result_of(ready: Prepared, outcome: Ran) -> ToolResult:
    if isinstance(outcome, Failed):
        return refused(ready.call, ready.tool, outcome.refusal)
    content, details = outcome.content, outcome.details
    if ready.clamped:
        details = {**details, "clamped": dict(ready.clamped)}
        used = ", ".join(f"{name}={value}" for name, value in ready.clamped.items())
        content = f"{content}\n[clamped: {used}]"
    result = ToolResult(ready.call.id, ready.call.tool, content, details)
    return with_warnings(result, ready.judged.decision.warnings)


def refused(call: ToolCall, tool: Tool[Any] | None, refusal: Refusal) -> ToolResult:
    details = {} if tool is None else dict(tool.spec.failure_details)
    return ToolResult(call.id, call.tool, refusal.as_text(), details, refusal)


def refusal_by_host(error: PaddockError) -> Refusal:
    return Refusal(
        StorageFullError.code,
        f"an operation failed on this host ({type(error).__name__})",
        "the ledger's entry of this call has the error; check the target before "
        "doing anything else, and ask a person to check the host",
    )


def refusal_by(decision: Decision, call: ToolCall, caller: Caller) -> Refusal:
    rule = decision.rule
    if rule is None:
        said = f"{quote(decision.action)} is denied: {decision.reason}"
        return Refusal(decision.code, said, _unmatched_hint(decision.action, call, caller))
    # Threat: a cloned policy may deny, and its reason is text that an attacker wrote.
    reason = show_name(decision.reason)
    hint = f"choose another way, or ask a person to change the rule {rule.said}"
    if rule.source == "paths.own":
        hint = "no rule opens Paddock's own files; only a person changes them"
    is_complete = rule.source.endswith(".permissions.forbidden")
    return Refusal(
        decision.code,
        reason if is_complete else f"{quote(decision.action)} is denied: {reason}",
        show_name(hint),
        rule_in_brief(rule),
    )


def _unmatched_hint(action: str, call: ToolCall, caller: Caller) -> str:
    import shlex  # noqa: PLC0415 - only for a refusal

    is_whole = action == show_name(action).strip() and len(action) <= limits.message_value_chars_max
    if action and is_whole and not caller.is_programs:
        asked = f"{shlex.quote(action)} --agent {caller.agent}"
    else:
        # An action that is long, or not one line, is looked up by the call's id.
        asked = show_name(shlex.quote(kept_name(call.id)))
    return (
        "no rule allows it; choose another way, or ask a person to look: "
        f"paddock policy explain {asked}"
    )


def unless_allowed(tool: str, bounds: Bounds) -> Refusal | None:
    if bounds.tools is None or tool in bounds.tools:
        return None
    listed = ", ".join(sorted(bounds.tools)) or "none"
    return Refusal(
        UnknownToolError.code,
        f"the tool {quote(tool)} is not allowed here",
        f"the tools that are allowed: {listed}",
    )


# Adjacent calls that only read run at the same time, in threads. A call that writes waits
# for those before it and delays those after it, so that a read after a write sees what
# was written, and no two writes of a turn overlap.


class Done(NamedTuple):
    result: ToolResult
    ran: bool


class CallWatcher:
    """Observes the progress of each call. Called from several threads at once."""

    def decided(self, call: ToolCall, judged: Judged) -> None:
        pass

    def started(self, call: ToolCall) -> None:
        pass

    def finished(self, call: ToolCall, done: Done, duration_us: int) -> None:
        pass


NO_WATCHER: Final = CallWatcher()


def dispatch_all(
    dispatcher: Dispatcher,
    asked: Sequence[Asked],
    bounds: Bounds = FREE,
    watcher: CallWatcher = NO_WATCHER,
) -> list[Done]:
    turn = _Turn(dispatcher, bounds, watcher)
    waiting: list[_Step] = []
    done: list[Done] = []
    try:
        for each in asked:
            waiting.append(turn.decide(each))  # noqa: PERF401 - kept where a later one raises
        for group in _groups(list(waiting)):
            # From here on `run` releases the group's plans.
            del waiting[: len(group)]
            done += turn.run(group)
    finally:
        for step in waiting:
            if isinstance(step, Prepared):
                dispatcher.discard(step)
    return done


_Step = Prepared | Done


def _groups(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    group: list[_Step] = []
    for step in steps:
        if isinstance(step, Prepared) and not step.tool.reads_only:
            yield group
            yield [step]
            group = []
        else:
            group.append(step)
    yield group


class _Turn(Struct, frozen=True):
    dispatcher: Dispatcher
    bounds: Bounds
    watcher: CallWatcher

    def decide(self, asked: Asked) -> _Step:
        if isinstance(asked, Malformed):
            call = asked.call
            refusal = unless_allowed(call.tool, self.bounds) or asked.refusal
            found: Prepared | ToolResult = self.dispatcher.refuse(call, refusal, self.bounds)
        else:
            call = asked
            found = self.dispatcher.prepare(call, self.bounds)
        if isinstance(found, Prepared):
            try:
                self.watcher.decided(call, found.judged)
            except BaseException:
                self.dispatcher.discard(found)
                raise
            return found
        done = Done(found, ran=False)
        self.watcher.finished(call, done, 0)
        return done

    def run(self, group: Sequence[_Step]) -> list[Done]:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - for turns of several calls

        ready = [step for step in group if isinstance(step, Prepared)]
        if len(ready) < 2:
            return [self.finish(step) for step in group]
        with ThreadPoolExecutor(min(len(ready), limits.reads_together_max)) as threads:
            return list(threads.map(self.finish, group))

    def finish(self, step: _Step) -> Done:
        if isinstance(step, Done):
            return step
        monotonic_ns = self.dispatcher.monotonic_ns
        self.watcher.started(step.call)
        started = monotonic_ns()
        done = Done(self.dispatcher.run(step), ran=True)
        self.watcher.finished(step.call, done, (monotonic_ns() - started) // 1000)
        return done
