"""Offer a server's tools, resources and prompts as an agent's tools, judged and recorded."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from msgspec import Struct

from paddock.errors import InvalidArgumentsError
from paddock.gateway.definitions import Definition, Pinned, offered_name, reviewed, show_values
from paddock.policy.settings import McpServer, offers
from paddock.text.show import quote
from paddock.tools.arguments import ArgumentType, needed_text, result_schema, text_map
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway

TOOLSET: Final = "mcp"
EFFECTS: Final = Effects(reads_only=False, is_destructive=True, is_open_world=True)
"""Assumed for all of them: a server's own hints cannot be trusted."""
_OUTPUT: Final = result_schema(
    {"mcp": {"type": "object", "description": "The result as the protocol has it."}}
)


Opened = Callable[[], "McpGateway"]
"""A function, so that the SDK is only loaded at the first request to a server."""


class _Passed(ArgumentType):
    """Arguments for the server: the reviewed schema describes them."""


class AskedPlan(Struct, frozen=True):
    operation: Literal["call", "read", "prompt"]
    server: str
    name: str
    """A tool's or prompt's name, or a resource's URI."""
    arguments: Mapping[str, Json]

    @property
    def actions(self) -> tuple[Action, ...]:
        arguments_json = json.dumps(dict(self.arguments), ensure_ascii=False)
        return (Action("mcp", self.operation, f"{self.server}/{self.name}", arguments_json),)


class _Asking:
    def __init__(self, gateway: Opened, plan_of: Callable[[Any], AskedPlan]) -> None:
        self._gateway, self._plan_of = gateway, plan_of

    def resolve(self, arguments: Any, ports: Ports) -> AskedPlan:
        """Raises: InvalidArgumentsError: no such server was reviewed."""
        del ports
        return self._plan_of(arguments)

    def run(self, plan: AskedPlan, ports: Ports) -> ToolOutput:
        """Raises: SandboxUnavailableError: nothing was done; ToolFailedError; StoppedCallError."""
        return self._gateway().ask(plan, ports)


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
    return Tool(spec, _Asking(gateway, partial(AskedPlan, "call", server.name, definition.name)))


class ReadArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    uri: str = needed_text("The resource, by its URI.")


class PromptArguments(ArgumentType):
    server: str = needed_text("The server that has it.")
    name: str = needed_text("The prompt.")
    arguments: dict[str, str] | None = text_map("What the prompt takes, each a text.")


def _of_servers(gateway: Opened, names: Sequence[str]) -> Iterator[Tool[Any]]:
    """Yield the tools that read a resource or get a prompt of any reviewed server."""

    def plan_of(given: ReadArguments | PromptArguments) -> AskedPlan:
        if given.server not in names:
            raise InvalidArgumentsError(
                f"no reviewed MCP server is named {quote(given.server)}",
                where="server",
                hint=f"reviewed servers: {', '.join(names) or 'none'}",
            )
        if isinstance(given, ReadArguments):
            return AskedPlan("read", given.server, given.uri, {})
        return AskedPlan("prompt", given.server, given.name, given.arguments or {})

    rows: tuple[tuple[str, str, type[Any]], ...] = (
        ("mcp_read", "Read a resource", ReadArguments),
        ("mcp_prompt", "Get a prompt", PromptArguments),
    )
    for name, title, arguments in rows:
        description = f"{title} of an MCP server behind the gateway."
        spec = ToolSpec(name, title, description, TOOLSET, arguments, EFFECTS, _OUTPUT)
        yield Tool(spec, _Asking(gateway, plan_of))


def offered_tools(
    servers: Sequence[McpServer],
    pins: Mapping[str, Pinned],
    gateway: Opened,
    is_taken: Callable[[str], bool],
) -> list[Tool[Any]]:
    """Return the tools to offer of reviewed servers; a name that is taken is left out."""
    names = reviewed(servers, pins)
    if not names:
        return []
    found: dict[str, Tool[Any]] = {}
    for server in (each for each in servers if each.name in names):
        for each in pins[server.name].of("tool"):
            if offers(server, each.name):
                tool = _server_tool(gateway, server, each)
                found.setdefault(tool.name, tool)
    tools = (*found.values(), *_of_servers(gateway, names))
    return [each for each in tools if not is_taken(each.name)]
