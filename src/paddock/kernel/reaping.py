"""A process that keeps others: prctl(2), pidfd_send_signal(2), signal(2).

The module `signal` offers the last two, but loads `enum`: too slow for a keeper.
"""

from __future__ import annotations

import ctypes

from paddock.kernel.calls import SystemCall, failure

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER (linux/prctl.h, Linux 3.4)."""

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc["prctl"]
# prctl(2) is variadic and the kernel reads unsigned long: c_long fills whole registers.
_prctl.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)
_prctl.restype = ctypes.c_int


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends. Not inherited by children.

    Raises: OSError.
    """
    if _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise failure("prctl(CHILD_SUBREAPER)")


_set_action = _libc["signal"]
_set_action.argtypes = (ctypes.c_int, ctypes.c_void_p)
_set_action.restype = ctypes.c_void_p

_send = SystemCall(
    # Since Linux 5.1 a new call has one number on every machine.
    "pidfd_send_signal",
    424,
    *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint),
)


def send_signal(pidfd: int, number: int) -> None:
    """Send a signal to the one process that a pidfd names. Raises: OSError."""
    _send(pidfd, number, None, 0)


def use_default_action(number: int) -> None:
    """Have a signal do what it does by default: SIG_DFL is a null pointer."""
    _set_action(number, None)
