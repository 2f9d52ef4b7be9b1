"""The quality gate: whether a result is an answer at all. Deterministic and pure."""

import json

from paddock.agent.contracts import PromptContract
from paddock.agent.steps import RESPONSE_TEXT
from paddock.values.orders import WorkOrder


def find_problem(order: WorkOrder, contract: PromptContract | None) -> str:
    """Why the result of an order is not accepted; "" where it is."""
    if order.error is not None:
        return f"the order failed: {order.error.code.value}: {order.error.message}"
    result = order.output_result
    if result is None:
        return "there is no result"
    if contract is not None:
        problem = contract.output_problem(result)
        if problem:
            return problem
    return "" if response_of(order).strip() else "the answer is empty"


def response_of(order: WorkOrder) -> str:
    """The text for the user; "" where there is none."""
    result = order.output_result
    if not result:
        return ""
    text = result.get(RESPONSE_TEXT)
    said = text if isinstance(text, str) else json.dumps(dict(result), ensure_ascii=False)
    # A model can write half a surrogate pair, and no terminal or file takes one.
    return said.encode("utf-8", "replace").decode("utf-8")
