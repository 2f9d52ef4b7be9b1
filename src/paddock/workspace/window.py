"""Some lines out of a file of any size, at constant memory.

A line ends with LF; what follows the last LF is a line only if it is not empty. Lines
come as bytes without their LF: what encoding they are in is not judged here.

One pass counts the line ends of each chunk; the wanted lines are then read from where
they begin. Nothing ever holds all lines, or a whole long one. The counts are small and
can be kept: with them, another window of the same file costs no pass.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

_CHUNK_BYTES: Final = 262_144
_PIECE_BYTES: Final = 2 * _CHUNK_BYTES
"""What is read at once."""
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


@dataclass(frozen=True, slots=True)
class LineIndex:
    """How many line ends stand before each chunk of a file, and how many lines it has."""

    size_bytes: int
    ends_before: tuple[int, ...]
    lines_total: int

    def offset_of(self, fd: int, line: int) -> int | None:
        """Where a line (1-based) of that file begins; None if it has fewer lines."""
        if line > self.lines_total:
            return None
        # The chunk that holds the line end before it; none does before the first line.
        chunk = max(bisect_left(self.ends_before, line - 1) - 1, 0)
        start = chunk * _CHUNK_BYTES
        content = os.pread(fd, min(_CHUNK_BYTES, self.size_bytes - start), start)
        position = 0
        for _ in range(line - 1 - self.ends_before[chunk]):
            position = content.find(_LF, position) + 1
            if not position:
                return None  # rewritten since it was counted
        return start + position


def read_chunks(fd: int, size_bytes: int) -> Iterator[bytes]:
    """An open file's first `size_bytes` bytes, in pieces of one size; it may end before."""
    offset = 0
    while chunk := _read_whole(fd, min(_PIECE_BYTES, size_bytes - offset), offset):
        yield chunk
        offset += len(chunk)


def build_line_index(pieces: Iterable[bytes]) -> LineIndex:
    """Count the line ends in what `read_chunks` reads, in one pass."""
    before: list[int] = []
    ends = offset = 0
    piece = b""
    for piece in pieces:
        for start in range(0, len(piece), _CHUNK_BYTES):
            chunk = piece[start : start + _CHUNK_BYTES]
            before.append(ends)
            # As `count` does, in half its time: CPython 3.11 counts byte by byte.
            ends += len(chunk) - len(chunk.replace(_LF, b""))
        offset += len(piece)
    return LineIndex(offset, tuple(before), ends + (piece[-1:] not in {b"", _LF}))


def _read_whole(fd: int, size_bytes: int, offset: int) -> bytes:
    """So many bytes, fewer only where the file ends: each chunk but the last has one size."""
    content = os.pread(fd, size_bytes, offset) if size_bytes else b""
    while content and len(content) < size_bytes:
        more = os.pread(fd, size_bytes - len(content), offset + len(content))
        if not more:
            break  # cut shorter meanwhile
        content += more
    return content


def read_window(
    fd: int, index: LineIndex, first_line: int, line_count: int, shown: WindowLimits
) -> Window:
    """`line_count` lines from `first_line` (1-based) of the open file that `index` is of.

    A line over `line_bytes_max` is cut between characters; when `bytes_max` is
    reached, whole lines are left out (the first one is cut instead). A first
    line behind the end gives no lines; `lines_total` says how many there are.

    Raises:
        ValueError: `first_line` or a limit below 1, a negative count: a caller's defect.
        OSError: the disk fails.
    """
    if first_line < 1 or line_count < 0 or shown.bytes_max < 1 or shown.line_bytes_max < 1:
        raise ValueError("a window begins at line 1 or later, and its limits are at least 1")
    start = index.offset_of(fd, first_line)
    lines: list[WindowLine] = []
    cut_by_bytes = False
    if start is not None:
        reader = _LineReader(fd, start, index.size_bytes, shown.line_bytes_max)
        lines, cut_by_bytes = _collect(reader, first_line, line_count, shown.bytes_max)
    return Window(tuple(lines), first_line, index.lines_total, index.size_bytes, cut_by_bytes)


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
