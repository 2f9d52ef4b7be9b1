"""Some lines out of a file of any size, at constant memory.

A line ends with LF; what follows the last LF is a line only if it is not empty. Lines
come as bytes without their LF: what encoding they are in is not judged here.

One pass counts line ends in chunks and notes where the wanted line begins; the lines
themselves are then read from there. Nothing ever holds all lines, or a whole long one.
"""

import os
from dataclasses import dataclass, replace
from typing import Final

_CHUNK_BYTES: Final = 262_144
_LF: Final = b"\n"


@dataclass(frozen=True, slots=True)
class WindowLine:
    """One line: its number from 1, its bytes without LF, its whole length without LF."""

    number: int
    content: bytes
    length_bytes: int

    @property
    def is_cut(self) -> bool:
        """Whether `content` is only the beginning."""
        return len(self.content) < self.length_bytes


@dataclass(frozen=True, slots=True)
class Window:
    """Lines `first_line` and following of a file, and what there is besides."""

    lines: tuple[WindowLine, ...]
    first_line: int
    lines_total: int
    size_bytes: int
    cut_by_bytes: bool
    """Fewer lines than asked for, because bytes_max was reached."""
    version: str | None = None
    """`sha256:…` of the whole content; None where nobody asked for it."""
    changed_while_reading: bool = False

    @property
    def next_line(self) -> int | None:
        """Where to go on, None where the file ends."""
        after = self.first_line + len(self.lines)
        return after if after <= self.lines_total else None

    @property
    def truncated(self) -> bool:
        """Whether the file goes on behind the window, or a line of it is cut."""
        return self.next_line is not None or any(line.is_cut for line in self.lines)

    def seen_changed(self) -> "Window":
        """The same window of a file that was rewritten while it was read."""
        return replace(self, changed_while_reading=True)


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """How much a window may hold: in all, and of one line. At least 1 each."""

    bytes_max: int
    line_bytes_max: int


def read_window(
    fd: int, size_bytes: int, first_line: int, line_count: int, shown: WindowLimits
) -> Window:
    """`line_count` lines from `first_line` (1-based) of an open file.

    A line over `line_bytes_max` is cut between characters; when `bytes_max` is
    reached, whole lines are left out (the first one is cut instead). A first
    line behind the end gives no lines; `lines_total` says how many there are.

    Raises:
        ValueError: `first_line` or a limit below 1, a negative count: a caller's defect.
        OSError: the disk fails.
    """
    if first_line < 1 or line_count < 0 or shown.bytes_max < 1 or shown.line_bytes_max < 1:
        raise ValueError("a window begins at line 1 or later, and its limits are at least 1")
    place = _locate(fd, size_bytes, first_line)
    lines: list[WindowLine] = []
    cut_by_bytes = False
    if place.start_offset is not None:
        reader = _LineReader(fd, place.start_offset, size_bytes, shown.line_bytes_max)
        lines, cut_by_bytes = _collect(reader, first_line, line_count, shown.bytes_max)
    return Window(tuple(lines), first_line, place.lines_total, size_bytes, cut_by_bytes)


@dataclass(frozen=True, slots=True)
class _Place:
    start_offset: int | None
    """Where the wanted line begins; None if it does not exist."""
    lines_total: int


def _locate(fd: int, size_bytes: int, first_line: int) -> _Place:
    """Find the offset of a line, and count all of them."""
    buffer = bytearray(min(_CHUNK_BYTES, size_bytes) or 1)
    view = memoryview(buffer)
    start = 0 if first_line == 1 else None
    ends = offset = 0
    last = b""
    while offset < size_bytes:
        count = os.preadv(fd, [view[: size_bytes - offset]], offset)
        if count == 0:
            break  # cut shorter meanwhile
        here = buffer.count(_LF, 0, count)
        if start is None and ends + here >= first_line - 1:
            start = offset + _after_line_end(buffer, first_line - 1 - ends)
        ends += here
        offset += count
        last = buffer[count - 1 : count]
    lines_total = ends + (last not in (b"", _LF))
    exists = start is not None and first_line <= lines_total
    return _Place(start if exists else None, lines_total)


def _after_line_end(buffer: bytearray, nth: int) -> int:
    """The position behind the nth (1-based) LF in `buffer`."""
    position = 0
    for _ in range(nth):
        position = buffer.index(_LF, position) + 1
    return position


class _LineReader:
    """Lines from an offset on, one by one, each kept up to a limit and measured whole."""

    __slots__ = ("_chunk", "_end", "_fd", "_keep", "_offset", "_position")

    def __init__(self, fd: int, offset: int, end: int, keep_bytes: int) -> None:
        self._fd = fd
        self._offset = offset
        self._end = end
        self._keep = keep_bytes
        self._chunk = b""
        self._position = 0

    def next_line(self) -> tuple[bytes, int] | None:
        """The beginning of the next line and its whole length; None behind the last."""
        kept = b""
        length = 0
        while self._fill():
            stop = self._chunk.find(_LF, self._position)
            piece_end = stop if stop >= 0 else len(self._chunk)
            room = self._keep - len(kept)
            kept += self._chunk[self._position : min(piece_end, self._position + room)]
            length += piece_end - self._position
            self._position = piece_end + 1
            if stop >= 0:
                return _cut(kept, length), length
        return (_cut(kept, length), length) if length else None

    def _fill(self) -> bool:
        if self._position < len(self._chunk):
            return True
        want = min(_CHUNK_BYTES, self._end - self._offset)
        self._chunk = os.pread(self._fd, want, self._offset) if want > 0 else b""
        self._offset += len(self._chunk)
        self._position = 0
        return bool(self._chunk)


def _cut(kept: bytes, length: int) -> bytes:
    """`kept` without half a character at its end, if it is not the whole line."""
    return whole_characters(kept) if len(kept) < length else kept


def whole_characters(content: bytes) -> bytes:
    """`content` less an unfinished UTF-8 character at its end (at most 3 bytes)."""
    for back in range(1, min(4, len(content) + 1)):
        byte = content[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return content[:-back] if needed > back else content
    return content


def _collect(
    reader: _LineReader, first_line: int, line_count: int, bytes_max: int
) -> tuple[list[WindowLine], bool]:
    lines: list[WindowLine] = []
    room = bytes_max
    for number in range(first_line, first_line + line_count):
        found = reader.next_line()
        if found is None:
            break
        content, length = found
        if len(content) > room:
            if lines:
                return lines, True
            content = whole_characters(content[:room])
        lines.append(WindowLine(number, content, length))
        room -= len(content) + 1  # its LF
        if room <= 0 and number + 1 < first_line + line_count:
            return lines, reader.next_line() is not None
    return lines, False
