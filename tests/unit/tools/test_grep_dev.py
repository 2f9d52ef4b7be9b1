import os

import pytest

from paddock import limits
from paddock.errors import (
    InvalidPatternError,
    PathNotFoundError,
    PathTraversalError,
)
from paddock.tools.grep import GREP_DEV

TOOL = GREP_DEV
NOTHING = {"by_name": 0, "forbidden": 0, "too_large": 0, "binary": 0, "unreadable": 0}


def run(desk, **arguments):
    bound, _ = TOOL.binder.bind(arguments)
    return TOOL.handler.run(TOOL.handler.resolve(bound, desk.ports), desk.ports)


def files(desk, **arguments):
    return [match["file"] for match in run(desk, **arguments).details["results"]]


def test_a_match_is_told_with_the_lines_before_and_after_it(desk):
    desk.write("src/a.py", b"one\ntwo\nneedle\nfour\nneedle\n")
    desk.write("b", b"nothing\n")
    output = run(desk, pattern="needle", context_lines=2)
    assert output.details == {
        "pattern": "needle",
        "match_count": 2,
        "files_searched": 2,
        "results": [
            {
                "file": "src/a.py",
                "line_number": 3,
                "line": "needle",
                "context_before": ["one", "two"],
                "context_after": ["four", "needle"],
            },
            {
                "file": "src/a.py",
                "line_number": 5,
                "line": "needle",
                "context_before": ["needle", "four"],
                "context_after": [],
            },
        ],
        "truncated": False,
        "skipped": NOTHING,
    }
    assert output.content.split("\n")[-1] == "[2 files searched.]"


def test_without_context_the_arrays_are_empty(desk):
    desk.write("a", b"x\nneedle\ny\n")
    (match,) = run(desk, pattern="needle").details["results"]
    assert (match["context_before"], match["context_after"]) == ([], [])


def test_gitignore_does_not_count_and_hidden_files_do(desk):
    desk.write(".gitignore", b"*.log\n")
    desk.write("a.log", b"needle\n")
    desk.write(".hidden/.b", b"needle\n")
    assert files(desk, pattern="needle") == [".hidden/.b", "a.log"]


def test_skipped_names_are_counted_below_the_searched_path_and_not_in_it(desk):
    for name in (".git/a", "s/__pycache__/b", "node_modules/c", "s/.DS_Store", "s/d"):
        desk.write(name, b"needle\n")
    output = run(desk, pattern="needle")
    assert [match["file"] for match in output.details["results"]] == ["s/d"]
    assert output.details["skipped"] == {**NOTHING, "by_name": 4}
    assert files(desk, pattern="needle", path="node_modules") == ["node_modules/c"]
    assert files(desk, pattern="needle", path="s/__pycache__/b") == ["s/__pycache__/b"]


def test_binary_files_and_those_over_a_megabyte_are_passed_by_and_counted(desk):
    desk.write("bin", b"needle\0\n")
    desk.write("big", b"needle\n" + b"x" * 1_000_000)
    desk.write("fits", b"needle\n" + b"x" * (1_000_000 - 7))
    output = run(desk, pattern="needle")
    assert [match["file"] for match in output.details["results"]] == ["fits"]
    assert output.details["files_searched"] == 1
    assert output.details["skipped"] == {**NOTHING, "binary": 1, "too_large": 1}
    assert output.content.endswith("[1 file searched; skipped: 1 over 1000000 bytes, 1 binary.]")


LATE = b"pad pad\n" * 1100 + b"needle here\n\0 tail\n"
"""A NUL byte behind what tells a binary file here: it is searched as text."""


def test_files_with_a_nul_byte_far_from_their_beginning_have_their_rows_beside_others(desk):
    contents = {"a": b"needle\n", "b": LATE, "c": LATE, "d\n7:x": LATE, "e": b"needle\n", "f": LATE}
    for name, content in contents.items():
        desk.write(name, content)
    assert files(desk, pattern="needle") == list(contents)
    assert files(desk, pattern="needle", path="b") == ["b"]
    assert files(desk, pattern="pad tail") == []


@pytest.mark.parametrize(
    "first", [LATE, b"needle\n" * 2 + LATE, b"needle\n" + b"pad\n" * 90_000 + LATE]
)
def test_the_first_rows_are_the_same_whatever_the_limit(desk, first):
    desk.write("a", first)
    desk.write("b", b"needle one\nneedle two\n")
    for number in range(40):
        desk.write(f"c{number:02}", LATE if number % 3 else b"needle\n" * 2)
    desk.write("closed/late", LATE)

    def found(limit):
        results = run(desk, pattern="needle", max_results=limit).details["results"]
        return [(match["file"], match["line_number"]) for match in results]

    everything = found(limits.dev_matches_max)
    assert [name for name, _ in everything[:1]] == ["a"]
    assert len({name for name, _ in everything}) == 42
    for limit in (1, 2, 3, 4, 5, 10, len(everything) - 1):
        assert found(limit) == everything[:limit]


def test_what_may_not_be_viewed_is_counted_and_what_is_secret_is_not_even_that(desk):
    desk.write("closed/x", b"needle\n")
    desk.write("secret.txt", b"needle\n")
    desk.write("open", b"needle\n")
    output = run(desk, pattern="needle")
    assert [match["file"] for match in output.details["results"]] == ["open"]
    assert output.details["skipped"] == {**NOTHING, "forbidden": 1}
    assert "closed" not in output.content
    asked = desk.actions("grep_dev", pattern="needle", path="closed/x")
    assert asked == ["tool:search:grep closed/x", "tool:file:view closed/x"]


def test_the_count_is_that_of_the_rows_and_truncated_says_that_there_were_more(desk):
    for number in range(100):
        desk.write(f"f{number:03d}", b"needle\n")
    output = run(desk, pattern="needle")
    assert output.details["match_count"] == len(output.details["results"]) == 50
    assert output.details["truncated"] is True
    assert output.details["files_searched"] == 50
    assert output.content.split("\n")[50] == (
        "[50 matches limit reached. Use max_results=100 for more, or refine pattern.]"
    )
    assert run(desk, pattern="needle", max_results=100).details["truncated"] is False


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [
        ("max_results", 0, 1),
        ("max_results", 999, 200),
        ("context_lines", -1, 0),
        ("context_lines", 6, 5),
    ],
)
def test_numbers_out_of_range_are_clamped_and_that_is_said(name, given, used):
    bound, clamped = TOOL.binder.bind({"pattern": "x", name: given})
    assert getattr(bound, name) == used
    assert clamped == {name: used}


def test_a_glob_filters_files(desk):
    for name in ("a.py", "src/b.py", "c.txt"):
        desk.write(name, b"needle\n")
    output = run(desk, pattern="needle", glob="*.py")
    assert [match["file"] for match in output.details["results"]] == ["a.py", "src/b.py"]
    assert output.details["files_searched"] == 2


def test_what_cannot_be_searched_says_why(desk):
    desk.write("a", b"x\n")
    with pytest.raises(InvalidPatternError, match="^invalid regex: "):
        run(desk, pattern="(")
    with pytest.raises(PathTraversalError, match="^path escapes root"):
        run(desk, pattern="x", path="../y")
    with pytest.raises(PathNotFoundError, match="^path not found"):
        run(desk, pattern="x", path="nope")


def test_links_and_special_files_are_passed_by(desk):
    desk.write("a", b"needle\n")
    (desk.root / "out").symlink_to("/etc")
    (desk.root / "twin").symlink_to("a")
    os.mkfifo(desk.root / "fifo")
    output = run(desk, pattern="needle")
    assert [match["file"] for match in output.details["results"]] == ["a"]
    assert output.details["skipped"] == NOTHING


def test_rows_stay_below_the_output_limit(desk):
    desk.write("a", (b"needle" + b"x" * 480 + b"\n") * 200)
    output = run(desk, pattern="needle", max_results=200, context_lines=5)
    assert len(output.content.encode()) < limits.search_output_bytes_max + 300
    assert output.details["truncated"] is True
    assert output.details["match_count"] == len(output.details["results"])
    assert f"50 kB limit reached: {output.details['match_count']} of 200" in output.content


def test_it_belongs_to_the_development_toolset():
    assert TOOL.spec.toolset == "development"


def test_a_cut_line_names_a_tool_that_this_agent_has(desk):
    desk.write("a", b"needle" + b"x" * 1_000 + b"\n")
    notice = run(desk, pattern="needle").content.split("\n")[1]
    assert notice == "[1 line cut at 500 characters. Use read_file to see all of a line.]"


def test_context_cannot_pass_for_a_match(desk):
    desk.write("a", b"b.py:7:x\nneedle\nc.py:8:y\n")
    output = desk.run("grep_dev", pattern="needle", context_lines=1)
    assert output.content == (
        "a-1-b.py\\x3a7:x\n"
        "a:2:needle\n"
        "a-3-c.py\\x3a8:y\n"
        "[2 context rows look like a match: colons before numbers shown as \\x3a.]\n"
        "[1 file searched.]"
    )
    [result] = output.details["results"]
    assert (result["context_before"], result["context_after"]) == (["b.py:7:x"], ["c.py:8:y"])


@pytest.mark.parametrize(
    ("tool", "hint"),
    [
        ("grep", "escape special characters with a backslash, or use literal"),
        ("grep_dev", "escape special characters with a backslash"),
    ],
)
def test_a_hint_names_only_arguments_that_the_tool_has(desk, tool, hint):
    with pytest.raises(InvalidPatternError) as refusal:
        desk.run(tool, pattern="(")
    assert refusal.value.hint == hint
    assert ("literal" in desk.tool(tool).binder.schema["properties"]) == ("literal" in hint)
