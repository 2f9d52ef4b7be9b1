"""A tool result as an MCP client gets it.

Text alone, which is made for the model: today's clients show `structuredContent` in its
place, escaped. Where both are asked for (`paddock mcp --structured`), that holds `content`
too, and of the other fields those that are short and are not said there. Host paths stay
here.
"""

from typing import Final

from mcp_types import CallToolResult, TextContent

from paddock.values.calls import Json, ToolResult

APPROVAL: Final = "approval"
"""The id of a request that waits in the inbox."""
_TEXT_CHARS_MAX: Final = 120
_LEFT_OUT: Final = frozenset(
    {"success", "path", "to", "action", "error", "hint", "rule", "warnings"}
)
"""Said in `content`, or for the host alone: `path` and `to` are absolute in the workspace's
tools."""


def structured(result: ToolResult) -> dict[str, Json]:
    """What a model reads of a result: valid under the tool's output schema."""
    shown: dict[str, Json] = {"status": result.status, "content": result.content}
    if result.refusal is not None:
        shown["code"] = result.refusal.code
    if APPROVAL in result.details:
        # Also for programs, which do not look for it in a sentence.
        shown[APPROVAL] = result.details[APPROVAL]
    for name, value in result.details.items():
        if name not in shown and name not in _LEFT_OUT and _is_short(value, result.content):
            shown[name] = value
    return shown


def call_result(result: ToolResult, *, is_structured: bool) -> CallToolResult:
    """A refused call is an error result, never a protocol error: the model can act on it."""
    return CallToolResult(
        content=[TextContent(type="text", text=result.content)],
        structured_content=structured(result) if is_structured else None,
        is_error=result.refusal is not None,
    )


def _is_short(value: Json, content: str) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _TEXT_CHARS_MAX and value not in content
    return isinstance(value, bool | int | float)
