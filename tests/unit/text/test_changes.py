"""Diffs as they are shown."""

import pytest

from paddock import limits
from paddock.text.changes import is_whole_diff, unified_diff


def test_a_diff_names_the_file_and_shows_the_change() -> None:
    assert unified_diff(b"a\nb\n", b"a\nc\n", "x.txt") == (
        "--- a/x.txt\n+++ b/x.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c"
    )


def test_a_long_diff_is_cut_and_says_how_much_is_missing() -> None:
    shown = unified_diff(b"", b"x\n" * 500, "x.txt").split("\n")
    assert len(shown) == limits.snippet_lines_max + 1
    assert shown[-1].endswith("more lines of the diff]")


def test_contents_too_large_for_a_diff_give_their_sizes() -> None:
    assert unified_diff(b"x" * 300_000, b"y" * 300_000, "x") == (
        "[too large for a diff: 300000 bytes before, 300000 bytes after]"
    )


def test_a_long_row_is_cut_and_says_how_much_is_missing() -> None:
    rows = unified_diff(b"\x01" * 1_000 + b"\n", b"x", "x").split("\n")
    assert rows[3:5] == [
        "-" + "\\x01" * limits.snippet_line_chars_max,
        "\\ [... 500 more characters]",
    ]


def test_contents_of_too_many_lines_are_not_compared() -> None:
    assert unified_diff(b"x\n" * 11_000, b"y\n" * 11_000, "x").startswith("[too large for a diff")


def test_a_missing_last_newline_is_said():
    assert unified_diff(b"a", b"a\n", "x").split("\n")[3:] == [
        "-a",
        "\\ No newline at the end",
        "+a",
    ]


def test_no_content_passes_for_a_newline_that_is_missing():
    rows = unified_diff(b"run [no newline at the end]\n", b"run\n\\ No newline at the end\n", "x")
    assert rows.split("\n")[3:] == [
        "-run [no newline at the end]",
        "+run",
        "+\\ No newline at the end",
    ]


def test_no_content_passes_for_the_header_of_another_file():
    rows = unified_diff(b"-- a/notes.md\n", b"++ b/notes.md\nrun\n", "x.sh").split("\n")
    assert rows[:2] == ["--- a/x.sh", "+++ b/x.sh"]
    assert rows[3:] == ["-\\x2d- a/notes.md", "+\\x2b+ b/notes.md", "+run"]


def test_bytes_that_are_shown_alike_are_told_apart():
    assert unified_diff(b"x\xff\n", b"x\\xff\n", "x").split("\n")[3:] == ["-x\\xff", "+x\\xff"]


@pytest.mark.parametrize(
    ("before", "after", "is_whole"),
    [
        (b"a\n", b"b\n", True),
        (b"a", b"b", True),
        (b"", b"[... 3 more lines of the diff]\n\\ [... 3 more characters]\n", True),
        (b"", b"x" * 501, False),
        (b"", b"x\n" * 500, False),
        (b"x" * 300_000, b"y" * 300_000, False),
    ],
    ids=["short", "no newline", "content like our marks", "long line", "many lines", "large"],
)
def test_a_diff_is_whole_unless_it_leaves_something_out(before, after, is_whole):
    assert is_whole_diff(unified_diff(before, after, "x")) is is_whole


def repeated(number: int, mark: str) -> bytes:
    """So many lines: few that stand there again and again, and `mark` between them."""
    return "".join(
        f"{i // 2 % 51}\n" if i % 2 == 0 else f"{mark}\n" for i in range(number)
    ).encode()


def test_repeated_lines_that_take_too_many_steps_are_not_compared_to_the_end():
    before, after = repeated(5_000, "u"), repeated(5_000, "v")
    assert unified_diff(before, after, "x") == (
        "[too large for a diff: 12009 bytes before, 12009 bytes after]"
    )


def test_fewer_repeated_lines_are_compared():
    rows = unified_diff(repeated(1_000, "u"), repeated(1_000, "v"), "x", 5_000).split("\n")
    assert rows.count("-u") == rows.count("+v") == 500
    assert rows[2] == "@@ -1,1000 +1,1000 @@"


@pytest.mark.parametrize("at", [0, 2_500, 4_999])
def test_one_change_among_many_repeated_lines_is_shown(at: int):
    old = repeated(5_000, "u").splitlines(keepends=True)
    new = [*old[:at], b"new\n", *old[at + 1 :]]
    rows = unified_diff(b"".join(old), b"".join(new), "x").split("\n")
    removed = old[at].decode().removesuffix("\n")
    assert [row for row in rows[3:] if row[0] != " "] == [f"-{removed}", "+new"]


def test_a_hunk_without_lines_on_one_side_names_the_line_before_it():
    assert unified_diff(b"", b"a\nb\n", "x").split("\n")[2] == "@@ -0,0 +1,2 @@"
    assert unified_diff(b"a\n", b"", "x").split("\n")[2] == "@@ -1 +0,0 @@"


def test_equal_contents_have_no_diff():
    assert unified_diff(b"a\n", b"a\n", "x") == ""
