"""An edit changes the bytes that it names, in the file's own line ends."""

import pytest

from paddock.text.locate import find_spans
from paddock.text.splice import splice


def replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    (place,) = find_spans(content, old)
    return splice(content, place, old, new).content


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
    ],
)
def test_new_lines_take_the_line_end_of_the_lines_they_touch(
    content: bytes, old: bytes, new: bytes, expected: bytes
) -> None:
    assert replaced(content, old, new) == expected


def test_the_span_is_where_the_new_bytes_stand() -> None:
    content = b"x y x"
    (_, place) = find_spans(content, b"x")
    spliced = splice(content, place, b"x", b"why")
    assert spliced.content[spliced.span.start : spliced.span.end] == b"why"
