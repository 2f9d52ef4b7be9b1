"""The states of a call between its steps; the tools, judge and context it runs with.

    ToolCall ── prepare ──▶ Prepared ── run ──▶ Ran ── result_of ──▶ ToolResult

All calls of one turn are prepared before any of them runs (`dispatch_all`), so a command that
acts in `prepare` has not seen what the calls before it write.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, InternalError, UnknownToolError
from paddock.ledger.append import Ledger
from paddock.policy.decide import decide, judge_for, writer_of
from paddock.policy.engine import Policy
from paddock.runtime.approvals import Approver, NoApprover
from paddock.runtime.messages import schemas_for
from paddock.storage.history import History
from paddock.text.show import quote
from paddock.tools.spec import Change, Payload, Plan, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import NEVER, Cancel, Json, LeftEffect, Refusal, ToolCall
from paddock.values.decisions import (
    OPERATOR,
    Action,
    Agent,
    AgentChain,
    Decision,
    Outcome,
    RuleMatch,
)
from paddock.values.entries import Entry

if TYPE_CHECKING:
    from paddock.sandbox.values import OnOutput
    from paddock.tools.toolsets import ListedTool


class ForProgram(Struct, frozen=True):
    """A tool only for the embedding program: it is in no `Tools`, so no model can call it."""

    tool: Tool[Any]
    payload: Payload


class Bounds(Struct, frozen=True):
    """The caller's settings for one call: tools, approver, cancellation. Policy still decides.

    `tools` None: all of the agent's. Ledger entries have the `order_id` of a work order's calls,
    the `client_call` that a client names its call by, as a claim, and the `door` of an operator
    who does not use the command line.
    """

    tools: frozenset[str] | None = None
    order_id: str = ""
    cancel: Cancel = NEVER
    client_call: str = ""
    door: str = ""
    on_output: "OnOutput | None" = None
    program: ForProgram | None = None
    approver: Approver | None = None
    """Answers this call's requests in place of the runtime's approver and the inbox."""

    def over(self, ports: Ports, call_id: str) -> Ports:
        return replace(
            ports,
            cancel=self.cancel,
            on_output=self.on_output,
            call_id=call_id,
            payload=None if self.program is None else self.program.payload,
        )


FREE: Final = Bounds()
"""No bounds."""


class Judged(NamedTuple):
    decision: Decision
    approved_by: str = ""
    approval_digest: str = ""


class Begun(Struct):
    """A call, and its known state so far, to record a refusal at any step."""

    call: ToolCall
    bounds: Bounds = FREE
    tool: Tool[Any] | None = None
    actions: Sequence[str] = ()
    judged: Judged | None = None


class Prepared(NamedTuple):
    call: ToolCall
    tool: Tool[Any]
    plan: Plan
    clamped: Mapping[str, int]
    arguments: Mapping[str, Json]
    """In the form that the ledger keeps."""
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


class Tools:
    """The tools of a runtime, as `runtime.tools`: those of its agent and of the program."""

    def __init__(
        self,
        tools: "Iterable[Tool[Any] | ListedTool]" = (),
        may_ever: Callable[[str, str], bool] = lambda category, operation: True,
        gated: Collection[str] = (),
        gate: Callable[[], bool] = lambda: False,
    ) -> None:
        """`may_ever` returns True if policy could ever allow an operation of a category.

        A tool that needs an operation it never allows is not listed; a call of it is refused by
        policy. The `gated` tools exist until `gate` returns False.
        """
        self._all: dict[str, Tool[Any] | ListedTool] = {}
        self._may_ever = may_ever
        self._unlisted: set[str] = set()
        self._gated: Collection[str] = ()
        for tool in tools:
            self._put(tool)
        self._gated, self._gate = gated, gate

    @property
    def _tools(self) -> "dict[str, Tool[Any] | ListedTool]":
        if self._gated and not self._gate():
            # Permanently: a gate that opens again does not restore a tool.
            self._all = {name: each for name, each in self._all.items() if name not in self._gated}
            self._gated = ()
        return self._all

    def _put(self, tool: "Tool[Any] | ListedTool") -> None:
        if tool.name in self._tools:
            raise ConfigError(
                f"the tool name {quote(tool.name)} is used twice",
                hint="every tool needs a unique name",
            )
        self._tools[tool.name] = tool
        if not getattr(tool, "is_offered", True):
            self._unlisted.add(tool.name)

    def get(self, name: str) -> Tool[Any]:
        tools = self._tools
        tool = tools.get(name)
        if tool is None:
            offered = ", ".join(sorted(each.name for each in self.list_all()))
            hint = f"the tools are: {offered or 'none'}"
            raise UnknownToolError(f"unknown tool {quote(name)}", hint=hint)
        if not isinstance(tool, Tool):
            tool = tools[name] = tool.load()
        return tool

    def list_all(self) -> list[Tool[Any]]:
        return [
            tool if isinstance(tool, Tool) else tool.load()
            for name, tool in list(self._tools.items())
            if name not in self._unlisted and self._is_offered(tool)
        ]

    def _is_offered(self, tool: "Tool[Any] | ListedTool") -> bool:
        from paddock.tools.toolsets import HEADS  # noqa: PLC0415 - only to list tools

        heads = HEADS.get(tool.name, ())
        if isinstance(tool, Tool):
            heads = getattr(tool.handler, "heads", heads)
        return all(self._may_ever(*head) for head in heads)

    def for_provider(self, provider: str, *, native: bool = False) -> list[dict[str, Json]]:
        """Return schemas for anthropic, openai, openai-responses or mcp. Raises: UsageError.

        With `native`, for anthropic and openai-responses: the provider's own tool types in place
        of Paddock's. `Runtime.answer` accepts calls of both.
        """
        tools = self.list_all()
        if not native:
            return schemas_for(provider, [tool.spec for tool in tools])
        from paddock.runtime.native import native_schemas  # noqa: PLC0415 - only with `native`
        from paddock.tools.toolsets import TOOLS  # noqa: PLC0415 - as above

        ours = {tool.name for tool in TOOLS}
        own = [tool.spec for tool in tools if tool.name not in ours]
        have = {name for name, tool in self._tools.items() if self._is_offered(tool)}
        return [*native_schemas(provider, have), *schemas_for(provider, own)]

    def has(self, name: str) -> bool:
        return name in self._tools

    def add(
        self,
        function: Callable[..., Any],
        *,
        permission: str = "",
        reads_only: bool = False,
        name: str = "",
    ) -> None:
        """Add a function of the program as a tool; see `Runtime.tool`. Raises: ConfigError."""
        from paddock.runtime.own_tools import function_tool  # noqa: PLC0415 - few programs have one

        self._put(function_tool(function, name=name, permission=permission, reads_only=reads_only))

    def register(self, spec: ToolSpec[Any], handler: Callable[[Any], Any]) -> None:
        """Add a tool by a spec; `handler` takes its bound arguments. See `add` for the usual way.

        It is judged as `tool:client:<name>`. Raises: ConfigError if the name is taken or invalid.
        """
        from paddock.runtime.own_tools import registered_tool  # noqa: PLC0415 - as above

        self._put(registered_tool(spec, handler))


class PolicyJudge:
    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self.policy = policy
        self.chain = chain
        self._judge = judge_for(policy, chain)

    @property
    def policy_digest(self) -> str:
        return self.policy.digest

    def decide(self, actions: Sequence[Action]) -> Decision:
        if len(actions) == 1:
            # Nearly every call: the compiled judge, without the cost of the general case.
            return self._judge.decide(actions[0])
        return decide(self.policy, self.chain, actions, writer_of(actions))

    def is_shown(self, relative: str) -> bool:
        return self.policy.guards.find_secret(relative) is None

    def may_view(self, relative: str) -> bool:
        return self.allows(Action("file", "view", relative))

    def allows(self, action: Action) -> bool:
        return self._judge.decide(action).outcome is Outcome.ALLOW


class OperatorJudge(PolicyJudge):
    """Allows every act of the operator; the record has `tool` as the rule.

    It shows the operator no more than the workspace's agent may see.
    """

    def __init__(self, tool: str, shown: PolicyJudge) -> None:
        super().__init__(shown.policy, shown.chain)
        self.chain = (Agent(OPERATOR, "operator"),)
        self._tool = tool

    def decide(self, actions: Sequence[Action]) -> Decision:
        """Allow: a user who can run this program as the plane's owner can change every file."""
        rule = RuleMatch(Outcome.ALLOW, self._tool, "operator", "built-in", 0)
        action = str(actions[0]) if actions else self._tool
        return Decision(
            Outcome.ALLOW, action, "a person asked for it", rule, "", self.policy_digest, (rule,)
        )


class Caller(Struct, frozen=True):
    chain: AgentChain
    session_id: str
    is_programs: bool = False
    """True if a program gave the agent or the policy: no command can judge by them later."""

    @property
    def agent(self) -> str:
        return self.chain[0].name

    def chain_json(self) -> list[dict[str, Json]]:
        return [agent.as_json() for agent in self.chain]


class Contents(Protocol):
    def stand_in(self, content: bytes) -> dict[str, Json]:
        """Return a content's stand-in. Raises: ToolError, ConfigError, HostError."""
        ...

    def sync(self) -> None:
        """Wait until all kept contents are durable. Raises: as `stand_in`."""
        ...


class Context(Struct, frozen=True):
    """The dependencies of a dispatcher, all given by the host.

    `randomness(n)` returns n unpredictable bytes; `monotonic_ns` measures durations.
    """

    tools: Tools
    judge: PolicyJudge
    ports: Ports
    ledger: Ledger
    approver: Approver
    record_approval: Callable[[Entry], None]
    """Records a question or its answer. Raises: PaddockError; then it does not count."""
    caller: Caller
    randomness: Callable[[int], bytes]
    keeper: Approver = NoApprover()
    """Keeps requests for which no approver is asked now, to be answered later."""
    history: History | None = None
    contents: Contents | None = None
    """Keeps contents of arguments; None: only their digests are kept."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    after_write: Callable[[Sequence[str], str], None] = lambda _paths, _toolset: None
    """Called once a call that may write is recorded, with the changed paths and the toolset.

    The toolset is `shell` for every call that ran a command."""
