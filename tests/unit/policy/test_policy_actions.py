"""Actions and their patterns as text."""

import json

import pytest

from paddock.apps.hook.lean import request
from paddock.apps.hook.lean.request import parse_event
from paddock.errors import UsageError
from paddock.gates.results import ALL_GATES
from paddock.policy.compiled import matches_wild
from paddock.policy.positions import PatternError
from paddock.policy.profiles import rule_matches
from paddock.policy.rules import (
    CLOSED_TARGETS,
    GATES,
    JUDGED_AS,
    LEDGERS,
    MCP_PREFIX,
    HeadPattern,
    TargetKind,
    compile_rule,
    find_judged_as,
    is_normal_path,
    matches_widely,
    parse_action,
    parse_concrete,
    parse_head,
    parse_pattern,
)
from paddock.tools.plane import ALL
from paddock.tools.plane import LEDGERS as TOOLS_LEDGERS
from paddock.values.calls import Json
from paddock.values.decisions import Action, Outcome


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("tool:*", ("*", "*")),
        ("*", ("*", "*")),
        ("tool:file:*", ("file", "*")),
        ("tool:file:create", ("file", "create")),
        ("tool:*:view", ("*", "view")),
        ("tool:client:Agent", ("client", "Agent")),
        ("tool:client:*", ("client", "*")),
    ],
)
def test_a_head_is_read_by_segments(text: str, head: tuple[str, str]) -> None:
    assert parse_head(text) == HeadPattern(text, *head)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tool:fil:create", 'did you mean "file"?'),
        ("tool:file:crate", 'did you mean "create"?'),
        ("tool:file", "write tool:file:* for all of a category"),
        ("tool:*:nonsense", "known are"),
        ("tool:file:cre*", "* matches a whole segment"),
        ("file:create", "write tool:<category>:<operation>"),
        ("tool:file:create:x", "write tool:file"),
        ("tool::create", "write tool:"),
        ("", "write tool:"),
        ("*:file", "write tool:"),
    ],
)
def test_a_head_that_can_match_nothing_is_refused_with_what_was_meant(text: str, hint: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_head(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("tool:file:create", None),
        ("tool:file:create *", None),
        ("tool:* *", None),
        ("tool:file:create docs/**", TargetKind.PATH),
        ("tool:file:* docs/**", TargetKind.PATH),
        ("tool:shell:run git diff *", TargetKind.COMMAND),
        ("tool:shell:run *", TargetKind.COMMAND),
        ("tool:mcp:call mcp__toy__*", TargetKind.NAME),
    ],
)
def test_the_target_is_of_the_kind_of_its_category(text: str, kind: TargetKind | None) -> None:
    assert parse_pattern(text).kind is kind


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("tool:client:Bash", "Bash is judged as tool:shell:run"),
        ("tool:client:Write", "Write is judged as tool:file:create"),
        (
            "tool:client:apply_patch",
            "apply_patch is judged as tool:file:create, tool:file:str_replace and tool:file:delete",
        ),
        ("tool:client:mcp__a__b", "mcp__a__b is judged as tool:mcp:call mcp__a__b"),
        ("tool:client:WebFetch example.com", "it has no target: write tool:client:WebFetch"),
        (
            "tool:mcp:call github",
            (
                "its target is SERVER/TOOL, as in tool:mcp:call issues/*, or for a client's own"
                " server mcp__server__*"
            ),
        ),
        ("tool:mcp:read mcp__a__b", "its target is SERVER/URI, as in tool:mcp:read issues/*"),
        ("tool:ledger:query ho3", "known are governance, ho1m, ho2m"),
        ("tool:ledger:query governence", 'did you mean "governance"?'),
        ("tool:gate:check G9", "known are G0A, G0B, G1, G1-COMPLETE, G2, G3, G4, G5, G6, all"),
        ("tool:package:list PKG-1", "it has no target: write tool:package:list"),
        ("tool:package:run PKG-1", "its target is PACKAGE/TOOL, as in tool:package:run PKG-1/*"),
    ],
)
def test_a_name_that_no_call_has_is_refused_with_how_it_is_judged(text: str, hint: str) -> None:
    for parse in (parse_pattern, parse_concrete):
        with pytest.raises(PatternError) as caught:
            parse(text)
        assert caught.value.message == f'no call is judged as "{text}"'
        assert caught.value.hint == hint
    with pytest.raises(UsageError, match="no call is judged as") as typed:
        parse_action(text)
    assert typed.value.hint == hint


@pytest.mark.parametrize(
    "text", ["tool:mcp:call _x*", "tool:ledger:query h*3", "tool:gate:check G9*", "tool:*:query x"]
)
def test_a_star_that_no_call_fills_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match="no call is judged as"):
        parse_pattern(text)


@pytest.mark.parametrize(
    "text",
    [
        "tool:client:*",
        "tool:client:bash",
        "tool:client:WebFetch *",
        "tool:mcp:call mcp__github__*",
        "tool:mcp:call MCP__github__*",
        "tool:mcp:call m*",
        "tool:mcp:call *github*",
        "tool:mcp:call",
        "tool:ledger:query ho1m",
        "tool:ledger:query HO*",
        "tool:*:query ho*",
        "tool:gate:check all",
        "tool:gate:check G1*",
        "tool:package:list",
        "tool:package:list *",
        "tool:package:run PKG-1/*",
        "tool:package:run *",
        "tool:package:* PKG-1/count",
    ],
)
def test_a_name_that_a_call_can_have_is_taken(text: str) -> None:
    assert parse_pattern(text).text == text


def test_a_target_for_more_than_one_kind_is_refused() -> None:
    with pytest.raises(PatternError):
        parse_pattern("tool:* docs/**")
    with pytest.raises(PatternError):
        parse_pattern("tool:file:create ../x")
    with pytest.raises(PatternError):
        parse_pattern("tool:file:create !x")


@pytest.mark.parametrize(
    ("pattern", "operation", "widely"),
    [
        ("tool:client:webfetch", "WebFetch", True),
        ("tool:client:WebFetch", "webfetch", True),
        ("tool:client:*", "WebFetch", True),
        ("tool:client:WebFetch", "WebSearch", False),
        ("tool:file:view", "VIEW", False),
    ],
)
def test_the_name_of_a_clients_tool_is_denied_whatever_its_case(
    pattern: str, operation: str, widely: bool
) -> None:
    action = Action(pattern.split(":")[1], operation, "")
    rules = (compile_rule(pattern, each, "a test") for each in (Outcome.DENY, Outcome.ALLOW))
    assert [rule_matches(rule, action) for rule in rules] == [widely, pattern.endswith("*")]


def test_a_star_in_a_name_stands_for_any_part_of_it() -> None:
    pattern = "mcp__toy__*"
    assert matches_wild(pattern, "mcp__toy__add")
    assert matches_wild(pattern, "mcp__toy__")
    assert not matches_wild(pattern, "mcp__Toy__add")
    assert matches_widely(pattern, "mcp__Toy__add")
    assert not matches_widely(pattern, "mcp__toys__add")
    assert not matches_wild("add", "add\n")
    assert matches_wild("a*", "a\nb")
    assert matches_wild("a.c", "a.c")
    assert not matches_wild("a.c", "abc")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("tool:file:view src/a.py", Action("file", "view", "src/a.py")),
        ("tool:file:view ./src//a.py", Action("file", "view", "src/a.py")),
        ("tool:search:ls", Action("search", "ls", ".")),
        ("tool:search:ls .", Action("search", "ls", ".")),
        ("tool:shell:run git  diff", Action("shell", "run", "git  diff")),
        ("tool:client:Agent", Action("client", "Agent", "")),
        ("tool:mcp:call mcp__toy__add", Action("mcp", "call", "mcp__toy__add")),
    ],
)
def test_an_action_is_read_as_people_type_it(text: str, action: Action) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "tool:file:view ../a",
        "tool:file:view /etc/passwd",
        "tool:file:view a/../../b",
        "tool:file:veiw a",
        "tool:file:* a",
        "file:view a",
        "tool:file a",
        "",
        "tool:file:view a\0b",
    ],
)
def test_what_is_no_action_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_action(text)


def test_a_normal_path_has_no_way_out_and_no_second_name() -> None:
    good = [".", "a", "a/b", "a./b", "..a/b", "a/..b", ".a/b", "..."]
    bad = ["", "/a", "a/", "a//b", "..", "../a", "a/..", "a/../b", "./a", "a/./b", "a/.", "a\0b"]
    assert {path: is_normal_path(path) for path in good + bad} == dict.fromkeys(
        good, True
    ) | dict.fromkeys(bad, False)


PATCH = "*** Add File: a\n*** Update File: b\n*** Delete File: c\n"


def judged_by_the_hook(tool: str) -> set[str]:
    """The heads of what the hook makes of a call of this tool."""
    given: dict[str, Json] = {"file_path": "a", "notebook_path": "a", "path": "a"}
    given["command"] = PATCH if tool == request.PATCH_TOOL else "true"
    call = json.dumps({"tool_name": tool, "tool_input": given}).encode()
    found = request.find_wanted(parse_event(call, "claude"))
    heads = {f"tool:file:{operation}" for operation, _ in found.paths}
    if found.line is not None:
        heads.add("tool:shell:run")
    if found.name is not None:
        heads.add(":".join(("tool", *found.name[:2])))
    return heads


def test_what_the_hook_judges_by_what_it_does_is_known_here() -> None:
    theirs = {*request.FILE_TOOLS, request.SHELL_TOOL, request.PATCH_TOOL}
    assert set(JUDGED_AS) == theirs
    assert {tool: judged_by_the_hook(tool) for tool in theirs} == {
        tool: set(heads) for tool, heads in JUDGED_AS.items()
    }
    assert request.MCP_PREFIX == MCP_PREFIX
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
