"""landlock(7): which version of the interface the kernel offers."""

import ctypes
import errno
from typing import Final

_SYS_LANDLOCK_CREATE_RULESET: Final = 444
"""One number on every architecture (Linux 5.13)."""
_CREATE_RULESET_VERSION: Final = 1
"""Asks for the version instead of making a rule set; then attributes must be null, 0."""

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32)
_syscall.restype = ctypes.c_long


def landlock_abi() -> int:
    """The kernel's Landlock ABI, from 1; 0 where there is none or it is switched off.

    Raises: OSError for any other answer.
    """
    abi = _syscall(_SYS_LANDLOCK_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    if abi >= 0:
        return int(abi)
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EOPNOTSUPP):
        return 0
    raise OSError(code, "landlock_create_ruleset")
