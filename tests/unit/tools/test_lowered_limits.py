"""What `[limits]` of a policy lowers: each of them is felt, and is said where it is."""

from collections.abc import Iterator

import pytest
from msgspec.structs import fields, replace

from paddock.errors import InvalidArgumentsError
from paddock.policy.settings import LoweredLimits
from tests.unit.tools.conftest import TOOLS, Desk

FELT_BY_COMMANDS = {"change_set_bytes_max"}
"""By the sandbox, in tests/kernel/test_shell_changes.py."""
CLAMPED = {
    "dev_context_max": ("grep_dev", {"pattern": "x", "context_lines": 5}, {"context_lines": 2}),
    "dev_matches_max": ("grep_dev", {"pattern": "x", "max_results": 9}, {"max_results": 2}),
    "listed_depth_max": ("list_files", {}, {"max_depth": 2}),
    "shell_timeout_s": ("run_shell", {"command": "true"}, {"timeout": 2}),
}
LEFT_OUT = {
    "find_entries_max": ("find", {"pattern": "*"}, {"limit": 2}),
    "grep_matches_max": ("grep", {"pattern": "x"}, {"limit": 2}),
    "ledger_entries_listed_max": ("query_ledger", {}, {"max_entries": 2}),
    "ls_entries_max": ("ls", {}, {"limit": 2}),
}
REFUSED = {
    **{
        name: (tool, {**given, **dict.fromkeys(used, 3)})
        for name, (tool, given, used) in LEFT_OUT.items()
    },
    "search_context_max": ("grep", {"pattern": "x", "context": 3}),
}
SHOWN = {
    "listed_entries_max": (2, "list_files", {}, "a  2 bytes\nb  2 bytes\n[2 of 5 entries listed; "),
    "search_output_bytes_max": (
        10,
        "grep",
        {"pattern": "x"},
        "a:1:x\n[0.01 kB limit reached: 1 of 5 ",
    ),
    "view_bytes_max": (
        6,
        "view",
        {"path": "rows"},
        "     1\tone\n[lines 1-1 of 3 shown, cut at 6 bytes",
    ),
}


@pytest.fixture
def lowered(desk) -> Iterator[Desk]:
    """Five files, and a desk at which a test may lower something."""
    for name in "abcde":
        desk.write(name, b"x\n")
    return desk


def at(desk, **given) -> Desk:
    return Desk(desk.root, replace(desk.ports, limits=LoweredLimits(**given)))


def test_whatever_can_be_lowered_is_felt_somewhere():
    told = CLAMPED.keys() | REFUSED.keys() | SHOWN.keys() | FELT_BY_COMMANDS
    assert told == {each.name for each in fields(LoweredLimits)}


@pytest.mark.parametrize("name", [*CLAMPED, *LEFT_OUT])
def test_a_number_is_no_larger_than_the_policy_has_it_and_that_is_said(name):
    tool, given, used = (CLAMPED | LEFT_OUT)[name]
    binder = TOOLS[tool].binder
    bound, clamped = binder.bind(given, LoweredLimits(**{name: 2}).lowered())
    assert clamped == used
    assert {each: getattr(bound, each) for each in used} == used
    assert binder.bind({**given, **used}) == (bound, {})


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_that_was_given_and_is_too_large_is_refused_with_the_policys_number(name):
    tool, given = REFUSED[name]
    binder = TOOLS[tool].binder
    with pytest.raises(InvalidArgumentsError, match="and at most 2, not 3"):
        binder.bind(given, LoweredLimits(**{name: 2}).lowered())
    assert binder.bind(given)[1] == {}


@pytest.mark.parametrize("name", SHOWN)
def test_less_is_shown_and_the_cut_names_the_policys_number(lowered, name):
    most, tool, given, beginning = SHOWN[name]
    if "rows" in given.values():
        lowered.write("rows", b"one\ntwo\nthree\n")
    assert at(lowered, **{name: most}).run(tool, **given).content.startswith(beginning)
    assert "[" not in lowered.run(tool, **given).content


def test_nothing_is_advised_that_would_be_refused(lowered):
    desk = at(lowered, grep_matches_max=2)
    assert (
        "[2 matches limit reached. Refine pattern.]"
        in desk.run("grep", pattern="x", limit=2).content
    )
    assert "Use limit=4 for more" in lowered.run("grep", pattern="x", limit=2).content


def test_a_replaced_file_is_shown_only_within_what_may_be_viewed(desk):
    desk.write("rows", b"one\ntwo\n")
    lowered = at(desk, view_bytes_max=7).run("create_file", path="rows", content="one\n")
    assert lowered.details["content_snippet"].startswith("[no diff: the replaced content is too")

    desk.write("rows", b"one\ntwo\n")
    usual = at(desk, view_bytes_max=8).run("create_file", path="rows", content="one\n")
    assert usual.details["content_snippet"] == ("--- a/rows\n+++ b/rows\n@@ -1,2 +1 @@\n one\n-two")


def test_matches_that_no_row_can_show_are_counted_and_do_not_pass_for_none(desk):
    desk.write("a", b"needle " + b"y" * 200 + b"\nneedle " + b"y" * 200 + b"\n")
    small = at(desk, search_output_bytes_max=100)
    cut = "[0.1 kB limit reached: 0 of 2 matches shown. Refine pattern or path.]"
    output = small.run("grep", pattern="needle")
    assert output.content == f"2 matches, none shown.\n{cut}"
    assert output.details == {
        "summary": "2 matches, none shown",
        "count": 0,
        "truncated": True,
        "matches": [],
    }
    dev = small.run("grep_dev", pattern="needle y")
    assert dev.content.startswith(f"2 matches, none shown.\n{cut}\n")
    assert (dev.details["match_count"], dev.details["truncated"]) == (0, True)
    first = small.run("grep", pattern="needle", limit=1)
    assert (
        first.content == f"More than 1 match, none shown.\n{cut.replace('of 2', 'of more than 1')}"
    )
    assert first.details["summary"] == "more than 1 match, none shown"
    none = small.run("grep", pattern="absent")
    assert (none.content, none.details["summary"]) == ("No matches found.", "no matches")


def test_only_files_with_a_shown_match_are_counted(desk):
    desk.write("a", b"needle\n")
    desk.write("b", b"needle " + b"y" * 200 + b"\n")
    output = at(desk, search_output_bytes_max=100).run("grep", pattern="needle")
    assert output.details["summary"] == "1 match in 1 file, and there are more"
