"""System calls by number, and permanent loss of privileges: prctl(2), capset(2), signal(2).

The launcher loads this and must start fast (15 ms): no `typing`, no `dataclasses` (10 and 17 ms),
no `signal`, which loads `enum`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

# CDLL, not PyDLL: it releases the interpreter lock, because a mount may wait for a disk.
# use_errno: ctypes saves errno between the call and get_errno().
_libc = ctypes.CDLL(None, use_errno=True)


class SystemCall:
    # syscall(2) is variadic. Fixed argument types are correct: on the Linux ABIs integers and
    # pointers are passed in the same registers, and a `c_long` fills the whole register.

    def __init__(self, name: str, *arguments: type) -> None:
        # Indexing creates a new function object each time: calls do not share argument types.
        self._function = _libc["syscall"]
        self._function.argtypes = (ctypes.c_long, *arguments)
        self._function.restype = ctypes.c_long
        self.name = name

    def __call__(self, *arguments: int | bytes | None) -> int:
        """Raises: OSError with the call's name; ENOSYS if this machine's number is unknown."""
        number = call_number(self.name, this_machine())
        if number is None:
            raise OSError(errno.ENOSYS, f"{self.name}: {os.strerror(errno.ENOSYS)}")
        found = self._function(number, *arguments)
        if found < 0:
            raise failure(self.name)
        return int(found)


def failure(name: str) -> OSError:
    """Return the last call's errno as an OSError that names the call."""
    code = ctypes.get_errno()
    return OSError(code, f"{name}: {os.strerror(code)}")


# x86_64 and aarch64 are supported. Any other machine is refused: a number that means
# another call there would let through a call that the filter must stop.

X86_64 = 0
AARCH64 = 1

_MACHINES = {"x86_64": X86_64, "aarch64": AARCH64}
"""Names from uname(2). `aarch64_be` is a different ABI and is not supported."""

AUDIT_ARCH = (0xC000003E, 0xC00000B7)
"""EM_X86_64 (62) and EM_AARCH64 (183), each with the bits for 64-bit and little-endian
(linux/audit.h); the value of `seccomp_data.arch`."""

LAST_KNOWN_CALL = 469
"""file_setattr (Linux 6.17), the newest call when this was written."""

_NUMBERS: dict[str, tuple[int, int]] = {
    # asm/unistd_64.h of x86_64, asm-generic/unistd.h of aarch64; -1: no such call.
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "capset": (126, 91),
    "chmod": (90, -1),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "creat": (85, -1),
    "create_module": (174, -1),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fcntl": (72, 25),
    "finit_module": (313, 273),
    "get_kernel_syms": (177, -1),
    "init_module": (175, 105),
    "ioctl": (16, 29),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open": (2, -1),
    "open_by_handle_at": (304, 265),
    "openat": (257, 56),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "query_module": (178, -1),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "renameat2": (316, 276),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setrlimit": (160, 164),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, -1),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
    # Since Linux 5.1 a new call has the same number on every architecture.
    "clone3": (435, 435),
    "fchmodat2": (452, 452),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "landlock_add_rule": (445, 445),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "memfd_secret": (447, 447),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat2": (437, 437),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "quotactl_fd": (443, 443),
}

CALL_NAMES = frozenset(_NUMBERS)


def this_machine() -> int:
    """Raises: OSError(ENOSYS) for others, and a 32-bit interpreter on a 64-bit kernel."""
    name = os.uname().machine
    found = _MACHINES.get(name)
    if found is None or sys.maxsize <= 2**32 or sys.byteorder != "little":
        raise OSError(errno.ENOSYS, f"no system call numbers for a machine of kind {name!r}")
    return found


def call_number(name: str, machine: int) -> int | None:
    """Return None if the machine lacks the call. Raises: KeyError for an unknown name."""
    number = _NUMBERS[name][machine]
    return None if number < 0 else number


# linux/prctl.h
_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_CAPBSET_DROP = 24
_SET_SECUREBITS = 28
_SET_NO_NEW_PRIVS = 38
_SET_CHILD_SUBREAPER = 36
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4

_SECUREBITS = 0b11101111
"""NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each locked
(linux/securebits.h): uid 0 of a namespace gains nothing by exec."""
_CAPABILITIES_MAX = 64
"""The kernel returns EINVAL for the first unknown capability."""
_CAPABILITY_VERSION = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: 64 bits, in two structs of three words."""

_prctl = _libc["prctl"]
# prctl(2) is variadic and the kernel reads unsigned long: c_long fills the whole register.
_prctl.argtypes = (ctypes.c_int, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)
_prctl.restype = ctypes.c_int
_signal = _libc["signal"]
_signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_signal.restype = ctypes.c_void_p


def _control(name: str, option: int, value: int, more: int = 0) -> None:
    # The kernel refuses a call whose unused arguments are not zero.
    if _prctl(option, value, more, 0, 0) != 0:
        raise failure(name)


def set_no_new_privileges() -> None:
    """Stop exec from granting privileges; required before installing a filter."""
    _control("prctl(NO_NEW_PRIVS)", _SET_NO_NEW_PRIVS, 1)


def set_death_signal(number: int) -> None:
    """Call this after the last change of credentials, which clears the setting."""
    _control("prctl(PDEATHSIG)", _SET_PDEATHSIG, number)


def set_dumpable(wanted: bool) -> None:
    """Allow /proc/PID/{mem,fd,environ,root} and ptrace. setuid(2) clears the flag, exec sets it."""
    _control("prctl(DUMPABLE)", _SET_DUMPABLE, int(wanted))


class _CapabilityHeader(ctypes.Structure):
    """struct __user_cap_header_struct (linux/capability.h)."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CapabilitySets = ctypes.c_uint32 * 6
"""Two struct __user_cap_data_struct: effective, permitted, inheritable; low, then high words."""


def drop_capabilities() -> None:
    # The bounding set first: dropping from it requires a capability (CAP_SETPCAP).
    for capability in range(_CAPABILITIES_MAX):
        if _prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() != errno.EINVAL:
                raise failure("prctl(CAPBSET_DROP)")
            break
    _control("prctl(SECUREBITS)", _SET_SECUREBITS, _SECUREBITS)
    _control("prctl(CAP_AMBIENT)", _CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    capset = SystemCall("capset", ctypes.c_void_p, ctypes.c_void_p)
    header = _CapabilityHeader(_CAPABILITY_VERSION, 0)
    none = _CapabilitySets()
    capset(ctypes.addressof(header), ctypes.addressof(none))


def find_arguments() -> tuple[int, int]:
    """Return address and length from fields 48 and 49 of /proc/self/stat. Raises: OSError."""
    with open("/proc/self/stat", "rb") as file:
        # The second field, a name in brackets, may contain spaces.
        fields = file.read(4096).rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    return start, max(0, end - start)


def clear_arguments(address: int, size_bytes: int) -> None:
    """Empty /proc/PID/cmdline. The address from `find_arguments` stays valid after fork."""
    ctypes.memset(address, 0, size_bytes)


def use_default_action(number: int) -> None:
    """Restore a signal's default action: SIG_DFL is a null pointer."""
    _signal(number, None)


end_process = os._exit
"""Ends a forked child with _exit(2), without running the parent's exit handlers and buffers."""


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants; children do not inherit it. Raises: OSError."""
    _control("prctl(CHILD_SUBREAPER)", _SET_CHILD_SUBREAPER, 1)


_send = SystemCall("pidfd_send_signal", ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint)


def send_signal(pidfd: int, number: int) -> None:
    _send(pidfd, number, None, 0)
