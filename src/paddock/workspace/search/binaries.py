"""Binary files, and large ones of them, which ripgrep would read for nothing.

Where ripgrep walks, it stops at a NUL byte. A file that is given to it by name it reads to
the end, looking for a match of which nothing would be shown.
"""

import os
from typing import Final

from paddock import limits
from paddock.errors import HostError, ToolError
from paddock.workspace.names import WorkspacePath, unchecked_path
from paddock.workspace.workspace import Workspace

_LARGE_BYTES: Final = 262_144
"""To read a smaller one costs ripgrep no more than a look into it costs here."""


def is_binary(workspace: Workspace, path: WorkspacePath) -> bool:
    """Whether a file has a NUL byte at its beginning.

    Raises:
        PathError: it cannot be read any more.
        HostError: the disk fails.
    """
    with workspace.open_file(path) as file:
        return b"\0" in file.read_start(limits.binary_probe_bytes)


def is_large_binary(workspace: Workspace, path: str) -> bool:
    """Whether a file is large, and has a NUL byte at its beginning; false where it is gone.

    Threat: a disk image of many gigabytes would take all the time that a search has.

    Raises: HostError where the disk fails.
    """
    try:
        # Nothing but the size is taken from this look, which a link may lead astray.
        status = os.stat(path, dir_fd=workspace.tree.root_fd, follow_symlinks=False)
        if status.st_size <= _LARGE_BYTES:
            return False
        return is_binary(workspace, unchecked_path(path))
    except HostError:
        raise
    except (OSError, ToolError):
        return False
