"""Where a text stands in a file: every place, overlapping ones too."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A newline of the sought text that has no CR of its own stands for LF and CRLF.
# The look-behind keeps it from taking only the LF of a CRLF: half a line end
# would otherwise count as a second, overlapping place.
_ANY_NEWLINE = rb"(?:\r\n|(?<!\r)\n)"
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` up to but not including `end`."""

    start: int
    end: int


def find_spans(content: bytes, sought: bytes) -> Iterator[Span]:
    """Every place of `sought` in `content`, from the front, overlaps included.

    `sought` is not empty. A newline without CR in it matches LF and CRLF alike,
    so that a text copied from a view is found in a file of either style.
    """
    if _BARE_NEWLINE.search(sought) is None or b"\r\n" not in content:
        yield from _find_literal(content, sought)
        return
    pieces = _BARE_NEWLINE.split(sought)
    pattern = re.compile(_ANY_NEWLINE.join(re.escape(piece) for piece in pieces))
    found = pattern.search(content)
    while found is not None:
        yield Span(*found.span())
        found = pattern.search(content, found.start() + 1)


def _find_literal(content: bytes, sought: bytes) -> Iterator[Span]:
    # With LF line ends only, a bare newline at the front could still stand in
    # the middle of nothing: there is no CRLF to split, so plain search is exact.
    at = content.find(sought)
    while at >= 0:
        yield Span(at, at + len(sought))
        at = content.find(sought, at + 1)


def line_of(content: bytes, offset: int) -> int:
    """The 1-based line that holds the byte at `offset`."""
    return content.count(b"\n", 0, offset) + 1


def lines_of(content: bytes, spans: list[Span]) -> list[int]:
    """The 1-based first line of each span; spans are in order."""
    lines: list[int] = []
    line, seen = 1, 0
    for span in spans:
        line += content.count(b"\n", seen, span.start)
        seen = span.start
        lines.append(line)
    return lines
