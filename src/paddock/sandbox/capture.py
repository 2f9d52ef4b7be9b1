"""A command's output, read while it runs: head and tail are kept, the whole is counted.

Memory is constant whatever a command prints: one buffer for reading, and what is
kept. Where a spool is given, the whole stream goes there as well, up to its cap.
"""

import fcntl
import os
from dataclasses import dataclass
from typing import Final, Protocol

from paddock.kernel.files import start_writing_back
from paddock.sandbox.values import Captured

READ_BYTES: Final = 262_144
"""One read; the buffer is shared by both streams of a command."""
_PIPE_BYTES: Final = 1_048_576
"""What an unprivileged user may give one pipe (pipe(7), pipe-max-size)."""
_FULL_PIPE: Final = 65_536
"""A read of so much means that the writer waits: then, not before, the pipe is widened."""

_WRITTEN_BACK_BYTES: Final = 8_388_608
"""What is kept is handed to the device in pieces of this size."""


class Digest(Protocol):
    """What a content is summed up in; see `hashlib`."""

    def update(self, data: memoryview, /) -> None:
        """Add what comes next."""
        ...


@dataclass(frozen=True, slots=True)
class Spool:
    """Where a stream is kept whole: an open file, and how much of it at most."""

    fd: int
    bytes_max: int
    digest: Digest | None = None
    """Gets everything that the file gets: reading it once more would cost as much again."""


class Capture:
    """One stream. `head_max` first bytes and `tail_max` last ones stay."""

    __slots__ = (
        *("_buffer", "_fd", "_head", "_head_max", "_is_wide", "_ring", "_ring_at"),
        *("_spool", "_spooled", "_started", "_tail_max", "_total"),
    )

    def __init__(
        self, fd: int, buffer: bytearray, bytes_max: int, spool: Spool | None = None
    ) -> None:
        """Takes the descriptor over; `buffer` is lent for each read."""
        self._fd = fd
        self._buffer = memoryview(buffer)
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        self._ring = bytearray()
        self._ring_at = 0
        self._total = 0
        self._is_wide = False
        self._spool = spool
        self._spooled = 0
        self._started = 0

    @property
    def total_bytes(self) -> int:
        """All that came so far."""
        return self._total

    def fileno(self) -> int:
        """What to poll."""
        return self._fd

    def read(self) -> bool:
        """Take in what is there. False at the end of the stream. Blocks on an empty pipe.

        Raises: OSError of the spool's file.
        """
        count = os.readv(self._fd, [self._buffer])
        if count == 0:
            return False
        if count >= _FULL_PIPE and not self._is_wide:
            self._widen()
        self._take(self._buffer[:count])
        return True

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._fd)
        self._buffer.release()

    def captured(self) -> Captured:
        """What was kept, so far."""
        tail = bytes(self._ring[self._ring_at :]) + bytes(self._ring[: self._ring_at])
        return Captured(bytes(self._head), tail, self._total, self._spooled)

    def _widen(self) -> None:
        self._is_wide = True
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            # The user's pipes together have their limit (pipe-user-pages-soft): it only costs time.
            return

    def _take(self, chunk: memoryview) -> None:
        self._total += len(chunk)
        if self._spool is not None:
            self._save(chunk[: self._spool.bytes_max - self._spooled], self._spool)
        missing = self._head_max - len(self._head)
        if missing > 0:
            self._head += chunk[:missing]
            chunk = chunk[missing:]
        chunk = chunk[max(0, len(chunk) - self._tail_max) :]
        growth = min(self._tail_max - len(self._ring), len(chunk))
        if growth > 0:
            self._ring += chunk[:growth]
            chunk = chunk[growth:]
        while chunk:
            # The ring is full: its oldest byte stands at `_ring_at`.
            room = min(len(self._ring) - self._ring_at, len(chunk))
            self._ring[self._ring_at : self._ring_at + room] = chunk[:room]
            self._ring_at = (self._ring_at + room) % len(self._ring)
            chunk = chunk[room:]

    def _save(self, chunk: memoryview, spool: Spool) -> None:
        if spool.digest is not None:
            spool.digest.update(chunk)
        while chunk:
            count = os.write(spool.fd, chunk)
            self._spooled += count
            chunk = chunk[count:]
        if self._spooled - self._started >= _WRITTEN_BACK_BYTES:
            # It is to be on the device when the command's result is given: now there is time.
            start_writing_back(spool.fd, self._started, self._spooled - self._started)
            self._started = self._spooled
