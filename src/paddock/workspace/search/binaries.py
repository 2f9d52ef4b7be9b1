"""Binary files, and large ones of them, which ripgrep would read for nothing.

Where ripgrep walks, it stops at a NUL byte. A file that is given to it by name it reads to
the end, looking for a match of which nothing would be shown.
"""

import os
from typing import Final

from paddock import limits
from paddock.errors import HostError, ToolError
from paddock.workspace.paths import WorkspacePath, unchecked_path
from paddock.workspace.search.asked import BinarySign
from paddock.workspace.search.confirm import as_utf8, is_large_utf16
from paddock.workspace.workspace import Workspace

_LARGE_BYTES: Final = 262_144
"""To read a smaller one costs ripgrep no more than a look into it costs here."""


def binary_sign(start: bytes, size_bytes: int) -> BinarySign | None:
    """What keeps a file of this beginning and size from being searched; None where nothing does."""
    if is_large_utf16(start, size_bytes):
        return BinarySign.LARGE_UTF16
    return BinarySign.NUL if b"\0" in as_utf8(start) else None


def read_binary_sign(workspace: Workspace, path: WorkspacePath) -> BinarySign | None:
    """What tells that a file is binary; None where nothing does. Raises: PathError, HostError."""
    with workspace.open_file(path) as file:
        return binary_sign(file.read_start(limits.binary_probe_bytes), file.size_bytes)


def is_large_binary(workspace: Workspace, path: str) -> bool:
    """Whether a file is large, and has a NUL byte at its beginning; false where it is gone.

    Threat: a disk image of many gigabytes would take all the time that a search has.

    Raises: HostError where the disk fails.
    """
    try:
        # Nothing but the size is taken from this look, which a link may lead astray.
        status = os.stat(path, dir_fd=workspace.root_fd, follow_symlinks=False)
        if status.st_size <= _LARGE_BYTES:
            return False
        return read_binary_sign(workspace, unchecked_path(path)) is BinarySign.NUL
    except HostError:
        raise
    except (OSError, ToolError):
        return False
