"""Call openat2(2), renameat2(2), syncfs(2) and sync_file_range(2), which Python's `os` lacks.

Each raises `OSError` with the kernel's errno, and `ENOSYS` where the C library
or the platform lacks the call, so a caller needs only one kind of fallback.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SYS_OPENAT2: Final = 437
"""A call added since Linux 5.1 has the same number on every architecture (openat2: 5.6)."""

RESOLVE_NO_XDEV: Final = 0x01
"""Refuse to enter another mount, including a bind of the same disk (linux/openat2.h)."""
RESOLVE_NO_MAGICLINKS: Final = 0x02
"""Refuse /proc/*/fd, /proc/*/root and the like (linux/openat2.h)."""
RESOLVE_NO_SYMLINKS: Final = 0x04
"""Refuse every symbolic link, in any component (linux/openat2.h)."""
RESOLVE_BENEATH: Final = 0x08
"""Refuse any path that leaves the tree below the directory descriptor (linux/openat2.h)."""

RENAME_NOREPLACE: Final = 1
"""Fail with EEXIST instead of replacing (linux/fs.h)."""
RENAME_EXCHANGE: Final = 2
"""Swap two existing names atomically (linux/fs.h)."""

_ON_LINUX: Final = sys.platform.startswith("linux")


class _OpenHow(ctypes.Structure):
    """struct open_how: three 64-bit words on every architecture (linux/openat2.h)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


# CDLL, not PyDLL: it releases the interpreter lock, because a path may be on a slow disk.
# use_errno: ctypes saves errno between the call and get_errno().
_libc = ctypes.CDLL(None, use_errno=True)

_START_WRITING = 2
"""SYNC_FILE_RANGE_WRITE (linux/fs.h): start writing dirty pages, do not wait."""

_syscall = _libc.syscall
# syscall(2) is variadic. Fixed argument types are correct: on every Linux ABI, integer and
# pointer arguments are passed in the same registers either way.
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long


def openat2(dir_fd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """Return a new descriptor. Raises: OSError with the kernel's errno; ENOSYS off Linux.

    Unlike open(2), it refuses a mode without O_CREAT or O_TMPFILE instead of ignoring it.
    """
    if not _ON_LINUX:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    how = _OpenHow(flags, mode, resolve)
    fd = _syscall(_SYS_OPENAT2, dir_fd, path, ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


def _call(name: str, *arguments: type) -> Callable[..., None]:
    """Bind a C library function: call numbers and argument orders differ between machines."""
    try:
        function = _libc[name]
    except AttributeError:
        function = None
    else:
        function.argtypes = arguments
        function.restype = ctypes.c_int

    def call(*given: int | bytes) -> None:
        code = errno.ENOSYS
        if function is not None:
            if function(*given) == 0:
                return
            code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

    return call


_renameat2 = _call(
    "renameat2", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint
)
_syncfs = _call("syncfs", ctypes.c_int)
_sync_file_range = _call(
    "sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint
)


def renameat2(old_dir: int, old: bytes, new_dir: int, new: bytes, flags: int) -> None:
    """Raises: OSError; EINVAL if the file system lacks the flag, ENOSYS without the call."""
    _renameat2(old_dir, old, new_dir, new, flags)


def syncfs(fd: int) -> None:
    """Wait until the file system of `fd` has written everything to the device. Raises: OSError.

    `fd` must not be O_PATH (EBADF), and must have been opened before the writes: since Linux 5.8
    the call reports write-back failures since then; older kernels report none.
    """
    _syncfs(fd)


def start_writing_back(fd: int, offset: int, size_bytes: int) -> None:
    """Hint that a range of a file should be written soon, so that a later fsync waits less."""
    with suppress(OSError):
        _sync_file_range(fd, offset, size_bytes, _START_WRITING)
