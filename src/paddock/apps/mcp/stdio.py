"""Serving one client over this process's standard streams."""

import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import TextIO

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from paddock.apps.mcp.served import Agents, Served
from paddock.apps.mcp.server import make_server
from paddock.errors import HostError, UsageError


@dataclass(frozen=True, slots=True)
class OneAgent:
    """Every request is for the agent that the server was started for."""

    agents: Agents
    name: str | None

    def served(self) -> Served:
        """That agent."""
        return self.agents.get(self.name)


def serve_stdio(agents: Agents, agent: str | None, streams: tuple[TextIO, TextIO]) -> None:
    """Serve until the client closes our input, or until SIGTERM or SIGINT.

    Calls that still run are told to stop, and waited for.

    Raises: UsageError: also where what comes in is not UTF-8; ConfigError;
        HostError: the streams cannot be used.
    """
    try:
        # What cannot be served is said to whoever starts it, and not to each request.
        agents.get(agent)
        calls_max = agents.project.policy.settings.mcp.calls_max
        anyio.run(partial(_serve, make_server(OneAgent(agents, agent), calls_max), streams))
    except ExceptionGroup as group:
        if group.subgroup(UnicodeDecodeError):
            raise UsageError(
                "what came in is not UTF-8",
                where="standard input",
                hint="MCP messages are JSON in UTF-8",
            ) from group
        _, rest = group.split(OSError)
        if rest is not None:
            raise
        if not group.subgroup(BrokenPipeError):
            raise HostError("the standard streams cannot be used") from group
    finally:
        agents.close()


async def _serve(server: Server[object], streams: tuple[TextIO, TextIO]) -> None:
    # Of the process's own streams the SDK takes the descriptors: what a library prints
    # by mistake goes to stderr and not into the protocol.
    is_process = streams == (sys.stdin, sys.stdout)
    connection = stdio_server() if is_process else stdio_server(*map(anyio.wrap_file, streams))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, tasks.cancel_scope)
        async with connection as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _stop_at_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for _ in received:
            scope.cancel()
            return
