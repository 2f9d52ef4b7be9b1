"""openat2(2), renameat2(2), syncfs(2) and sync_file_range(2), which Python's `os` does not offer.

Each raises `OSError` with the kernel's errno, and `ENOSYS` where the C library
or the platform has no such call, so that a caller needs one kind of fall-back.
"""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SYS_OPENAT2: Final = 437
"""Calls added since Linux 5.1 have one number on every architecture (openat2: 5.6)."""

RESOLVE_NO_XDEV: Final = 0x01
"""Refuse to pass into what is mounted below, a bind of the same disk too (linux/openat2.h)."""
RESOLVE_NO_MAGICLINKS: Final = 0x02
"""Refuse /proc/*/fd, /proc/*/root and the like (linux/openat2.h)."""
RESOLVE_NO_SYMLINKS: Final = 0x04
"""Refuse every symbolic link, in any component (linux/openat2.h)."""
RESOLVE_BENEATH: Final = 0x08
"""Refuse whatever would leave the tree below the directory descriptor (linux/openat2.h)."""

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


# CDLL, not PyDLL: the interpreter lock is released, for a path may lead to a slow disk.
# use_errno: ctypes keeps errno for us between the call and get_errno().
_libc = ctypes.CDLL(None, use_errno=True)

_START_WRITING = 2
"""SYNC_FILE_RANGE_WRITE (linux/fs.h): start writing what is dirty, wait for nothing."""

_syscall = _libc.syscall
# syscall(2) is variadic. Fixed argument types are right here: on the ABIs that Linux has,
# integer and pointer arguments travel in the same registers either way.
_syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
_syscall.restype = ctypes.c_long


def openat2(dir_fd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """Return a new descriptor. Raises: OSError with the kernel's errno; ENOSYS off Linux.

    A mode without O_CREAT or O_TMPFILE is refused, where open(2) ignores it.
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
    """A function of the C library by its own name: numbers, and orders, differ between machines."""
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
    """Raises: OSError; EINVAL where the file system lacks the flag, ENOSYS without the call."""
    _renameat2(old_dir, old, new_dir, new, flags)


def syncfs(fd: int) -> None:
    """Wait until the file system that holds `fd` has put everything on the device. Raises: OSError.

    `fd` must be open for real, not O_PATH (EBADF), and from before the writes: since Linux 5.8
    the call reports a failed write back that came after that; before it reports none.
    """
    _syncfs(fd)


def start_writing_back(fd: int, offset: int, size_bytes: int) -> None:
    """Have a piece of a file written soon, so that a later fsync waits less: a hint."""
    with suppress(OSError):
        _sync_file_range(fd, offset, size_bytes, _START_WRITING)
