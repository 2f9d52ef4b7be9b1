"""What a process gives up for good, and one that keeps others: prctl(2), capset(2), signal(2)."""

from __future__ import annotations

import ctypes
import errno

from paddock.kernel.syscalls import SystemCall, call_number, failure, this_machine

# linux/prctl.h
_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_SECUREBITS = 28
_SET_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4

_SECUREBITS = 0b11101111
"""NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each locked
(linux/securebits.h): uid 0 of a namespace gains nothing by exec."""
_CAPABILITIES_MAX = 64
"""The kernel answers EINVAL for the first that it does not know."""
_CAPABILITY_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: 64 bits, in two structs of three words."""

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc["prctl"]
# prctl(2) is variadic and the kernel reads unsigned long: c_long fills whole registers.
_prctl.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)
_prctl.restype = ctypes.c_int
_signal = _libc["signal"]
_signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_signal.restype = ctypes.c_void_p
_exit = _libc["_exit"]
_exit.argtypes = (ctypes.c_int,)
_exit.restype = None


def _control(name: str, option: int, value: int, more: int = 0) -> None:
    # The kernel refuses a call whose unused arguments are not zero.
    if _prctl(option, value, more, 0, 0) != 0:
        raise failure(name)


def set_no_new_privileges() -> None:
    """No exec gains anything any more; needed before a filter may be installed."""
    _control("prctl(NO_NEW_PRIVS)", _SET_NO_NEW_PRIVS, 1)


def set_death_signal(number: int) -> None:
    """Call it after the last change of credentials: the kernel forgets it then."""
    _control("prctl(PDEATHSIG)", _SET_PDEATHSIG, number)


def set_dumpable(wanted: bool) -> None:
    """A change of user closes /proc/PID/{mem,fd,environ,root} and ptrace, exec opens them."""
    _control("prctl(DUMPABLE)", _SET_DUMPABLE, int(wanted))


class _CapabilityHeader(ctypes.Structure):
    """struct __user_cap_header_struct (linux/capability.h)."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CapabilitySets = ctypes.c_uint32 * 6
"""struct __user_cap_data_struct twice: effective, permitted, inheritable; low then high words."""


def drop_capabilities() -> None:
    """The bounding set first: that takes a capability (CAP_SETPCAP) itself."""
    for capability in range(_CAPABILITIES_MAX):
        if _prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() != errno.EINVAL:
                raise failure("prctl(CAPBSET_DROP)")
            break
    _control("prctl(SECUREBITS)", _SET_SECUREBITS, _SECUREBITS)
    _control("prctl(CAP_AMBIENT)", _CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    capset = SystemCall(
        "capset", call_number("capset", this_machine()), ctypes.c_void_p, ctypes.c_void_p
    )
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    none = _CapabilitySets()
    capset(ctypes.addressof(header), ctypes.addressof(none))


def find_arguments() -> tuple[int, int]:
    """Return address and length: fields 48, 49 of /proc/self/stat. Raises: OSError."""
    with open("/proc/self/stat", "rb") as file:
        # The second field, a name in brackets, may hold spaces.
        fields = file.read(4096).rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    return start, max(0, end - start)


def clear_arguments(address: int, size_bytes: int) -> None:
    """Have /proc/PID/cmdline say nothing; the place is that of `find_arguments`, fork included."""
    ctypes.memset(address, 0, size_bytes)


def restore_signal(number: int) -> None:
    # The first process of a pid namespace is safe from its signals only where it has no handler
    # of its own, and Python has one for SIGINT.
    _signal(number, None)


def end_process(code: int) -> None:
    """_exit(2): end a forked child at once, without the parent's exit handlers and buffers."""
    _exit(code)


# The module `signal` offers the last two, but loads `enum`: too slow for a keeper.

_SET_CHILD_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER (linux/prctl.h, Linux 3.4)."""

_libc_reaping = ctypes.CDLL(None, use_errno=True)
# prctl(2) is variadic and the kernel reads unsigned long: c_long fills whole registers.
_prctl.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)
_prctl.restype = ctypes.c_int


def adopt_orphans() -> None:
    """Become the parent of all orphans below; children do not inherit it. Raises: OSError."""
    if _prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise failure("prctl(CHILD_SUBREAPER)")


_set_action = _libc_reaping["signal"]
_set_action.argtypes = (ctypes.c_int, ctypes.c_void_p)
_set_action.restype = ctypes.c_void_p

_send = SystemCall(
    # Since Linux 5.1 a new call has one number on every machine.
    "pidfd_send_signal",
    424,
    *(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint),
)


def send_signal(pidfd: int, number: int) -> None:
    _send(pidfd, number, None, 0)


def use_default_action(number: int) -> None:
    """Have a signal do what it does by default: SIG_DFL is a null pointer."""
    _set_action(number, None)
