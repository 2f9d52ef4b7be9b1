"""The admin agent of a bare plane: from its configuration and the dual gate to an agent.

Which tools it has is decided here, once, when the plane is opened: `core` always,
`development` where the gate is open, `package` where the configuration names tools of
packages. Nothing else gives these toolsets to anybody.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from paddock.errors import ConfigError
from paddock.plane.admin_config import AdminConfig, DeclaredTool, read_admin_config
from paddock.plane.agent_files import AgentRecord
from paddock.plane.discovery import ProjectRoot
from paddock.plane.dual_gate import RISKY_TOOLS_VARIABLE, DualGate
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout
from paddock.policy.permissions import compile_permissions
from paddock.text.show import quote
from paddock.tools.spec import Tool
from paddock.tools.toolsets import all_tools
from paddock.values.agents import Agent
from paddock.values.calls import Json

ADMIN_AGENT: Final = "admin"
"""The agent that works on a bare plane."""
ADMIN_PROFILE: Final = "admin"
CORE: Final = "core"
DEVELOPMENT: Final = "development"
PACKAGE: Final = "package"
SHELL: Final = "shell"
"""Of tools that packages bring; see `package_tools`."""


def load_admin_config(root: ProjectRoot, layout: PlaneLayout) -> AdminConfig:
    """The configuration in force on a bare plane, its `tools` compared with what is registered.

    Raises: ConfigError: it does not load, or `tools` holds what cannot stand there.
    """
    config = read_admin_config(layout)
    require_registered(config)
    return config if root.accepted else config.tightened()


def find_gate(root: ProjectRoot, config: AdminConfig, environment: Environment) -> DualGate:
    """What the dual gate of a bare plane finds, now and for as long as the plane is open."""
    return DualGate(config.tool_profile, environment.risky_tools, root.accepted)


def admin_record(config: AdminConfig, gate: DualGate, layout: PlaneLayout) -> AgentRecord:
    """The admin agent, as the configuration declares it and the gate lets it be.

    Raises: ConfigError: a pattern of its permissions can match nothing.
    """
    agent = Agent(
        name=ADMIN_AGENT,
        profile=ADMIN_PROFILE,
        toolsets=_toolsets(config, gate),
        permissions=config.permissions,
        source=str(layout.admin_config),
        declaration=config.text,
    )
    compile_permissions(agent)
    return AgentRecord(agent, layout.root, False, layout.admin_config, config.digest)


def _toolsets(config: AdminConfig, gate: DualGate) -> tuple[str, ...]:
    development = (DEVELOPMENT,) if gate.is_open else ()
    return (CORE, *development, *((PACKAGE,) if config.package_tools else ()))


def declared_core_tools() -> list[dict[str, Json]]:
    """Every core tool as `tools` of the configuration holds it."""
    return [_declaration(tool) for tool in all_tools() if tool.spec.toolset == CORE]


def require_registered(config: AdminConfig) -> None:
    """Refuse entries of `tools` that are no core tools, or not as these are registered.

    Threat: a development tool in the list would stand before the model whatever the
    # gate says; a description of somebody else's making would tell the model something else.

    Raises: ConfigError naming the entry.
    """
    registered: Mapping[str, Tool[Any]] = {tool.name: tool for tool in all_tools()}
    seen: set[str] = set()
    for entry in config.tools or ():
        tool = registered.get(entry.tool_id)
        toolset = None if tool is None else tool.spec.toolset
        if toolset == DEVELOPMENT:
            raise _refused(
                entry,
                f"the development tool {quote(entry.tool_id)} stands in 'tools'",
                "take it out: tool_profile = development and"
                f" {RISKY_TOOLS_VARIABLE}=1 together give it",
            )
        if tool is None or toolset != CORE:
            known = ", ".join(name for name, each in registered.items() if _is_core(each))
            raise _refused(
                entry, f"{quote(entry.tool_id)} is no core tool", f"the core tools are: {known}"
            )
        if entry.tool_id in seen:
            raise _refused(entry, f"{quote(entry.tool_id)} stands there twice", "keep one of them")
        seen.add(entry.tool_id)
        _require_equal(entry, _declaration(tool))


def _is_core(tool: Tool[Any]) -> bool:
    return tool.spec.toolset == CORE


def _declaration(tool: Tool[Any]) -> dict[str, Json]:
    return {
        "tool_id": tool.name,
        "description": tool.spec.description,
        "handler": f"paddock.tools.{tool.name}",
        "parameters": tool.binder.schema,
    }


def _require_equal(entry: DeclaredTool, registered: dict[str, Json]) -> None:
    given = {"description": entry.description, "parameters": entry.parameters}
    if entry.handler is not None:
        given["handler"] = entry.handler
    for name, value in given.items():
        # As text: to Python, 1 and true are one value, and to JSON they are two.
        if _text(value) != _text(registered[name]):
            raise _refused(
                entry,
                f"the {name} of {quote(entry.tool_id)} is not the registered one",
                f"it is: {quote(_text(registered[name]))}; or take the entry out",
            )


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


def _refused(entry: DeclaredTool, message: str, hint: str) -> ConfigError:
    return ConfigError(message, where=entry.place, hint=hint)
