"""Report a turn to a listener as typed events; the turn's result.

Events come one at a time (under a lock), from the thread in which they happen; a listener must not
call back into the session. Events are only for display: if a listener raises, nothing is undone; it
gets no more events, and the turn is cancelled. Each `Heard…` class adapts a port of another layer
to the listener.
"""

import threading
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, Protocol

from msgspec import Struct, to_builtins

from paddock.providers.failures import CancelToken
from paddock.runtime.approvals import Approval, ApprovalRequest, Approver
from paddock.runtime.dispatch import CallWatcher, Done
from paddock.runtime.prepared import Judged
from paddock.sandbox.streams import LastLine
from paddock.values.calls import Json, ToolCall, ToolResult
from paddock.values.orders import OrderCost, WorkOrder

_PRINTED_S: Final = 0.25  # at least, between two `CallPrinted`


class TextPiece(Struct, frozen=True):
    """The next piece of the model's text, as it arrives.

    Not sent for a delegated order, or if the contract has an output schema.
    """

    text: str


class TextVoid(Struct, frozen=True):
    """Discard the text of this model turn so far: the request is sent again."""


class CallDecided(Struct, frozen=True):
    """A call may run. `outcome`: `allow`, `confine` or `ask`; `by`: who approved an ask."""

    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    outcome: str
    rule: str  # text and place of the rule that decided
    by: str = ""


class CallStarted(Struct, frozen=True):
    call_id: str
    tool: str


class CallPrinted(Struct, frozen=True):
    """The newest line that a command printed, made safe to show. Lines are skipped."""

    line: str


class CallFinished(Struct, frozen=True):
    """A call ended. `ran`: `CallDecided` came before, even if it was then stopped or failed."""

    call_id: str
    tool: str
    arguments: Mapping[str, Json]
    result: ToolResult
    ran: bool
    duration_us: int


class OrderMoved(Struct, frozen=True):
    order: WorkOrder
    agent: str


class Spent(Struct, frozen=True):
    """The cost of an order so far, and the tokens left in its tightest scope (None: no limit)."""

    wo_id: str
    cost: OrderCost
    tokens_left: int | None


class ApprovalAsked(Struct, frozen=True):
    request: ApprovalRequest


class ApprovalAnswered(Struct, frozen=True):
    request: ApprovalRequest
    approval: Approval


class Noticed(Struct, frozen=True):
    text: str


Event = (
    TextPiece
    | TextVoid
    | CallDecided
    | CallStarted
    | CallPrinted
    | CallFinished
    | OrderMoved
    | Spent
    | ApprovalAsked
    | ApprovalAnswered
    | Noticed
)


class TurnListener(Protocol):
    def heard(self, event: Event) -> None:
        """Raise to cancel the turn: the session records it, then raises the same error."""
        ...


class SilentListener:
    def heard(self, event: Event) -> None:
        """Do nothing."""


class OneAtATime:
    """Pass events to a listener one at a time, from any thread.

    Once it raised, pass no more events and cancel `failed`: no turn continues without a listener.
    """

    def __init__(self, listener: TurnListener) -> None:
        self._listener = listener
        self._lock = threading.RLock()
        self._fault: Exception | None = None
        self.failed = CancelToken()

    def heard(self, event: Event) -> None:
        with self._lock:
            if self._fault is not None:
                return
            try:
                self._listener.heard(event)
            except Exception as error:
                # Raised within a call, it would make a call that ran look as if it had not, and the
                # model would repeat it: `raise_fault` raises it later.
                self._fault = error
                self.failed.cancel()

    def raise_fault(self) -> None:
        with self._lock:
            if self._fault is not None:
                raise self._fault


class HeardText(Struct, frozen=True):
    listener: TurnListener

    def text(self, piece: str) -> None:
        self.listener.heard(TextPiece(piece))

    def restarted(self) -> None:
        self.listener.heard(TextVoid())


class HeardCalls(CallWatcher):
    def __init__(self, listener: TurnListener) -> None:
        self._listener = listener

    def decided(self, call: ToolCall, judged: Judged) -> None:
        decision = judged.decision
        rule = decision.rule
        shown = "" if rule is None else f"{rule.text} ({rule.place})"
        self._listener.heard(
            CallDecided(
                call.id,
                call.tool,
                call.arguments,
                decision.outcome.word,
                shown,
                judged.approved_by,
            )
        )

    def started(self, call: ToolCall) -> None:
        self._listener.heard(CallStarted(call.id, call.tool))

    def finished(self, call: ToolCall, done: Done, duration_us: int) -> None:
        self._listener.heard(
            CallFinished(call.id, call.tool, call.arguments, done.result, done.ran, duration_us)
        )


class HeardOutput:
    """Report output of an order's commands, at most one line per interval. An `OnOutput`."""

    def __init__(self, listener: TurnListener) -> None:
        self._listener = listener
        self._line = LastLine()
        self._reported_s = time.monotonic()

    def __call__(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        self._line(name, chunk)
        now_s = time.monotonic()
        line = self._line.text if now_s - self._reported_s >= _PRINTED_S else ""
        if line:
            self._reported_s = now_s
            self._listener.heard(CallPrinted(line))


class HeardApprover(Struct, frozen=True):
    approver: Approver
    listener: TurnListener

    def answer(self, request: ApprovalRequest) -> Approval:
        self.listener.heard(ApprovalAsked(request))
        approval = self.approver.answer(request)
        self.listener.heard(ApprovalAnswered(request, approval))
        return approval


class TurnOutcome(StrEnum):
    """The end of a turn, as recorded."""

    SUCCESS = "success"
    DEGRADED = "degraded"  # no result was accepted; the answer says so
    ERROR = "error"
    CANCELLED = "cancelled"


class TurnEnd(Struct, frozen=True):
    response: str
    outcome: TurnOutcome
    passed: bool = False  # whether the quality gate accepted the answer
    reason: str = ""
    answered_by: str = ""  # the order whose result was accepted


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
    """No answer, because no failed order could reach the provider."""
    tools_withheld: str = ""
    """Why the model was offered no tools, though its agent has some."""

    @property
    def note(self) -> str:
        """A note for a person if no tool ran; "" otherwise."""
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
    """Return a whole work order for the caller; the ledger has only a digest of its input."""
    shown: dict[str, Json] = to_builtins(order, enc_hook=dict)
    bounds = shown["constraints"]
    bounds["tools_allowed"] = list(bounds["tools_allowed"])
    bounds["timeout_seconds"] = bounds.pop("timeout_s")
    return {**shown, "cost": order.cost.as_json()}
