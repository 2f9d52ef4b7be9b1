"""Read one regular file by descriptor.

If the file is replaced meanwhile, the open descriptor still reads the old one. If it is rewritten
in place, at most its size at opening is read; its version is that of the bytes read, so a later
`if_version` fails.
"""

import itertools
import os
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Self, TypeAlias

from msgspec import Struct

from paddock import limits
from paddock.errors import PathNotAFileError, TextTooLargeError
from paddock.storage.disk import chunks_of, digest_of_file, read_bytes
from paddock.values.entries import digest_of
from paddock.workspace.failures import NOT_A_FILE_HINT, converting, special_file
from paddock.workspace.metadata import FileStatus, status_of
from paddock.workspace.paths import WorkspacePath

# A line ends with LF; text after the last LF is a line only if it is not empty. One pass counts
# the line ends of each chunk; the wanted lines are then read from their offset.

_CHUNK_BYTES_WINDOW: Final = 262_144
_LF: Final = b"\n"


class WindowLine(Struct, frozen=True):
    number: int
    content: bytes  # without its LF, perhaps cut
    length_bytes: int  # of the whole line


class Window(Struct, frozen=True):
    lines: tuple[WindowLine, ...]
    first_line: int
    lines_total: int
    size_bytes: int
    cut_by_bytes: bool  # fewer lines than asked for, because bytes_max was reached
    version: str  # of the whole content
    changed_while_reading: bool = False

    @property
    def next_line(self) -> int | None:
        after = self.first_line + len(self.lines)
        return after if after <= self.lines_total else None

    @property
    def cut_lines(self) -> list[WindowLine]:
        # Only the first line can be longer than the limit.
        return [line for line in self.lines[:1] if len(line.content) < line.length_bytes]

    @property
    def truncated(self) -> bool:
        return self.next_line is not None or bool(self.cut_lines)


class LineIndex(Struct, frozen=True):
    size_bytes: int
    ends_before: tuple[int, ...]
    lines_total: int

    def offset_of(self, read: "Read", line: int) -> int | None:
        if line > self.lines_total:
            return None
        chunk = max(bisect_left(self.ends_before, line - 1) - 1, 0)
        start = chunk * _CHUNK_BYTES_WINDOW
        content = read(min(_CHUNK_BYTES_WINDOW, self.size_bytes - start), start)
        position = 0
        for _ in range(line - 1 - self.ends_before[chunk]):
            position = content.find(_LF, position) + 1
            if not position:
                return None  # rewritten since it was counted
        return start + position


def build_line_index(pieces: Iterable[bytes]) -> LineIndex:
    before, ends, offset, piece = list[int](), 0, 0, b""
    for piece in pieces:
        for start in range(0, len(piece), _CHUNK_BYTES_WINDOW):
            chunk = piece[start : start + _CHUNK_BYTES_WINDOW]
            before.append(ends)
            # Faster than `count`, which CPython 3.11 does byte by byte.
            ends += len(chunk) - len(chunk.replace(_LF, b""))
        offset += len(piece)
    return LineIndex(offset, tuple(before), ends + (piece[-1:] not in {b"", _LF}))


def read_lines(
    read: "Read", index: LineIndex, first_line: int, line_count: int, bytes_max: int
) -> tuple[tuple[WindowLine, ...], bool]:
    start = index.offset_of(read, first_line)
    wanted = min(line_count, index.lines_total - first_line + 1)
    if start is None or not wanted:
        return (), False
    # One more byte: the LF of the last line does not count.
    block = read(min(bytes_max + 1, index.size_bytes - start), start)
    *lines, rest = block.split(_LF, wanted)
    if len(lines) < wanted and start + len(block) == index.size_bytes and len(block) <= bytes_max:
        lines.append(rest)
    found = tuple(map(WindowLine, itertools.count(first_line), lines, map(len, lines)))
    if block and not found:
        length = _line_length(read, start, index.size_bytes)
        found = (WindowLine(first_line, whole_characters(block[:bytes_max]), length),)
    return found, len(found) < wanted


def _line_length(read: "Read", start: int, end: int) -> int:
    offset = start
    while chunk := read(min(_CHUNK_BYTES_WINDOW, end - offset), offset):
        if (found := chunk.find(_LF)) >= 0:
            return offset + found - start
        offset += len(chunk)
    return offset - start


def whole_characters(content: bytes) -> bytes:
    for back in range(1, min(4, len(content) + 1)):
        byte = content[-back]
        if byte & 0xC0 != 0x80:  # the first byte of a character
            needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return content[:-back] if needed > back else content
    return content


# The cache saves hashing and counting a large file for each window. Within one clock tick a file
# could be rewritten without a change of its times, so a file that changed shortly before it was
# read is not cached. Only an unsynced memory mapping can make a cached answer stale: its lines
# may be wrong, and no write accepts its version.

WORTH_REMEMBERING_BYTES: Final = 1_048_576
_FILES_MAX: Final = 16
_SETTLED_NS: Final = 1_000_000_000  # the coarsest tick of a file system is 10 ms


class KnownFile(Struct, frozen=True):
    version: str | None
    lines: LineIndex | None


NOTHING_KNOWN: Final = KnownFile(None, None)


class KnownFiles:
    """The cache of one workspace's last files. Each call is atomic under the interpreter's lock."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.now_ns = now_ns
        self._files: OrderedDict[FileStatus, KnownFile] = OrderedDict()

    def find(self, status: FileStatus) -> KnownFile:
        return self._files.get(status, NOTHING_KNOWN)

    def keep(self, status: FileStatus, found: KnownFile, read_at_ns: int) -> None:
        changed_ns = max(status.modified_ns, status.changed_ns)
        if status.size_bytes < WORTH_REMEMBERING_BYTES or read_at_ns - changed_ns < _SETTLED_NS:
            return
        old = self.find(status)
        self._files[status] = KnownFile(found.version or old.version, found.lines or old.lines)
        while len(self._files) > _FILES_MAX:
            self._files.popitem(last=False)


Pieces: TypeAlias = Sequence[bytes | memoryview]
Read: TypeAlias = Callable[[int, int], bytes]
"""Reads a number of bytes at an offset; fewer at the end."""


def version_of(*pieces: bytes | memoryview) -> str:
    """Return `sha256:` and the hexadecimal digest of the joined pieces."""
    return digest_of(*pieces)


def require_regular(path: WorkspacePath, status: FileStatus) -> None:
    if status.is_directory:
        raise PathNotAFileError(f"{path.shown} is a directory", hint=NOT_A_FILE_HINT)
    if not status.is_regular:
        raise special_file(path)


def require_versionable(path: WorkspacePath, status: FileStatus) -> None:
    if status.size_bytes > limits.versioned_file_bytes_max:
        raise TextTooLargeError(
            f"{path.shown} has {status.size_bytes} bytes; "
            f"files over {limits.versioned_file_bytes_max} are not read completely",
            hint="ask a person to move or remove it",
        )


class OpenFile:
    """A regular file open for reading, with its status at opening."""

    def __init__(self, path: WorkspacePath, fd: int, known: KnownFiles) -> None:
        self.path, self._fd, self._known = path, fd, known
        self._opened_ns = known.now_ns()
        self._whole: bytes | None = None
        try:
            self.status = status_of(fd)
            require_regular(path, self.status)
        except BaseException:
            os.close(fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def fileno(self) -> int:
        return self._fd

    @property
    def size_bytes(self) -> int:
        return self.status.size_bytes

    def read_all(self, bytes_max: int) -> bytes:
        """Raises: TextTooLargeError: more than `bytes_max`; nothing was read."""
        if self.size_bytes > bytes_max:
            raise TextTooLargeError(
                f"{self.path.shown} has {self.size_bytes} bytes, over {bytes_max}",
                hint="read part of it at a time",
            )
        return self.read_start(self.size_bytes)

    def read_start(self, bytes_max: int) -> bytes:
        with converting(self.path, "read"):
            return self._read(min(bytes_max, self.size_bytes), 0)

    def _read(self, size_bytes: int, offset: int) -> bytes:
        # A small file is read only once.
        if self.size_bytes > _CHUNK_BYTES_WINDOW:
            return read_bytes(self._fd, size_bytes, offset)
        if self._whole is None:
            self._whole = read_bytes(self._fd, self.size_bytes)
        return self._whole[offset : offset + size_bytes]

    def ends_with_newline(self) -> bool:
        with converting(self.path, "read"):
            return self.size_bytes > 0 and self._read(1, self.size_bytes - 1) == b"\n"

    def version(self) -> str:
        known = self._known.find(self.status).version
        if known is not None:
            return known
        require_versionable(self.path, self.status)
        with converting(self.path, "read"):
            whole, size_bytes = self._whole, self.size_bytes
            version = digest_of_file(self._fd, size_bytes) if whole is None else digest_of(whole)
            self._keep(KnownFile(version, None))
        return version

    def window(self, first_line: int, line_count: int, bytes_max: int) -> Window:
        """Lines over `bytes_max` are left out, except the first, which is cut."""
        if first_line < 1 or line_count < 0 or bytes_max < 1:
            raise ValueError("a window begins at line 1 or later, and has at least one byte")
        index = self._known.find(self.status).lines
        with converting(self.path, "read"):
            if index is None:
                require_versionable(self.path, self.status)
                is_small = self.size_bytes <= _CHUNK_BYTES_WINDOW
                whole = [self._read(self.size_bytes, 0)] if is_small else None
                index = build_line_index(whole or chunks_of(self._fd, self.size_bytes))
                self._keep(KnownFile(None, index))
            lines, cut_by_bytes = read_lines(self._read, index, first_line, line_count, bytes_max)
            version, of_all = self.version(), (index.lines_total, index.size_bytes)
            return Window(lines, first_line, *of_all, cut_by_bytes, version, self._has_changed())

    def _keep(self, found: KnownFile) -> None:
        if not self._has_changed():
            self._known.keep(self.status, found, self._opened_ns)

    def _has_changed(self) -> bool:
        return status_of(self._fd).content_mark != self.status.content_mark
