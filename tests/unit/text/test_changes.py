"""Diffs as they are shown."""

from paddock import limits
from paddock.text.changes import unified_diff


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
    assert rows[3] == "-" + "\\x01" * limits.snippet_line_chars_max + " [... 500 more characters]"


def test_contents_of_too_many_lines_are_not_compared() -> None:
    assert unified_diff(b"x\n" * 11_000, b"y\n" * 11_000, "x").startswith("[too large for a diff")


def test_a_missing_last_newline_is_said():
    assert unified_diff(b"a", b"a\n", "x").split("\n")[3:] == ["-a [no newline at the end]", "+a"]
