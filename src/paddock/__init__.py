"""Paddock: a sandbox, policy and ledger for LLM agents.

    import paddock

    with paddock.open("path/to/project", approver=ask_me) as runtime:
        tools = runtime.tools.for_provider("anthropic")
        result = runtime.call("view", {"path": "README.md"})
        result.content  # for the model
        result.details  # for the program

Importing this package loads no tool, policy engine or SDK: names are loaded at
their first use.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
"""Importing `typing` would double the time until signals are handled; see `apps.cli.entry`."""
if TYPE_CHECKING:
    from typing import Any, Final

    from paddock.agent.events import TurnListener
    from paddock.agent.sessions import Session
    from paddock.assembly.runtimes import check
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
    from paddock.plane.agents import AgentSpec
    from paddock.policy.engine import Policy
    from paddock.policy.rules import format_action
    from paddock.providers.gateway import Provider
    from paddock.runtime.approvals import Approval, ApprovalRequest, Approver
    from paddock.runtime.own_tools import CallContext as Context
    from paddock.runtime.prepared import Bounds, Tools
    from paddock.runtime.program import LastingShell
    from paddock.runtime.runtime import Runtime
    from paddock.tools.arguments import (
        ArgumentType,
        flag,
        needed_text,
        optional_integer,
        optional_text,
        plain_text,
    )
    from paddock.tools.spec import Change, Effects, Tool, ToolOutput, ToolSpec
    from paddock.values.calls import Refusal, ToolCall, ToolResult
    from paddock.values.decisions import Action, Decision, Outcome, Permissions, RuleMatch

__version__: Final = "0.1.0"

_HOMES: Final = {
    name: f"paddock.{home}"
    for home, names in {
        "agent.events": "TurnListener",
        "agent.sessions": "Session",
        "assembly.runtimes": "check open",
        "assembly.sessions": "open_session",
        "errors": "ConfigError HostError IntegrityError PaddockError ToolError UsageError",
        "plane.agents": "AgentSpec",
        "policy.engine": "Policy",
        "policy.rules": "format_action",
        "providers.gateway": "Provider",
        "runtime.approvals": "Approval ApprovalRequest Approver",
        "runtime.program": "LastingShell",
        "runtime.own_tools": "Context",
        "runtime.prepared": "Bounds Tools",
        "runtime.runtime": "Runtime",
        "tools.arguments": "ArgumentType flag needed_text optional_integer optional_text"
        " plain_text",
        "tools.spec": "Change Effects Tool ToolOutput ToolSpec",
        "values.calls": "Refusal ToolCall ToolResult",
        "values.decisions": "Action Decision Outcome Permissions RuleMatch",
    }.items()
    for name in names.split()
}
_OTHER_NAMES: Final = {
    "Context": "CallContext",
    "open": "open_workspace",
    "open_session": "open_session_at",
}
"""Public name → name in its module, if different."""

# fmt: off
__all__ = [
    "Action", "AgentSpec", "Approval", "ApprovalRequest", "Approver", "ArgumentType",
    "Bounds", "Change", "ConfigError", "Context", "Decision", "Effects", "HostError",
    "IntegrityError", "LastingShell", "Outcome", "PaddockError", "Permissions", "Policy",
    "Provider", "Refusal", "RuleMatch", "Runtime", "Session", "Tool", "ToolCall", "ToolError",
    "ToolOutput", "ToolResult", "ToolSpec", "Tools", "TurnListener", "UsageError", "check",
    "flag", "format_action", "needed_text", "open", "open_session", "optional_integer",
    "optional_text", "plain_text",
]
# fmt: on


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'paddock' has no attribute {name!r}")
    return getattr(import_module(home), _OTHER_NAMES.get(name, name))


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
