"""Work orders from the supervisor to an executor, and their results.

An order sets limits: its executor may use fewer tools, turns and tokens, never more. Its state only
moves forward, and each tier makes its own moves:

    planned ──supervisor──▶ dispatched ──executor──▶ executing ──executor──▶ completed
       └────supervisor────▶ failed                       └─────executor────▶ failed
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import InternalError
from paddock.values.calls import Json
from paddock.values.models import Usage


class OrderType(StrEnum):
    CLASSIFY = "classify"
    SYNTHESIZE = "synthesize"
    EXECUTE = "execute"
    TOOL_CALL = "tool_call"


class OrderState(StrEnum):
    PLANNED = "planned"
    DISPATCHED = "dispatched"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"


class Tier(StrEnum):
    SUPERVISOR = "HO2"
    EXECUTOR = "HO1"


_MOVES: Final[Mapping[tuple[OrderState, OrderState], Tier]] = {
    (OrderState.PLANNED, OrderState.DISPATCHED): Tier.SUPERVISOR,
    (OrderState.PLANNED, OrderState.FAILED): Tier.SUPERVISOR,
    (OrderState.DISPATCHED, OrderState.EXECUTING): Tier.EXECUTOR,
    (OrderState.EXECUTING, OrderState.COMPLETED): Tier.EXECUTOR,
    (OrderState.EXECUTING, OrderState.FAILED): Tier.EXECUTOR,
}


class OrderFailure(StrEnum):
    CONTRACT_NOT_FOUND = "contract_not_found"
    INPUT_SCHEMA_INVALID = "input_schema_invalid"
    BUDGET_EXHAUSTED = "budget_exhausted"
    GATEWAY_ERROR = "gateway_error"
    TURN_LIMIT_EXCEEDED = "turn_limit_exceeded"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    STUCK = "stuck"
    OUTPUT_SCHEMA_INVALID = "output_schema_invalid"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    EXECUTION_ERROR = "execution_error"


RETRY_IS_USELESS: Final = frozenset(
    {
        OrderFailure.REFUSED,
        OrderFailure.CANCELLED,
        OrderFailure.BUDGET_EXHAUSTED,
        OrderFailure.STUCK,
    }
)
"""A retry would end the same way, or is not wanted."""


class OrderError(Struct, frozen=True):
    code: OrderFailure
    message: str


class Constraints(Struct, frozen=True):
    """The limits of an executor. None: the order sets no limit."""

    prompt_contract_id: str
    tools_allowed: tuple[str, ...] = ()
    turn_limit: int = 1
    token_budget: int | None = None
    cost_budget: float | None = None
    timeout_s: float | None = None


class OrderCost(Struct, frozen=True):
    """The cost of an order. Tokens are a lower bound if a provider reported no usage."""

    usage: Usage = field(default_factory=Usage)
    llm_calls: int = 0
    tool_calls: int = 0
    elapsed_ms: int = 0
    tool_ids_used: tuple[str, ...] = ()

    @property
    def total_tokens(self) -> int:
        return self.usage.total

    def plus(self, other: "OrderCost") -> "OrderCost":
        """Add two costs; each tool appears once, in the order of first use."""
        return OrderCost(
            self.usage.plus(other.usage),
            self.llm_calls + other.llm_calls,
            self.tool_calls + other.tool_calls,
            self.elapsed_ms + other.elapsed_ms,
            tuple(dict.fromkeys((*self.tool_ids_used, *other.tool_ids_used))),
        )

    def as_json(self) -> dict[str, Json]:
        return {
            "input": self.usage.input,
            "output": self.usage.output,
            "cache_read": self.usage.cache_read,
            "cache_write": self.usage.cache_write,
            "total_tokens": self.total_tokens,
            "llm_calls": self.llm_calls,
            "tool_calls": self.tool_calls,
            "elapsed_ms": self.elapsed_ms,
            "tool_ids_used": list(self.tool_ids_used),
        }


class WorkOrder(Struct, frozen=True):
    """One typed assignment. A move returns a new value; the module lists which tier may make it."""

    wo_id: str
    session_id: str
    wo_type: OrderType
    input_context: Mapping[str, Json]
    constraints: Constraints
    state: OrderState = OrderState.PLANNED
    output_result: Mapping[str, Json] | None = None
    error: OrderError | None = None
    cost: OrderCost = field(default_factory=OrderCost)

    def dispatched(self) -> "WorkOrder":
        return self._moved(OrderState.DISPATCHED, Tier.SUPERVISOR)

    def given_up(self, error: OrderError) -> "WorkOrder":
        return replace(self._moved(OrderState.FAILED, Tier.SUPERVISOR), error=error)

    def started(self) -> "WorkOrder":
        return self._moved(OrderState.EXECUTING, Tier.EXECUTOR)

    def completed(self, result: Mapping[str, Json], cost: OrderCost) -> "WorkOrder":
        moved = self._moved(OrderState.COMPLETED, Tier.EXECUTOR)
        return replace(moved, output_result=result, cost=cost)

    def failed(
        self, error: OrderError, cost: OrderCost, partial: Mapping[str, Json] | None = None
    ) -> "WorkOrder":
        """Fail the order as its executor, with any `partial` result. Raises: InternalError."""
        moved = self._moved(OrderState.FAILED, Tier.EXECUTOR)
        return replace(moved, error=error, cost=cost, output_result=partial)

    def _moved(self, to: OrderState, by: Tier) -> "WorkOrder":
        if _MOVES.get((self.state, to)) is not by:
            raise InternalError(
                f"work order {self.wo_id} is {self.state}; {by} cannot make it {to}",
                hint="an order only moves forward, and each tier makes its own moves",
            )
        return replace(self, state=to)


def format_order_id(session_id: str, number: int) -> str:
    """Return `WO-<session>-NNN`, with at least three digits."""
    return f"WO-{session_id}-{number:03}"
