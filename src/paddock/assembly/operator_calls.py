"""Calls that a person makes with a tool that no agent has: an undo, the commit of kept changes."""

import os
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from paddock.assembly.project import new_call_id, new_session_id
from paddock.errors import InternalError
from paddock.ledger.ports import Ledger
from paddock.runtime.approvals import Approval, ApprovalRequest, NoApprover
from paddock.runtime.dispatch import Dispatcher
from paddock.runtime.judge import Context, Judge, OperatorJudge
from paddock.runtime.prepared import FREE, Bounds, Registry
from paddock.runtime.records import Caller
from paddock.storage.history import History
from paddock.tools.spec import Ports, Tool
from paddock.values.calls import Json, ToolCall, ToolResult
from paddock.workspace import Workspace


class OperatorDoor(Struct, frozen=True):
    """The one door, for one tool and on one agent's workspace. What it holds stays the caller's."""

    shown: Judge
    """What the workspace's agent may see; the operator sees no more of it."""
    workspace: Workspace
    ledger: Ledger
    history: History

    def call(
        self, tool: Tool[Any], arguments: Mapping[str, Json], bounds: Bounds = FREE
    ) -> ToolResult:
        """Run one call in its own session, asking nobody. Raises: IntegrityError."""
        judge = OperatorJudge(tool.name, self.shown)
        context = Context(
            registry=Registry([tool]),
            judge=judge,
            ports=Ports(self.workspace, judge),
            ledger=self.ledger,
            approver=NoApprover(),
            approvals=_NothingAsked(),
            caller=Caller(judge.chain, new_session_id()),
            randomness=os.urandom,
            history=self.history,
        )
        return Dispatcher(context).dispatch(ToolCall(new_call_id(), tool.name, arguments), bounds)


class _NothingAsked:
    def asked(self, request: ApprovalRequest) -> None:
        """Raises: InternalError."""
        raise InternalError(f"an operator's call asked for an approval: {request.reason}")

    def answered(self, request: ApprovalRequest, approval: Approval) -> None:
        """Raises: InternalError."""
        raise InternalError(f"an operator's call got an answer: {approval.by}")
