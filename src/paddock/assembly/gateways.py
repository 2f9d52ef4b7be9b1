"""Other people's MCP servers for one agent: what they offer, and their sandboxes."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paddock.assembly.project import (
    MCP,
    Project,
    new_call_id,
)
from paddock.assembly.shells import LazyShell, ShellGround
from paddock.gateway.definitions import Pins, reviewed
from paddock.gateway.tools import offered_tools
from paddock.policy.engine import Policy
from paddock.policy.settings import McpServer
from paddock.runtime.asking import AskedQuestion, CallNetwork
from paddock.runtime.dispatch import Context
from paddock.runtime.own_tools import OwnPlan, registered_tool
from paddock.runtime.prepared import FREE, Registry
from paddock.runtime.records import Recorder
from paddock.tools.arguments import ArgumentType
from paddock.tools.spec import Effects, ToolSpec
from paddock.values.calls import ToolCall
from paddock.values.decisions import (
    Action,
    Decision,
    Outcome,
)
from paddock.workspace import Workspace

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway


def add_others(
    registry: Registry,
    project: Project,
    policy: Policy,
    gateway: "Callable[[], McpGateway]",
) -> tuple[str, ...]:
    """Add what other people's servers offer; return what a person is to be told of them."""
    servers = policy.settings.mcp.servers
    pins = Pins(project.root, project.environment).read()
    for tool in offered_tools(servers, pins, gateway, registry.has):
        registry.add(tool)
    names = reviewed(servers, pins)
    return tuple(
        f"nothing of the MCP server {each.name} is offered before somebody has looked at it: "
        f"paddock mcp review {each.name}"
        for each in servers
        if each.name not in names
    )


def open_gateway(
    ground: ShellGround, context: Callable[[], Context], held: ExitStack
) -> "McpGateway":
    """Return other people's servers, of which none is started before it is asked something."""
    from paddock.gateway.confine import ServerSandbox  # noqa: PLC0415 - it loads the sandbox
    from paddock.gateway.gateway import McpGateway  # noqa: PLC0415 - it loads the SDK

    sandboxes: dict[str, ServerSandbox] = {}
    for server in ground.policy.settings.mcp.servers:
        own = replace(ground, server=server)
        if server.files == "none":
            directory = held.enter_context(TemporaryDirectory(prefix="paddock-mcp-"))
            own = replace(own, workspace=held.enter_context(Workspace.open(directory)))
        own = replace(own, policy=own.governed_by(ground.policy))
        shell = held.enter_context(closing(LazyShell(own)))
        sandboxes[server.name] = ServerSandbox(
            server, shell.open, partial(_server_network, context, server)
        )
    pins = Pins(ground.project.root, ground.project.environment).read()
    gateway = McpGateway(sandboxes, pins, ground.history.keep_for_ledger)
    return held.enter_context(closing(gateway))


def _server_network(context_now: Callable[[], Context], server: McpServer) -> CallNetwork:
    """Return who answers for what a server connects to, whichever call it is at work for."""
    context = context_now()
    spec = ToolSpec(
        f"mcp-{server.name}", server.name, "", MCP, ArgumentType, Effects(reads_only=False)
    )
    tool = registered_tool(spec, str)
    action = Action("mcp", "call", f"{server.name}/*")
    decision = Decision(Outcome.ALLOW, str(action), "", None, "", context.judge.policy_digest)
    plan, call = OwnPlan({}, (action,)), ToolCall(new_call_id(), tool.name, {})
    question = AskedQuestion(call, tool, plan, (str(action),), decision, FREE)
    return CallNetwork(context, Recorder(context.caller), question)
