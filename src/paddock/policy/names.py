"""Which names a call can be judged by, so that a rule for any other is a mistake. Pure.

Threat: `deny = ["tool:client:Bash"]` reads as if it denied something. A client's Bash is
judged as `tool:shell:run`, so nothing would ever match it.

The layers above say what they judge; tests hold these lists against theirs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

JUDGED_AS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Bash": ("tool:shell:run",),
        "Write": ("tool:file:create",),
        "Edit": ("tool:file:str_replace",),
        "MultiEdit": ("tool:file:str_replace",),
        "NotebookEdit": ("tool:file:str_replace",),
        "Read": ("tool:file:view",),
        "NotebookRead": ("tool:file:view",),
        "view_image": ("tool:file:view",),
        "apply_patch": ("tool:file:create", "tool:file:str_replace", "tool:file:delete"),
    }
)
"""Tools of clients that are judged by what they do, so never as `tool:client:NAME`."""
MCP_PREFIX: Final = "mcp__"
"""Of a client's name for a tool of another MCP server, judged as `tool:mcp:call NAME`."""

LEDGERS: Final = ("governance", "ho2m", "ho1m")
GATES: Final = ("all", "G0A", "G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6")

CLOSED_TARGETS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("ledger", "query"): LEDGERS,
        ("gate", "check"): GATES,
    }
)
"""Heads whose targets are all known."""


def find_judged_as(tool: str) -> tuple[str, ...]:
    """As what a client's tool of this name is judged, if not as `tool:client:` with its name."""
    if tool.startswith(MCP_PREFIX):
        return (f"tool:mcp:call {tool}",)
    return JUDGED_AS.get(tool, ())
