"""Children side by side: never more tokens than their parent has, never more than it may do."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.agent.executor import Assignment
from paddock.providers.budgets import session_budget
from paddock.values.decisions import Agent, Permissions
from paddock.values.models import ModelTurn, Stop, ToolUse, Usage
from paddock.values.orders import Constraints, OrderFailure, OrderType, WorkOrder
from tests.support.agents import SESSION, TEXT, new_room

POLICY = """
[profiles.standard]
allow = ["tool:file:*"]
deny = ["tool:file:create migrations/**"]
[profiles.open]
allow = ["tool:*"]
"""
PARENT = Agent("main", "standard", permissions=Permissions(forbidden=("closed/**",)))
CHILD = Agent("helper", "open", parent="main")
EXAMPLES = max(15, settings.default.max_examples // 20)
"""Each opens a workspace and runs threads: fewer than elsewhere."""


class Spends:
    """A model that asks for calls and uses up all that each request lets it use."""

    name = "spends"
    model = "m"

    def __init__(self, paths, turns):
        self.paths, self.turns, self.asked = paths, turns, 0

    def route(self, request, *, on_text=None, cancel=None):
        self.asked += 1
        number = sum(1 for m in request.messages if type(m).__name__ == "AssistantMessage")
        used = Usage(0, request.max_output_tokens)
        if number >= self.turns:
            return ModelTurn("done", (), None, Stop.END_TURN, used, "m")
        path = self.paths[number % len(self.paths)]
        call = ToolUse(
            f"call_{id(request)}_{number}",
            "create_file",
            {"path": path, "content": f"{id(request)} {number}"},
        )
        return ModelTurn("", (call,), None, Stop.TOOL_USE, used, "m")

    def close(self):
        return None


@settings(max_examples=EXAMPLES)
@given(
    limit=st.integers(0, 60_000),
    children=st.lists(st.one_of(st.none(), st.integers(0, 40_000)), min_size=2, max_size=4),
    turns=st.integers(0, 3),
)
def test_children_side_by_side_never_overspend(limit, children, turns):
    session = session_budget(limit)
    model = Spends(["a.txt", "b.txt"], turns)
    with tempfile.TemporaryDirectory() as base, new_room(Path(base), policy=POLICY) as room:
        executor = room.executor(model, (CHILD, PARENT))

        def carry_out(number):
            bounds = Constraints(TEXT, ("create_file",), 10, children[number])
            order = WorkOrder(
                f"WO-{SESSION}-{number:03}", SESSION, OrderType.EXECUTE, {"task": "go"}, bounds
            )
            scope = session.child(order.wo_id, children[number])
            return scope, executor.carry_out(Assignment(order.dispatched(), scope)).order

        with ThreadPoolExecutor(len(children)) as threads:
            ended = list(threads.map(carry_out, range(len(children))))

    assert session.account.spent <= limit
    assert session.account.reserved == 0
    assert session.account.spent == sum(scope.account.spent for scope, _ in ended)
    for child_limit, (scope, order) in zip(children, ended, strict=True):
        assert child_limit is None or scope.account.spent <= child_limit
        assert scope.account.spent == order.cost.total_tokens
        assert order.error is None or order.error.code is OrderFailure.BUDGET_EXHAUSTED


PATHS = st.sampled_from(["ok.txt", "migrations/1.sql", "closed/x", ".git/config", "../out"])


@settings(max_examples=EXAMPLES)
@given(st.lists(PATHS, min_size=1, max_size=4, unique=True))
def test_a_child_never_does_what_its_parent_may_not(paths):
    with tempfile.TemporaryDirectory() as base, new_room(Path(base), policy=POLICY) as room:
        (room.root / ".git").mkdir()
        executor = room.executor(Spends(paths, len(paths)), (CHILD, PARENT))
        bounds = Constraints(TEXT, ("create_file",), 10)
        order = WorkOrder(f"WO-{SESSION}-001", SESSION, OrderType.EXECUTE, {"task": "go"}, bounds)

        executor.carry_out(Assignment(order.dispatched(), session_budget(None)))

        written = set(room.names()) - {"a.txt", "b.txt"}
    assert written <= {"ok.txt"}
    assert ("ok.txt" in written) is ("ok.txt" in paths and paths.index("ok.txt") < 3)
