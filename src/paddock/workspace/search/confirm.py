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

import os
from collections.abc import Iterator
from typing import Final

from paddock import limits
from paddock.storage.disk import read_bytes
from paddock.text.show import BOM
from paddock.workspace.read import OpenFile
from paddock.workspace.search.request import BinarySign, FileLines, Until

_SPLIT_BYTES: Final = 1_048_576
_WHOLE_BYTES: Final = 8_388_608
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_DENSE_BYTES: Final = 512
"""With a row for so many bytes, or more rows, splitting is the cheaper way for them too."""
_CHUNK_BYTES: Final = 1_048_576
_FIRST_BYTES: Final = limits.search_row_bytes_max
"""Most of what is looked for is found in so many bytes; the pieces behind are larger."""
_ADDED: Final = b"\r"
"""What ripgrep prints behind a last line that has no line end, where it is asked with `--crlf`."""

Lines = list[bytes] | dict[int, bytes]
"""The text of a line by its number, without the line feed; of a large file only some lines, cut
where a row is."""


def binary_sign(start: bytes, size_bytes: int) -> BinarySign | None:
    """What keeps a file of this beginning and size from being searched; None where nothing does."""
    is_utf16 = start.startswith(_UTF16_MARKS)
    if is_utf16 and size_bytes > _WHOLE_BYTES:
        return BinarySign.LARGE_UTF16
    return BinarySign.NUL if b"\0" in _as_utf8(start) else None


def _as_utf8(content: bytes) -> bytes:
    if not content.startswith(_UTF16_MARKS):
        return content
    return content.decode("utf-16", "replace").encode()


class Content:
    __slots__ = ("_fd", "_until", "_whole", "is_late", "size")

    def __init__(self, file: OpenFile, until: Until) -> None:
        self._fd = file.fileno()
        self._until = until
        self._whole: bytes | None = None
        self.is_late = False
        self.size = file.size_bytes
        if self.size <= _WHOLE_BYTES:
            self._whole = _as_utf8(read_bytes(self._fd, self.size))
            self.size = len(self._whole)

    def part(self, begin: int, end: int) -> bytes:
        if self._whole is not None:
            return self._whole[begin:end]
        return os.pread(self._fd, max(0, min(end, self.size) - begin), begin)

    def pieces(self, begin: int) -> Iterator[bytes]:
        """What stands behind `begin`, in pieces, while there is time."""
        size = _FIRST_BYTES
        while piece := self.part(begin, begin + size):
            yield piece
            begin += len(piece)
            size = min(2 * size, _CHUNK_BYTES)
            if begin < self.size and self._until.is_over:
                self.is_late = True
                return

    def lines(self, rows: list[bytes], wanted: list[int]) -> Lines:
        """The file's lines, or at least those of `wanted`, numbers in ascending order."""
        whole = self._whole
        if whole is None or self.size > max(_SPLIT_BYTES, len(rows) * _DENSE_BYTES):
            return self._gathered(wanted)
        # Nothing behind the last line is needed. A line before the first stands for none.
        last = max(wanted, default=0)
        lines = [b"\n", *whole.removeprefix(BOM).split(b"\n", last)]
        if not lines[-1] or len(lines) > last + 1:
            lines.pop()  # behind the last line end there is no line
        return lines

    def _gathered(self, wanted: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        begin = len(BOM) if self.part(0, len(BOM)) == BOM else 0
        number = 1
        for each in wanted:
            if each >= number:
                place = self._skipped(begin, each - number)
                if place is None:
                    break
                begin, number = place, each
                text = self.part(begin, begin + limits.search_row_bytes_max + 1)
                if not text:
                    break
                found[each] = text.partition(b"\n")[0]
        return found

    def _skipped(self, begin: int, lines: int) -> int | None:
        """Where the line begins that comes `lines` lines behind `begin`; None if none is found."""
        if not lines:
            return begin
        for piece in self.pieces(begin):
            count = piece.count(b"\n")
            if count >= lines:
                # What is left behind as many line ends.
                return begin + len(piece) - len(piece.split(b"\n", lines)[-1])
            lines -= count
            begin += len(piece)
        return None


def confirmed(
    path: str, content: Content, rows: list[bytes], context: int, most: int
) -> tuple[FileLines, bool]:
    """What `rows` say that stands in the file, at most so many matches; whether all of it does."""
    parts = [row.partition(b":") for row in rows]
    numbers = [int(part[0]) if part[0].isdigit() else 0 for part in parts]
    lines = content.lines(rows, _around(numbers, context))
    # All rows at once, which is what nearly always comes out: of a great many rows,
    # each look for itself costs more than all of ripgrep's work.
    found = numbers
    try:
        if [lines[number] for number in numbers] != [part[2] for part in parts]:
            found = _standing(lines, rows)
    except LookupError:
        found = _standing(lines, rows)
    shown = found[:most]
    told = shown if not context else [n for n in _around(shown, context) if _has(lines, n)]
    texts = [lines[number] for number in told]
    return FileLines(path, told, texts, shown, len(found) > most), len(found) == len(rows)


def _around(numbers: list[int], context: int) -> list[int]:
    """These lines, which are in order, and `context` lines before and after each, each once."""
    if not context:
        return numbers
    told: list[int] = []
    last = 0
    for number in numbers:
        first = max(last + 1, number - context)
        last = max(last, number + context)
        told += range(first, last + 1)
    return told


def _has(lines: Lines, number: int) -> bool:
    return number in lines if isinstance(lines, dict) else 0 < number < len(lines)


def _standing(lines: Lines, rows: list[bytes]) -> list[int]:
    """The numbers of those rows that are so, in the order of the file."""
    found: list[int] = []
    for row in rows:
        told, _, text = row.partition(b":")
        number = int(told) if told.isdigit() else 0
        if number > (found[-1] if found else 0) and _has(lines, number):
            line = lines[number]
            is_cut = len(row) >= limits.search_row_bytes_max
            if text in (line, line + _ADDED) or (is_cut and line.startswith(text)):
                found.append(number)
    return found
