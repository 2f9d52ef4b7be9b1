"""Work orders: each tier makes its own moves, forward alone."""

import pytest

from paddock.errors import InternalError
from paddock.values.orders import (
    Constraints,
    OrderCost,
    OrderError,
    OrderFailure,
    OrderState,
    OrderType,
    WorkOrder,
)

PLANNED = WorkOrder("WO-SES-001", "SES", OrderType.EXECUTE, {}, Constraints("PRC-A-001"))
WHY = OrderError(OrderFailure.CONTRACT_NOT_FOUND, "it is gone")
MOVES = {
    "dispatched": lambda order: order.dispatched(),
    "given up": lambda order: order.given_up(WHY),
    "started": lambda order: order.started(),
    "completed": lambda order: order.completed({}, OrderCost()),
    "failed": lambda order: order.failed(WHY, OrderCost()),
}
STANDING = {
    OrderState.PLANNED: PLANNED,
    OrderState.DISPATCHED: PLANNED.dispatched(),
    OrderState.EXECUTING: PLANNED.dispatched().started(),
    OrderState.COMPLETED: PLANNED.dispatched().started().completed({}, OrderCost()),
    OrderState.FAILED: PLANNED.given_up(WHY),
}
ALLOWED = {
    (OrderState.PLANNED, "dispatched"): OrderState.DISPATCHED,
    (OrderState.PLANNED, "given up"): OrderState.FAILED,
    (OrderState.DISPATCHED, "started"): OrderState.EXECUTING,
    (OrderState.EXECUTING, "completed"): OrderState.COMPLETED,
    (OrderState.EXECUTING, "failed"): OrderState.FAILED,
}


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("state", STANDING)
def test_an_order_makes_the_moves_of_its_state_and_no_other(state, move):
    order = STANDING[state]
    wanted = ALLOWED.get((state, move))
    if wanted is None:
        with pytest.raises(InternalError, match=f"work order WO-SES-001 is {state}; "):
            MOVES[move](order)
    else:
        assert MOVES[move](order).state is wanted
    assert order.state is state
