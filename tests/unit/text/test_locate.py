"""Where a text stands: exact, overlapping, and blind to the line-end style only."""

import pytest

from paddock.errors import TextTooLargeError
from paddock.text.edit import Span, find_apart, find_spans, lines_of


@pytest.mark.parametrize(
    ("content", "sought", "spans"),
    [
        (b"one two", b"two", [Span(4, 7)]),
        (b"aaaa", b"aaa", [Span(0, 3), Span(1, 4)]),
        (b"a\nb\n", b"a\nb", [Span(0, 3)]),
        (b"a\r\nb\r\n", b"a\nb", [Span(0, 4)]),
        (b"a\r\nb\nc", b"\n", [Span(1, 3), Span(4, 5)]),
        (b"a\r\nb", b"a\r\nb", [Span(0, 4)]),
        (b"a\nb", b"a\r\nb", []),
        (b"a\rb", b"a\nb", []),
        (b"a\r\nb", b"a\n\nb", []),
        (b"x", b"y", []),
        (b"\r\n\r\n", b"\n\n", [Span(0, 4)]),
    ],
)
def test_a_text_is_found_at_every_place(content: bytes, sought: bytes, spans: list[Span]) -> None:
    assert list(find_spans(content, sought)) == spans


def test_line_numbers_count_newlines_before_each_place() -> None:
    content = b"x\nx\n\nx"
    assert lines_of(content, list(find_spans(content, b"x"))) == [1, 2, 4]


def test_many_newlines_cost_no_more_than_a_search_each() -> None:
    # As a regular expression with a choice at each newline, either took minutes.
    assert list(find_spans(b"x\r\n" * 10, b"y\n" * 1_000_000)) == []
    assert list(find_spans(b"\r\n" * 1_000_000, b"\n" * 100_000 + b"z")) == []


def test_a_text_that_differs_in_line_ends_alone_everywhere_is_refused() -> None:
    # Each place of the one looks like the other's, at any of two million newlines.
    with pytest.raises(TextTooLargeError, match="except for its line ends"):
        list(find_spans(b"\n" * 2_000_000 + b"x\r\n", b"\r\n" + b"\n" * 100_000))
    assert list(find_spans(b"\n\nx\r\n\n", b"\r\n\n")) == [Span(3, 6)]


def test_places_apart_begin_behind_each_other() -> None:
    assert list(find_apart(b"aaaa", b"aa")) == [Span(0, 2), Span(2, 4)]
    assert list(find_apart(b"\r\n\r\n\n", b"\n\n")) == [Span(0, 4)]
    assert len(list(find_apart(b"\r\n" * 1_000_000, b"\n" * 50_000))) == 20


def test_a_carriage_return_that_is_spelled_out_matches_only_one() -> None:
    assert list(find_spans(b"a\r\nb\nc", b"a\r\nb\nc")) == [Span(0, 6)]
    assert list(find_spans(b"a\nb\r\nc", b"a\r\nb\nc")) == []
    assert list(find_spans(b"a\r\nb\r\n", b"a\nb\r")) == [Span(0, 5)]
