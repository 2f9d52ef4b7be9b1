"""What a call is between its decision and its end.

    ToolCall ── prepare ──▶ Prepared ── run ──▶ Ran ── answers.result_of ──▶ ToolResult

All calls of one turn are prepared before any of them runs (`dispatch_all`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, InternalError, UnknownToolError
from paddock.runtime.messages import schemas_for
from paddock.text.show import quote
from paddock.tools.spec import Change, Plan, Ports, Tool, ToolOutput
from paddock.values.calls import NEVER, Cancel, Json, LeftEffect, Refusal, ToolCall
from paddock.values.decisions import Decision

if TYPE_CHECKING:
    from paddock.sandbox.values import OnOutput
    from paddock.tools.toolsets import ListedTool


class Bounds(Struct, frozen=True):
    """What whoever asks leaves of an agent's tools: never more than the agent has.

    `tools` None: all of them. `order_id` stands in the entries of a work order's calls;
    `client_call` in those of a client that names its calls, as a claim; `door` in those of an
    operator who came by another one than the command line.
    """

    tools: frozenset[str] | None = None
    order_id: str = ""
    cancel: Cancel = NEVER
    client_call: str = ""
    door: str = ""
    on_output: "OnOutput | None" = None

    def over(self, ports: Ports) -> Ports:
        if self.cancel is NEVER and self.on_output is None:
            return ports
        return replace(ports, cancel=self.cancel, on_output=self.on_output)


FREE: Final = Bounds()
"""Of a call that nothing bounds."""


class Judged(NamedTuple):
    decision: Decision
    approved_by: str = ""
    approval_digest: str = ""


class Prepared(NamedTuple):
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
    refusal: Refusal
    frames: tuple[str, ...] = ()
    effect: LeftEffect | None = None
    changes: tuple[Change, ...] = ()

    @property
    def is_known(self) -> bool:
        return self.refusal.code != InternalError.code and self.effect is not LeftEffect.UNKNOWN


Ran = ToolOutput | Failed


class Registry:
    __slots__ = ("_tools", "_withheld")

    def __init__(
        self, tools: "Iterable[Tool[Any] | ListedTool]" = (), withheld: frozenset[str] = frozenset()
    ) -> None:
        """`withheld` are names that policy would deny at every call: known, and not offered."""
        self._tools: dict[str, Tool[Any] | ListedTool] = {}
        self._withheld = withheld
        for tool in tools:
            self.add(tool)

    def add(self, tool: "Tool[Any] | ListedTool") -> None:
        if tool.name in self._tools:
            raise ConfigError(
                f"the tool name {quote(tool.name)} is used twice",
                hint="every tool needs a name of its own",
            )
        self._tools[tool.name] = tool

    def get(self, name: str) -> Tool[Any]:
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownToolError(
                f"unknown tool {quote(name)}",
                hint=f"the tools are: {', '.join(sorted(self._tools)) or 'none'}",
            )
        if not isinstance(tool, Tool):
            tool = self._tools[name] = tool.load()
        return tool

    def list_all(self) -> list[Tool[Any]]:
        return [self.get(name) for name in self._tools if name not in self._withheld]

    def for_provider(self, provider: str) -> list[dict[str, Json]]:
        return schemas_for(provider, [tool.spec for tool in self.list_all()])

    def only(self, toolsets: Iterable[str]) -> "Registry":
        wanted = frozenset(toolsets)
        return Registry(tool for tool in self._tools.values() if tool.toolset in wanted)
