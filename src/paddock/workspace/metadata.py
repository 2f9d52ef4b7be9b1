"""What new content inherits from the file that it replaces.

Kept: permission bits, owner, group, extended attributes, POSIX ACLs among them.
Not kept, because they speak of the old content: setuid, setgid and sticky bits, file
capabilities, integrity signatures.
"""

import errno
import os
import stat
from typing import Final

from msgspec import Struct

from paddock.errors import ReadOnlyPathError
from paddock.storage.disk import Disk
from paddock.text.show import quote
from paddock.workspace.failures import changed, converted
from paddock.workspace.paths import WorkspacePath

_ABOUT_CONTENT: Final = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that vouch for bytes that are no longer there."""
_BY_THE_SYSTEM: Final = "security."
"""Labels that a security module gives and may not let us set (xattr(7))."""
NEW_FILE_MODE: Final = 0o666
"""Less the umask, or as the directory's default ACL says."""
_NO_ATTRIBUTES: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})


class FileStatus(Struct, frozen=True):
    device: int
    inode: int
    mode: int
    links: int
    uid: int
    gid: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @property
    def content_mark(self) -> tuple[int, int, int, int]:
        """Equal as long as nobody rewrote the file; our own renames do not move it."""
        return self.device, self.inode, self.size_bytes, self.modified_ns

    def is_same_entry(self, other: "FileStatus | None") -> bool:
        return other is not None and (self.device, self.inode) == (other.device, other.inode)

    @property
    def permissions(self) -> int:
        """The nine bits; setuid, setgid and sticky are not carried to new content."""
        return self.mode & 0o777

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def status_from(found: os.stat_result) -> FileStatus:
    return FileStatus(
        device=found.st_dev,
        inode=found.st_ino,
        mode=found.st_mode,
        links=found.st_nlink,
        uid=found.st_uid,
        gid=found.st_gid,
        size_bytes=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )


def status_of(fd: int) -> FileStatus:
    return status_from(os.fstat(fd))


def status_at(dir_fd: int, name: str) -> FileStatus | None:
    try:
        return status_from(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None


def require_same(fd: int, status: FileStatus, path: WorkspacePath) -> None:
    if status_of(fd) != status:
        raise changed(path)


def require_writable(path: WorkspacePath, status: FileStatus, dir_fd: int) -> None:
    """Refuse a file that its permissions protect, also when we are root: a rename would not ask."""
    if not status.mode & 0o222:
        raise ReadOnlyPathError(
            f"{quote(path.relative)} is read-only: no write bit in mode {status.permissions:04o}",
            hint="its owner set it so; write another file, or ask for the mode to be changed",
        )
    # Only where it matters: with effective ids it is another system call (faccessat2), which
    # an older container filter answers with EPERM, and that would read as "not writable".
    set_id = os.geteuid() != os.getuid()
    if not os.access(path.name, os.W_OK, dir_fd=dir_fd, effective_ids=set_id):
        if os.fstatvfs(dir_fd).f_flag & os.ST_RDONLY:
            # access(2) says no there, too; permissions are not why.
            raise converted(OSError(errno.EROFS, ""), path, "write")
        raise ReadOnlyPathError(
            f"{quote(path.relative)} is not writable by this user",
            hint="write another file, or ask for its permissions to be changed",
        )


def carry_metadata(
    disk: Disk, old_fd: int, old: FileStatus, new_fd: int, path: WorkspacePath
) -> tuple[str, ...]:
    """Give the new file the old one's owner, attributes and mode; return what is to be told.

    The order matters: chown(2) clears bits of the mode, chmod(2) rewrites the mask of an
    ACL, and setting an ACL sets the group bits to its mask, which is what they were.
    """
    new = status_of(new_fd)
    if (old.uid, old.gid) != (new.uid, new.gid):
        _carry_owner(disk, old, new_fd, path)
    disk.set_mode(new_fd, old.permissions)
    return (*_carry_attributes(disk, old_fd, new_fd, path), *_parted_note(path, old))


def _carry_owner(disk: Disk, old: FileStatus, new_fd: int, path: WorkspacePath) -> None:
    try:
        disk.set_owner(new_fd, old.uid, old.gid)
    except OSError as failure:
        # EINVAL: an id that this user namespace does not map.
        if failure.errno not in (errno.EPERM, errno.EINVAL):
            raise
        raise ReadOnlyPathError(
            f"{quote(path.relative)} belongs to user {old.uid}, group {old.gid}, and a new "
            "version written by this user could not keep that",
            hint="ask its owner to change it, or write another file",
        ) from failure


def _attributes(fd: int) -> frozenset[str]:
    if not hasattr(os, "listxattr"):  # macOS
        return frozenset()
    try:
        return frozenset(os.listxattr(fd)) - _ABOUT_CONTENT
    except OSError as failure:
        if failure.errno in _NO_ATTRIBUTES:
            return frozenset()
        raise


def _carry_attributes(disk: Disk, old_fd: int, new_fd: int, path: WorkspacePath) -> tuple[str, ...]:
    wanted, present = _attributes(old_fd), _attributes(new_fd)
    lost: list[str] = []
    for name in sorted(wanted):
        value = os.getxattr(old_fd, name)
        if name in present and os.getxattr(new_fd, name) == value:
            continue
        if not _set_attribute(disk, new_fd, name, value, path):
            lost.append(f"attribute {name} could not be kept")
    # What the directory's default ACL gave to the new file, and the old one did not have.
    for name in sorted(present - wanted):
        if not name.startswith(_BY_THE_SYSTEM):
            disk.remove_attribute(new_fd, name)
    return tuple(lost)


def _set_attribute(disk: Disk, fd: int, name: str, value: bytes, path: WorkspacePath) -> bool:
    try:
        disk.set_attribute(fd, name, value)
    except OSError as failure:
        if failure.errno not in (errno.EPERM, errno.EACCES, *_NO_ATTRIBUTES):
            raise
        if name.startswith(_BY_THE_SYSTEM):
            return False
        raise ReadOnlyPathError(
            f"{quote(path.relative)} has the attribute {name}, and a new version written by "
            "this user could not keep it",
            hint="ask its owner to change it, or write another file",
        ) from failure
    return True


def _parted_note(path: WorkspacePath, replaced: FileStatus) -> tuple[str, ...]:
    others = replaced.links - 1
    if not others:
        return ()
    names = "1 other hard link keeps" if others == 1 else f"{others} other hard links keep"
    return (f"{quote(path.relative)} has a copy of its own now; {names} the old content",)
