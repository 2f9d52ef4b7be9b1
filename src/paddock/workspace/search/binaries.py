"""Binary files, and large ones of them, which ripgrep would read for nothing.

A file that begins with a byte-order mark of UTF-16 is one of them, NUL bytes or not: ripgrep
reads it as UTF-16, and what it finds there are not the bytes that are shown.

Where ripgrep walks, it stops at a NUL byte. A file that is given to it by name it reads to
the end, looking for a match of which nothing would be shown.
"""

import os
from typing import Final

from paddock import limits
from paddock.errors import HostError, ToolError
from paddock.workspace.names import WorkspacePath, unchecked_path
from paddock.workspace.search.asked import BinarySign
from paddock.workspace.workspace import Workspace

_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_LARGE_BYTES: Final = 262_144
"""To read a smaller one costs ripgrep no more than a look into it costs here."""


def binary_sign(content: bytes) -> BinarySign | None:
    """What tells that a file is binary; None where nothing in this much of it does."""
    if content.startswith(_UTF16_MARKS):
        return BinarySign.UTF16
    return BinarySign.NUL if b"\0" in content else None


def read_binary_sign(workspace: Workspace, path: WorkspacePath) -> BinarySign | None:
    """What tells at a file's beginning that it is binary; None where nothing does.

    Raises:
        PathError: it cannot be read any more.
        HostError: the disk fails.
    """
    with workspace.open_file(path) as file:
        return binary_sign(file.read_start(limits.binary_probe_bytes))


def is_large_binary(workspace: Workspace, path: str) -> bool:
    """Whether a file is large, and binary by its beginning; false where it is gone.

    Threat: a disk image of many gigabytes would take all the time that a search has.

    Raises: HostError where the disk fails.
    """
    try:
        # Nothing but the size is taken from this look, which a link may lead astray.
        status = os.stat(path, dir_fd=workspace.tree.root_fd, follow_symlinks=False)
        if status.st_size <= _LARGE_BYTES:
            return False
        return read_binary_sign(workspace, unchecked_path(path)) is not None
    except HostError:
        raise
    except (OSError, ToolError):
        return False
