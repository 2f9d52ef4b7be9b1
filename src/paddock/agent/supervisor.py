"""Turn a user's message into work orders, and judge their results.

    message → attention → classify → synthesize → quality gate → response
              (context)   (optional)    ▲               │ not accepted: at most
                                        └───────────────┘ `limits.order_retries_max` times

`TURN_RECORDED` is written however the turn ends; if that fails, the answer is withheld. An order is
not retried if it was refused, cancelled, stuck or out of budget, or its provider is unreachable.
"""

import itertools
import json
import threading
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.agent.context import Conversation, attend, without_marks
from paddock.agent.contracts import CLASSIFY, SYNTHESIZE, Contracts, PromptContract
from paddock.agent.events import Noticed, OneAtATime, OrderMoved, TurnEnd, TurnOutcome, TurnResult
from paddock.agent.executor import Assignment, Execution, Executor
from paddock.agent.records import Scribe
from paddock.agent.steps import RESPONSE_TEXT
from paddock.errors import IntegrityError, PaddockError
from paddock.ledger.append import Ledger
from paddock.ledger.query import Ledgers
from paddock.plane.admin import Attention
from paddock.providers.budgets import Budget
from paddock.text.show import cut, show_name
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.entries import Entry
from paddock.values.models import AssistantMessage, Message, UserMessage
from paddock.values.orders import (
    RETRY_IS_USELESS,
    Constraints,
    OrderCost,
    OrderFailure,
    OrderState,
    OrderType,
    WorkOrder,
    format_order_id,
)


class Charter(Struct, frozen=True):
    """One agent's role and limits in this session."""

    agent: str
    system_prompt: str
    tools_allowed: tuple[str, ...]
    classify: bool = False
    attention: Attention | None = None
    facts: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """The facts in the context's tier stage."""
    turn_tokens: int = 200_000
    order_tokens: int = 100_000
    order_timeout_s: float = limits.order_timeout_s

    def constraints(
        self, contract_id: str, tools: tuple[str, ...], tokens: int | None = None
    ) -> Constraints:
        return Constraints(
            prompt_contract_id=contract_id,
            tools_allowed=tools,
            turn_limit=limits.order_turns_max if tools else 1,
            token_budget=self.order_tokens if tokens is None else tokens,
            timeout_s=self.order_timeout_s,
        )


class Office(Struct, frozen=True):
    """State shared by the session's turns and delegations."""

    scribe: Scribe
    ledger: Ledger
    ledgers: Ledgers
    contracts: Contracts
    budget: Budget
    listener: OneAtATime
    numbers: "itertools.count[int]"  # of orders to come; `next` is safe in any thread

    def append(self, *entries: Entry) -> None:
        self.ledger.append(entries)

    def dispatch(
        self,
        wo_type: OrderType,
        given: Mapping[str, Json],
        constraints: Constraints,
        *,
        turn: int,
        executor: str,
        message: str = "",
    ) -> WorkOrder:
        session_id = self.scribe.session_id
        order_id = format_order_id(session_id, next(self.numbers))
        order = WorkOrder(order_id, session_id, wo_type, given, constraints)
        contract = self.contracts.get(constraints.prompt_contract_id)
        digest = "" if contract is None else contract.digest
        planned = self.scribe.planned(order, turn, digest, executor, message)
        self.listener.heard(OrderMoved(order, self.scribe.agent))
        order = order.dispatched()
        self.append(planned, self.scribe.dispatched(order, turn))
        self.listener.heard(OrderMoved(order, self.scribe.agent))
        return order


def find_problem(order: WorkOrder, contract: PromptContract | None) -> str:
    if order.error is not None:
        return f"the order failed: {order.error.code.value}: {order.error.message}"
    result = order.output_result
    if result is None:
        return "the order has no result"
    if contract is not None:
        problem = contract.output_problem(result)
        if problem:
            return problem
    return "" if response_of(order).strip() else "the answer is empty"


def response_of(order: WorkOrder) -> str:
    result = order.output_result
    if not result:
        return ""
    text = result.get(RESPONSE_TEXT)
    said = text if isinstance(text, str) else json.dumps(dict(result), ensure_ascii=False)
    # A model can write a lone surrogate, which terminals and files cannot encode.
    return said.encode("utf-8", "replace").decode("utf-8")


NO_TOOLS_FOR: Final = frozenset({"greeting"})  # speech acts that request no action
_WITHHELD: Final = "the model took the message for a {}, and was offered no tools"
# Notices to the user.
_WITHOUT: Final = {
    "context": "this turn continues without context: {}",
    "classify": "the message could not be classified, so every tool is offered: {}",
    "conversation": "this turn continues without the oldest messages: {}",
}
_CANCELLED: Final = "The turn was cancelled."
_CORRECTION_CHARS_MAX: Final = 600  # of the reason in a correction


class _Turn(Struct):
    number: int
    user_message: str
    budget: Budget
    cancel: Cancel
    orders: list[WorkOrder] = field(default_factory=list[WorkOrder])
    messages: list[Message] = field(default_factory=list[Message])
    """The messages that the turn adds after the user's."""
    tools_withheld: str = ""
    unreached: list[bool] = field(default_factory=list[bool])
    """For each failed order: whether its provider was unreachable."""

    def cost(self) -> OrderCost:
        total = OrderCost()
        for order in self.orders:
            total = total.plus(order.cost)
        return total


class Supervisor:
    """One session's turns, one after another. Safe to call from several threads."""

    def __init__(
        self,
        charter: Charter,
        executor: Executor,
        office: Office,
        conversation: Conversation,
        turns: int = 0,
    ) -> None:
        """`turns`: the number of earlier turns of a resumed session."""
        self.charter = charter
        self.office = office
        self._executor = executor
        self._conversation = conversation
        self._lock = threading.Lock()
        self._cost_lock = threading.Lock()
        self._cost = OrderCost()
        self.turns = turns

    @property
    def cost(self) -> OrderCost:
        with self._cost_lock:
            return self._cost

    def add_cost(self, cost: OrderCost) -> None:
        with self._cost_lock:
            self._cost = self._cost.plus(cost)

    def handle_turn(self, user_message: str, cancel: Cancel = NEVER) -> TurnResult:
        """Answer a message. The turn is always recorded, unless recording it raised.

        Raises: IntegrityError: the session must end. PaddockError: not recorded, so not answered.
        """
        with self._lock:
            self.turns += 1
            budget = self.office.budget.child(f"turn {self.turns}", self.charter.turn_tokens)
            turn = _Turn(self.turns, user_message, budget, cancel)
            ended = TurnEnd("", TurnOutcome.ERROR, reason="the turn was interrupted")
            try:
                ended = self._attempt(turn)
            except IntegrityError as error:
                ended = replace(ended, reason=error.message)
                raise
            except PaddockError as error:
                done = _done_hint(turn.cost())
                said = f"I could not answer: {error.message}" + (f" ({done})" if done else "")
                ended = TurnEnd(said, TurnOutcome.ERROR, reason=error.message)
            except KeyboardInterrupt:
                ended = replace(ended, outcome=TurnOutcome.CANCELLED, reason="interrupted")
                raise
            except BaseException as error:
                ended = replace(ended, reason=f"the turn ended by {type(error).__name__}")
                raise
            finally:
                self._record(turn, ended)
            return self._result(turn, ended)

    def _attempt(self, turn: _Turn) -> TurnEnd:
        context, tools = self._attend(turn), self._narrowed(turn)
        if turn.cancel.is_cancelled:
            self._complete_chain(turn)
            return TurnEnd(_CANCELLED, TurnOutcome.CANCELLED, reason="it was cancelled")
        execution, problem, attempts = self._synthesize(turn, context, tools)
        self._complete_chain(turn)
        order = execution.order
        if not problem:
            return TurnEnd(
                response_of(order), TurnOutcome.SUCCESS, passed=True, answered_by=order.wo_id
            )
        if _failure(order) is OrderFailure.CANCELLED:
            return TurnEnd(_CANCELLED, TurnOutcome.CANCELLED, reason=problem)
        scribe = self.office.scribe
        self.office.append(
            scribe.escalated(turn.number, order, attempts, problem),
            scribe.degraded(turn.number, "answer", problem),
        )
        said, partial = f"I could not finish this: {problem}.", response_of(order)
        said = f"{said} A person should look at it."
        if partial.strip():
            said = f"{said}\n\nPartial result:\n{partial}"
        return TurnEnd(said, TurnOutcome.DEGRADED, reason=problem)

    def _complete_chain(self, turn: _Turn) -> None:
        entry = self.office.scribe.chain_complete(turn.number, turn.orders, turn.cost())
        self.office.append(entry)

    def _attend(self, turn: _Turn) -> str:
        charter, office = self.charter, self.office
        if charter.attention is None or not self._has_variable("context"):
            return ""
        session_id = office.scribe.session_id
        text, left_out = attend(charter.attention, office.ledgers, charter.facts, session_id)
        for said in left_out:
            self._continue_without(turn, "context", said)
        return text

    def _has_variable(self, variable: str) -> bool:
        contract = self.office.contracts.get(SYNTHESIZE)
        return contract is not None and variable in contract.variables

    def _narrowed(self, turn: _Turn) -> tuple[str, ...]:
        allowed = tuple(filter(self._executor.calls.tools.has, self.charter.tools_allowed))
        if not self.charter.classify or not allowed:
            return allowed
        execution = self._carry_out(
            turn, OrderType.CLASSIFY, CLASSIFY, {"user_message": turn.user_message}
        )
        result = execution.order.output_result
        if execution.order.state is not OrderState.COMPLETED or result is None:
            error = execution.order.error
            self._continue_without(turn, "classify", "" if error is None else error.message)
            return allowed
        # The classifier is advisory: it can withhold the tools, but not add any.
        speech_act = result.get("speech_act")
        if result.get("ambiguity") != "low" or speech_act not in NO_TOOLS_FOR:
            return allowed
        turn.tools_withheld = _WITHHELD.format(speech_act)
        return ()

    def _synthesize(
        self, turn: _Turn, context: str, tools: tuple[str, ...]
    ) -> tuple[Execution, str, int]:
        contract = self.office.contracts.get(SYNTHESIZE)
        problem = ""
        attempt = 0
        while True:
            attempt += 1
            given: dict[str, Json] = {"user_message": turn.user_message}
            if attempt > 1 and self._has_variable("correction"):
                given["correction"] = _correction(problem)
            elif attempt == 1 and context:
                given["context"] = context
            execution = self._carry_out(turn, OrderType.SYNTHESIZE, SYNTHESIZE, given, tools)
            order = execution.order
            # `_record` replaces the first prompt by the user's message.
            turn.messages += execution.messages[1 if attempt == 1 else 0 :]
            problem = find_problem(order, contract)
            self.office.append(self.office.scribe.judged(order, turn.number, attempt, problem))
            is_last = attempt > limits.order_retries_max or execution.is_unreachable
            if not problem or is_last or _failure(order) in RETRY_IS_USELESS:
                return execution, problem, attempt

    def _carry_out(
        self,
        turn: _Turn,
        wo_type: OrderType,
        contract_id: str,
        given: Mapping[str, Json],
        tools: tuple[str, ...] = (),
    ) -> Execution:
        charter = self.charter
        message = "" if turn.orders else turn.user_message
        order = self.office.dispatch(
            wo_type,
            given,
            charter.constraints(contract_id, tools),
            turn=turn.number,
            executor=charter.agent,
            message=message,
        )
        is_to_answer = wo_type is not OrderType.CLASSIFY
        conversation = self._conversation_for(turn) if is_to_answer else ()
        scope = turn.budget.child(order.wo_id, order.constraints.token_budget)
        assignment = Assignment(order, scope, charter.system_prompt, conversation, is_to_answer)
        place = len(turn.orders)
        turn.orders.append(order)
        execution = self._executor.carry_out(assignment, turn.cancel)
        turn.orders[place] = execution.order
        if execution.order.state is not OrderState.COMPLETED:
            turn.unreached.append(execution.is_unreachable)
        return execution

    def _conversation_for(self, turn: _Turn) -> tuple[Message, ...]:
        share = int(self.charter.order_tokens * limits.conversation_share)
        fitting, missing = self._conversation.fit(share)
        if turn.messages:
            return (*fitting, UserMessage(turn.user_message), *turn.messages)
        if missing:
            self._continue_without(turn, "conversation", f"{missing} earlier turns no longer fit")
        return fitting

    def _continue_without(self, turn: _Turn, what: str, why: str) -> None:
        self.office.append(self.office.scribe.degraded(turn.number, what, why))
        self.office.listener.heard(Noticed(_WITHOUT[what].format(why)))

    def _record(self, turn: _Turn, ended: TurnEnd) -> None:
        cost = turn.cost()
        self.add_cost(cost)
        record = self.office.scribe.turn_recorded(
            turn.number, turn.user_message, ended, turn.orders, cost
        )
        try:
            self.office.append(record)
        except PaddockError as error:
            # Report that calls ran: repeating the message would run them twice.
            error.hint = "; ".join(filter(None, (_done_hint(cost), error.hint)))
            raise
        messages = [UserMessage(turn.user_message), *turn.messages]
        if ended.outcome is not TurnOutcome.SUCCESS:
            messages.append(AssistantMessage(ended.response or ended.reason))
        self._conversation.add(tuple(messages))

    def _result(self, turn: _Turn, ended: TurnEnd) -> TurnResult:
        is_cancelled = ended.outcome is TurnOutcome.CANCELLED
        has_failed = ended.outcome is not TurnOutcome.SUCCESS and bool(turn.unreached)
        return TurnResult(
            response=ended.response,
            outcome=TurnOutcome.ERROR if is_cancelled else ended.outcome,
            work_orders=tuple(turn.orders),
            cost=turn.cost(),
            session_id=self.office.scribe.session_id,
            quality_gate_passed=ended.passed,
            turn=turn.number,
            was_cancelled=is_cancelled,
            is_unreachable=has_failed and all(turn.unreached),
            tools_withheld=turn.tools_withheld,
        )


def _failure(order: WorkOrder) -> OrderFailure | None:
    return None if order.error is None else order.error.code


def _done_hint(cost: OrderCost) -> str:
    if not cost.tool_calls:
        return ""
    calls = "1 call" if cost.tool_calls == 1 else f"{cost.tool_calls} calls"
    return f"{calls} of this turn ran: see `paddock history` before asking again"


def _correction(problem: str) -> str:
    # Threat: a problem repeats text of the model, and this precedes the user's message: without
    # tags and line ends it can only read as a reason.
    why = without_marks(show_name(cut(problem, _CORRECTION_CHARS_MAX)))
    return (
        f"Your last answer was not accepted: {why}. Completed actions remain in effect: do not "
        "repeat them. Answer again.\n"
    )
