"""A server's tools, resources and prompts as tools of an agent: judged and recorded like any."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from paddock.errors import InvalidArgumentsError
from paddock.gateway.definitions import Definition, Pinned, offered_name, reviewed, show_values
from paddock.policy.mcp_servers import offers
from paddock.policy.settings import McpServer
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, needed_text, result_schema, text_map
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway

TOOLSET: Final = "mcp"
EFFECTS: Final = Effects(reads_only=False, is_destructive=True, is_open_world=True)
"""What is said of every one of them: a server's own word about that is worth nothing."""
_OUTPUT: Final = result_schema(
    {"mcp": {"type": "object", "description": "The result as the protocol has it."}}
)


Opened = Callable[[], "McpGateway"]
"""The SDK is loaded when the first server is asked something."""


class _Passed(ArgumentType):
    """Whatever the server takes: it says so itself, in the schema that was reviewed."""


class AskedPlan(Struct, frozen=True):
    server: str
    name: str
    arguments: Mapping[str, Json]
    actions: tuple[Action, ...]


class _Call:
    def __init__(self, gateway: Opened, server: str, tool: str) -> None:
        self._gateway, self._server, self._tool = gateway, server, tool

    def resolve(self, arguments: Mapping[str, Json], ports: Ports) -> AskedPlan:
        del ports
        said = json.dumps(dict(arguments), ensure_ascii=False)
        action = Action("mcp", "call", f"{self._server}/{self._tool}", said)
        return AskedPlan(self._server, self._tool, arguments, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        """Raises: SandboxUnavailableError: nothing was done; ToolFailedError; StoppedCallError."""
        return self._gateway().call(plan.server, plan.name, plan.arguments, ports)


def _server_tool(gateway: Opened, server: McpServer, definition: Definition) -> Tool[Any]:
    said = definition.said
    spec = ToolSpec(
        name=offered_name(server.name, definition.name),
        title=str(show_values(said.get("title") or definition.name)),
        description=f"[{server.name}] {definition.description}",
        toolset=TOOLSET,
        arguments=_Passed,
        effects=EFFECTS,
        output_schema=_OUTPUT,
        recording=server,
        passed=cast("dict[str, Json]", show_values(said.get("inputSchema") or {})),
    )
    return Tool(spec, _Call(gateway, server.name, definition.name))


class ReadArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    uri: str = needed_text("The resource, by its URI.")


class PromptArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    name: str = needed_text("The prompt.")
    arguments: dict[str, str] | None = text_map("What the prompt takes, each a text.")


class _Read:
    def __init__(self, gateway: Opened, names: Sequence[str]) -> None:
        self._gateway, self._names = gateway, names

    def resolve(self, arguments: ReadArguments, ports: Ports) -> AskedPlan:
        """Raises: InvalidArgumentsError: there is no such server."""
        del ports
        _require_server(self._names, arguments.server)
        action = Action("mcp", "read", f"{arguments.server}/{arguments.uri}")
        return AskedPlan(arguments.server, arguments.uri, {}, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        return self._gateway().read(plan.server, plan.name, ports)


class _Prompt:
    def __init__(self, gateway: Opened, names: Sequence[str]) -> None:
        self._gateway, self._names = gateway, names

    def resolve(self, arguments: PromptArguments, ports: Ports) -> AskedPlan:
        """Raises: InvalidArgumentsError: there is no such server."""
        del ports
        _require_server(self._names, arguments.server)
        said = json.dumps(arguments.arguments or {}, ensure_ascii=False)
        action = Action("mcp", "prompt", f"{arguments.server}/{arguments.name}", said)
        return AskedPlan(arguments.server, arguments.name, arguments.arguments or {}, (action,))

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        return self._gateway().prompt(plan.server, plan.name, plan.arguments, ports)


def _require_server(names: Sequence[str], name: str) -> None:
    if name not in names:
        raise InvalidArgumentsError(
            f"there is no MCP server {quote(name)} whose definitions were reviewed",
            where="server",
            hint=f"there are: {', '.join(names) or 'none'}",
        )


def _read_tool(gateway: Opened, names: Sequence[str]) -> Tool[ReadArguments]:
    spec = ToolSpec(
        name="mcp_read",
        title="Read a resource",
        description="Read a resource of an MCP server behind the gateway.",
        toolset=TOOLSET,
        arguments=ReadArguments,
        effects=Effects(reads_only=False, is_open_world=True),
        output_schema=_OUTPUT,
    )
    return Tool(spec, _Read(gateway, names))


def _prompt_tool(gateway: Opened, names: Sequence[str]) -> Tool[PromptArguments]:
    spec = ToolSpec(
        name="mcp_prompt",
        title="Get a prompt",
        description="Get a prompt of an MCP server behind the gateway, filled in.",
        toolset=TOOLSET,
        arguments=PromptArguments,
        effects=Effects(reads_only=False, is_open_world=True),
        output_schema=_OUTPUT,
    )
    return Tool(spec, _Prompt(gateway, names))


def offered_tools(
    servers: Sequence[McpServer],
    pins: Mapping[str, Pinned],
    gateway: Opened,
    is_taken: Callable[[str], bool],
) -> list[Tool[Any]]:
    """Return what is offered of servers that were reviewed; never under a name that is taken."""
    names = reviewed(servers, pins)
    if not names:
        return []
    found: dict[str, Tool[Any]] = {}
    for server in (each for each in servers if each.name in names):
        for each in pins[server.name].of("tool"):
            if offers(server, each.name):
                tool = _server_tool(gateway, server, each)
                found.setdefault(tool.name, tool)
    tools = (*found.values(), _read_tool(gateway, names), _prompt_tool(gateway, names))
    return [each for each in tools if not is_taken(each.name)]
