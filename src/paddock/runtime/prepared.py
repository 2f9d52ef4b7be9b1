"""What a call is between its decision and its end.

    ToolCall ── prepare ──▶ Prepared ── run ──▶ Ran ── answers.result_of ──▶ ToolResult

All calls of one turn are prepared before any of them runs (`together.py`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import InternalError
from paddock.tools.spec import Change, Plan, Ports, Tool, ToolOutput
from paddock.values.calls import NEVER, Cancel, Json, LeftEffect, Refusal, ToolCall
from paddock.values.decisions import Decision

if TYPE_CHECKING:
    from paddock.sandbox.values import OnOutput


class Bounds(Struct, frozen=True):
    """What whoever asks leaves of an agent's tools: never more than the agent has.

    `tools` None: all of them. `order_id` stands in the entries of a work order's calls;
    `client_call` in those of a client that names its calls, as a claim: with it they
    are found beside what a hook recorded of the same call. `on_output` hears what a command
    prints while it runs.
    """

    tools: frozenset[str] | None = None
    order_id: str = ""
    cancel: Cancel = NEVER
    client_call: str = ""
    on_output: "OnOutput | None" = None

    def over(self, ports: Ports) -> Ports:
        """What a handler may touch in a call with these bounds."""
        if self.cancel is NEVER and self.on_output is None:
            return ports
        return replace(ports, cancel=self.cancel, on_output=self.on_output)


FREE: Final = Bounds()
"""Of a call that nothing bounds."""


class Judged(NamedTuple):
    """A decision as entries keep it: what policy said, and who decided in the end."""

    decision: Decision
    approved_by: str = ""
    approval_digest: str = ""


class Prepared(NamedTuple):
    """A call that may run: bound, resolved, decided and, where asked, approved."""

    call: ToolCall
    tool: Tool[Any]
    plan: Plan
    clamped: Mapping[str, int]
    arguments: Mapping[str, Json]
    """As the ledger keeps them."""
    actions: Sequence[str]
    judged: Judged
    bounds: Bounds


class Failed(Struct, frozen=True):
    """It ran and did not do it. `effect` is set where it was stopped on the way."""

    refusal: Refusal
    frames: tuple[str, ...] = ()
    effect: LeftEffect | None = None
    changes: tuple[Change, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether `changes` is all that it left.

        It is not where a defect of ours or of the host ended it, and where it was stopped
        and nobody can tell.
        """
        return self.refusal.code != InternalError.code and self.effect is not LeftEffect.UNKNOWN


Ran = ToolOutput | Failed
