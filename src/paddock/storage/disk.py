"""System calls that change a disk, each acting on one path component, and their error conversion.

They are methods of one object, so that tests can make any call fail. Methods take a descriptor and
a name under it, not a path, except `take` and calls on paths that no agent can move.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Generator, Iterable
from errno import EDQUOT, EFBIG, EINVAL, EISDIR, ENOSPC, ENOSYS, EOPNOTSUPP, EPERM, EXDEV
from typing import Final

from paddock.errors import HostError, StorageFullError
from paddock.kernel import files
from paddock.storage.atomic import DIRECTORY_MODE, held_open
from paddock.values.entries import DIGEST_PREFIX

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
PRIVATE_MODE: Final = 0o600
_O_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)  # not on macOS
_BY_DESCRIPTOR: Final = "/proc/self/fd"
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY
_BOTH: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
_NO_CALL: Final = (ENOSYS, EINVAL, EOPNOTSUPP)
_FULL: Final = (ENOSPC, EDQUOT, EFBIG)
CHUNK_BYTES: Final = 1 << 19
_READ_BYTES_MAX: Final = 65_536  # up to here it costs less than a copy by the kernel


class Disk:
    # Every method raises OSError. The first ones are plain system calls.
    sync = staticmethod(os.fsync)
    fdatasync = staticmethod(os.fdatasync)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    ftruncate = staticmethod(os.ftruncate)
    set_owner = staticmethod(os.fchown)
    set_mode = staticmethod(os.fchmod)
    set_attribute = staticmethod(os.setxattr)
    remove_attribute = staticmethod(os.removexattr)
    lock = staticmethod(fcntl.flock)
    stat = staticmethod(os.stat)
    listdir = staticmethod(os.listdir)
    open = staticmethod(os.open)
    close = staticmethod(os.close)

    def open_unnamed(self, dir_fd: int, mode: int = PRIVATE_MODE) -> int | None:
        if not _O_TMPFILE or not os.path.exists(_BY_DESCRIPTOR):
            return None
        try:
            return os.open(".", _BOTH | _O_TMPFILE, mode, dir_fd=dir_fd)
        except OSError as failure:
            # EISDIR: a kernel without O_TMPFILE treats it as O_DIRECTORY.
            if failure.errno in (EOPNOTSUPP, EISDIR, EINVAL):
                return None
            raise

    def create(self, dir_fd: int, name: str, mode: int = PRIVATE_MODE) -> int:
        # O_EXCL: EEXIST if anything has that name, a dangling link too.
        flags = _WRITE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(name, flags, mode, dir_fd=dir_fd)

    def write(self, fd: int, content: bytes | memoryview) -> int:
        # write(2) takes at most 0x7ffff000 bytes at a time and may take less.
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
        return len(content)

    def copy(self, from_fd: int, to_fd: int, size_bytes: int) -> int:
        done, count = 0, size_bytes > _READ_BYTES_MAX
        # Across file systems, or where it is not supported, read and write the rest.
        with contextlib.suppress(OSError):
            while count:
                count = os.copy_file_range(from_fd, to_fd, size_bytes - done, offset_src=done)
                done += count
        return done + sum(self.write(to_fd, c) for c in chunks_of(from_fd, size_bytes, done))

    def sync_file_system(self, fd: int) -> None:
        # Otherwise sync all file systems. EPERM: a container's filter may block syncfs.
        if not _does(lambda: files.syncfs(fd), ENOSYS, EPERM):
            os.sync()

    def sync_all(self, dir_fd: int, fds: list[int]) -> None:
        if len(fds) > 4:
            self.sync_file_system(dir_fd)  # one wait for all of them
            return
        for fd in fds[1:]:
            self.begin_sync(fd)
        for fd in fds:
            self.sync(fd)

    def begin_sync(self, fd: int) -> None:
        # Start writing back, without a guarantee. A journal commits all pending data together, so
        # of several files the first fsync(2) waits and the others hardly do.
        size_bytes = os.fstat(fd).st_size
        if size_bytes <= 1 << 18:  # for a large file the writing itself takes long
            files.start_writing_back(fd, 0, size_bytes)

    def link_open(self, fd: int, dir_fd: int, name: str) -> None:
        # Through /proc, as open(2) recommends for O_TMPFILE: AT_EMPTY_PATH needs a capability.
        os.link(f"{_BY_DESCRIPTOR}/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)

    def link(self, from_fd: int | None, name: str, to_fd: int | None, to: str) -> None:
        os.link(name, to, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        given = (from_fd, os.fsencode(name), to_fd, os.fsencode(to), files.RENAME_NOREPLACE)
        if not _does(lambda: files.renameat2(*given), *_NO_CALL):
            self.move_new_by_link(from_fd, name, to_fd, to)

    def take(self, from_fd: int, path: str, to_fd: int, to: str) -> bool:
        """As `move_new`, from a private tree; return False if the entry cannot be moved."""
        # EXDEV: another file system. EPERM: a directory, without renameat2 flags.
        return _does(lambda: self.move_new(from_fd, path, to_fd, to), EXDEV, EPERM)

    def move_new_by_link(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        # link(2) never replaces either. It refuses directories, for which no other way is safe.
        self.link(from_fd, name, to_fd, to)
        self.unlink(from_fd, name)

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        given = (dir_fd, os.fsencode(name), dir_fd, os.fsencode(other), files.RENAME_EXCHANGE)
        return _does(lambda: files.renameat2(*given), *_NO_CALL)

    def replace(self, from_fd: int | None, name: str, to_fd: int | None, over: str) -> None:
        os.rename(name, over, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def unlink(self, dir_fd: int | None, name: str) -> None:
        os.unlink(name, dir_fd=dir_fd)

    def make_directory(self, dir_fd: int | None, name: str, mode: int = 0o777) -> None:
        os.mkdir(name, mode, dir_fd=dir_fd)

    def open_directory(self, dir_fd: int | None, name: str) -> int:
        """Open a directory; create it durably if it is missing."""
        with contextlib.suppress(FileNotFoundError):
            return os.open(name, DIRECTORY, dir_fd=dir_fd)
        with contextlib.suppress(FileExistsError):  # another process was faster
            self.make_directory(dir_fd, name, DIRECTORY_MODE)
        with held_open(os.open(f"{name}/..", DIRECTORY, dir_fd=dir_fd)) as parent:
            self.sync(parent)
        return os.open(name, DIRECTORY, dir_fd=dir_fd)

    def files_in(
        self, dir_fd: int, folder: str, suffix: str = ""
    ) -> Generator[tuple[int, str, int]]:
        """Yield folder descriptor, name and descriptor, by name; each is open until the next."""
        gone = contextlib.suppress(FileNotFoundError)
        with gone, held_open(os.open(folder, DIRECTORY, dir_fd=dir_fd)) as folder_fd:
            for name in sorted(name for name in os.listdir(folder_fd) if name.endswith(suffix)):
                with gone, held_open(os.open(name, READ, dir_fd=folder_fd)) as fd:
                    yield folder_fd, name, fd

    def remove_directory(self, dir_fd: int, name: str) -> None:
        os.rmdir(name, dir_fd=dir_fd)

    def make_link(self, dir_fd: int, name: str, text: str) -> None:
        os.symlink(text, name, dir_fd=dir_fd)

    def set_link_owner(self, dir_fd: int, name: str, uid: int, gid: int) -> None:
        os.chown(name, uid, gid, dir_fd=dir_fd, follow_symlinks=False)

    def set_mode_held(self, fd: int, mode: int) -> None:
        os.chmod(_reach(fd), mode)

    def set_modified(self, fd: int, modified_ns: int) -> None:
        os.utime(_reach(fd), ns=(modified_ns, modified_ns))

    def allocate(self, fd: int, size_bytes: int) -> None:
        os.posix_fallocate(fd, 0, size_bytes)


def _does(act: Callable[[], object], *without: int) -> bool:
    try:
        act()
    except OSError as failure:
        if failure.errno in without:
            return False
        raise
    return True


def _reach(fd: int) -> str | int:
    # Through /proc if mounted: fchmod(2) and futimens(3) refuse O_PATH descriptors.
    name = f"{_BY_DESCRIPTOR}/{fd}"
    return name if os.path.lexists(name) else fd


def sync_file_systems(disk: Disk, fds: Iterable[int]) -> None:
    for fd in {os.fstat(fd).st_dev: fd for fd in fds}.values():
        disk.sync_file_system(fd)


def read_bytes(fd: int, size_bytes: int, offset: int = 0) -> bytes:
    # One read takes at most 0x7ffff000 bytes, and may take less.
    content = more = os.pread(fd, size_bytes, offset) if size_bytes > 0 else b""
    while more and len(content) < size_bytes:
        more = os.pread(fd, size_bytes - len(content), offset + len(content))
        content += more
    return content


def chunks_of(fd: int, size_bytes: int, offset: int = 0) -> Generator[bytes]:
    while chunk := read_bytes(fd, min(CHUNK_BYTES, size_bytes - offset), offset):
        yield chunk
        offset += len(chunk)


def digest_of_file(fd: int, size_bytes: int) -> str:
    digest = hashlib.sha256()
    for chunk in chunks_of(fd, size_bytes):
        digest.update(chunk)
    return DIGEST_PREFIX + digest.hexdigest()


def write_chunks(chunks: Iterable[bytes], disk: Disk, fd: int) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
        disk.write(fd, chunk)
    return DIGEST_PREFIX + digest.hexdigest()


@contextlib.contextmanager
def converting(act: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        said = f"{act}: {os.strerror(error.errno or 0)}"
        if error.errno not in _FULL:
            raise HostError(f"cannot {said}") from error
        hint = "nothing was changed; delete something, or lower [history] bytes_max"
        raise StorageFullError(f"no space left to {said}", hint=hint) from error
