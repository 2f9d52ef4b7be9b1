"""Every call by which the store changes the disk, each acting on one component.

One small object, so that a test can make any one of them fail. Also the one place where
the store's `OSError` becomes an exception of `paddock.errors`.
"""

import errno
import fcntl
import functools
import os
import time
from types import TracebackType
from typing import Final

from paddock import limits
from paddock.errors import HostError, StorageFullError
from paddock.kernel.files import syncfs

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_WRITE: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY
_BOTH: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY
_O_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)
_BY_DESCRIPTOR: Final = "/proc/self/fd"
_DIRECTORY_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_KERNEL_COPY: Final = frozenset(
    {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
)
_CHUNK_BYTES: Final = 1 << 20
_READ_BYTES_MAX: Final = 65_536
"""What is read and written costs less than a copy by the kernel up to here."""
_SYNCED_ONE_BY_ONE_MAX: Final = 4
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02


@functools.cache
def _has_descriptors() -> bool:
    return os.path.exists(_BY_DESCRIPTOR)


class StoreDisk:
    """The real one. Every method raises `OSError`; every name is one component."""

    __slots__ = ()

    def make_directory(self, dir_fd: int | None, name: str) -> None:
        """A directory for us alone; EEXIST if anything has the name."""
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=dir_fd)

    def open_unnamed(self, dir_fd: int) -> int | None:
        """A new file without a name, None where there is no O_TMPFILE; see open(2).

        It can be read as well, by whoever hashes it while it grows.
        """
        if not _O_TMPFILE or not _has_descriptors():
            return None
        try:
            return os.open(".", _BOTH | _O_TMPFILE, _FILE_MODE, dir_fd=dir_fd)
        except OSError as failure:
            if failure.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                return None
            raise

    def create(self, dir_fd: int, name: str) -> int:
        """A new file of that name; EEXIST if anything has it."""
        flags = _WRITE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.open(name, flags, _FILE_MODE, dir_fd=dir_fd)

    def write(self, fd: int, content: bytes | memoryview) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def copy(self, from_fd: int, to_fd: int, size_bytes: int) -> int:
        """The first `size_bytes` of one file behind another's; how many there were."""
        done = 0
        try:
            while done < size_bytes > _READ_BYTES_MAX:
                count = os.copy_file_range(from_fd, to_fd, size_bytes - done, offset_src=done)
                if count == 0:
                    return done
                done += count
        except OSError as failure:
            # Between file systems, and on those that cannot, it is read and written.
            if failure.errno not in _NO_KERNEL_COPY:
                raise
        while done < size_bytes:
            chunk = os.pread(from_fd, min(_CHUNK_BYTES, size_bytes - done), done)
            if not chunk:
                break
            self.write(to_fd, chunk)
            done += len(chunk)
        return done

    def sync(self, fd: int) -> None:
        """Wait until the file or the directory is on the device."""
        os.fsync(fd)

    def sync_all(self, dir_fd: int, fds: list[int]) -> None:
        """Wait until these files, new in that directory, are on the device."""
        if len(fds) > _SYNCED_ONE_BY_ONE_MAX:
            try:
                syncfs(dir_fd)  # one wait for all of them
            except OSError as failure:
                # EPERM: a container's filter that does not know the call.
                if failure.errno not in (errno.ENOSYS, errno.EPERM):
                    raise
            else:
                return
        for fd in fds:
            self.sync(fd)

    def link_open(self, fd: int, dir_fd: int, name: str) -> None:
        """Give an open file a name; EEXIST if anything has it. By /proc, as open(2) says."""
        os.link(f"{_BY_DESCRIPTOR}/{fd}", name, dst_dir_fd=dir_fd, follow_symlinks=True)

    def link(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        """A second name for a file; EEXIST if anything has it."""
        os.link(name, to, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)

    def replace(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        os.rename(name, to, src_dir_fd=from_fd, dst_dir_fd=to_fd)

    def make_link(self, dir_fd: int, name: str, text: str) -> None:
        """A symbolic link with that text: a whole record in one call."""
        os.symlink(text, name, dir_fd=dir_fd)

    def unlink(self, dir_fd: int, name: str) -> None:
        """Remove a name that is no directory."""
        os.unlink(name, dir_fd=dir_fd)

    def set_mode(self, fd: int, mode: int) -> None:
        """Permission bits."""
        os.fchmod(fd, mode)

    def touch(self, dir_fd: int, name: str) -> None:
        """Its modification time is now."""
        os.utime(name, dir_fd=dir_fd, follow_symlinks=False)


class converting:  # noqa: N801 - used as a statement; a generator would cost thrice as much
    """Convert whatever `OSError` the block raises; `act` is what the history was about to do.

    Raises:
        StorageFullError: no space or no quota: nothing is changed that cannot be kept.
        HostError: anything else.
    """

    __slots__ = ("_act",)

    def __init__(self, act: str) -> None:
        self._act = act

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, OSError):
            return
        code = error.errno or 0
        if code in _FULL:
            raise StorageFullError(
                f"no space is left to {self._act}: {os.strerror(code)}",
                hint="nothing was changed; delete something, or lower [history] bytes_max",
            ) from error
        raise HostError(f"cannot {self._act}: {os.strerror(code)}") from error


def wait_for_lock(fd: int, operation: int) -> None:
    """Take a flock(2), bounded: a stopped process must not stop everybody.

    Raises:
        HostError: not in limits.path_lock_timeout_s.
    """
    deadline_s = time.monotonic() + limits.path_lock_timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                raise HostError(
                    "the history is locked by another process, "
                    f"for over {limits.path_lock_timeout_s:g} s",
                    hint="try again",
                ) from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        else:
            return
