"""One agent behind the server: its runtime and the tools that a client is shown."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_types import Tool

from paddock.apps.mcp.asking import ClientApprover
from paddock.assembly import Project, open_inbox, open_runtime, tools_shown
from paddock.runtime.inbox import Inbox
from paddock.runtime.runtime import Runtime


@dataclass(frozen=True, slots=True)
class Served:
    """An agent that clients can call."""

    agent: str
    runtime: Runtime
    inbox: Inbox
    tools: Mapping[str, Tool]
    """What is listed, and what may be called: the rest is unknown here."""


def open_served(project: Project, agent: str | None) -> Served:
    """Open an agent's runtime for clients.

    Raises: UsageError (no such agent), ConfigError, HostError.
    """
    name = agent or project.default_agent
    shown = frozenset(tools_shown(project, name))
    runtime = open_runtime(project, agent=name, approver=ClientApprover())
    tools = {
        schema["name"]: Tool.model_validate(schema)
        for schema in runtime.tools.for_provider("mcp")
        if schema["name"] in shown
    }
    return Served(name, runtime, open_inbox(project), tools)
