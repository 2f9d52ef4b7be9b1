"""Whether another file system is mounted over a directory of the workspace.

The layer that a command works on ends there: what is mounted is not part of it, and the
command sees the directory underneath, as a rule an empty one. We see what is mounted.
"""

import errno
import os
from typing import Final

from paddock.kernel.files import RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, OpenHow

_LOOK: Final = OpenHow(
    os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS
)


def is_mount_point(parent_fd: int, name: str, device: int) -> bool:
    """Whether the directory `name`, which has this device, is where a mount begins.

    The kernel is asked: a directory of the same disk may be mounted there (a bind has the
    same device), and a part of the same mount may have another device (a subvolume has).
    """
    try:
        os.close(_LOOK.open(parent_fd, os.fsencode(name)))
    except OSError as error:
        if error.errno == errno.EXDEV:
            return True
        # Without openat2, or not to be looked at: the device tells most of it.
        return os.fstat(parent_fd).st_dev != device
    return False
