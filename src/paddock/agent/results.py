"""What a turn came to."""

from enum import StrEnum

from msgspec import Struct, to_builtins

from paddock.values.calls import Json
from paddock.values.orders import OrderCost, WorkOrder


class TurnOutcome(StrEnum):
    """How a turn ended, as its record says it."""

    SUCCESS = "success"
    DEGRADED = "degraded"
    """No result was accepted; the answer says so."""
    ERROR = "error"
    CANCELLED = "cancelled"


class TurnEnd(Struct, frozen=True):
    response: str
    outcome: TurnOutcome
    passed: bool = False
    """The quality gate."""
    reason: str = ""
    answered_by: str = ""
    """The order whose result was accepted."""


class TurnResult(Struct, frozen=True):
    """The answer to one message.

    A turn that was cancelled has the outcome `error` here, with `was_cancelled`.
    """

    response: str
    outcome: TurnOutcome
    work_orders: tuple[WorkOrder, ...]
    cost: OrderCost
    session_id: str
    quality_gate_passed: bool
    turn: int = 0
    was_cancelled: bool = False
    is_unreachable: bool = False
    """There is no answer, as the provider could not be reached: no order failed otherwise."""
    tools_withheld: str = ""
    """Why the model was offered no tools, though its agent has some."""

    @property
    def note(self) -> str:
        """What to say of a turn in which no tool ran; "" where one did."""
        if self.cost.tool_calls:
            return ""
        return ": ".join(filter(None, ("no tool ran in this turn", self.tools_withheld)))

    def as_json(self) -> dict[str, Json]:
        return {
            "response": self.response,
            "outcome": self.outcome.value,
            "work_orders": [order_json(order) for order in self.work_orders],
            "cost": self.cost.as_json(),
            "session_id": self.session_id,
            "quality_gate_passed": self.quality_gate_passed,
            "note": self.note,
        }


def order_json(order: WorkOrder) -> dict[str, Json]:
    """A work order for the caller, whole; the ledger holds its input as a digest."""
    shown: dict[str, Json] = to_builtins(order, enc_hook=dict)
    bounds = shown["constraints"]
    bounds["tools_allowed"] = list(bounds["tools_allowed"])
    bounds["timeout_seconds"] = bounds.pop("timeout_s")
    return {**shown, "cost": order.cost.as_json()}
