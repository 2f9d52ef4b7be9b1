"""An edit changes the bytes that it names, in the file's own line ends."""

import pytest

from paddock.errors import TextTooLargeError
from paddock.text.edit import Span, Spliced, find_spans, splice, splice_all


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    (place,) = find_spans(content, old)
    return b"".join(splice(content, place, old, new).pieces)


@pytest.mark.parametrize(
    ("content", "old", "new", "expected"),
    [
        (b"a b c", b"b", b"B", b"a B c"),
        (b"a b c", b" b", b"", b"a c"),
        (b"a\r\nb\r\nc", b"b", b"x\ny", b"a\r\nx\r\ny\r\nc"),
        (b"a\r\nb\r\nc\r\n", b"a\nb", b"a\nX\nb", b"a\r\nX\r\nb\r\nc\r\n"),
        (b"a\nb\r\nc", b"a\nb\nc", b"a\nb\nC", b"a\nb\r\nC"),
        (b"a\nb\r\nc", b"a\nb\nc", b"A\nb\nc", b"A\nb\r\nc"),
        (b"one\r\n", b"one\n", b"one\ntwo\n", b"one\r\ntwo\r\n"),
        (b"\xef\xbb\xbfa\n", b"a", b"b", b"\xef\xbb\xbfb\n"),
        (b"last", b"last", b"last\nmore", b"last\nmore"),
        (b"x\r\nlast", b"last", b"last\nmore", b"x\r\nlast\r\nmore"),
        (b"a\nb", b"b", b"x\r\ny", b"a\nx\r\ny"),
        (b"a\rb\n", b"b", b"c\nd", b"a\rc\nd\n"),
        (b"a\r\nb\r\nc\r\n", b"a\r\nb\r\n", b"a\nb\n", b"a\nb\nc\r\n"),
        (b"a\r\nb\r\n", b"a\r\n", b"a\nx\r\n", b"a\nx\r\nb\r\n"),
        (b"a\nb\r\n", b"a\n", b"a\r\n", b"a\r\nb\r\n"),
    ],
)
def test_new_lines_take_the_line_end_of_the_lines_they_touch_unless_old_names_it(
    content: bytes, old: bytes, new: bytes, expected: bytes
) -> None:
    assert replaced(content, old, new) == expected


def test_what_old_and_new_share_is_not_replaced() -> None:
    content = b"x y x"
    (_, place) = find_spans(content, b"x")
    assert splice(content, place, b"x", b"xyx") == Spliced(content, Span(5, 5), b"yx")


@pytest.mark.parametrize(
    ("content", "old", "new", "expected", "count"),
    [
        (b"a b a", b"a", b"xy", b"xy b xy", 2),
        (b"aaaa", b"aa", b"b", b"bb", 2),
        (b"aaa", b"aa", b"b", b"ba", 1),
        (b"a b a", b"a", b"", b" b ", 2),
        (b"nothing", b"x", b"y", b"nothing", 0),
        (b"a\r\nb\na", b"a", b"1\n2", b"1\r\n2\r\nb\n1\n2", 2),
        (b"x\r\nx\nx", b"x\nx", b"x", b"x\nx", 1),
        (b"x\r\n" * 3, b"x\n", b"y\n", b"y\r\n" * 3, 3),
        (b"x\nx\r\n", b"x\n", b"y\n", b"y\ny\r\n", 2),
        (b"x\r\ny\nz\r\n", b"\r\n", b"\n", b"x\ny\nz\n", 2),
        (b"x\r\ny\nz", b"\n", b"\r\n", b"x\r\ny\r\nz", 2),
    ],
)
def test_every_place_is_changed_from_the_front_and_each_keeps_its_line_end(
    content: bytes, old: bytes, new: bytes, expected: bytes, count: int
) -> None:
    assert splice_all(content, old, new, 1000) == (expected, count)


@pytest.mark.parametrize("content", [b"a" * 10, b"a" * 9 + b"\r\n"])
def test_an_outcome_over_the_limit_is_refused_before_it_is_made(content: bytes) -> None:
    assert splice_all(content, b"a", b"\n" * 2, 10_000)[1] in {9, 10}
    with pytest.raises(TextTooLargeError, match="15 are allowed"):
        splice_all(content, b"a", b"\n" * 2, 15)


def test_many_places_far_from_a_line_end_are_changed_in_one_pass() -> None:
    # Looking for the next line end from each of them would take minutes.
    content = b"a." * 100_000 + b"\r\n"
    changed, count = splice_all(content, b"a", b"b\n", 10_000_000)
    assert (changed, count) == (b"b\r\n." * 100_000 + b"\r\n", 100_000)
