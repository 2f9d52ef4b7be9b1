"""Confirm ripgrep's rows: read the lines again, and show only bytes that the workspace read.

  * the workspace opens the file once: no link on the way, regular files only;
  * a row counts if the file has exactly that line at that number: a line that changed,
    moved or is in another file (a name swapped for a link) is dropped;
  * context lines come from the same read as the match;
  * UTF-16 with a byte-order mark is decoded to UTF-8, as ripgrep does.

Threat: without this, a process that can swap names while ripgrep walks would see lines of
any file that this process may read.

A file of moderate size is split into lines. In a large one the line ends are counted up to each
line, so that memory stays bounded.
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
"""With one row or more per so many bytes, splitting is cheaper for larger files too."""
_CHUNK_BYTES: Final = 1_048_576
_FIRST_BYTES: Final = limits.search_row_bytes_max
"""Size of the first piece, which is usually enough; later pieces are larger."""
_ADDED: Final = b"\r"
"""With `--crlf`, ripgrep prints this after a last line without a line end."""

Lines = list[bytes] | dict[int, bytes]
"""Lines by number, without the line feed; of a large file only some lines, cut as rows are."""


def binary_sign(start: bytes, size_bytes: int) -> BinarySign | None:
    """Return why a file of this beginning and size is not searched; None if it is."""
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
        """Yield the content from `begin` in pieces, while there is time."""
        size = _FIRST_BYTES
        while piece := self.part(begin, begin + size):
            yield piece
            begin += len(piece)
            size = min(2 * size, _CHUNK_BYTES)
            if begin < self.size and self._until.is_over:
                self.is_late = True
                return

    def lines(self, rows: list[bytes], wanted: list[int]) -> Lines:
        """Return the file's lines, or at least the `wanted` ones, given in ascending order."""
        whole = self._whole
        if whole is None or self.size > max(_SPLIT_BYTES, len(rows) * _DENSE_BYTES):
            return self._gathered(wanted)
        # Stop after the last wanted line. Index 0 is a placeholder: lines count from 1.
        last = max(wanted, default=0)
        lines = [b"\n", *whole.removeprefix(BOM).split(b"\n", last)]
        if not lines[-1] or len(lines) > last + 1:
            lines.pop()  # the rest after the last line end
        return lines

    def _gathered(self, wanted: list[int]) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        begin = len(BOM) if self.part(0, len(BOM)) == BOM else 0
        number = 1
        for each in wanted:
            if each >= number:
                place = self._skip(begin, each - number)
                if place is None:
                    break
                begin, number = place, each
                text = self.part(begin, begin + limits.search_row_bytes_max + 1)
                if not text:
                    break
                found[each] = text.partition(b"\n")[0]
        return found

    def _skip(self, begin: int, lines: int) -> int | None:
        """Return the offset `lines` lines after `begin`; None if there are fewer."""
        if not lines:
            return begin
        for piece in self.pieces(begin):
            count = piece.count(b"\n")
            if count >= lines:
                # The rest after that many line ends.
                return begin + len(piece) - len(piece.split(b"\n", lines)[-1])
            lines -= count
            begin += len(piece)
        return None


def confirmed(
    path: str, content: Content, rows: list[bytes], context: int, most: int
) -> tuple[FileLines, bool]:
    """Return the rows that the file confirms, at most `most`; and True if it confirms all."""
    parts = [row.partition(b":") for row in rows]
    numbers = [int(part[0]) if part[0].isdigit() else 0 for part in parts]
    lines = content.lines(rows, _around(numbers, context))
    # First all rows at once, which nearly always succeeds: for very many rows, single
    # comparisons cost more than all of ripgrep's work.
    found = numbers
    try:
        if [lines[number] for number in numbers] != [part[2] for part in parts]:
            found = _confirmed_numbers(lines, rows)
    except LookupError:
        found = _confirmed_numbers(lines, rows)
    shown = found[:most]
    listed = shown if not context else [n for n in _around(shown, context) if _has(lines, n)]
    texts = [lines[number] for number in listed]
    return FileLines(path, listed, texts, shown, len(found) > most), len(found) == len(rows)


def _around(numbers: list[int], context: int) -> list[int]:
    """Add `context` line numbers before and after each of the sorted numbers, without repeats."""
    if not context:
        return numbers
    listed: list[int] = []
    last = 0
    for number in numbers:
        first = max(last + 1, number - context)
        last = max(last, number + context)
        listed += range(first, last + 1)
    return listed


def _has(lines: Lines, number: int) -> bool:
    return number in lines if isinstance(lines, dict) else 0 < number < len(lines)


def _confirmed_numbers(lines: Lines, rows: list[bytes]) -> list[int]:
    """Return the numbers of the rows that the file confirms, in its order."""
    found: list[int] = []
    for row in rows:
        digits, _, text = row.partition(b":")
        number = int(digits) if digits.isdigit() else 0
        if number > (found[-1] if found else 0) and _has(lines, number):
            line = lines[number]
            is_cut = len(row) >= limits.search_row_bytes_max
            if text in (line, line + _ADDED) or (is_cut and line.startswith(text)):
                found.append(number)
    return found
