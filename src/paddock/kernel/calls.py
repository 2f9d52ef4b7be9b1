"""System calls by number, for those that neither `os` nor the C library offers.

Loaded by the launcher, which starts once for every runtime and must be quick:
no `typing`, no `dataclasses` here (10 and 17 ms of a start that takes 15).
"""

from __future__ import annotations

import ctypes
import errno
import os

# CDLL, not PyDLL: the interpreter lock is released, for a mount may wait for a disk.
# use_errno: ctypes keeps errno for us between the call and get_errno().
_libc = ctypes.CDLL(None, use_errno=True)


class SystemCall:
    """One system call with the types of its arguments.

    syscall(2) is variadic. Fixed argument types are right here: on the ABIs that
    Linux has, integer and pointer arguments travel in the same registers either
    way, and a `c_long` fills the whole register, as the kernel may read all of it.
    """

    __slots__ = ("_function", "_number", "name")

    def __init__(self, name: str, number: int | None, *arguments: type) -> None:
        # Indexing makes a new function object each time: types are not shared between calls.
        function = _libc["syscall"]
        function.argtypes = (ctypes.c_long, *arguments)
        function.restype = ctypes.c_long
        self.name = name
        self._number = number
        self._function = function

    def __call__(self, *arguments: int | bytes | None) -> int:
        """The call's result.

        Raises:
            OSError: with the kernel's errno and the call's name; ENOSYS where this
                machine's number is not known.
        """
        if self._number is None:
            raise OSError(errno.ENOSYS, f"{self.name}: {os.strerror(errno.ENOSYS)}")
        found = self._function(self._number, *arguments)
        if found < 0:
            raise failure(self.name)
        return int(found)


def failure(name: str) -> OSError:
    """What the last call left in errno, under the call's name."""
    code = ctypes.get_errno()
    return OSError(code, f"{name}: {os.strerror(code)}")
