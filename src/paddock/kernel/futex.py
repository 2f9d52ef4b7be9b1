"""futex(2) on a word of a file: sleep until another process says that it changed.

The word is reached through a shared mapping that this process never looks at:
only the kernel does, which answers EFAULT where a load of ours would be the
signal that a file which somebody cut sends. The word is changed with pwrite(2),
which the mapping sees at once (mmap(2), MAP_SHARED).
"""

import ctypes
import errno
import mmap
import os
import sys
from typing import Final

_SYS_FUTEX: Final = {
    "x86_64": 202,
    "aarch64": 98,
    "riscv64": 98,
    "loongarch64": 98,
    "ppc64le": 221,
    "s390x": 238,
}
"""The call has a number of its own on each architecture (asm/unistd.h)."""
_FUTEX_WAIT: Final = 0
"""Not FUTEX_PRIVATE_FLAG: who waits and who wakes are different processes."""
_FUTEX_WAKE: Final = 1
_EVERYONE: Final = 2**31 - 1
_MAPPED_BYTES: Final = 4096
_WOKEN: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT})
"""The word had changed before; a signal came; the time is over."""


class _Timespec(ctypes.Structure):
    """struct timespec where `long` has 64 bits; on others the call takes another one."""

    _fields_ = (("tv_sec", ctypes.c_int64), ("tv_nsec", ctypes.c_int64))


# CDLL, not PyDLL: other threads run while this one sleeps.
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
)
_syscall.restype = ctypes.c_long


class FutexWord:
    """One word of an open file, 32 bits in the byte order of the machine.

    Threads may share it. The mapping ends with the object, in a forked child with
    the child's copy of it.
    """

    __slots__ = ("_address", "_number", "_page")

    def __init__(self, descriptor: int, offset: int) -> None:
        """Map the file's first 4096 bytes, which it must have; `offset` is a multiple of 4 there.

        Raises:
            OSError: ENOSYS off 64-bit Linux; what mmap(2) says.
            ValueError: the file is shorter.
        """
        number = _SYS_FUTEX.get(os.uname().machine)
        if number is None or not sys.platform.startswith("linux") or sys.maxsize < 2**32:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._number = number
        # Writable because ctypes tells no address of what is not. Nobody writes through it.
        self._page = ctypes.c_char.from_buffer(mmap.mmap(descriptor, _MAPPED_BYTES))
        """Keeps the mapping, too."""
        self._address = ctypes.addressof(self._page) + offset

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return when woken, at once if the word is not `seen`, or for no reason.

        Raises:
            OSError: EFAULT, the file was cut; another errno of futex(2).
        """
        whole = int(timeout_s)
        timeout = _Timespec(whole, int((timeout_s - whole) * 1e9))
        address = ctypes.addressof(timeout)
        if _syscall(self._number, self._address, _FUTEX_WAIT, seen, address) != 0:
            code = ctypes.get_errno()
            if code not in _WOKEN:
                raise OSError(code, os.strerror(code))

    def wake(self) -> None:
        """Wake all who wait, in any process. Change the word first.

        Raises:
            OSError: as `wait`.
        """
        if _syscall(self._number, self._address, _FUTEX_WAKE, _EVERYONE, None) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
