"""What a supervisor has at hand: its charter, and the office that plans and records."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock import limits
from paddock.agent.contracts import Contracts
from paddock.agent.events import OrderMoved, TurnListener
from paddock.agent.hands import Assignment
from paddock.agent.records import Scribe
from paddock.ledger.named import Ledgers
from paddock.ledger.ports import Ledger
from paddock.plane.admin import Attention
from paddock.providers.budgets import Budget
from paddock.values.calls import Json
from paddock.values.entries import Entry
from paddock.values.models import Message
from paddock.values.orders import (
    Constraints,
    OrderType,
    WorkOrder,
    format_order_id,
)


@dataclass(frozen=True, slots=True)
class Charter:
    """What a session's agent is, and the most that one of its orders may use."""

    agent: str
    system_prompt: str
    tools_allowed: tuple[str, ...]
    classify: bool = False
    attention: Attention | None = None
    facts: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Of the tier, for the context of a turn."""
    turn_tokens: int = 200_000
    order_tokens: int = 100_000
    order_timeout_s: float = limits.order_timeout_s


@dataclass(frozen=True, slots=True)
class Plan:
    """An order before it has a number."""

    wo_type: OrderType
    given: Mapping[str, Json]
    constraints: Constraints
    turn: int
    executor: str
    """The agent that carries it out."""
    message: str = ""
    """What the user said, on the first order of a turn."""


class OrderNumbers:
    """The numbers of a session's work orders, for all of its agents."""

    def __init__(self, used: int = 0) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(used + 1)

    def draw(self) -> int:
        with self._lock:
            return next(self._numbers)


@dataclass(frozen=True, slots=True)
class Office:
    """Plans and dispatches orders in the name of one agent, and keeps `ho2m`."""

    scribe: Scribe
    ledger: Ledger
    """`ho2m`."""
    ledgers: Ledgers
    """To be read."""
    contracts: Contracts
    budget: Budget
    """The session's."""
    listener: TurnListener
    numbers: OrderNumbers

    def append(self, *entries: Entry) -> None:
        """Put something on record. Raises: PaddockError."""
        self.ledger.append(entries)

    def dispatch(self, plan: Plan) -> WorkOrder:
        """A new order, planned and dispatched, both on record before anybody carries it out.

        Raises: PaddockError where it cannot be recorded.
        """
        session_id = self.scribe.session_id
        order_id = format_order_id(session_id, self.numbers.draw())
        order = WorkOrder(order_id, session_id, plan.wo_type, plan.given, plan.constraints)
        contract = self.contracts.find(plan.constraints.prompt_contract_id)
        digest = "" if contract is None else contract.digest
        planned = self.scribe.planned(order, plan.turn, digest, plan.executor, plan.message)
        self.listener.heard(OrderMoved(order, self.scribe.agent))
        order = order.dispatched()
        self.append(planned, self.scribe.dispatched(order, plan.turn))
        self.listener.heard(OrderMoved(order, self.scribe.agent))
        return order

    def assign(
        self,
        order: WorkOrder,
        above: Budget,
        system: str,
        conversation: tuple[Message, ...],
        *,
        streams: bool = True,
    ) -> Assignment:
        """The order with a scope of its own below `above`."""
        scope = above.child(order.wo_id, order.constraints.token_budget)
        return Assignment(order, scope, system, conversation, streams)
