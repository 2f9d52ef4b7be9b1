"""Paddock: a workspace with a fence for LLM agents.

    import paddock

    with paddock.open("path/to/project", approver=ask_me) as runtime:
        tools = runtime.tools.for_provider("anthropic")
        result = runtime.call("view", {"path": "README.md"})
        result.content  # for the model
        result.details  # for the program

Importing this loads no tool, no policy engine and no SDK: names are loaded when
they are first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
"""`typing` costs half of what it takes until a signal is heard; see `apps.cli.entry`."""
if TYPE_CHECKING:
    from typing import Any, Final

    from paddock.assembly.runtimes import open_workspace as open  # noqa: A004 - the name a reader expects
    from paddock.assembly.sessions import open_session_at as open_session
    from paddock.errors import (
        ConfigError,
        HostError,
        IntegrityError,
        PaddockError,
        ToolError,
        UsageError,
    )
    from paddock.runtime.approvals import Approval, ApprovalRequest, Approver
    from paddock.runtime.own_tools import CallContext as Context
    from paddock.runtime.runtime import Runtime
    from paddock.tools.arguments import (
        ArgumentType,
        flag,
        needed_text,
        optional_integer,
        optional_text,
        plain_text,
    )
    from paddock.tools.spec import Effects, ToolOutput, ToolSpec
    from paddock.values.calls import ToolCall, ToolResult
    from paddock.values.decisions import Decision, Outcome

__version__: Final = "0.1.0"

_HOMES: Final = {
    "Approval": "paddock.runtime.approvals",
    "ApprovalRequest": "paddock.runtime.approvals",
    "Approver": "paddock.runtime.approvals",
    "ArgumentType": "paddock.tools.arguments",
    "ConfigError": "paddock.errors",
    "Context": "paddock.runtime.own_tools",
    "Decision": "paddock.values.decisions",
    "Effects": "paddock.tools.spec",
    "HostError": "paddock.errors",
    "IntegrityError": "paddock.errors",
    "Outcome": "paddock.values.decisions",
    "PaddockError": "paddock.errors",
    "Runtime": "paddock.runtime.runtime",
    "ToolCall": "paddock.values.calls",
    "ToolError": "paddock.errors",
    "ToolOutput": "paddock.tools.spec",
    "ToolResult": "paddock.values.calls",
    "ToolSpec": "paddock.tools.spec",
    "UsageError": "paddock.errors",
    "flag": "paddock.tools.arguments",
    "needed_text": "paddock.tools.arguments",
    "open": "paddock.assembly.runtimes",
    "open_session": "paddock.assembly.sessions",
    "optional_integer": "paddock.tools.arguments",
    "optional_text": "paddock.tools.arguments",
    "plain_text": "paddock.tools.arguments",
}
_OTHER_NAMES: Final = {
    "Context": "CallContext",
    "open": "open_workspace",
    "open_session": "open_session_at",
}
"""Public name → name at home, where that would hide another."""

__all__ = [
    "Approval",
    "ApprovalRequest",
    "Approver",
    "ArgumentType",
    "ConfigError",
    "Context",
    "Decision",
    "Effects",
    "HostError",
    "IntegrityError",
    "Outcome",
    "PaddockError",
    "Runtime",
    "ToolCall",
    "ToolError",
    "ToolOutput",
    "ToolResult",
    "ToolSpec",
    "UsageError",
    "flag",
    "needed_text",
    "open",
    "open_session",
    "optional_integer",
    "optional_text",
    "plain_text",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'paddock' has no attribute {name!r}")
    return getattr(import_module(home), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
