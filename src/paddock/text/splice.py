"""Put a new text in the place of an old one and leave every other byte alone.

What old and new text share at their front and end is not named by the edit: the
bytes that stand for it in the file stay as they are, line ends included. A
newline without CR in what is really new becomes the line end of the lines that
it touches.
"""

import re
from dataclasses import dataclass

from paddock.text.locate import Span

_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_CR, _LF = 13, 10


@dataclass(frozen=True, slots=True)
class Spliced:
    """The new content, and where the new bytes stand in it."""

    content: bytes
    span: Span


def splice(content: bytes, place: Span, old: bytes, new: bytes) -> Spliced:
    """`content` with the text at `place`, found as `old`, changed to `new`."""
    front = _common_front(old, new)
    back = _common_back(old, new, front)
    start = place.start + _width(content, place.start, old[:front])
    end = place.end - _width_back(content, place.end, old[len(old) - back :])
    inserted = new[front : len(new) - back]
    if _BARE_NEWLINE.search(inserted) is not None:
        newline = line_end_near(content, Span(start, end))
        if newline != b"\n":
            inserted = _BARE_NEWLINE.sub(newline, inserted)
    changed = b"".join((content[:start], inserted, content[end:]))
    return Spliced(changed, Span(start, start + len(inserted)))


def line_end_near(content: bytes, span: Span) -> bytes:
    """The line end of the lines that `span` touches: LF or CRLF.

    The first one inside the span, else that of its last line, else that of the
    line before; LF in a file without any.
    """
    at = content.find(b"\n", span.start)
    if at < 0:
        at = content.rfind(b"\n", 0, span.start)
    return b"\r\n" if at > 0 and content[at - 1] == _CR else b"\n"


def _common_front(old: bytes, new: bytes) -> int:
    """How many leading bytes both share, never cutting a CR from its LF."""
    longest = min(len(old), len(new))
    count = _shared_length(old[:longest], new[:longest])
    return count - 1 if count and old[count - 1] == _CR else count


def _common_back(old: bytes, new: bytes, front: int) -> int:
    """How many trailing bytes both share beyond the first `front`, likewise."""
    longest = min(len(old), len(new)) - front
    if longest == 0:
        return 0
    count = _shared_length(old[: -longest - 1 : -1], new[: -longest - 1 : -1])
    if count and old[-count] == _LF and (_follows_cr(old, count) or _follows_cr(new, count)):
        return count - 1
    return count


def _follows_cr(text: bytes, count: int) -> bool:
    return len(text) > count and text[-count - 1] == _CR


def _shared_length(left: bytes, right: bytes) -> int:
    """Length of the common prefix of two byte strings of equal length."""
    if left == right:
        return len(left)
    low, high = 0, len(left)
    # Comparing slices is one memcmp each: log2(n) of them beat a loop of bytes.
    while low + 1 < high:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _width(content: bytes, start: int, shared: bytes) -> int:
    """How many bytes of `content` from `start` on stand for `shared`."""
    at = start
    for piece in _pieces(shared):
        at += len(piece)
        if piece == b"\n" and content[at - 1] == _CR:
            at += 1
    return at - start


def _width_back(content: bytes, end: int, shared: bytes) -> int:
    """How many bytes of `content` up to `end` stand for `shared`."""
    at = end
    for piece in reversed(_pieces(shared)):
        at -= len(piece)
        if piece == b"\n" and at > 0 and content[at - 1] == _CR:
            at -= 1
    return end - at


def _pieces(shared: bytes) -> list[bytes]:
    """`shared` cut so that each bare newline is a piece by itself."""
    pieces: list[bytes] = []
    seen = 0
    for newline in _BARE_NEWLINE.finditer(shared):
        pieces += [shared[seen : newline.start()], b"\n"]
        seen = newline.end()
    return [piece for piece in [*pieces, shared[seen:]] if piece]
