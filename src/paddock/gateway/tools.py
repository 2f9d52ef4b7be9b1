"""A server's tools, resources and prompts as tools of an agent: judged and recorded like any."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from paddock.errors import InvalidArgumentsError
from paddock.gateway.definitions import Definition, offered_name, show_values
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, needed_text, result_schema, text_map
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action

if TYPE_CHECKING:
    from paddock.gateway.gateway import Gateway

TOOLSET: Final = "mcp"
EFFECTS: Final = Effects(reads_only=False, is_destructive=True, is_open_world=True)
"""What is said of every one of them: a server's own word about that is worth nothing."""
_OUTPUT: Final = result_schema(
    {"mcp": {"type": "object", "description": "The result as the protocol has it."}}
)


class _Passed(ArgumentType):
    """Whatever the server takes: it says so itself, in the schema that was reviewed."""


class AskedPlan(Struct, frozen=True):
    server: str
    name: str
    arguments: Mapping[str, Json]
    actions: tuple[Action, ...]


class _Call:
    def __init__(self, gateway: "Gateway", server: str, tool: str) -> None:
        self._gateway, self._server, self._tool = gateway, server, tool

    def resolve(self, arguments: Mapping[str, Json], ports: Ports) -> AskedPlan:
        del ports
        action = Action("mcp", "call", f"{self._server}/{self._tool}")
        return AskedPlan(self._server, self._tool, arguments, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        """Raises: SandboxUnavailableError: nothing was done; ToolFailedError; StoppedCallError."""
        return self._gateway.call(plan.server, plan.name, plan.arguments, ports)


def server_tool(gateway: "Gateway", server: str, definition: Definition) -> Tool[Any]:
    said = definition.said
    spec = ToolSpec(
        name=offered_name(server, definition.name),
        title=str(show_values(said.get("title") or definition.name)),
        description=f"[{server}] {definition.description}",
        toolset=TOOLSET,
        arguments=_Passed,
        effects=EFFECTS,
        output_schema=_OUTPUT,
        passed=cast("dict[str, Json]", show_values(said.get("inputSchema") or {})),
    )
    return Tool(spec, _Call(gateway, server, definition.name))


class ReadArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    uri: str = needed_text("The resource, by its URI.")


class PromptArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    name: str = needed_text("The prompt.")
    arguments: dict[str, str] | None = text_map("What the prompt takes, each a text.")


class _Read:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    def resolve(self, arguments: ReadArguments, ports: Ports) -> AskedPlan:
        """Raises: InvalidArgumentsError: there is no such server."""
        del ports
        _require_server(self._gateway, arguments.server)
        action = Action("mcp", "read", f"{arguments.server}/{arguments.uri}")
        return AskedPlan(arguments.server, arguments.uri, {}, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        return self._gateway.read(plan.server, plan.name, ports)


class _Prompt:
    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    def resolve(self, arguments: PromptArguments, ports: Ports) -> AskedPlan:
        """Raises: InvalidArgumentsError: there is no such server."""
        del ports
        _require_server(self._gateway, arguments.server)
        action = Action("mcp", "prompt", f"{arguments.server}/{arguments.name}")
        return AskedPlan(arguments.server, arguments.name, arguments.arguments or {}, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        return self._gateway.prompt(plan.server, plan.name, plan.arguments, ports)


def _require_server(gateway: "Gateway", name: str) -> None:
    if name not in gateway.names:
        raise InvalidArgumentsError(
            f"there is no MCP server {quote(name)} whose definitions were reviewed",
            where="server",
            hint=f"there are: {', '.join(gateway.names) or 'none'}",
        )


def mcp_read_tool(gateway: "Gateway") -> Tool[ReadArguments]:
    spec = ToolSpec(
        name="mcp_read",
        title="Read a resource",
        description="Read a resource of an MCP server behind the gateway.",
        toolset=TOOLSET,
        arguments=ReadArguments,
        effects=Effects(reads_only=False, is_open_world=True),
        output_schema=_OUTPUT,
    )
    return Tool(spec, _Read(gateway))


def mcp_prompt_tool(gateway: "Gateway") -> Tool[PromptArguments]:
    spec = ToolSpec(
        name="mcp_prompt",
        title="Get a prompt",
        description="Get a prompt of an MCP server behind the gateway, filled in.",
        toolset=TOOLSET,
        arguments=PromptArguments,
        effects=Effects(reads_only=False, is_open_world=True),
        output_schema=_OUTPUT,
    )
    return Tool(spec, _Prompt(gateway))
