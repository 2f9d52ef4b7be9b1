"""Taking a file that a command left as the new entry itself, instead of copying it.

What is taken must look afterwards as a copy would: owner and group of a file that is made
in that directory, no attributes. Where that cannot be had, it is copied.
"""

import errno
import os
import stat
from typing import Final

from paddock.workspace.changes import GivenContent
from paddock.workspace.disk import Disk

_DEFAULT_ACL: Final = "system.posix_acl_default"
_BY_THE_SYSTEM: Final = "security."
_CAPABILITIES: Final = "security.capability"
_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})


def can_be_taken(given: GivenContent, dir_fd: int) -> bool:
    """Whether the file may become an entry of the directory. Raises: OSError."""
    found = os.stat(given.path, dir_fd=given.dir_fd, follow_symlinks=False)
    # Threat: a second name of it, which could be written through later.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return False
    return _can_be_ours(found, dir_fd) and not _has_default_acl(dir_fd)


def make_plain(disk: Disk, fd: int, dir_fd: int) -> None:
    """Give a taken file the owner of a new one, and take its attributes away. Raises: OSError."""
    found = os.fstat(fd)
    owner = _owner_in(dir_fd)
    if (found.st_uid, found.st_gid) != owner:
        disk.set_owner(fd, *owner)
    for name in os.listxattr(fd):
        # A label that the system gave is its own affair, as on a new file.
        if name == _CAPABILITIES or not name.startswith(_BY_THE_SYSTEM):
            disk.remove_attribute(fd, name)


def _can_be_ours(found: os.stat_result, dir_fd: int) -> bool:
    return os.geteuid() == 0 or (found.st_uid, found.st_gid) == _owner_in(dir_fd)


def _owner_in(dir_fd: int) -> tuple[int, int]:
    """Whose a new file in that directory is (open(2), O_CREAT)."""
    directory = os.fstat(dir_fd)
    group = directory.st_gid if directory.st_mode & stat.S_ISGID else os.getegid()
    return os.geteuid(), group


def _has_default_acl(dir_fd: int) -> bool:
    try:
        return bool(os.getxattr(dir_fd, _DEFAULT_ACL))
    except OSError as failure:
        if failure.errno in _NONE:
            return False
        raise
