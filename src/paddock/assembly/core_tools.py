"""The core tools as an admin agent's configuration declares them.

Apart from `admin`, as it loads every tool: a project's plane has no such configuration.
"""

from collections.abc import Mapping
from typing import Any

from paddock.assembly.admin import CORE, DEVELOPMENT
from paddock.errors import ConfigError
from paddock.plane.admin import AdminConfig, DeclaredTool, read_admin_config
from paddock.plane.discover import ProjectRoot
from paddock.plane.dual_gate import RISKY_TOOLS_VARIABLE
from paddock.plane.layout import PlaneLayout
from paddock.text.show import quote
from paddock.tools.spec import Tool
from paddock.tools.toolsets import all_tools
from paddock.values.calls import Json


def load_admin_config(root: ProjectRoot, layout: PlaneLayout) -> AdminConfig:
    """The configuration in force on a bare plane, its `tools` looked up among what is registered.

    Raises: ConfigError: it does not load, or `tools` holds what cannot stand there.
    """
    config = read_admin_config(layout)
    require_registered(config)
    return config if root.accepted else config.tightened()


def declared_core_tools() -> list[dict[str, Json]]:
    """Every core tool as `tools` of the configuration holds it."""
    return [_declaration(tool) for tool in all_tools() if tool.spec.toolset == CORE]


def require_registered(config: AdminConfig) -> None:
    """Refuse entries of `tools` that are no core tools.

    What else stands in an entry counts for nothing: a model is told what is registered.

    Threat: a development tool in the list would stand before the model whatever the
    gate says.

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


def _is_core(tool: Tool[Any]) -> bool:
    return tool.spec.toolset == CORE


def _declaration(tool: Tool[Any]) -> dict[str, Json]:
    return {
        "tool_id": tool.name,
        "description": tool.spec.description,
        "handler": f"paddock.tools.{tool.name}",
        "parameters": tool.binder.schema,
    }


def _refused(entry: DeclaredTool, message: str, hint: str) -> ConfigError:
    return ConfigError(message, where=entry.place, hint=hint)
