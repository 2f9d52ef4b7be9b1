"""The status of an entry by stat(2), and the metadata that a replacement inherits.

It inherits everything except what vouches for the old content: setuid, setgid and sticky
bits, file capabilities, integrity signatures.
"""

import errno
import os
import stat
from typing import Final

from msgspec import Struct

from paddock.errors import ReadOnlyPathError
from paddock.storage.disk import Disk
from paddock.workspace.failures import changed, converted
from paddock.workspace.paths import EntryKind, WorkspacePath

_ABOUT_CONTENT: Final = frozenset({"security.capability", "security.ima", "security.evm"})
_BY_THE_SYSTEM: Final = "security."  # labels that a security module may forbid to set (xattr(7))
NEW_FILE_MODE: Final = 0o666  # minus the umask, or by the directory's default ACL
NINE_BITS: Final = 0o777
_NO_ATTRIBUTES: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_KINDS: Final = {
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFLNK: EntryKind.LINK,
}


def kind_of(mode: int) -> EntryKind:
    return _KINDS.get(stat.S_IFMT(mode), EntryKind.SPECIAL)


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
        # Equal as long as the file was not rewritten; renames do not change it.
        return self.device, self.inode, self.size_bytes, self.modified_ns

    def is_same_entry(self, other: "FileStatus | None") -> bool:
        return other is not None and (self.device, self.inode) == (other.device, other.inode)

    @property
    def permissions(self) -> int:
        return self.mode & NINE_BITS

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
    who = found.st_nlink, found.st_uid, found.st_gid
    when = found.st_mtime_ns, found.st_ctime_ns
    return FileStatus(found.st_dev, found.st_ino, found.st_mode, *who, found.st_size, *when)


def status_of(fd: int) -> FileStatus:
    return status_from(os.fstat(fd))


def found_at(dir_fd: int, name: str) -> FileStatus:
    return status_from(os.stat(name, dir_fd=dir_fd, follow_symlinks=False))


def status_at(dir_fd: int, name: str) -> FileStatus | None:
    try:
        return found_at(dir_fd, name)
    except FileNotFoundError:
        return None


def require_same(fd: int, status: FileStatus, path: WorkspacePath) -> None:
    if status_of(fd) != status:
        raise changed(path)


def require_writable(path: WorkspacePath, status: FileStatus, dir_fd: int) -> None:
    # Also for root: a rename would not check it.
    if not status.mode & 0o222:
        raise ReadOnlyPathError(
            f"{path.shown} is read-only: no write bit in mode {status.permissions:04o}",
            hint="write another file, or ask for the mode to be changed",
        )
    # Only if needed: effective ids take another system call (faccessat2), which an older
    # container filter answers with EPERM, and that would be taken for "not writable".
    set_id = os.geteuid() != os.getuid()
    if not os.access(path.name, os.W_OK, dir_fd=dir_fd, effective_ids=set_id):
        # access(2) also fails for other reasons than permissions.
        is_read_only = os.fstatvfs(dir_fd).f_flag & os.ST_RDONLY
        code = errno.EROFS if is_read_only else errno.EACCES
        raise converted(OSError(code, ""), path, "write")


def carry_metadata(
    disk: Disk, old_fd: int, old: FileStatus, new_fd: int, path: WorkspacePath
) -> tuple[str, ...]:
    # The order matters: chown(2) clears bits of the mode, chmod(2) rewrites the mask of an
    # ACL, and setting an ACL sets the group bits to its mask, which is what they were.
    new = status_of(new_fd)
    if (old.uid, old.gid) != (new.uid, new.gid):
        try:
            disk.set_owner(new_fd, old.uid, old.gid)
        except OSError as failure:
            # EINVAL: an id that this user namespace does not map.
            if failure.errno not in (errno.EPERM, errno.EINVAL):
                raise
            raise _cannot_keep(path, f"belongs to user {old.uid}, group {old.gid}") from failure
    disk.set_mode(new_fd, old.permissions)
    notes = _carry_attributes(disk, old_fd, new_fd, path)
    others = old.links - 1
    if others:
        names = "1 other hard link keeps" if others == 1 else f"{others} other hard links keep"
        notes.append(f"{path.shown} is now a separate file; {names} the old content")
    return tuple(notes)


def _cannot_keep(path: WorkspacePath, what: str) -> ReadOnlyPathError:
    return ReadOnlyPathError(
        f"{path.shown} {what}, which a new version by this user could not keep",
        hint="ask its owner to change it, or write another file",
    )


def _attributes(fd: int) -> frozenset[str]:
    if not hasattr(os, "listxattr"):  # macOS
        return frozenset()
    try:
        return frozenset(os.listxattr(fd)) - _ABOUT_CONTENT
    except OSError as failure:
        if failure.errno in _NO_ATTRIBUTES:
            return frozenset()
        raise


def _carry_attributes(disk: Disk, old_fd: int, new_fd: int, path: WorkspacePath) -> list[str]:
    wanted, present = _attributes(old_fd), _attributes(new_fd)
    lost: list[str] = []
    for name in sorted(wanted):
        value = os.getxattr(old_fd, name)
        if name in present and os.getxattr(new_fd, name) == value:
            continue
        try:
            disk.set_attribute(new_fd, name, value)
        except OSError as failure:
            if failure.errno not in (errno.EPERM, errno.EACCES, *_NO_ATTRIBUTES):
                raise
            if not name.startswith(_BY_THE_SYSTEM):
                raise _cannot_keep(path, f"has the attribute {name}") from failure
            lost.append(f"attribute {name} could not be kept")
    # Attributes that the new file has from the directory's default ACL, but the old one had not.
    for name in sorted(present - wanted):
        if not name.startswith(_BY_THE_SYSTEM):
            disk.remove_attribute(new_fd, name)
    return lost
