"""Carries out one work order with a model and the tools that the order allows.

Stateless: everything about an order is in its `Assignment`, and what comes back is the
order in a final state. An order can only narrow: its tools are bounds that the
runtime's one door holds, its tokens a scope below the turn's, its time a deadline.
"""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from paddock.agent.contracts import PromptContract
from paddock.agent.deadline import Deadline
from paddock.agent.events import OrderMoved
from paddock.agent.hands import Assignment, Hands
from paddock.agent.loop import OrderStoppedError, Run
from paddock.agent.steps import Answer, Fail
from paddock.errors import BudgetExhaustedError, IntegrityError, PaddockError
from paddock.providers.failures import FailureKind, ProviderError
from paddock.text.show import quote
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.models import Message
from paddock.values.orders import OrderCost, OrderError, OrderFailure, WorkOrder

_UNREACHABLE: Final = frozenset({FailureKind.CONNECTION, FailureKind.TIMEOUT})
_FRAMES_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Execution:
    """An order in a final state, and the messages that it added to the conversation."""

    order: WorkOrder
    messages: tuple[Message, ...] = ()
    is_unreachable: bool = False
    """The provider could not be reached."""


class Executor:
    """Carries out orders, several at once if need be."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands

    def find_contract(self, contract_id: str) -> PromptContract | None:
        """The contract that an order of that id is carried out under."""
        return self._hands.contracts.find(contract_id)

    def carry_out(self, assignment: Assignment, cancel: Cancel = NEVER) -> Execution:
        """The order, completed or failed, its end on record in `ho1m`.

        Raises: IntegrityError where a ledger is damaged: then work stops.
        """
        hands = self._hands
        agent = hands.model.scribe.agent
        order = assignment.order.started()
        hands.listener.heard(OrderMoved(order, agent))
        with Deadline(cancel, order.constraints.timeout_s, hands.timer) as deadline:
            attempt = _Attempt(hands, assignment, deadline)
            attempt.make()
        order = self._recorded(order, attempt.ended, attempt.cost)
        hands.listener.heard(OrderMoved(order, agent))
        return Execution(order, attempt.messages, attempt.is_unreachable)

    def _recorded(self, order: WorkOrder, ended: Answer | Fail, cost: OrderCost) -> WorkOrder:
        model = self._hands.model
        final = _finished(order, ended, cost)
        try:
            model.ledger.append([model.scribe.ended(final)])
        except IntegrityError:
            raise
        except PaddockError as error:
            # What is not on record is not released.
            said = f"the end of the order could not be recorded: {error.message}"
            return order.failed(OrderError(OrderFailure.EXECUTION_ERROR, said), cost)
        return final


class _Attempt:
    """Carrying out one order, whatever comes of it."""

    def __init__(self, hands: Hands, assignment: Assignment, deadline: Deadline) -> None:
        self._hands = hands
        self._assignment = assignment
        self._deadline = deadline
        self.ended: Answer | Fail = _failed(OrderFailure.EXECUTION_ERROR, "it was not begun")
        self.cost = OrderCost()
        self.messages: tuple[Message, ...] = ()
        self.is_unreachable = False

    def make(self) -> None:
        """Set `ended`, and what it took.

        Raises: IntegrityError.
        """
        started = self._hands.model.monotonic_ns()
        try:
            self.ended = self._carry_out()
        except IntegrityError:
            raise
        except Exception as error:  # A defect of ours fails the order; it is told with an id.
            self.ended = self._defect(error)
        elapsed_ms = (self._hands.model.monotonic_ns() - started) // 1_000_000
        self.cost = self.cost.plus(OrderCost(elapsed_ms=elapsed_ms))

    def _carry_out(self) -> Answer | Fail:
        order = self._assignment.order
        constraints = order.constraints
        if constraints.cost_budget is not None:
            said = "no prices are known, so a budget of money cannot be kept"
            return _failed(OrderFailure.BUDGET_EXHAUSTED, said)
        contract = self._hands.contracts.find(constraints.prompt_contract_id)
        if contract is None:
            said = f"there is no prompt contract {quote(constraints.prompt_contract_id)}"
            return _failed(OrderFailure.CONTRACT_NOT_FOUND, said)
        problem = contract.input_problem(order.input_context)
        if problem:
            return _failed(OrderFailure.INPUT_SCHEMA_INVALID, problem)
        run = Run(self._hands, self._assignment, contract, self._deadline)
        try:
            return _checked(run.to_the_end(), contract)
        except OrderStoppedError as stopped:
            return Fail(stopped.error, run.partial)
        except BudgetExhaustedError as error:
            return Fail(OrderError(OrderFailure.BUDGET_EXHAUSTED, error.message), run.partial)
        except ProviderError as error:
            self.is_unreachable = error.kind in _UNREACHABLE and error.status == 0
            return Fail(OrderError(OrderFailure.GATEWAY_ERROR, error.message), run.partial)
        except IntegrityError:
            raise
        except PaddockError as error:
            return Fail(OrderError(OrderFailure.EXECUTION_ERROR, error.message), run.partial)
        finally:
            self.cost = run.cost
            self.messages = tuple(run.added)

    def _defect(self, error: Exception) -> Fail:
        report = self._hands.randomness(6).hex()
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_SHOWN_MAX:]
        places = ", ".join(f"{PurePath(f.filename).name}:{f.lineno}" for f in frames)
        said = f"internal error {report}: {type(error).__name__} at {places}"
        return _failed(OrderFailure.EXECUTION_ERROR, said)


def _failed(code: OrderFailure, said: str) -> Fail:
    return Fail(OrderError(code, said))


def _checked(ended: Answer | Fail, contract: PromptContract) -> Answer | Fail:
    """The answer once more against its schema, whatever the provider promised."""
    if isinstance(ended, Fail):
        return ended
    problem = contract.output_problem(ended.result)
    if problem:
        return Fail(OrderError(OrderFailure.OUTPUT_SCHEMA_INVALID, problem), ended.result)
    return ended


def _finished(order: WorkOrder, ended: Answer | Fail, cost: OrderCost) -> WorkOrder:
    if isinstance(ended, Answer):
        return order.completed(ended.result, cost)
    partial: Mapping[str, Json] | None = ended.partial
    return order.failed(ended.error, cost, partial)
