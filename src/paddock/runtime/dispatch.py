"""The life of one call. No interface has a short cut round it.

bind → resolve → decide → approve → record the intent → run → record the outcome.
A tool that only reads runs first, and its intent and result are recorded with
one sync before the result is released: there the act is the disclosure.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from msgspec import Struct

from paddock import limits
from paddock.errors import (
    ConfigError,
    HostError,
    IntegrityError,
    InternalError,
    LedgerUnknownError,
    PaddockError,
    ToolError,
    ToolFailedError,
)
from paddock.ledger.append import Reservation
from paddock.runtime.answers import (
    STOPPED,
    WARNING_TURNED_OFF,
    not_recorded,
    refusal_by,
    refusal_by_host,
    refusal_of,
    refused,
    result_of,
    unless_allowed,
    with_question,
)
from paddock.runtime.asking import AskedQuestion, Granted, ask, keep_waiting, ports_for
from paddock.runtime.judge import Context
from paddock.runtime.messages import Asked, Malformed
from paddock.runtime.prepared import FREE, Bounds, Failed, Judged, Prepared, Ran
from paddock.runtime.records import (
    Contents,
    DigestsAlone,
    Recorder,
    kept_arguments,
)
from paddock.storage.history import History
from paddock.tools.spec import Confining, Plan, StoppedCallError, Tool, ToolOutput
from paddock.values.calls import LeftEffect, Refusal, ToolCall, ToolResult
from paddock.values.decisions import Decision, Outcome, confined
from paddock.values.entries import Entry, clean
from paddock.workspace import Workspace

__all__ = ["Context", "Dispatcher"]

_FRAMES_KEPT_MAX: Final = 8
RESULT_RESERVE_BYTES: Final = 16_384
"""Space kept for a writer's result before it runs."""


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

        Raises: IntegrityError where the ledger is damaged; nothing ran.
        """
        ready = self.prepare(call, bounds)
        return ready if isinstance(ready, ToolResult) else self.run(ready)

    def prepare(self, call: ToolCall, bounds: Bounds = FREE) -> Prepared | ToolResult:
        if self._closed_by is not None:
            return refused(call, None, self._closed_by)
        try:
            return self._prepare(call, bounds)
        except IntegrityError:
            raise
        except (ConfigError, HostError) as error:
            return self._deny(call, None, (), refusal_by_host(error), bounds, None, _shown(error))
        except Exception as error:  # The door: a defect of ours is a refusal, not a traceback.
            failed = self._defect(error)
            return self._deny(call, None, (), failed.refusal, bounds, frames=failed.frames)

    def run(self, ready: Prepared) -> ToolResult:
        try:
            if self._closed_by is not None:
                return refused(ready.call, ready.tool, self._closed_by)
            if ready.bounds.cancel.is_cancelled:
                return self._deny(
                    ready.call, ready.tool, ready.actions, STOPPED, ready.bounds, ready.judged
                )
            result = self._read(ready) if ready.tool.reads_only else self._write(ready)
            if "warnings" not in result.details or self._has_warned:
                return result
            self._has_warned = True
            return result._replace(content=f"{result.content}\n{WARNING_TURNED_OFF}")
        finally:
            _release(ready.tool, ready.plan)

    def let_go(self, ready: Prepared) -> None:
        _release(ready.tool, ready.plan)

    def refuse(self, call: ToolCall, refusal: Refusal, bounds: Bounds = FREE) -> ToolResult:
        return self._deny(call, None, (), refusal, bounds)

    def _prepare(self, call: ToolCall, bounds: Bounds) -> Prepared | ToolResult:
        context = self._context
        outside = unless_allowed(call.tool, bounds)
        if outside is not None:
            return self._deny(call, None, (), outside, bounds)
        if bounds.cancel.is_cancelled:
            # Nobody is asked any more.
            return self._deny(call, None, (), STOPPED, bounds)
        try:
            program = bounds.program
            tool = context.registry.get(call.tool) if program is None else program.tool
        except ToolError as error:
            return self._deny(call, None, (), refusal_of(error), bounds)
        try:
            arguments, clamped = tool.binder.bind(call.arguments, self._lowered)
            plan: Plan = tool.handler.resolve(arguments, bounds.over(context.ports, call.id))
        except ToolError as error:
            return self._deny(call, tool, (), refusal_of(error), bounds)
        decision = context.judge.decide(plan.actions)
        # One action's decision has its text already.
        actions = [decision.action] if len(plan.actions) == 1 else list(map(str, plan.actions))
        if decision.outcome is Outcome.DENY:
            denial = refusal_by(decision, call, context.caller.agent)
            return self._deny(call, tool, actions, denial, bounds, Judged(decision))
        if decision.outcome is Outcome.CONFINE:
            try:
                plan, decision = self._confine(tool, plan, decision)
            except ToolError as error:
                # Nobody is asked about what cannot run.
                return self._deny(call, tool, actions, refusal_of(error), bounds, Judged(decision))
        judged = Judged(decision)
        if decision.comes_to is Outcome.ASK:
            asked = self._ask(AskedQuestion(call, tool, plan, actions, decision, bounds))
            if isinstance(asked, ToolResult):
                return asked
            plan, judged = asked
        try:
            kept = kept_arguments(call.arguments, tool, self._contents)
            if dict in map(type, kept.values()):
                # Before the entry that names them: what is on record can be looked at.
                self._contents.sync()
        except (ToolError, ConfigError, HostError) as error:
            # No content, no record, no call. What was held back for it goes.
            _release(tool, plan)
            return self._deny(call, tool, actions, not_recorded(error), bounds, judged)
        return Prepared(call, tool, plan, clamped, kept, actions, judged, bounds)

    def _confine(self, tool: Tool[Any], plan: Plan, decision: Decision) -> tuple[Plan, Decision]:
        """Tie the plan to what will hold it: what was looked at is what runs."""
        if not isinstance(tool.handler, Confining):
            return plan, confined(decision, "none")
        held_plan, held = tool.handler.confine(plan, self._context.ports)
        return held_plan, confined(decision, held)

    def _ask(self, question: AskedQuestion) -> Granted | ToolResult:
        answer = ask(self._context, self._recorder, question)
        if isinstance(answer, Granted):
            return answer
        call, tool, _, actions, _, bounds = question
        denied = self._deny(call, tool, actions, answer.refusal, bounds, answer.judged)
        if answer.approval is None:
            return denied
        return with_question(denied, answer.approval, answer.warnings)

    def _read(self, ready: Prepared) -> ToolResult:
        monotonic_ns = self._context.monotonic_ns
        started = monotonic_ns()
        outcome = self._run(ready)
        duration_us = (monotonic_ns() - started) // 1000
        # Recorded with one sync before anything is released: what was read and is
        # not on record is withheld.
        intent = self._intent(ready)
        try:
            self._context.ledger.append([intent, self._outcome(ready, outcome, duration_us)])
        except IntegrityError:
            raise
        except PaddockError as error:
            return refused(ready.call, ready.tool, not_recorded(error))
        return result_of(ready, outcome)

    def _write(self, ready: Prepared) -> ToolResult:
        ledger, history = self._context.ledger, self._context.history
        # Space for the result is kept before the act: a full disk must not leave an
        # effect without its record.
        try:
            reservation = ledger.reserve(RESULT_RESERVE_BYTES)
            try:
                intent = ledger.append([self._intent(ready)]).ids[0]
            except BaseException:
                reservation.release()
                raise
        except IntegrityError:
            raise
        except PaddockError as error:
            return refused(ready.call, ready.tool, not_recorded(error))
        started = self._context.monotonic_ns()
        try:
            with History.running(self._recorder.mark(ready.call, intent)) as running:
                outcome = self._run(ready)
            duration_us = (self._context.monotonic_ns() - started) // 1000
            entry = self._outcome(ready, outcome, duration_us, intent)
            ledger.append([entry], reservation=reservation)
        except PaddockError as error:
            return self._unknown(ready, error.message, reservation)
        except Exception as error:  # The door: what cannot be put on record is not known.
            return self._unknown(ready, type(error).__name__, reservation)
        except BaseException as stop:
            # An interrupt or an exit: nobody knows how far it came.
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
            call, tool, plan, _, _, actions, judged, bounds = ready
            question = AskedQuestion(call, tool, plan, actions, judged.decision, bounds)
            ports = ports_for(self._context, self._recorder, question)
            output = tool.handler.run(plan, ports)
            if output.waiting is None:
                return output
            kept = keep_waiting(self._context, question, output)
            return Failed(kept) if isinstance(kept, Refusal) else kept
        except StoppedCallError as stopped:
            return Failed(refusal_of(stopped), (), stopped.effect, stopped.changes)
        except ToolFailedError as error:
            frames = _frames(error.__cause__ or error)
            return Failed(refusal_of(error), frames, LeftEffect.UNKNOWN)
        except ToolError as error:
            return Failed(refusal_of(error))
        except (ConfigError, HostError) as error:
            # It may have failed half-way: nobody knows what it left.
            return Failed(refusal_by_host(error), _shown(error), LeftEffect.UNKNOWN)
        except Exception as error:  # The door: see dispatch.
            return self._defect(error)

    def _intent(self, ready: Prepared) -> Entry:
        return self._recorder.intent(
            ready.call, ready.arguments, ready.actions, ready.judged, ready.bounds
        )

    def _outcome(self, ready: Prepared, outcome: Ran, duration_us: int, intent: str = "") -> Entry:
        bounds = ready.bounds
        if isinstance(outcome, ToolOutput):
            return self._recorder.result(ready.call, outcome, duration_us, bounds, intent)
        return self._recorder.failure(ready.call, outcome, duration_us, bounds, intent)

    def _deny(
        self,
        call: ToolCall,
        tool: Tool[Any] | None,
        actions: Sequence[str],
        refusal: Refusal,
        bounds: Bounds,
        judged: Judged | None = None,
        frames: Sequence[str] = (),
    ) -> ToolResult:
        kept = kept_arguments(call.arguments, tool, self._digests)
        entry = self._recorder.denied(call, kept, actions, refusal, judged, frames, bounds)
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
        return refused(call, tool, refusal)

    def _unknown(self, ready: Prepared, why: str, reservation: Reservation) -> ToolResult:
        reservation.release()
        refusal = Refusal(
            LedgerUnknownError.code,
            f"{ready.call.tool} ran, and its outcome could not be recorded: {why}",
            "look at the target before doing anything else; further calls are refused "
            "until the workspace is opened anew",
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
    """What was raised, and where: for the ledger, without a text that may hold anything."""
    import traceback  # noqa: PLC0415 - for a defect

    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_KEPT_MAX:]
    places = [f"{PurePath(each.filename).name}:{each.lineno} {each.name}" for each in frames]
    return (type(error).__name__, *places)


def _shown(error: PaddockError) -> tuple[str, ...]:
    """For the ledger alone: a host's error may name the host's paths."""
    return (f"{type(error).__name__}: {clean(error.message)}",)


def _release(tool: Tool[Any], plan: Plan) -> None:
    """Let go of what was held back for a call, whether it stands by now or not."""
    release = getattr(tool.handler, "release", None)
    if release is not None:
        release(plan)


# What stands next to each other and only reads runs at once, in threads. A call that
# writes waits for those before it and holds up those behind it, so that a read after a
# write sees what was written, and no two writes of a turn meet.


class Done(NamedTuple):
    result: ToolResult
    ran: bool


class CallWatcher:
    """Hears what becomes of each call. Called from several threads at once."""

    def decided(self, call: ToolCall, judged: Judged) -> None:
        pass

    def started(self, call: ToolCall) -> None:
        pass

    def finished(self, call: ToolCall, done: Done, duration_us: int) -> None:
        pass


NOBODY: Final = CallWatcher()


def dispatch_all(
    dispatcher: Dispatcher,
    asked: Sequence[Asked],
    bounds: Bounds = FREE,
    watcher: CallWatcher = NOBODY,
) -> list[Done]:
    turn = _Turn(dispatcher, bounds, watcher)
    waiting: list[_Step] = []
    done: list[Done] = []
    try:
        for each in asked:
            waiting.append(turn.decide(each))  # noqa: PERF401 - kept where a later one raises
        for group in _groups(list(waiting)):
            # From here on the group lets go of its plans itself.
            del waiting[: len(group)]
            done += turn.run(group)
    finally:
        for step in waiting:
            if isinstance(step, Prepared):
                dispatcher.let_go(step)
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
                self.dispatcher.let_go(found)
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
