"""Content from memory, as a set of changes takes it."""

import os
from dataclasses import dataclass

from paddock.workspace.changes import LazyContent


@dataclass(frozen=True, slots=True)
class InMemory:
    """Opened when it is needed, so that thousands of files are not open at once."""

    content: bytes

    def open(self) -> int:
        """A descriptor to read from, the caller's to close."""
        # A file without a name in memory: memfd_create(2).
        fd = os.memfd_create("package", os.MFD_CLOEXEC)
        try:
            rest = memoryview(self.content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.lseek(fd, 0, os.SEEK_SET)
        except BaseException:
            os.close(fd)
            raise
        return fd


def given(content: bytes) -> LazyContent:
    """These bytes, as the content of a file to be written."""
    return LazyContent(InMemory(content))
