"""Put a new text in the place of an old one and leave every other byte alone.

What old and new text share at their front and end is not named by the edit: the
bytes that stand for it in the file stay as they are, line ends included. A
newline without CR in what is really new becomes the line end of the lines that
it touches; but where the old text names a CRLF, line ends are what is edited, and
those of the new text are meant as they stand.
"""

import re
from dataclasses import dataclass

from paddock.errors import TextTooLargeError
from paddock.text.locate import Span, find_apart

_BARE_NEWLINE = re.compile(rb"(?<!\r)\n")
_CR, _LF = 13, 10


@dataclass(frozen=True, slots=True)
class Spliced:
    """A content in which `inserted` stands for what was at `replaced`.

    Not joined: the one place of a large file is changed without a copy of the file.
    """

    before: bytes
    replaced: Span
    inserted: bytes

    @property
    def pieces(self) -> tuple[memoryview, ...]:
        """The new content, in pieces that follow one another."""
        before = memoryview(self.before)
        front, back = before[: self.replaced.start], before[self.replaced.end :]
        return front, memoryview(self.inserted), back

    @property
    def changes_nothing(self) -> bool:
        """The new content is the one before."""
        return self.before[self.replaced.start : self.replaced.end] == self.inserted


def splice(content: bytes, place: Span, old: bytes, new: bytes) -> Spliced:
    """`content` with the text at `place`, found as `old`, changed to `new`."""
    span, inserted = _Change(old, new).at(content, place, _LineEnds(content))
    return Spliced(content, span, inserted)


def splice_all(content: bytes, old: bytes, new: bytes, bytes_max: int) -> tuple[bytes, int]:
    """`content` with every place of `old` changed to `new`, and how many there were.

    From the front, and no place inside another. Linear in what is read and written.

    Raises:
        TextTooLargeError: the outcome would have more than `bytes_max` bytes, or as `find_apart`.
    """
    has_newlines = _BARE_NEWLINE.search(old) or _BARE_NEWLINE.search(new)
    if has_newlines is None or b"\r\n" not in content:
        # No line end has to be adapted: then the bytes are what they look like.
        count = content.count(old)
        _require_room(len(content) + count * (len(new) - len(old)), bytes_max)
        return content.replace(old, new), count
    change, ends = _Change(old, new), _LineEnds(content)
    pieces: list[bytes] = []
    count = seen = size = 0
    for place in find_apart(content, old):
        span, inserted = change.at(content, place, ends)
        pieces += (content[seen : span.start], inserted)
        size += span.start - seen + len(inserted)
        _require_room(size, bytes_max)
        seen = span.end
        count += 1
    _require_room(size + len(content) - seen, bytes_max)
    return b"".join((*pieces, content[seen:])), count


def _require_room(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise TextTooLargeError(
            f"the file would have {size_bytes} bytes or more, {bytes_max} are allowed",
            hint="replace less; nothing was changed",
        )


class _Change:
    """An old and a new text, taken apart once for all places."""

    __slots__ = ("_adapts", "_back", "_front", "_inserted", "_old")

    def __init__(self, old: bytes, new: bytes) -> None:
        self._old = old
        self._front = _common_front(old, new)
        self._back = _common_back(old, new, self._front)
        self._inserted = new[self._front : len(new) - self._back]
        self._adapts = b"\r\n" not in old and _BARE_NEWLINE.search(self._inserted) is not None

    def at(self, content: bytes, place: Span, ends: "_LineEnds") -> tuple[Span, bytes]:
        """The bytes that go, and those that come, where old stands at `place`."""
        old, front, back = self._old, self._front, self._back
        start = place.start + _width(content, place.start, old[:front])
        end = place.end - _width_back(content, place.end, old[len(old) - back :])
        span, inserted = Span(start, end), self._inserted
        if self._adapts:
            newline = ends.near(span.start)
            if newline != b"\n":
                inserted = _BARE_NEWLINE.sub(newline, inserted)
        return span, inserted


class _LineEnds:
    """The line end near an offset; offsets that do not fall cost one pass in all."""

    __slots__ = ("_content", "_last", "_next")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._next = -1
        """The first LF at or after the offset that was asked about last."""
        self._last: int | None = None
        """The last LF of all, once it was needed; -1 where there is none."""

    def near(self, start: int) -> bytes:
        """LF or CRLF: the first line end from `start` on, else the one before.

        LF in a content without any.
        """
        content = self._content
        if self._last is None and self._next < start:
            self._next = content.find(b"\n", start)
            if self._next < 0:
                self._last = content.rfind(b"\n")
        at = self._next if self._last is None else self._last
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
