"""A door: a dispatcher on a real directory, a real policy and a ledger in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, field

from paddock.errors import PaddockError
from paddock.policy.engine import PolicySource, load_policy
from paddock.runtime.approvals import Approval, ApprovalRequest, Approver, NoApprover
from paddock.runtime.dispatch import Context, Dispatcher
from paddock.runtime.prepared import Caller, PolicyJudge, Tools
from paddock.testing.memory_ledger import MemoryLedger
from paddock.tools.spec import Ports, Tool
from paddock.tools.toolsets import all_tools
from paddock.values.calls import Json, ToolCall, ToolResult
from paddock.values.decisions import Agent, AgentChain
from paddock.values.entries import Entry
from paddock.workspace import Workspace

ASKING = """
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:delete **", "tool:file:create asked/**", "tool:file:str_replace asked/**"]
deny = ["tool:file:create migrations/**"]
"""


MAIN: AgentChain = (Agent("main", "standard"),)


class Answers(Struct, dict=True):
    """An approver that remembers what it was asked and answers as it was told."""

    approval: Approval = field(default_factory=lambda: Approval(True, "test"))
    asked: list[ApprovalRequest] = field(default_factory=list)
    before_answer: Callable[[], object] = lambda: None

    def answer(self, request: ApprovalRequest) -> Approval:
        self.asked.append(request)
        self.before_answer()
        return self.approval


class Recorded(Struct, dict=True):
    """An approval log in memory."""

    events: list[tuple[str, str, str]] = field(default_factory=list)
    failure: PaddockError | None = None

    def record(self, entry: Entry) -> None:
        if self.failure is not None:
            raise self.failure
        self.events.append((entry.event_type, entry.metadata["digest"], entry.decision))


class Door(Struct, dict=True):
    root: Path
    workspace: Workspace
    ledger: MemoryLedger
    approvals: "Recorded"

    def dispatcher(
        self,
        approver: Approver | None = None,
        *,
        policy: str = ASKING,
        chain: AgentChain = MAIN,
        more: tuple[Tool[Any], ...] = (),
    ) -> Dispatcher:
        judge = PolicyJudge(load_policy(PolicySource("paddock.toml", policy.encode())), chain)
        context = Context(
            tools=Tools([*all_tools(), *more]),
            judge=judge,
            ports=Ports(self.workspace, judge),
            ledger=self.ledger,
            approver=approver or NoApprover(),
            record_approval=self.approvals.record,
            caller=Caller(chain, "SES-1"),
            randomness=lambda count: b"\7" * count,
            monotonic_ns=lambda: 0,
        )
        return Dispatcher(context)

    def call(self, tool: str, approver: Approver | None = None, **arguments: Json) -> ToolResult:
        return self.dispatcher(approver).dispatch(ToolCall("C-1", tool, arguments))

    def events(self) -> list[str]:
        """What the ledger holds behind GENESIS."""
        return [stored.entry.event_type for stored in self.ledger.entries]

    def metadata(self) -> dict[str, Json]:
        """Of the newest entry."""
        return dict(self.ledger.entries[-1].entry.metadata)

    def names(self) -> list[str]:
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    root = tmp_path / "work"
    root.mkdir()
    with Workspace.open(str(root)) as workspace:
        yield Door(root, workspace, MemoryLedger(), Recorded())
