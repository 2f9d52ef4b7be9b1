"""Actions and their patterns as text."""

import pytest

from paddock.errors import UsageError
from paddock.policy.actions import (
    HeadPattern,
    NamePattern,
    TargetKind,
    is_normal_path,
    parse_action,
    parse_head,
    parse_pattern,
)
from paddock.policy.problems import PatternError
from paddock.values.actions import Action


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
        ("tool:file:cre*", "* stands for a whole segment"),
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
    head = parse_head(pattern)
    category = pattern.split(":")[1]
    assert head.matches_widely(category, operation) is widely
    assert head.matches(category, operation) is (pattern.endswith("*"))


def test_a_star_in_a_name_stands_for_any_part_of_it() -> None:
    pattern = NamePattern("mcp__toy__*")
    assert pattern.matches("mcp__toy__add")
    assert pattern.matches("mcp__toy__")
    assert not pattern.matches("mcp__Toy__add")
    assert pattern.matches_widely("mcp__Toy__add")
    assert not pattern.matches_widely("mcp__toys__add")
    assert not NamePattern("add").matches("add\n")
    assert NamePattern("a*").matches("a\nb")
    assert NamePattern("a.c").matches("a.c")
    assert not NamePattern("a.c").matches("abc")


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
