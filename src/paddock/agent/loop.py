"""The loop of one order: ask the model, do what `steps.next_step` says, ask again."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from paddock import limits
from paddock.agent.contracts import PromptContract
from paddock.agent.deadline import Deadline
from paddock.agent.events import HeardCalls, HeardOutput, HeardText, Spent
from paddock.agent.hands import Assignment, Hands
from paddock.agent.steps import (
    RESPONSE_TEXT,
    Allowed,
    Answer,
    AskAgain,
    Fail,
    Progress,
    Resend,
    RunCalls,
    next_step,
)
from paddock.errors import CallCancelledError, CallDroppedError, LedgerUnknownError
from paddock.runtime.dispatch import Done
from paddock.runtime.messages import Asked, Malformed
from paddock.runtime.prepared import Bounds
from paddock.values.calls import Json, Refusal, ToolCall
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    ToolAnswer,
    ToolAnswers,
    ToolUse,
    Usage,
    UserMessage,
)
from paddock.values.orders import OrderCost, OrderError, OrderFailure

_TOKENS_MAX: Final = 10**12
"""Of one exchange; a server that claims more is not believed."""


class OrderStoppedError(Exception):
    def __init__(self, code: OrderFailure, message: str) -> None:
        super().__init__(message)
        self.error = OrderError(code, message)


class Run:
    """One order being carried out. Not shared between threads.

    `added` are the messages of this order, `cost` what it took so far, `partial` the
    last text of the model, for an order that fails.
    """

    def __init__(
        self, hands: Hands, assignment: Assignment, contract: PromptContract, deadline: Deadline
    ) -> None:
        order = assignment.order
        tools = order.constraints.tools_allowed
        self._hands = hands
        self._assignment = assignment
        self._contract = contract
        self._deadline = deadline
        printed = HeardOutput(hands.listener)
        self._bounds = Bounds(frozenset(tools), order.wo_id, deadline.token, on_output=printed)
        self._allowed = Allowed(
            self._bounds.tools or frozenset(),
            order.constraints.turn_limit,
            has_schema=contract.output is not None,
        )
        self._schemas = tuple(hands.schemas[name] for name in tools if name in hands.schemas)
        self._progress = Progress()
        # The text of an object is for us, and nobody knows yet whether it will be accepted.
        is_shown = assignment.streams and contract.output is None
        self._on_text = HeardText(hands.listener) if is_shown else None
        self._told = 0
        """So many of `added` stood in the last request."""
        self.added: list[Message] = [UserMessage(contract.render(order.input_context))]
        self.cost = OrderCost()
        self.partial: Mapping[str, Json] | None = None

    def to_the_end(self) -> Answer | Fail:
        """What the order came to.

        Raises: OrderStoppedError, BudgetExhaustedError, ProviderError, PaddockError.
        """
        while True:
            turn = self._ask()
            step, self._progress = next_step(turn, self._progress, self._allowed)
            match step:
                case RunCalls():
                    self._run_calls(turn)
                case AskAgain():
                    self._refuse(turn.tool_calls, OrderFailure.TRUNCATED)
                    self._tell_cut(turn)
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

    # The model

    def _ask(self) -> ModelTurn:
        self._require_running()
        assignment, boundary = self._assignment, self._contract.boundary
        request = ModelRequest(
            messages=(*assignment.conversation, *self.added),
            system=assignment.system,
            tools=self._schemas,
            output=self._contract.output,
            max_output_tokens=boundary.max_tokens,
            temperature=boundary.temperature,
        )
        new = tuple(self.added[self._told :])
        self._told = len(self.added)
        number = self.cost.llm_calls + 1
        self.cost = self.cost.plus(OrderCost(llm_calls=1))
        turn = self._hands.model.ask(
            request,
            number,
            assignment.order.wo_id,
            assignment.budget,
            self._on_text,
            self._deadline.token,
            new,
        )
        used = Usage(*(min(count, _TOKENS_MAX) for count in turn.usage))
        self.cost = self.cost.plus(OrderCost(used))
        if turn.text.strip():
            self.partial = {RESPONSE_TEXT: turn.text}
        spent = Spent(assignment.order.wo_id, self.cost, assignment.budget.free)
        self._hands.listener.heard(spent)
        return turn

    def _tell_cut(self, turn: ModelTurn) -> None:
        """Say once that the turn was cut; its calls stand nowhere, so none needs an answer."""
        if turn.text.strip():
            self.added.append(AssistantMessage(turn.text))
        calls = _undone(turn.tool_calls, self._allowed.tools)
        self.added.append(
            UserMessage(
                f"Your last turn was cut at the output limit, and nothing of it was done{calls}. "
                "Go on with less in one turn."
            )
        )

    def _answer_paused(self, calls: tuple[ToolUse, ...]) -> None:
        """Calls of a turn that goes back as it is: each needs an answer there, and none runs."""
        if not calls:
            return
        refusal = Refusal(
            CallDroppedError.code,
            "it was not run: the turn was paused before its end",
            "make the call again in a turn that comes to its end",
        )
        done = self._drop(calls, refusal)
        self.added.append(ToolAnswers(tuple(ToolAnswer.of(each.result) for each in done)))
        self._require_on_record(done)

    # Calls

    def _run_calls(self, turn: ModelTurn) -> None:
        self._require_running()
        done = self._hands.calls.call_all(
            [_asked(call) for call in turn.tool_calls],
            self._bounds,
            HeardCalls(self._hands.listener),
        )
        self.added.append(turn.message)
        self.added.append(ToolAnswers(tuple(ToolAnswer.of(each.result) for each in done)))
        ran = [each.result.tool for each in done if each.ran]
        self.cost = self.cost.plus(
            OrderCost(tool_calls=len(ran), tool_ids_used=tuple(dict.fromkeys(ran)))
        )
        self._progress = self._progress.after_results(tuple(not each.ran for each in done))
        self._require_running()
        self._require_on_record(done)
        if self._progress.refusals >= limits.refusals_max:
            last = next(each.result for each in reversed(done) if not each.ran)
            said = "" if last.refusal is None else f": {last.refusal.error}"
            raise OrderStoppedError(
                OrderFailure.STUCK, f"{self._progress.refusals} calls were refused in a row{said}"
            )

    def _require_on_record(self, done: list[Done]) -> None:
        for each in done:
            refusal = each.result.refusal
            if refusal is not None and refusal.code == LedgerUnknownError.code:
                raise OrderStoppedError(OrderFailure.EXECUTION_ERROR, refusal.error)

    def _refuse(self, calls: tuple[ToolUse, ...], why: OrderFailure) -> None:
        """Put calls on record that do not run: the order has ended, or their turn was cut."""
        if not calls:
            return
        is_cancelled = why is OrderFailure.CANCELLED
        code = CallCancelledError.code if is_cancelled else CallDroppedError.code
        self._drop(calls, Refusal(code, f"it was not run: {why.value}"))

    def _drop(self, calls: tuple[ToolUse, ...], refusal: Refusal) -> list[Done]:
        asked = [Malformed(ToolCall(call.id, call.name, {}), refusal) for call in calls]
        return self._hands.calls.call_all(asked, self._bounds, HeardCalls(self._hands.listener))

    def _require_running(self, turn: ModelTurn | None = None) -> None:
        """Raises: OrderStoppedError where the time is over, or somebody cancelled."""
        if not self._deadline.token.is_cancelled:
            return
        if turn is not None:
            self._refuse(turn.tool_calls, OrderFailure.CANCELLED)
        if self._deadline.is_over:
            limit = self._assignment.order.constraints.timeout_s or 0
            raise OrderStoppedError(OrderFailure.TIMEOUT, f"it took longer than {limit:g} s")
        raise OrderStoppedError(OrderFailure.CANCELLED, "it was cancelled")


def _undone(calls: tuple[ToolUse, ...], tools: frozenset[str]) -> str:
    """Which calls were not done, for the end of a sentence."""
    # Threat: a name is whatever the model wrote, and this sentence stands where the user
    # speaks. Only names that we gave are repeated.
    names = dict.fromkeys(call.name for call in calls)
    known = ", ".join(name for name in names if name in tools)
    others = sum(name not in tools for name in names)
    count = "a tool" if others == 1 else f"{others} tools"
    shown = [known] * bool(known) + [f"{count} that you do not have"] * bool(others)
    return f", no call to {' and '.join(shown)} either" if shown else ""


def _asked(call: ToolUse) -> Asked:
    if call.problem is not None:
        return Malformed(ToolCall(call.id, call.name, {}), call.problem)
    return ToolCall(call.id, call.name, call.arguments)


def _answer_message(turn: ModelTurn, answer: Answer) -> AssistantMessage:
    """The turn as the conversation keeps it: calls that did not run need no answer there."""
    if not turn.tool_calls and turn.text.strip():
        return turn.message
    text = turn.text.strip() or json.dumps(dict(answer.result), ensure_ascii=False)
    return AssistantMessage(text)
