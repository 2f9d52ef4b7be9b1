"""Reading again what ripgrep proposed: what is shown are the workspace's own bytes.

Rules kept here:
  * a file is opened once, by the workspace: no link on the way, regular files alone;
  * a row counts if the file has exactly that line at that number: a line that changed,
    moved or stands in another file (a name swapped for a link) is no row;
  * lines of context come from the same reading as the match;
  * UTF-16 with a byte-order mark is read as ripgrep reads it, as the UTF-8 that it stands for.

Threat: without this, whoever can swap names while ripgrep walks is shown lines of any
file that this process may read.

A file of moderate size is split into its lines. In a large one the line ends are counted up to each
line, so that nothing of its size is held.
"""

import itertools
import os
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from paddock import limits
from paddock.storage.disk import read_bytes
from paddock.text.show import BOM
from paddock.workspace.read import OpenFile
from paddock.workspace.search.until import Until

_SPLIT_BYTES: Final = 1_048_576
_WHOLE_BYTES: Final = 8_388_608
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_DENSE_BYTES: Final = 512
"""With a row for so many bytes, or more rows, splitting is the cheaper way for them too."""
_CHUNK_BYTES: Final = 1_048_576
_ADDED: Final = b"\r"
"""What ripgrep prints behind a last line that has no line end, where it is asked with `--crlf`."""
_FIRST_BYTES: Final = limits.search_row_bytes_max
"""Most of what is looked for is found in so many bytes; the pieces behind are larger."""

Columns = tuple[list[int], list[bytes]]
"""Numbers of lines, and their texts without the line feed."""


class Lines(Protocol):
    def standing(self, rows: list[bytes]) -> list[Any]:
        """Which of `rows` stand in the file, as `around` takes them, in their order."""
        ...

    def around(self, found: list[Any], context: int) -> Columns:
        """The lines that were found, with `context` lines before and after each, each once."""
        ...

    def numbers(self, found: list[Any]) -> list[int]: ...


def is_large_utf16(start: bytes, size_bytes: int) -> bool:
    """Whether a file that begins so is UTF-16, and too large to be read as UTF-8."""
    return size_bytes > _WHOLE_BYTES and start.startswith(_UTF16_MARKS)


def as_utf8(content: bytes) -> bytes:
    if not content.startswith(_UTF16_MARKS):
        return content
    return content.decode("utf-16", "replace").encode()


class Content:
    __slots__ = ("_fd", "_until", "_whole", "is_late", "size")

    def __init__(self, file: OpenFile, until: Until | None = None) -> None:
        self._fd = file.fileno()
        self._until = until
        self.is_late = False
        self.size = file.size_bytes
        self._whole: bytes | None = None
        if self.size <= _WHOLE_BYTES:
            self._whole = as_utf8(read_bytes(self._fd, self.size))
            self.size = len(self._whole)

    @property
    def whole(self) -> bytes | None:
        return self._whole

    def part(self, begin: int, end: int) -> bytes:
        begin = max(0, begin)
        if self._whole is not None:
            return self._whole[begin:end]
        return os.pread(self._fd, max(0, min(end, self.size) - begin), begin)

    def pieces(self, begin: int) -> Iterator[bytes]:
        """What stands behind `begin`, in pieces, while there is time."""
        at = begin
        while piece := self.part(at, at + (_FIRST_BYTES if at == begin else _CHUNK_BYTES)):
            yield piece
            at += len(piece)
            if at < self.size and self._is_over():
                return

    def next_end(self, begin: int) -> int:
        """The end of the line that begins at `begin`; if time ends, how far it was looked for."""
        at = begin
        for piece in self.pieces(begin):
            end = piece.find(b"\n")
            if end >= 0:
                return at + end
            at += len(piece)
        return at

    def previous_begin(self, end: int) -> int:
        """The beginning of the line whose line end stands at `end`; -1 if time ends before."""
        high = end
        while high > 0:
            low = max(0, high - (_FIRST_BYTES if high == end else _CHUNK_BYTES))
            found = self.part(low, high).rfind(b"\n")
            if found >= 0:
                return low + found + 1
            high = low
            if high and self._is_over():
                return -1
        return 0

    def _is_over(self) -> bool:
        self.is_late = self._until is not None and self._until.is_over
        return self.is_late


def lines_of(content: Content, rows: list[bytes], context: int) -> Lines:
    """The way of looking at a file that costs least for these rows and what is around them."""
    whole = content.whole
    if whole is not None and (
        content.size <= _SPLIT_BYTES or content.size <= len(rows) * _DENSE_BYTES
    ):
        # Rows come in the order of the file: nothing behind the last one is needed.
        last = rows[-1].partition(b":")[0] if rows else b""
        return SplitLines(whole, int(last) + context if last.isdigit() else -1)
    return PlacedLines(content)


class SplitLines:
    __slots__ = ("_lines",)

    def __init__(self, whole: bytes, lines_max: int = -1) -> None:
        """With `lines_max`, lines behind so many are not there."""
        self._lines = whole.removeprefix(BOM).split(b"\n", lines_max)
        if not self._lines[-1] or len(self._lines) > lines_max >= 0:
            self._lines.pop()  # behind the last line end there is no line

    def standing(self, rows: list[bytes]) -> list[int]:
        # All rows at once, which is what nearly always comes out: of a great many rows,
        # each look for itself costs more than all of ripgrep's work.
        parts = [row.partition(b":") for row in rows]
        try:
            numbers = [int(part[0]) for part in parts]
        except ValueError:
            numbers = []
        if numbers and min(numbers) > 0 and max(numbers) <= len(self._lines):
            stands = [self._lines[number - 1] for number in numbers]
            if stands == [part[2] for part in parts]:
                return numbers
        return [number for row in rows if (number := self._number_told(row))]

    def _number_told(self, row: bytes) -> int:
        """The number that `row` tells, if that line is as it says; else 0."""
        told, _, text = row.partition(b":")
        if not told.isdigit() or not 0 < (number := int(told)) <= len(self._lines):
            return 0
        line = self._lines[number - 1]
        if len(row) >= limits.search_row_bytes_max and line.startswith(text):
            return number
        return number if text in (line, line + _ADDED) else 0

    def around(self, found: list[int], context: int) -> Columns:
        numbers = found
        if context:
            numbers = list[int]()
            last = 0
            for number in found:
                first = max(last + 1, number - context)
                last = max(last, min(len(self._lines), number + context))
                numbers += range(first, last + 1)
        return numbers, [self._lines[number - 1] for number in numbers]

    def numbers(self, found: list[int]) -> list[int]:
        return found


class Placed(NamedTuple):
    number: int
    begin: int
    end: int


class PlacedLines:
    """A large file, looked into where rows are said to begin."""

    __slots__ = ("_content",)

    def __init__(self, content: Content) -> None:
        self._content = content

    def standing(self, rows: list[bytes]) -> list[Placed]:
        """Where the lines stand that are as `rows` say; of rows in the order of the file."""
        content = self._content
        begin = len(BOM) if content.part(0, len(BOM)) == BOM else 0
        number = 1
        found: list[Placed] = []
        for row in rows:
            told, _, text = row.partition(b":")
            if not told.isdigit() or int(told) < number:
                continue
            place = _begin_of(content, begin, int(told) - number)
            if place is None:
                continue
            begin, number = place, int(told)
            if _stands(content, begin, text, len(row)):
                found.append(Placed(number, begin, content.next_end(begin)))
        return found

    def around(self, found: list[Placed], context: int) -> Columns:
        content = self._content
        lines: list[tuple[int, bytes]] = []
        last = 0
        for place, following in itertools.zip_longest(found, found[1:]):
            lines += reversed(self._before(place, last, context))
            lines.append((place.number, self._text(place.begin, place.end)))
            last = place.number
            # What comes next is told for itself, and looked at once.
            past = last + 1 + context
            end = place.end
            for number in range(last + 1, min(past, following.number) if following else past):
                begin = end + 1
                if begin >= content.size or content.part(end, begin) != b"\n":
                    break
                end = content.next_end(begin)
                lines.append((number, self._text(begin, end)))
                last = number
        return [number for number, _ in lines], [text for _, text in lines]

    def numbers(self, found: list[Placed]) -> list[int]:
        return [place.number for place in found]

    def _before(self, place: Placed, last: int, context: int) -> list[tuple[int, bytes]]:
        """Back from a match, as far as no line is told already."""
        before: list[tuple[int, bytes]] = []
        begin = place.begin
        for number in range(place.number - 1, max(last, place.number - 1 - context), -1):
            end = begin - 1
            begin = self._content.previous_begin(end)
            if begin < 0:
                break
            before.append((number, self._text(begin, end)))
        return before

    def _text(self, begin: int, end: int) -> bytes:
        text = self._content.part(begin, min(end, begin + limits.search_row_bytes_max + 1))
        return text.removeprefix(BOM) if begin == 0 else text


def _begin_of(content: Content, begin: int, lines: int) -> int | None:
    """Where the line begins that comes `lines` lines behind `begin`; None behind the end."""
    size = _FIRST_BYTES
    while lines:
        piece = content.part(begin, begin + size)
        if not piece:
            return None
        count = piece.count(b"\n")
        if count >= lines:
            # What is left behind as many line ends.
            return begin + len(piece) - len(piece.split(b"\n", lines)[-1])
        lines -= count
        begin += len(piece)
        size = min(2 * size, _CHUNK_BYTES)
    return begin


def _stands(content: Content, begin: int, text: bytes, row_bytes: int) -> bool:
    """Whether the line that begins at `begin` is `text`, or begins with it where a row was cut."""
    end = begin + len(text)
    stands = content.part(begin, end + 1)
    if not stands.startswith(text):
        return bool(stands) and end > content.size and text == stands + _ADDED
    is_cut = row_bytes >= limits.search_row_bytes_max
    return is_cut or stands.endswith(b"\n") or (end >= content.size and begin < content.size)
