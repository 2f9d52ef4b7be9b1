"""Opening a ledger to read it: no lock, no repair, and nothing beside it is needed.

Readers see a file that others append to. Every whole line is one that a writer
finished writing; what follows the last LF may be a line on its way.
"""

import os
import stat
from collections.abc import Iterator
from typing import Final, Self

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.disk import SystemDisk, failure
from paddock.ledger.head import HeadFile, HeadPage
from paddock.ledger.paths import LedgerPaths

_CHUNK: Final = limits.ledger_scan_chunk_bytes


class LedgerReader:
    """One ledger file, open for reading."""

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            HostError: there is none, or it cannot be read.
        """
        self.path = path
        self._disk = SystemDisk()
        try:
            self.descriptor = self._disk.open(
                path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            )
        except FileNotFoundError as fault:
            raise HostError("there is no ledger here", where=ascii(path)) from fault
        except OSError as fault:
            raise failure(fault, "the ledger cannot be opened", path) from fault
        if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            self.close()
            raise HostError("a ledger is a regular file", where=ascii(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self.descriptor)

    def size(self) -> int:
        """The file's size now."""
        return self._disk.size(self.descriptor)

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return so many bytes from a place, fewer at the end.

        Raises:
            HostError: the disk failed.
        """
        try:
            return self._disk.read(self.descriptor, size_bytes, offset)
        except OSError as fault:
            raise failure(fault, "the ledger cannot be read", self.path) from fault

    def boot(self) -> bytes:
        """Since when this machine runs."""
        return self._disk.boot()

    def marks(self) -> HeadPage | None:
        """What the head file says; None where there is none to read."""
        path = LedgerPaths(self.path).head
        if not os.path.lexists(path):
            return None
        head = HeadFile(self._disk, path, create=False)
        try:
            return head.read()
        finally:
            self._disk.close(head.descriptor)

    def is_in_place(self) -> bool:
        """Whether the path still leads to the file that is open."""
        try:
            there = self._disk.stat(self.path)
        except OSError:
            return False
        mine = self._disk.stat(self.descriptor)
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def whole_bytes(self, end: int) -> int:
        """The place after the last LF before `end`."""
        while end > 0:
            start = max(0, end - _CHUNK)
            found = self.read(end - start, start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
        return 0

    def lines_backwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Lines with their offsets, the last one before `end` first.

        `end` is the place after an LF. A line longer than any can be is given
        only as far as shows that.
        """
        position, carry = max(0, end - 1), b""
        if end == 0:
            return
        while position > 0:
            start = max(0, position - _CHUNK)
            parts = (self.read(position - start, start) + carry).split(b"\n")
            carry = parts[0][: limits.entry_bytes_max + 1]
            offset = start + sum(len(part) + 1 for part in parts)
            for part in reversed(parts[1:]):
                offset -= len(part) + 1
                yield offset, part
            position = start
        yield 0, carry
