"""Reading again what ripgrep proposed: what is shown are the workspace's own bytes.

Rules kept here:
  * a file is opened once, by the workspace: no link on the way, regular files alone;
  * a row counts if the file has exactly that line at that number: a line that changed,
    moved or stands in another file (a name swapped for a link) is no row;
  * lines of context come from the same reading as the match;
  * a file with a NUL byte at its beginning is binary, and has no rows.

Threat: without this, whoever can swap names while ripgrep walks is shown lines of any
file that this process may read.
"""

import os
from typing import Final, NamedTuple

from paddock import limits
from paddock.text.check import BOM
from paddock.values.quick import quick
from paddock.workspace.reading import OpenFile, read_bytes
from paddock.workspace.search.asked import Line

_WHOLE_BYTES: Final = 8_388_608
"""Files up to here are held in memory while their rows are compared."""
_CHUNK_BYTES: Final = 1_048_576
_CONTEXT_BYTES: Final = 8 * limits.search_row_bytes_max
"""How far from a match context is looked for."""


class Standing(NamedTuple):
    """A confirmed row: where its line begins and ends (the line end left out)."""

    number: int
    begin: int
    end: int


class Content:
    """An open file's bytes by offset. Large ones are read piece by piece."""

    __slots__ = ("_fd", "_whole", "size")

    def __init__(self, file: OpenFile) -> None:
        self._fd = file.fileno()
        self.size = file.size_bytes
        self._whole: bytes | None = None
        if self.size <= _WHOLE_BYTES:
            self._whole = read_bytes(self._fd, self.size)
            self.size = len(self._whole)

    @property
    def whole(self) -> bytes | None:
        """All of it, if it is held."""
        return self._whole

    def bytes(self, begin: int, end: int) -> bytes:
        """What stands from `begin` up to `end`, as much of it as there is."""
        begin = max(0, begin)
        if self._whole is not None:
            return self._whole[begin:end]
        return os.pread(self._fd, max(0, min(end, self.size) - begin), begin)

    def newlines(self, begin: int, end: int) -> int:
        """How many line ends stand from `begin` up to `end`."""
        if self._whole is not None:
            return self._whole.count(b"\n", begin, end)
        count = 0
        while begin < end and (piece := self.bytes(begin, min(end, begin + _CHUNK_BYTES))):
            count += piece.count(b"\n")
            begin += len(piece)
        return count

    def first_nul(self) -> int:
        """Where the first NUL byte stands, -1 where none does; of a large file, near its start."""
        return self.bytes(0, _WHOLE_BYTES).find(b"\0")

    def next_end(self, begin: int) -> int:
        """The end of the line that begins at `begin`, or the farthest that is looked at."""
        piece = self.bytes(begin, begin + _CONTEXT_BYTES)
        end = piece.find(b"\n")
        return begin + (len(piece) if end < 0 else end)

    def previous_begin(self, end: int) -> int:
        """The beginning of the line whose line end stands at `end`; -1 if that is too far."""
        low = max(0, end - _CONTEXT_BYTES)
        found = self.bytes(low, end).rfind(b"\n")
        if found < 0:
            return 0 if low == 0 else -1
        return low + found + 1


def confirm(content: Content, rows: list[bytes]) -> list[Standing]:
    """The rows that stand in the file, in their order."""
    base = len(BOM) if content.bytes(0, len(BOM)) == BOM else 0
    whole = content.whole
    found: list[Standing] = []
    number, counted = 1, base
    for row in rows:
        told, _, rest = row.partition(b":")
        offset, _, text = rest.partition(b":")
        if not (told.isdigit() and offset.isdigit()):
            continue
        begin = int(offset) + base
        end = begin + len(text)
        if len(row) >= limits.search_row_bytes_max or whole is None or begin == base:
            if not _stands(content, begin, base, text, len(row)):
                continue
            if len(row) >= limits.search_row_bytes_max:
                end = content.next_end(begin)
        elif not whole.startswith(b"\n%b\n" % text, begin - 1) and not (
            # Only the last line may have no line end.
            end == content.size and whole.startswith(b"\n%b" % text, begin - 1)
        ):
            continue
        # What was counted stays counted: rows come in the order of the file.
        if begin >= counted:
            number += content.newlines(counted, begin)
            counted = begin
        if number == int(told):
            found.append(Standing(number, begin, end))
    return found


def _stands(content: Content, begin: int, base: int, text: bytes, row_bytes: int) -> bool:
    """Whether a line that begins at `begin` is `text`, or begins with it where a row was cut."""
    if begin > base and content.bytes(begin - 1, begin) != b"\n":
        return False
    end = begin + len(text)
    stands = content.bytes(begin, end + 1)
    if not stands.startswith(text):
        return False
    is_cut = row_bytes >= limits.search_row_bytes_max
    return is_cut or end >= content.size or stands.endswith(b"\n")


def lines_around(content: Content, places: list[Standing], context: int) -> tuple[Line, ...]:
    """The matching lines with `context` lines before and after each."""
    lines: list[Line] = []
    matching = {place.number for place in places}
    last = 0
    for place in places:
        if place.number > last:
            # Back from the match, as far as no line is told already.
            before: list[Line] = []
            begin = place.begin
            for number in range(place.number - 1, max(last, place.number - 1 - context), -1):
                end = begin - 1
                begin = content.previous_begin(end)
                if begin < 0:
                    break
                before.append(_line(content, number, begin, end, number in matching))
            lines += reversed(before)
            lines.append(_line(content, place.number, place.begin, place.end, True))
            last, end = place.number, place.end
        else:
            end = content.next_end(place.begin)
        # On from the match, behind what is told already.
        for number in range(place.number + 1, place.number + 1 + context):
            begin = end + 1
            if begin >= content.size or content.bytes(end, begin) != b"\n":
                break
            end = content.next_end(begin)
            if number > last:
                lines.append(_line(content, number, begin, end, number in matching))
                last = number
    return tuple(lines)


def _line(content: Content, number: int, begin: int, end: int, is_match: bool) -> Line:
    most = begin + limits.search_row_bytes_max
    text = content.bytes(begin, min(end, most))
    if number == 1:
        text = text.removeprefix(BOM)
    return quick(Line, (number, text.removesuffix(b"\r"), is_match, end > most))
