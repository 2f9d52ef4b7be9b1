"""What an executor is given: its hands, once, and an assignment for each order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paddock.agent.contracts import Contracts
from paddock.agent.deadline import Timer, real_timer
from paddock.agent.events import TurnListener
from paddock.agent.exchange import ModelDoor
from paddock.providers.budgets import Budget
from paddock.runtime.dispatch import NOBODY, CallWatcher, Done
from paddock.runtime.messages import Asked
from paddock.runtime.prepared import FREE, Bounds
from paddock.values.models import Message, ToolSchema
from paddock.values.orders import WorkOrder


class CallDoor(Protocol):
    """Where calls go: `paddock.runtime.runtime.Runtime`."""

    def call_all(
        self, asked: Sequence[Asked], bounds: Bounds = FREE, watcher: CallWatcher = NOBODY
    ) -> list[Done]:
        """Run the calls of one turn; exactly one result for each, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Hands:
    """What an executor works with: one agent's tools and one model.

    `randomness(n)` returns n unpredictable bytes.
    """

    calls: CallDoor
    schemas: Mapping[str, ToolSchema]
    """The agent's tools as a model sees them, by name."""
    model: ModelDoor
    contracts: Contracts
    listener: TurnListener
    randomness: Callable[[int], bytes]
    timer: Timer = real_timer


@dataclass(frozen=True, slots=True)
class Assignment:
    """One dispatched order, with what its executor is given besides."""

    order: WorkOrder
    budget: Budget
    """The order's own scope."""
    system: str = ""
    conversation: tuple[Message, ...] = ()
    """What was said before."""
    streams: bool = True
    """Whether its text is shown while it arrives, where its contract asks for text."""
