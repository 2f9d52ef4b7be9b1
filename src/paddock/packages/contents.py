"""Content from memory, as a set of changes takes it."""

import os
import tempfile
from dataclasses import dataclass

from paddock.workspace.changes import LazyContent


@dataclass(frozen=True, slots=True)
class InMemory:
    """Opened when it is needed, so that thousands of files are not open at once."""

    content: bytes

    def open(self) -> int:
        """A descriptor to read from, the caller's to close."""
        fd = _unnamed()
        try:
            rest = memoryview(self.content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _unnamed() -> int:
    """A file that nobody else can open: in memory, memfd_create(2), where there is that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("package", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def given(content: bytes) -> LazyContent:
    """These bytes, as the content of a file to be written."""
    return LazyContent(InMemory(content))
