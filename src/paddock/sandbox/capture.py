"""A command's output, read while it runs: head and tail are kept, the whole is counted.

Memory is constant: one buffer. Small pieces cost a system call and two additions; looking at
what came waits until the buffer is full. A spool takes the whole stream, up to its limit.
"""

import fcntl
import os
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from paddock.kernel.files import start_writing_back
from paddock.sandbox.values import Captured

READ_BYTES: Final = 131_072
"""What is read before it is looked at. With the pipe it fits into a processor's cache."""
_PIPE_BYTES: Final = 1_048_576
"""What an unprivileged user may give one pipe (pipe(7), pipe-max-size)."""
_FULL_PIPE: Final = 65_536
"""A read of so much means that the writer waits: then, not before, the pipe is widened."""

_WRITTEN_BACK_BYTES: Final = 2_097_152
"""What is kept is handed to the device in pieces of this size."""


class Spool(Struct, frozen=True):
    open: Callable[[], int]
    bytes_max: int
    add: Callable[[memoryview], object] = len


class Capture:
    __slots__ = (
        *("_at", "_buffer", "_fd", "_head", "_head_max", "_is_wide", "_listener", "_new_at"),
        *("_spool", "_spooled", "_started", "_tail_max", "_total"),
    )

    def __init__(
        self, fd: int, bytes_max: int, spool: Spool | None = None, read_bytes: int = READ_BYTES
    ) -> None:
        self._fd = fd
        self._head_max = bytes_max // 2
        self._tail_max = bytes_max - self._head_max
        self._head = bytearray()
        # Before `_new_at` stands the tail of what was looked at, from there to `_at` what was not.
        self._buffer = memoryview(bytearray(self._tail_max + read_bytes))
        self._new_at = self._at = 0
        self._total = 0
        self._is_wide = False
        self._spool = spool
        self._spooled = 0
        self._started = 0
        self._listener: Callable[[bytes], None] | None = None

    def tell(self, listener: Callable[[bytes], None]) -> None:
        self._listener = listener

    @property
    def total_bytes(self) -> int:
        return self._total

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bool:
        """Take in what is there; False at the end. Blocks on an empty pipe. Raises: OSError."""
        try:
            count = os.readv(self._fd, [self._buffer[self._at :]])
        except BlockingIOError:
            # Threat: a command reads its own output where we were told that there is some.
            return True
        self._at += count
        self._total += count
        if count > 0 and self._listener is not None:
            self._listener(bytes(self._buffer[self._at - count : self._at]))
        if count >= _FULL_PIPE and not self._is_wide:
            self._widen()
        if count == 0 or self._at == len(self._buffer):
            self._look()
        return count > 0

    def close(self) -> None:
        os.close(self._fd)

    def captured(self) -> Captured:
        self._look()
        return Captured(
            bytes(self._head), bytes(self._buffer[: self._at]), self._total, self._spooled
        )

    def _widen(self) -> None:
        self._is_wide = True
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except PermissionError:
            # The user's pipes together have their limit (pipe-user-pages-soft): it only costs time.
            return

    def _look(self) -> None:
        if self._spool is not None:
            room = self._spool.bytes_max - self._spooled
            self._save(self._buffer[self._new_at : self._at][:room], self._spool)
        missing = self._head_max - len(self._head)
        # Nothing is a tail before the head is full, so a head begins where the buffer does.
        behind = min(missing, self._at)
        self._head += self._buffer[:behind]
        kept = min(self._tail_max, self._at - behind)
        self._buffer[:kept] = bytes(self._buffer[self._at - kept : self._at])
        self._new_at = self._at = kept

    def _save(self, chunk: memoryview, spool: Spool) -> None:
        while chunk:
            count = os.write(spool.open(), chunk)
            spool.add(chunk[:count])
            self._spooled += count
            chunk = chunk[count:]
        if self._spooled - self._started >= _WRITTEN_BACK_BYTES:
            # It is to be on the device when the command's result is given: now there is time.
            start_writing_back(spool.open(), self._started, self._spooled - self._started)
            self._started = self._spooled
