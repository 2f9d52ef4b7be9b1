"""Reading one file: by descriptor, regular files only, sizes from the descriptor.

Rules kept here:
  * the real path that was judged is opened, and no link on the way;
  * opening never waits: a FIFO, socket or device is refused, not read;
  * a file that is replaced while we read stays whole for us: we hold the old one;
  * a file that is rewritten in place while we read can't be held still. At most the
    bytes that it had when it was opened are read, and the answer says that it changed
    meanwhile. Its version is that of the bytes read, so a later `if_version` fails.
"""

import hashlib
import os
import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from paddock import limits
from paddock.errors import PathNotAFileError, TextTooLargeError
from paddock.text.show import quote
from paddock.values.entries import DIGEST_PREFIX, digest_of
from paddock.workspace.failures import NOT_A_FILE_HINT, converting, special_file
from paddock.workspace.known import NOTHING_KNOWN, KnownFile, KnownFiles
from paddock.workspace.metadata import FileStatus, status_of
from paddock.workspace.names import WorkspacePath
from paddock.workspace.resolution import READ_FILE, Resolution
from paddock.workspace.window import (
    LineIndex,
    Window,
    WindowLimits,
    build_line_index,
    read_chunks,
    read_window,
)

_CHUNK_BYTES: Final = 2_097_152
_HASHED_ALONGSIDE_BYTES: Final = 4_194_304
"""From here on a thread costs less than it saves."""
_PIECES_AHEAD: Final = 3
"""Read and not hashed yet."""


def version_of(*pieces: bytes | memoryview) -> str:
    """`sha256:` and the hexadecimal digest of these bytes, one piece after the other."""
    return digest_of(*pieces)


def require_regular(path: WorkspacePath, status: FileStatus) -> None:
    """Refuse what is not an ordinary file.

    Raises:
        PathNotAFileError: a directory.
        SpecialFileError: a FIFO, socket or device.
    """
    if status.is_directory:
        raise PathNotAFileError(f"{quote(path.relative)} is a directory", hint=NOT_A_FILE_HINT)
    if not status.is_regular:
        raise special_file(path)


def require_versionable(path: WorkspacePath, status: FileStatus) -> None:
    """Refuse a file that would be read for longer than anybody waits; see `limits`.

    Raises:
        TextTooLargeError: over limits.versioned_file_bytes_max.
    """
    if status.size_bytes > limits.versioned_file_bytes_max:
        raise TextTooLargeError(
            f"{quote(path.relative)} has {status.size_bytes} bytes; "
            f"files over {limits.versioned_file_bytes_max} are not read to their end",
            hint="where it is no more than a name, remove it or move it away by hand",
        )


def version_of_file(fd: int, size_bytes: int) -> str:
    """The version of an open file's first `size_bytes` bytes, streamed."""
    digest = hashlib.sha256()
    buffer = bytearray(min(_CHUNK_BYTES, size_bytes) or 1)
    view = memoryview(buffer)
    offset = 0
    while offset < size_bytes:
        count = os.preadv(fd, [view[: size_bytes - offset]], offset)
        if count == 0:
            break  # cut shorter meanwhile; the caller sees it by the status
        digest.update(view[:count])
        offset += count
    return DIGEST_PREFIX + digest.hexdigest()


def read_bytes(fd: int, size_bytes: int) -> bytes:
    """An open file's first `size_bytes` bytes, fewer if it ends before."""
    pieces: list[bytes] = []
    offset = 0
    # One read takes at most 0x7ffff000 bytes, and may take less.
    while offset < size_bytes and (piece := os.pread(fd, size_bytes - offset, offset)):
        pieces.append(piece)
        offset += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True)
class FileContent:
    """All bytes of a file, and what they were when they were read."""

    content: bytes
    version: str
    mode: int
    changed_while_reading: bool


class OpenFile:
    """A regular file, held open for reading. Closes itself as a context manager."""

    __slots__ = ("_fd", "_known", "_opened_ns", "path", "status")

    def __init__(self, path: WorkspacePath, fd: int, known: KnownFiles) -> None:
        self.path = path
        self._opened_ns = known.now_ns()
        self.status = status_of(fd)
        self._fd = fd
        self._known = known

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go; a second time does nothing."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def fileno(self) -> int:
        """The descriptor, for a caller that reads by itself; -1 once closed."""
        return self._fd

    @property
    def size_bytes(self) -> int:
        return self.status.size_bytes

    @property
    def mode(self) -> int:
        """Permission bits and kind when it was opened."""
        return self.status.mode

    def read_all(self, bytes_max: int) -> FileContent:
        """Every byte.

        Raises:
            TextTooLargeError: more than `bytes_max` bytes; none was read.
        """
        if self.size_bytes > bytes_max:
            raise TextTooLargeError(
                f"{quote(self.path.relative)} has {self.size_bytes} bytes, over {bytes_max}",
                hint="read some lines of it at a time",
            )
        with converting(self.path, "read"):
            content = read_bytes(self._fd, self.size_bytes)
            return FileContent(content, version_of(content), self.mode, self._has_changed())

    def read_start(self, bytes_max: int) -> bytes:
        """The first bytes, at most `bytes_max`: to see whether it is text."""
        with converting(self.path, "read"):
            return read_bytes(self._fd, min(bytes_max, self.size_bytes))

    def ends_with_newline(self) -> bool:
        """Whether its last byte is LF; false for an empty file."""
        with converting(self.path, "read"):
            return self.size_bytes > 0 and os.pread(self._fd, 1, self.size_bytes - 1) == b"\n"

    def version(self) -> str:
        """`sha256:` and the digest of all bytes, streamed at constant memory.

        Of a large file that did not change since, what was found before; see `known`.
        """
        known = self._known.find(self.status).version
        if known is not None:
            return known
        require_versionable(self.path, self.status)
        with converting(self.path, "read"):
            version = version_of_file(self._fd, self.size_bytes)
            self._keep(KnownFile(version, None))
        return version

    def window_with_version(self, first_line: int, line_count: int, shown: WindowLimits) -> Window:
        """As `window`, with the version of the whole content."""
        known = self._known.find(self.status)
        if self.size_bytes > _HASHED_ALONGSIDE_BYTES and known == NOTHING_KNOWN:
            index, version = self._index_and_version()
            return replace(self._window(index, first_line, line_count, shown), version=version)
        return replace(self.window(first_line, line_count, shown), version=self.version())

    def window(self, first_line: int, line_count: int, shown: WindowLimits) -> Window:
        """`line_count` lines from `first_line` (1-based); see `window.read_window`."""
        index = self._known.find(self.status).lines
        if index is None:
            require_versionable(self.path, self.status)
            with converting(self.path, "read"):
                index = build_line_index(read_chunks(self._fd, self.size_bytes))
            self._keep(KnownFile(None, index))
        return self._window(index, first_line, line_count, shown)

    def _window(
        self, index: LineIndex, first_line: int, line_count: int, shown: WindowLimits
    ) -> Window:
        with converting(self.path, "read"):
            window = read_window(self._fd, index, first_line, line_count, shown)
            return window.seen_changed() if self._has_changed() else window

    def _index_and_version(self) -> tuple[LineIndex, str]:
        """Both in one pass: a second thread hashes what this one reads and counts."""
        require_versionable(self.path, self.status)
        hashing = _Hashing()
        hashing.start()
        try:
            with converting(self.path, "read"):
                index = build_line_index(hashing.passing(read_chunks(self._fd, self.size_bytes)))
        finally:
            version = hashing.finish()
        self._keep(KnownFile(version, index))
        return index, version

    def _keep(self, found: KnownFile) -> None:
        if not self._has_changed():
            self._known.keep(self.status, found, self._opened_ns)

    def _has_changed(self) -> bool:
        now = status_of(self._fd)
        return now.content_mark != self.status.content_mark


class _Hashing(threading.Thread):
    """Hashes what passes by, a few pieces behind: hashing is slower than counting lines.

    It does not hold the interpreter's lock while it hashes.
    """

    def __init__(self) -> None:
        super().__init__(name="paddock-version", daemon=True)
        self._digest = hashlib.sha256()
        self._pieces: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._room = threading.Semaphore(_PIECES_AHEAD)

    def passing(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces, each hashed meanwhile."""
        for piece in pieces:
            self._room.acquire()
            self._pieces.put(piece)
            yield piece

    def run(self) -> None:
        """Hash until the empty piece."""
        while piece := self._pieces.get():
            self._digest.update(piece)
            self._room.release()

    def finish(self) -> str:
        """The version of all that passed."""
        self._pieces.put(b"")
        self.join()
        return DIGEST_PREFIX + self._digest.hexdigest()


def open_file(
    root_fd: int, resolution: Resolution, path: WorkspacePath, known: KnownFiles
) -> OpenFile:
    """Open a regular file for reading; see `Workspace.open_file`."""
    with converting(path, "read"):
        fd = resolution.open(root_fd, path.relative, READ_FILE)
    try:
        file = OpenFile(path, fd, known)
        require_regular(path, file.status)
    except BaseException:
        os.close(fd)
        raise
    return file
