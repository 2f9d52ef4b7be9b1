"""Structured results hold what the model needs, once, and nothing of the host."""

import jsonschema
import pytest

from paddock.apps.mcp.server import call_result, structured
from paddock.tools.toolsets import all_tools
from paddock.values.calls import Refusal, ToolResult

DETAILS = {
    "path": "/home/somebody/project/a",
    "to": "/home/somebody/project/b",
    "action": "created",
    "content_snippet": "     1\tx",
    "bytes_written": 1,
    "version": "sha256:" + "0" * 64,
    "success": True,
    "error": None,
    "warnings": ["said in content"],
    "matches": [{"path": "a", "line": 1}],
    "truncated": False,
}


def test_what_the_text_says_is_not_said_again_and_host_paths_are_not_said_at_all():
    result = ToolResult("C", "create_file", "created a (1 bytes)\n     1\tx", DETAILS)
    assert structured(result) == {
        "status": "ok",
        "content": "created a (1 bytes)\n     1\tx",
        "bytes_written": 1,
        "version": "sha256:" + "0" * 64,
        "truncated": False,
    }


def test_a_refusal_is_an_error_result_with_its_code_and_the_request_that_waits():
    refusal = Refusal("approval.unavailable", "needs an approval", "ask APR-1", {"text": "x"})
    details = {"success": False, "approval": "APR-1"}
    result = ToolResult("C", "x", refusal.as_text(), details, refusal)
    text = call_result(result, is_structured=False)
    assert (text.is_error, text.structured_content) == (True, None)
    shown = call_result(result, is_structured=True)
    assert shown.is_error
    assert shown.structured_content == {
        "status": "error",
        "content": refusal.as_text(),
        "code": "approval.unavailable",
        "approval": "APR-1",
    }
    assert shown.content[0].text == refusal.as_text()


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_every_result_fits_the_tools_output_schema(tool):
    schema = dict(tool.spec.output_schema)
    details = {name: _sample(field) for name, field in schema["properties"].items()}
    refusal = Refusal("internal", "x", "y")
    for result in (
        ToolResult("C", tool.name, "text", details),
        ToolResult("C", tool.name, "text", {**details, "approval": "APR-1"}, refusal),
    ):
        jsonschema.validate(structured(result), schema)


def _sample(field):
    if "enum" in field:
        return field["enum"][0]
    kind = field.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    return {"string": "s", "integer": 1, "number": 1.5, "boolean": True}.get(kind)
