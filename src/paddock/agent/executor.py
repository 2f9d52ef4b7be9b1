"""Carry out one work order with a model and the tools that the order allows.

`Executor` has no state: an order's data is in its `Assignment`, and the order is returned completed
or failed. An order only narrows permissions: the runtime limits calls to its tools, its token
budget is a scope below the turn's (or the session's, if delegated), and its timeout is a deadline.
"""

import json
import os
import threading
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import PurePath
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.agent.contracts import Contracts, PromptContract
from paddock.agent.events import HeardCalls, HeardOutput, HeardText, OrderMoved, Spent, TurnListener
from paddock.agent.steps import (
    RESPONSE_TEXT,
    Allowed,
    Answer,
    AskAgain,
    Fail,
    ModelDoor,
    OrderProgress,
    Resend,
    RunCalls,
    next_step,
)
from paddock.providers.budgets import Budget
from paddock.providers.failures import CancelToken, FailureKind, ProviderError, stopped_by
from paddock.runtime.dispatch import Done
from paddock.runtime.messages import Malformed
from paddock.runtime.prepared import Bounds
from paddock.runtime.runtime import Runtime
from paddock.text.show import quote
from paddock.values.calls import NEVER, Cancel, Json, Refusal, ToolCall
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    ToolAnswer,
    ToolAnswers,
    ToolSchema,
    ToolUse,
    Usage,
    UserMessage,
)
from paddock.values.orders import OrderCost, OrderError, OrderFailure, WorkOrder

Timer = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Call back once after so many seconds, from any thread; return a function to cancel it."""


def real_timer(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    timer = threading.Timer(seconds, callback)
    timer.daemon = True
    timer.start()
    return timer.cancel


class _Deadline(Struct):
    token: CancelToken
    has_passed: bool = False  # before any other cancellation

    def expire(self) -> None:
        self.has_passed = self.has_passed or not self.token.is_cancelled
        self.token.cancel()


@contextmanager
def _in_time(parent: Cancel, timeout_s: float | None, timer: Timer) -> Generator[_Deadline]:
    with stopped_by(parent) as token, ExitStack() as held:
        deadline = _Deadline(token)
        if timeout_s is not None:
            held.callback(timer(timeout_s, deadline.expire))
        yield deadline


class Assignment(Struct, frozen=True):
    order: WorkOrder
    budget: Budget
    system: str = ""
    conversation: tuple[Message, ...] = ()
    streams: bool = True


_TOKENS_MAX: Final = 10**12  # per exchange; higher counts from a server are capped


class _OrderStoppedError(Exception):
    def __init__(self, code: OrderFailure, message: str) -> None:
        super().__init__(message)
        self.error = OrderError(code, message)


class _OrderRun:
    """One running order. Not shared between threads.

    `added`: the messages of this order. `cost`: so far. `partial`: the model's newest text, in case
    the order fails.
    """

    def __init__(self, executor: "Executor", assignment: Assignment, deadline: _Deadline) -> None:
        order = assignment.order
        tools = order.constraints.tools_allowed
        self._executor = executor
        self._assignment = assignment
        self._deadline = deadline
        printed = HeardOutput(executor.listener)
        self._bounds = Bounds(frozenset(tools), order.wo_id, deadline.token, on_output=printed)
        self._tools = self._bounds.tools or frozenset()
        self._has = executor.calls.tools.has
        self._schemas = tuple(executor.schemas[each] for each in tools if each in executor.schemas)
        self._progress, self.cost = OrderProgress(), OrderCost()
        self._sent = 0  # how many of `added` the last request had
        self.added: list[Message] = []
        self.partial: Mapping[str, Json] | None = None
        self.is_unreachable = False

    def carry_out(self) -> Answer | Fail:
        started = self._executor.model.monotonic_ns()
        try:
            ended = self._attempt()
        except errors.IntegrityError:
            raise
        except _OrderStoppedError as stopped:
            ended = Fail(stopped.error, self.partial)
        except errors.BudgetExhaustedError as error:
            ended = _failed(OrderFailure.BUDGET_EXHAUSTED, error.message, self.partial)
        except ProviderError as error:
            self.is_unreachable = error.kind in _UNREACHABLE and error.status == 0
            ended = _failed(OrderFailure.GATEWAY_ERROR, error.message, self.partial)
        except errors.PaddockError as error:
            ended = _failed(OrderFailure.EXECUTION_ERROR, error.message, self.partial)
        except Exception as error:  # A bug in Paddock fails the order, with an id to report.
            ended = self._defect(error)
        elapsed_ms = (self._executor.model.monotonic_ns() - started) // 1_000_000
        self.cost = self.cost.plus(OrderCost(elapsed_ms=elapsed_ms))
        return ended

    def _attempt(self) -> Answer | Fail:
        order = self._assignment.order
        constraints = order.constraints
        if constraints.cost_budget is not None:
            said = "a cost budget cannot be enforced, because no prices are known"
            return _failed(OrderFailure.BUDGET_EXHAUSTED, said)
        contract = self._executor.contracts.get(constraints.prompt_contract_id)
        if contract is None:
            said = f"prompt contract {quote(constraints.prompt_contract_id)} not found"
            return _failed(OrderFailure.CONTRACT_NOT_FOUND, said)
        problem = contract.input_problem(order.input_context)
        if problem:
            return _failed(OrderFailure.INPUT_SCHEMA_INVALID, problem)
        ended = self._converse(contract)
        if isinstance(ended, Answer) and (said := contract.output_problem(ended.result)):
            return _failed(OrderFailure.OUTPUT_SCHEMA_INVALID, said, ended.result)
        return ended

    def _defect(self, error: Exception) -> Fail:
        report = self._executor.randomness(6).hex()
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN_MAX:]
        places = ", ".join(f"{PurePath(f.filename).name}:{f.lineno}" for f in frames)
        said = f"internal error {report}: {type(error).__name__} at {places}"
        return _failed(OrderFailure.EXECUTION_ERROR, said)

    def _converse(self, contract: PromptContract) -> Answer | Fail:
        order, has_schema = self._assignment.order, contract.output is not None
        self.added.append(UserMessage(contract.render(order.input_context)))
        allowed = Allowed(self._tools, order.constraints.turn_limit, has_schema=has_schema)
        # Do not stream a structured answer: it is not validated against its schema yet.
        is_shown = self._assignment.streams and not has_schema
        on_text = HeardText(self._executor.listener) if is_shown else None
        while True:
            turn = self._ask(contract, on_text)
            step, self._progress = next_step(turn, self._progress, allowed)
            match step:
                case RunCalls():
                    self._run_calls(turn)
                case AskAgain():
                    self._refuse(turn.tool_calls, OrderFailure.TRUNCATED)
                    self._report_cut(turn)
                case Resend():
                    self.added.append(turn.message)
                    self._answer_paused(step.not_run)
                case Answer():
                    self._refuse(step.not_allowed, OrderFailure.EXECUTION_ERROR)
                    self.added.append(_answer_message(turn, step))
                    return step
                case Fail():
                    self._require_running(turn)
                    self._refuse(turn.tool_calls, step.error.code)
                    if turn.text.strip():
                        self.added.append(AssistantMessage(turn.text))
                    return step if step.partial else replace(step, partial=self.partial)

    def _ask(self, contract: PromptContract, on_text: HeardText | None) -> ModelTurn:
        self._require_running()
        assignment, boundary = self._assignment, contract.boundary
        request = ModelRequest(
            messages=(*assignment.conversation, *self.added),
            system=assignment.system,
            tools=tuple(each for each in self._schemas if self._has(each.name)),
            output=contract.output,
            max_output_tokens=boundary.max_tokens,
            temperature=boundary.temperature,
        )
        new = tuple(self.added[self._sent :])
        self._sent = len(self.added)
        number = self.cost.llm_calls + 1
        self.cost = self.cost.plus(OrderCost(llm_calls=1))
        turn = self._executor.model.ask(
            request,
            number,
            assignment.order.wo_id,
            assignment.budget,
            on_text,
            self._deadline.token,
            new,
        )
        used = Usage(*(min(count, _TOKENS_MAX) for count in turn.usage))
        self.cost = self.cost.plus(OrderCost(used))
        if turn.text.strip():
            self.partial = {RESPONSE_TEXT: turn.text}
        spent = Spent(assignment.order.wo_id, self.cost, assignment.budget.free)
        self._executor.listener.heard(spent)
        return turn

    def _report_cut(self, turn: ModelTurn) -> None:
        if turn.text.strip():
            self.added.append(AssistantMessage(turn.text))
        calls = _undone(turn.tool_calls, self._tools)
        self.added.append(
            UserMessage(
                f"Your last turn was cut at the output limit, and none of it was executed{calls}. "
                "Continue with less in one turn."
            )
        )

    def _answer_paused(self, calls: tuple[ToolUse, ...]) -> None:
        if not calls:
            return
        refusal = Refusal(
            errors.CallDroppedError.code,
            "it was not run: the turn was paused before its end",
            "repeat the call in a turn that is not paused",
        )
        done = self._drop(calls, refusal)
        self.added.append(ToolAnswers(tuple(ToolAnswer.of(each.result) for each in done)))
        self._require_recorded(done)

    def _run_calls(self, turn: ModelTurn) -> None:
        self._require_running()
        done = self._executor.calls.call_all(
            [
                ToolCall(call.id, call.name, call.arguments)
                if call.problem is None
                else Malformed(ToolCall(call.id, call.name, {}), call.problem)
                for call in turn.tool_calls
            ],
            self._bounds,
            HeardCalls(self._executor.listener),
        )
        self.added.append(turn.message)
        self.added.append(ToolAnswers(tuple(ToolAnswer.of(each.result) for each in done)))
        ran = [each.result.tool for each in done if each.ran]
        self.cost = self.cost.plus(
            OrderCost(tool_calls=len(ran), tool_ids_used=tuple(dict.fromkeys(ran)))
        )
        self._progress = self._progress.after_results(tuple(not each.ran for each in done))
        self._require_running()
        self._require_recorded(done)
        if self._progress.refusals >= limits.refusals_max:
            last = next(each.result for each in reversed(done) if not each.ran)
            said = "" if last.refusal is None else f": {last.refusal.error}"
            raise _OrderStoppedError(
                OrderFailure.STUCK, f"{self._progress.refusals} calls were refused in a row{said}"
            )

    def _require_recorded(self, done: list[Done]) -> None:
        for each in done:
            refusal = each.result.refusal
            if refusal is not None and refusal.code == errors.LedgerUnknownError.code:
                raise _OrderStoppedError(OrderFailure.EXECUTION_ERROR, refusal.error)

    def _refuse(self, calls: tuple[ToolUse, ...], why: OrderFailure) -> None:
        if not calls:
            return
        is_cancelled = why is OrderFailure.CANCELLED
        code = errors.CallCancelledError.code if is_cancelled else errors.CallDroppedError.code
        self._drop(calls, Refusal(code, f"it was not run: {why.value}"))

    def _drop(self, calls: tuple[ToolUse, ...], refusal: Refusal) -> list[Done]:
        asked = [Malformed(ToolCall(call.id, call.name, {}), refusal) for call in calls]
        return self._executor.calls.call_all(
            asked, self._bounds, HeardCalls(self._executor.listener)
        )

    def _require_running(self, turn: ModelTurn | None = None) -> None:
        if not self._deadline.token.is_cancelled:
            return
        if turn is not None:
            self._refuse(turn.tool_calls, OrderFailure.CANCELLED)
        if self._deadline.has_passed:
            limit = self._assignment.order.constraints.timeout_s or 0
            raise _OrderStoppedError(OrderFailure.TIMEOUT, f"it took longer than {limit:g} s")
        raise _OrderStoppedError(OrderFailure.CANCELLED, "it was cancelled")


def _undone(calls: tuple[ToolUse, ...], tools: frozenset[str]) -> str:
    """Name the tools whose calls did not run, as the end of a sentence."""
    # Threat: a model can write any tool name, and this sentence goes into a user message. Repeat
    # only names of tools that it was offered.
    names = dict.fromkeys(call.name for call in calls)
    known = ", ".join(name for name in names if name in tools)
    others = sum(name not in tools for name in names)
    count = "a tool" if others == 1 else f"{others} tools"
    shown = [known] * bool(known) + [f"{count} that you do not have"] * bool(others)
    return f", no call to {' and '.join(shown)} either" if shown else ""


def _answer_message(turn: ModelTurn, answer: Answer) -> AssistantMessage:
    """Return the answer for the conversation, without calls, which did not run."""
    if not turn.tool_calls and turn.text.strip():
        return turn.message
    text = turn.text.strip() or json.dumps(dict(answer.result), ensure_ascii=False)
    return AssistantMessage(text)


_UNREACHABLE: Final = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT})
_FRAMES_SHOWN_MAX: Final = 3


class Execution(Struct, frozen=True):
    order: WorkOrder
    messages: tuple[Message, ...] = ()
    is_unreachable: bool = False


class Executor(Struct, frozen=True):
    """Carry out one agent's orders. `calls` is the runtime: every tool call goes there."""

    calls: Runtime
    schemas: Mapping[str, ToolSchema]
    model: ModelDoor
    contracts: Contracts
    listener: TurnListener
    randomness: Callable[[int], bytes] = os.urandom
    timer: Timer = real_timer

    def carry_out(self, assignment: Assignment, cancel: Cancel = NEVER) -> Execution:
        agent = self.model.scribe.agent
        order = assignment.order.started()
        self.listener.heard(OrderMoved(order, agent))
        with _in_time(cancel, order.constraints.timeout_s, self.timer) as deadline:
            run = _OrderRun(self, assignment, deadline)
            ended = run.carry_out()
        order = self._recorded(order, ended, run.cost)
        self.listener.heard(OrderMoved(order, agent))
        return Execution(order, tuple(run.added), run.is_unreachable)

    def _recorded(self, order: WorkOrder, ended: Answer | Fail, cost: OrderCost) -> WorkOrder:
        if isinstance(ended, Answer):
            final = order.completed(ended.result, cost)
        else:
            final = order.failed(ended.error, cost, ended.partial)
        try:
            self.model.ledger.append([self.model.scribe.ended(final)])
        except errors.IntegrityError:
            raise
        except errors.PaddockError as error:
            # Do not release a result that is not recorded.
            said = f"the end of the order could not be recorded: {error.message}"
            return order.failed(OrderError(OrderFailure.EXECUTION_ERROR, said), cost)
        return final


def _failed(code: OrderFailure, said: str, partial: Mapping[str, Json] | None = None) -> Fail:
    return Fail(OrderError(code, said), partial)
