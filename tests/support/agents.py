"""An agent at work: a real runtime on a real directory, ledgers in memory, a model of one's choice."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paddock.agent.context import Conversation
from paddock.agent.contracts import (
    Boundary,
    PromptContract,
    default_contracts,
)
from paddock.agent.events import Event, OneAtATime
from paddock.agent.executor import Assignment, Execution, Executor
from paddock.agent.records import Scribe
from paddock.agent.steps import ModelDoor
from paddock.agent.supervisor import Charter, Office, Supervisor
from paddock.ledger.query import Filter, Rows
from paddock.policy.engine import PolicySource, load_policy
from paddock.providers.budgets import Budget, session_budget
from paddock.runtime.approvals import Approver, NoApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.prepared import Caller, PolicyJudge, Tools
from paddock.runtime.runtime import Runtime
from paddock.testing.memory_ledger import MemoryLedger
from paddock.tools.spec import Ports, Tool
from paddock.tools.toolsets import all_tools
from paddock.values.calls import NEVER, Cancel
from paddock.values.decisions import Agent, AgentChain
from paddock.values.models import BudgetMode, ToolSchema
from paddock.values.orders import Constraints, OrderType, WorkOrder
from paddock.workspace import Workspace
from tests.support.models import gateway

SESSION = "SES-0000000000000001"
MAIN: AgentChain = (Agent("main", "standard"),)
POLICY = """
[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:ledger:*"]
ask = ["tool:file:create asked/**"]
deny = ["tool:file:create migrations/**"]
"""
TEXT = "PRC-TEXT-001"
OBJECT = "PRC-OBJECT-001"
INPUT = {
    "type": "object",
    "properties": {"task": {"type": "string"}},
    "required": ["task"],
    "additionalProperties": False,
}
CONTRACTS = (
    *default_contracts(),
    PromptContract(TEXT, INPUT, "{{task}}"),
    PromptContract(
        OBJECT,
        INPUT,
        "{{task}}",
        {
            "type": "object",
            "properties": {"speech_act": {"type": "string"}},
            "required": ["speech_act"],
            "additionalProperties": False,
        },
        Boundary(structured_output=True),
    ),
)


class Heard:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def heard(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class MemoryLedgers:
    """Ledgers in memory, to be read by their names."""

    def __init__(self, ledgers: Mapping[str, MemoryLedger]) -> None:
        self._ledgers = ledgers

    def query(self, name: str, wanted: Filter, last: int | None, skip: int = 0) -> Rows:
        ledger = self._ledgers.get(name)
        rows = [] if ledger is None else [row for row in ledger.entries if wanted.matches(row)]
        rows = rows[: max(0, len(rows) - skip)]
        kept = rows if last is None else rows[max(0, len(rows) - last) :]
        return Rows(tuple(kept), (), 0, 0)


class Clockwork:
    """Timers that run out when they are told to."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self._callbacks: list[Any] = []

    def __call__(self, seconds: float, callback: Any) -> Any:
        self.started.append(seconds)
        self._callbacks.append(callback)
        return self._stop

    def run_out(self) -> None:
        for callback in self._callbacks:
            callback()

    def _stop(self) -> None:
        self._callbacks.clear()


class Room(Struct, dict=True):
    """One agent's workspace, its two ledgers, and what was heard of it."""

    root: Path
    workspace: Workspace
    ho1m: MemoryLedger = field(default_factory=MemoryLedger)
    ho2m: MemoryLedger = field(default_factory=MemoryLedger)
    heard: Heard = field(default_factory=Heard)
    timer: Clockwork = field(default_factory=Clockwork)
    keeps_contents: bool = False
    policy: str = POLICY
    approver: Approver = field(default_factory=NoApprover)
    more: tuple[Tool[Any], ...] = ()
    contracts: tuple[PromptContract, ...] = CONTRACTS

    @property
    def ledgers(self) -> MemoryLedgers:
        return MemoryLedgers({"ho1m": self.ho1m, "ho2m": self.ho2m})

    def runtime(self, chain: AgentChain = MAIN) -> Runtime:
        policy = load_policy(PolicySource("paddock.toml", self.policy.encode()))
        judge = PolicyJudge(policy, chain)
        tools = Tools([*all_tools(), *self.more])
        context = Context(
            tools=tools,
            judge=judge,
            ports=Ports(self.workspace, judge, ledgers=self.ledgers),
            ledger=self.ho1m,
            approver=self.approver,
            record_approval=lambda entry: None,
            caller=Caller(chain, SESSION),
            randomness=lambda count: b"\7" * count,
            monotonic_ns=lambda: 0,
        )
        return Runtime(Dispatcher(context), tools, lambda: "CALL-1", lambda: None)

    def executor(self, provider: Any, chain: AgentChain = MAIN) -> Executor:
        runtime = self.runtime(chain)
        schemas = {
            tool.name: ToolSchema(tool.name, tool.spec.description, tool.binder.schema)
            for tool in runtime.tools.list_all()
        }
        scribe = Scribe(SESSION, chain[0].name)
        listener = OneAtATime(self.heard)
        model = ModelDoor(
            gateway(provider), self.ho1m, scribe, lambda: 0, self.keeps_contents, listener
        )
        return Executor(
            runtime,
            schemas,
            model,
            {each.contract_id: each for each in self.contracts},
            listener,
            lambda count: b"\7" * count,
            self.timer,
        )

    def carry_out(
        self,
        provider: Any,
        *,
        tools: tuple[str, ...] = ("view", "create_file", "grep"),
        contract: str = TEXT,
        turn_limit: int = 10,
        given: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        cancel: Cancel = NEVER,
        **constraints: Any,
    ) -> Execution:
        """One order, with its executor."""
        bounds = Constraints(contract, tools, turn_limit, **constraints)
        order = WorkOrder(
            f"WO-{SESSION}-001", SESSION, OrderType.EXECUTE, given or {"task": "go"}, bounds
        ).dispatched()
        scope = budget or session_budget(None)
        return self.executor(provider).carry_out(Assignment(order, scope, "You are."), cancel)

    def supervisor(
        self,
        provider: Any,
        *,
        tools: tuple[str, ...] = ("view", "create_file", "grep"),
        classify: bool = False,
        tokens: int | None = None,
        **charter: Any,
    ) -> Supervisor:
        """The whole of a session but its two ends."""
        office = Office(
            Scribe(SESSION, "main"),
            self.ho2m,
            self.ledgers,
            {each.contract_id: each for each in self.contracts},
            session_budget(tokens, BudgetMode.ENFORCE),
            OneAtATime(self.heard),
            itertools.count(1),
        )
        own = Charter("main", "You are.", tools, classify=classify, **charter)
        return Supervisor(own, self.executor(provider), office, Conversation())

    def events(self, ledger: str = "ho1m") -> list[str]:
        return [row.entry.event_type for row in getattr(self, ledger).entries]

    def metadata(self, event_type: str, ledger: str = "ho1m") -> list[dict[str, Any]]:
        """Of every entry of that type."""
        return [
            dict(row.entry.metadata)
            for row in getattr(self, ledger).entries
            if row.entry.event_type == event_type
        ]

    def names(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


@contextmanager
def new_room(base: Path, **more: Any) -> Iterator[Room]:
    """A room on a new directory below `base`."""
    root = base / "work"
    root.mkdir()
    (root / "a.txt").write_text("alpha\n")
    (root / "b.txt").write_text("beta\n")
    with Workspace.open(str(root)) as workspace:
        yield Room(root, workspace, **more)
