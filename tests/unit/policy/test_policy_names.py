"""The names that policy takes for a call's, against those who judge the calls."""

import json

import pytest

from paddock.apps.hook.lean import asked
from paddock.apps.hook.lean.asked import parse_asked
from paddock.gates.results import ALL_GATES
from paddock.policy.rules import (
    CLOSED_TARGETS,
    GATES,
    JUDGED_AS,
    LEDGERS,
    MCP_PREFIX,
    find_judged_as,
)
from paddock.tools.plane import ALL
from paddock.tools.plane import LEDGERS as TOOLS_LEDGERS
from paddock.values.calls import Json

PATCH = "*** Add File: a\n*** Update File: b\n*** Delete File: c\n"


def judged_by_the_hook(tool: str) -> set[str]:
    """The heads of what the hook makes of a call of this tool."""
    given: dict[str, Json] = {"file_path": "a", "notebook_path": "a", "path": "a"}
    given["command"] = PATCH if tool == asked.PATCH_TOOL else "true"
    call = json.dumps({"tool_name": tool, "tool_input": given}).encode()
    found = asked.find_wanted(parse_asked(call, "claude"))
    heads = {f"tool:file:{operation}" for operation, _ in found.paths}
    if found.line is not None:
        heads.add("tool:shell:run")
    if found.name is not None:
        heads.add(":".join(("tool", *found.name[:2])))
    return heads


def test_what_the_hook_judges_by_what_it_does_is_known_here() -> None:
    theirs = {*asked.FILE_TOOLS, asked.SHELL_TOOL, asked.PATCH_TOOL}
    assert set(JUDGED_AS) == theirs
    assert {tool: judged_by_the_hook(tool) for tool in theirs} == {
        tool: set(heads) for tool, heads in JUDGED_AS.items()
    }
    assert asked.MCP_PREFIX == MCP_PREFIX
    assert judged_by_the_hook("mcp__a__b") == {"tool:mcp:call"}
    assert find_judged_as("mcp__a__b") == ("tool:mcp:call mcp__a__b",)


@pytest.mark.parametrize("tool", ["bash", "BASH", "WebFetch", "Agent", "mcp", "Glob", "view"])
def test_any_other_tool_is_judged_by_its_name(tool: str) -> None:
    # And by what its members name: a path that it reads, a line that it runs.
    assert judged_by_the_hook(tool) == {f"tool:client:{tool}", "tool:file:view", "tool:shell:run"}
    assert find_judged_as(tool) == ()


def test_the_ledgers_and_gates_are_those_of_the_tools() -> None:
    assert LEDGERS == TOOLS_LEDGERS
    assert (ALL, *ALL_GATES) == GATES
    assert CLOSED_TARGETS == {("ledger", "query"): LEDGERS, ("gate", "check"): GATES}
