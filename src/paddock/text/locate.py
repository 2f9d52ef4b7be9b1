"""Where a text stands in a file: every place, overlapping ones too."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from paddock.errors import TextTooLargeError

_IN_VAIN_BYTES_MAX: Final = 16_000_000
"""Looked at again for nothing: about a second."""
_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_CR, _LF, _CRLF = b"\r", b"\n", b"\r\n"


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` up to but not including `end`."""

    start: int
    end: int


def find_spans(content: bytes, sought: bytes) -> Iterator[Span]:
    """Every place of `sought` in `content`, from the front, overlaps included.

    `sought` is not empty. A newline without CR in it matches LF and CRLF alike,
    so that a text copied from a view is found in a file of either style.

    Raises:
        TextTooLargeError: too much of `content` differs from `sought` in line ends alone.
    """
    if _BARE_NEWLINE.search(sought) is None or b"\r\n" not in content:
        yield from _find_literal(content, sought, 1)
    else:
        yield from _find_in_either_style(content, sought, 1)


def find_apart(content: bytes, sought: bytes) -> Iterator[Span]:
    """As `find_spans`, but no place that begins inside of one before.

    Raises: as `find_spans`.
    """
    if _BARE_NEWLINE.search(sought) is None or b"\r\n" not in content:
        yield from _find_literal(content, sought, len(sought))
    else:
        yield from _find_in_either_style(content, sought, len(sought.replace(_CRLF, _LF)))


def _find_in_either_style(content: bytes, sought: bytes, step: int) -> Iterator[Span]:
    """As `find_spans`: a search among plain newlines, and each place looked at again.

    `step`: so many bytes after a place, CRLF counted as one, the next may begin.

    Linear: a regular expression with a choice at each newline is neither quick to
    compile nor to fail.
    """
    # A CR at the very end may be the first half of a line end, which a search among
    # plain newlines does not see.
    tail = _CR if sought.endswith(_CR) else b""
    sought = sought.removesuffix(_CR)
    flat, wanted = content.replace(_CRLF, _LF), sought.replace(_CRLF, _LF)
    pieces = sought.split(_LF) if _CR in sought else []
    at, seen, start, in_vain = flat.find(wanted), 0, 0, 0
    while at >= 0:
        start, seen = _advance(content, start, at - seen), at
        end = _advance(content, start, len(wanted))
        if content.startswith(tail, end) and _has_ends(content[start:end], pieces):
            yield Span(start, end + len(tail))
            at = flat.find(wanted, at + step)
        else:
            # Threat: a long text of line ends differs in them at each place of a file.
            in_vain += end - start
            if in_vain > _IN_VAIN_BYTES_MAX:
                raise TextTooLargeError(
                    "the text stands at too many places but for its line ends",
                    hint="give a shorter text, or newlines without CR: they match both line ends",
                )
            at = flat.find(wanted, at + 1)


def _advance(content: bytes, at: int, count: int) -> int:
    """The offset `count` bytes after `at`, where a CRLF is one; `at` is not inside of one."""
    while count:
        stop = at + count
        count = content.count(_CRLF, at, stop)
        at = stop + (content[stop - 1 : stop + 1] == _CRLF)
    return at


def _has_ends(found: bytes, pieces: list[bytes]) -> bool:
    """Whether each CRLF that the sought `pieces` spell out is one in what was found."""
    return not pieces or all(
        piece in (sought, sought + _CR)
        for piece, sought in zip(found.split(_LF), pieces, strict=True)
    )


def _find_literal(content: bytes, sought: bytes, step: int) -> Iterator[Span]:
    # With LF line ends only, a bare newline at the front could still stand in
    # the middle of nothing: there is no CRLF to split, so plain search is exact.
    at = content.find(sought)
    while at >= 0:
        yield Span(at, at + len(sought))
        at = content.find(sought, at + step)


def lines_of(content: bytes, spans: list[Span]) -> list[int]:
    """The 1-based first line of each span; spans are in order."""
    lines: list[int] = []
    line, seen = 1, 0
    for span in spans:
        line += content.count(b"\n", seen, span.start)
        seen = span.start
        lines.append(line)
    return lines
