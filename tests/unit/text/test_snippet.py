"""The neighbourhood of an edit: three lines before and after, at its own place."""

from paddock import limits
from paddock.text.edit import Span, Spliced, snippet_around, snippet_of_head

TEN = b"".join(b"line %d\n" % n for n in range(1, 11))


def shown_around(content: bytes, span: Span) -> str:
    """As after an edit that put there what stands at `span`."""
    return snippet_around(Spliced(content, span, content[span.start : span.end]))


def test_three_lines_before_and_after_are_shown() -> None:
    at = TEN.index(b"line 5")
    rows = shown_around(TEN, Span(at, at + 6)).split("\n")
    assert rows == [f"{n:6d}\tline {n}" for n in range(2, 9)]


def test_an_edit_at_the_start_shows_the_first_lines() -> None:
    rows = shown_around(TEN, Span(0, 1)).split("\n")
    assert rows == [f"{n:6d}\tline {n}" for n in range(1, 5)]


def test_an_edit_at_the_end_without_newline_shows_the_last_lines() -> None:
    content = TEN[:-1]
    rows = shown_around(content, Span(len(content) - 1, len(content))).split("\n")
    assert rows == [f"{n:6d}\tline {n}" for n in range(7, 11)]


def test_a_deletion_shows_the_place_where_the_text_was() -> None:
    at = TEN.index(b"line 5")
    rows = shown_around(TEN, Span(at, at)).split("\n")
    assert "     5\tline 5" in rows


def test_an_empty_file_has_an_empty_snippet() -> None:
    assert shown_around(b"", Span(0, 0)) == ""
    assert snippet_of_head(b"") == ""


def test_a_long_head_is_cut_and_says_how_to_go_on() -> None:
    content = b"x\n" * (limits.snippet_lines_max + 7)
    last = snippet_of_head(content).split("\n")[-1]
    assert last == f"[... 7 lines not shown; view with offset={limits.snippet_lines_max + 1}]"


def test_a_long_edit_is_cut_in_the_middle_and_says_so() -> None:
    content = b"x\n" * 500
    shown = shown_around(content, Span(0, len(content)))
    assert f"[... {500 - limits.snippet_lines_max} lines not shown; view with offset=21]" in shown


def test_a_line_as_long_as_a_file_is_cut_before_it_is_escaped() -> None:
    content = b"x" + b"\x01" * 30_000_000
    row = shown_around(content, Span(0, 1))
    kept = limits.snippet_line_chars_max
    assert row.endswith(f"\\x01 [... {len(content) - kept} more characters]")
    assert len(row) < 5 * kept
