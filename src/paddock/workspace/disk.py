"""Every call by which the workspace changes the disk, each acting on one component.

One small object, so that a test can make any one of them fail (`paddock.testing`), and
so that a reader sees at one glance what a write can do to a file system. No method
takes a path, only a descriptor and a single name under it; but for `take`.
"""

import errno
import os
from typing import Final

from paddock.kernel.files import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2, syncfs

# Not on macOS, where every new file gets a name.
_O_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)
_BY_DESCRIPTOR: Final = "/proc/self/fd"
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY
_NO_SUCH_CALL: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


class Disk:
    """The real one. Every method raises `OSError`; every name is one component."""

    __slots__ = ()

    def open_unnamed(self, dir_fd: int, mode: int) -> int | None:
        """A new file in that directory without a name, None where O_TMPFILE is unknown.

        It inherits what a file made there inherits (group, default ACL, umask), and a
        killed process leaves nothing of it. EISDIR: a kernel that knows no O_TMPFILE
        takes it for O_DIRECTORY.
        """
        if not _O_TMPFILE or not os.path.exists(_BY_DESCRIPTOR):
            return None
        try:
            return os.open(".", _WRITE | _O_TMPFILE, mode, dir_fd=dir_fd)
        except OSError as failure:
            if failure.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                return None
            raise

    def create(self, dir_fd: int, name: str, mode: int) -> int:
        """A new file of that name; EEXIST if anything has it, a dangling link too."""
        flags = _WRITE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(name, flags, mode, dir_fd=dir_fd)

    def write(self, fd: int, content: bytes | memoryview) -> None:
        # write(2) takes at most 0x7ffff000 bytes at a time and may take less.
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def sync(self, fd: int) -> None:
        """Wait until the file or the directory is on the device."""
        os.fsync(fd)

    def sync_file_system(self, fd: int) -> None:
        """Wait until all that was written on the file system of `fd` is on the device.

        One wait for any number of files. Where there is no syncfs(2) every file system
        is waited for, which on Linux ends no earlier (sync(2)).
        """
        try:
            syncfs(fd)
        except OSError as failure:
            # EPERM: a container's filter that does not know the call.
            if failure.errno not in (errno.ENOSYS, errno.EPERM):
                raise
            os.sync()

    def link_unnamed(self, fd: int, dir_fd: int, name: str) -> None:
        """Give an unnamed file its name; EEXIST if anything has it.

        By /proc, as open(2) says for O_TMPFILE: AT_EMPTY_PATH wants a capability.
        """
        os.link(f"{_BY_DESCRIPTOR}/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        """Rename, and never replace: EEXIST if anything has the new name."""
        try:
            renameat2(from_fd, os.fsencode(name), to_fd, os.fsencode(to), RENAME_NOREPLACE)
        except OSError as failure:
            if failure.errno not in _NO_SUCH_CALL:
                raise
            self._move_new_by_link(from_fd, name, to_fd, to)

    def take(self, from_fd: int, path: str, to_fd: int, to: str) -> bool:
        """As `move_new`, out of a tree that is ours alone; False where it cannot be moved.

        EXDEV: another file system. EPERM: a directory, where there is no flag of renameat2.
        """
        try:
            self.move_new(from_fd, path, to_fd, to)
        except OSError as failure:
            if failure.errno not in (errno.EXDEV, errno.EPERM):
                raise
            return False
        return True

    @staticmethod
    def _move_new_by_link(from_fd: int, name: str, to_fd: int, to: str) -> None:
        # link(2) never replaces either. It refuses directories (EPERM), and there is no
        # other safe way for them.
        os.link(name, to, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
        os.unlink(name, dir_fd=from_fd)

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        """Swap two names atomically; False where the file system cannot."""
        try:
            renameat2(dir_fd, os.fsencode(name), dir_fd, os.fsencode(other), RENAME_EXCHANGE)
        except OSError as failure:
            if failure.errno in _NO_SUCH_CALL:
                return False
            raise
        return True

    def move_directory(self, dir_fd: int, name: str, to: str) -> None:
        """Rename a directory where the file system knows no flag of renameat2.

        Never over a file and never over a directory that holds something (rename(2)); one
        that is empty and appeared in this moment would be replaced.
        """
        os.rename(name, to, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def replace(self, dir_fd: int, name: str, over: str) -> None:
        os.rename(name, over, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    def unlink(self, dir_fd: int, name: str) -> None:
        """Remove a name that is no directory."""
        os.unlink(name, dir_fd=dir_fd)

    def make_directory(self, dir_fd: int, name: str) -> None:
        """A new directory, 0777 less the umask."""
        os.mkdir(name, 0o777, dir_fd=dir_fd)

    def remove_directory(self, dir_fd: int, name: str) -> None:
        """Remove an empty directory."""
        os.rmdir(name, dir_fd=dir_fd)

    def make_link(self, dir_fd: int, name: str, text: str) -> None:
        os.symlink(text, name, dir_fd=dir_fd)

    def set_owner(self, fd: int, uid: int, gid: int) -> None:
        os.fchown(fd, uid, gid)

    def set_link_owner(self, dir_fd: int, name: str, uid: int, gid: int) -> None:
        """Owner and group of a link itself."""
        os.chown(name, uid, gid, dir_fd=dir_fd, follow_symlinks=False)

    def set_mode(self, fd: int, mode: int) -> None:
        """Permission bits."""
        os.fchmod(fd, mode)

    def set_attribute(self, fd: int, name: str, value: bytes) -> None:
        os.setxattr(fd, name, value)

    def remove_attribute(self, fd: int, name: str) -> None:
        """Take one extended attribute away."""
        os.removexattr(fd, name)

    def set_mode_held(self, fd: int, mode: int) -> None:
        """Permission bits of what a descriptor stands for, one that reads nothing (O_PATH) too."""
        os.chmod(_reach(fd), mode)

    def set_modified(self, fd: int, modified_ns: int) -> None:
        """Both times, by the same kinds of descriptor; of a link, the link's own."""
        os.utime(_reach(fd), ns=(modified_ns, modified_ns))


def _reach(fd: int) -> str | int:
    """By /proc where it is: fchmod(2) and futimens(3) refuse a descriptor that is O_PATH."""
    name = f"{_BY_DESCRIPTOR}/{fd}"
    return name if os.path.lexists(name) else fd
