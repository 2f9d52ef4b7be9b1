"""seccomp(2): a filter over the system calls of a command, and the small assembler for it.

A caller builds the program once (`build_filter`, pure) and, in the process to be held and as its
last act before exec, calls `set_no_new_privileges` and `install_filter`. Every child inherits it.

What `REFUSED` and `build_filter` do not name is allowed: what a call reaches is held by
namespaces, mounts and Landlock; newer calls do not exist for the command. A filter sees numbers,
not what pointers lead to: calls with arguments in memory (clone3, openat2, io_uring) answer "not
implemented", and the C libraries fall back.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from paddock.kernel.syscalls import (
    AUDIT_ARCH,
    LAST_KNOWN_CALL,
    SystemCall,
    call_number,
    this_machine,
)

# Classic BPF (linux/bpf_common.h): operation, jump if true, jump if false, constant.
_LOAD_WORD = 0x20
"""BPF_LD | BPF_W | BPF_ABS: 32 bits of seccomp_data into the accumulator."""
_JUMP_EQUAL = 0x15
"""BPF_JMP | BPF_JEQ | BPF_K."""
_JUMP_GREATER = 0x25
"""BPF_JMP | BPF_JGT | BPF_K, unsigned."""
_JUMP_AT_LEAST = 0x35
"""BPF_JMP | BPF_JGE | BPF_K, unsigned."""
_JUMP = 0x05
"""BPF_JMP | BPF_JA: the one jump that may go further than 255."""
_JUMP_ANY_BIT = 0x45
"""BPF_JMP | BPF_JSET | BPF_K."""
_RETURN = 0x06
"""BPF_RET | BPF_K."""

# struct seccomp_data (linux/seccomp.h): nr, arch, instruction pointer, six 64-bit arguments.
_AT_NUMBER = 0
_AT_ARCH = 4
_AT_ARGUMENTS = 16

_KILL_PROCESS = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000

_MODE_FILTER = 1
"""SECCOMP_SET_MODE_FILTER, the first argument of seccomp(2)."""

_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWUSER, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWNS and NEWTIME."""
_NEW_NAMESPACES_CLONE = _NEW_NAMESPACES & ~0x80
"""clone(2) keeps the exit signal in the low byte, where unshare(2) has NEWTIME (0x80)."""
_SET_ID_BITS = 0o6000
_RENAME_WHITEOUT = 4
"""RENAME_WHITEOUT (linux/fs.h)."""
_OPEN_CREATES = 0o100 | 0o20000000
"""O_CREAT, and the bit of O_TMPFILE that is its own; the same on both machines."""
_TIOCSTI = 0x5412
"""Types into a terminal as if its user did (asm-generic/ioctls.h)."""
_TIOCLINUX = 0x541C
"""The console's selection: pastes into it, in effect TIOCSTI once more."""
_TIOCSETD = 0x5423
"""Another line discipline for a terminal: the kernel loads its module, whoever asks."""
_MAP_HUGE_PAGES = 0x40000
"""MAP_HUGETLB (asm-generic/mman-common.h): of the pages that the host has set aside."""
_SET_LEASE = 1024
_SET_DELEGATION = 1040
"""F_SETLEASE and F_SETDELEG (linux/fcntl.h)."""
_PRIORITY_OF_USER = 2
_IO_PRIORITY_OF_USER = 3
"""PRIO_USER (sys/resource.h) and IOPRIO_WHO_USER (linux/ioprio.h)."""
_CORE_LIMIT = 4
"""RLIMIT_CORE, one number on both machines (asm-generic/resource.h)."""

AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10
_PROTOCOLS = (0, 1, 6, 17, 58, 262)
"""Any, ICMP, TCP, UDP, ICMPv6, MPTCP. Others would load modules that few have ever read."""

REFUSED = (
    # Threat: mounts that uncover what lies below, or a root that is elsewhere.
    *("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    # Threat: another process's memory, descriptors or namespaces.
    *("setns", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"),
    *("pidfd_getfd", "kcmp"),
    # Threat: a file by its number, past every directory that hides it.
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark"),
    # Threat: large parts of the kernel that a command has no use for.
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
    *("init_module", "finit_module", "delete_module", "create_module", "query_module"),
    *("get_kernel_syms", "kexec_load", "kexec_file_load", "nfsservctl", "lookup_dcookie"),
    *("uselib", "quotactl", "quotactl_fd", "acct", "swapon", "swapoff", "reboot", "syslog"),
    *("vhangup", "iopl", "ioperm", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("sethostname", "setdomainname"),
)
"""Answered with EPERM, whatever the arguments."""

ABSENT = (
    # Arguments in memory, where a filter cannot look.
    *("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Threat: memory that belongs to no process and so escapes a watch over processes.
    *("memfd_create", "memfd_secret"),
)
"""Answered with ENOSYS: libraries know what to do when a kernel is too old for these."""

SHARED_MEMORY = (
    # Threat: what another process of the same user keeps there, found by its number.
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
"""Answered with EPERM as well where there is no namespace of one's own for them."""

_SCHEDULER_CALLS = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
"""Their first argument names a process."""
_FIRST_PROCESS = (1,)
_ITSELF = (0,)

_SEARCH_LEAF = 4

_Instruction = tuple[int, int, int, int]

TYPE_CHECKING = False
"""`typing` is not loaded where commands start."""
if TYPE_CHECKING:
    from collections.abc import Callable

    _Sparing = Callable[[int], list[_Instruction]]
    """Which processes a call may not name, by the argument that names one."""


def _load(offset: int) -> _Instruction:
    return (_LOAD_WORD, 0, 0, offset)


def _load_argument(index: int) -> _Instruction:
    # The low half: both machines are little-endian, and the kernel itself reads these
    # arguments as 32 bits or less.
    # Threat: a value with bits set above 32, which the kernel ignores, must not differ here.
    return _load(_AT_ARGUMENTS + 8 * index)


def _answer(verdict: int) -> _Instruction:
    return (_RETURN, 0, 0, verdict)


_REFUSE = _answer(_ERRNO | errno.EPERM)
_MISSING = _answer(_ERRNO | errno.ENOSYS)
_PASS = _answer(_ALLOW)
_DONE = _answer(_ERRNO)
"""Says 0, and nothing is done."""


def _refuse_bits(argument: int, bits: int) -> list[_Instruction]:
    """Refused with any of the bits, allowed without."""
    return [_load_argument(argument), (_JUMP_ANY_BIT, 0, 1, bits), _REFUSE, _PASS]


def _refuse_values(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    found = [_load_argument(argument)]
    for value in values:
        found += [(_JUMP_EQUAL, 0, 1, value), _REFUSE]
    return found


def _refuse_other_values(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    found = [_load_argument(argument)]
    for position, value in enumerate(values):
        found.append((_JUMP_EQUAL, len(values) - position, 0, value))
    return [*found, _REFUSE]


def _refuse_set_id(mode: int, flags: int | None = None) -> list[_Instruction]:
    """Without O_CREAT the mode of open(2) is not read, and its register holds anything."""
    judged = _refuse_bits(mode, _SET_ID_BITS)
    if flags is None:
        return judged
    return [_load_argument(flags), (_JUMP_ANY_BIT, 1, 0, _OPEN_CREATES), _PASS, *judged]


def _refuse_odd_kinds(kind: int) -> list[_Instruction]:
    """Pass SOCK_STREAM (1), SOCK_DGRAM (2) and SOCK_RAW (3).

    Threat: protocol 0 of another kind is a protocol too: of SOCK_DCCP (6) it loads DCCP.
    """
    return [_load_argument(kind), (_JUMP_ANY_BIT, 0, 1, 0b1100), _REFUSE]


def _refuse_datagrams(kind: int) -> list[_Instruction]:
    """Pass SOCK_STREAM (1), SOCK_SEQPACKET (5): four bits, and two flags far above them."""
    return [
        _load_argument(kind),
        (_JUMP_ANY_BIT, 1, 0, 0b1010),
        (_JUMP_ANY_BIT, 1, 0, 0b0001),
        _REFUSE,
    ]


def _keep_core_limit(resource_at: int, wanted_at: int | None) -> list[_Instruction]:
    """Acknowledge a new limit for core dumps and keep the old: gpg ends where it is refused.

    Without a wanted limit, a null pointer, the call only asks.
    """
    found = [_load_argument(resource_at), (_JUMP_EQUAL, 1, 0, _CORE_LIMIT), _PASS]
    if wanted_at is None:
        return [*found, _DONE]
    # Threat: a pointer of which one half is zero.
    low, high = _load_argument(wanted_at), _load(_AT_ARGUMENTS + 8 * wanted_at + 4)
    return [*found, low, (_JUMP_EQUAL, 0, 2, 0), high, (_JUMP_EQUAL, 1, 0, 0), _DONE, _PASS]


def _spare_first(argument: int) -> list[_Instruction]:
    return _refuse_values(argument, _FIRST_PROCESS)


def _spare_others(argument: int) -> list[_Instruction]:
    return _refuse_other_values(argument, _ITSELF)


def _calls_on_processes(spare: _Sparing) -> list[tuple[str, list[_Instruction]]]:
    """The calls that change another process of the same user, whoever watches over it."""
    return [
        *((name, [*spare(0), _PASS]) for name in _SCHEDULER_CALLS),
        # Threat: with everything that belongs to a user, who watches is slowed as well.
        (
            "setpriority",
            [*_refuse_values(0, (_PRIORITY_OF_USER,)), *spare(1), _PASS],
        ),
        ("ioprio_set", [*_refuse_values(0, (_IO_PRIORITY_OF_USER,)), *spare(1), _PASS]),
        ("prlimit64", [*spare(0), *_keep_core_limit(1, 2)]),
    ]


def _judged_calls(families: tuple[int, ...]) -> list[tuple[str, list[_Instruction]]]:
    """Each list ends with an answer on every path."""
    return [
        # Threat: a namespace of its own, in which a command has every capability again.
        ("clone", _refuse_bits(0, _NEW_NAMESPACES_CLONE)),
        ("unshare", _refuse_bits(0, _NEW_NAMESPACES)),
        # Threat: input for a terminal, run by its shell when the command has ended.
        ("ioctl", [*_refuse_values(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)), _PASS]),
        # Threat: sockets beyond the network namespace: vsock, netlink, packets, the host's
        # own unix sockets (seccomp sees no path, so there is no socket for them at all).
        (
            "socket",
            [
                *_refuse_other_values(0, families),
                *_refuse_odd_kinds(1),
                *_refuse_other_values(2, _PROTOCOLS),
                _PASS,
            ],
        ),
        # Threat: one of a pair of datagram sockets sends to any name, to the host's log or
        # service manager, and descriptors with it.
        ("socketpair", [*_refuse_other_values(0, (AF_UNIX,)), *_refuse_datagrams(1), _PASS]),
        # Threat: memory that is in no process's resident size, and so escapes the watch.
        ("mmap", _refuse_bits(3, _MAP_HUGE_PAGES)),
        # Threat: a lease on a file that may be read keeps the host's own writer waiting.
        ("fcntl", [*_refuse_values(1, (_SET_LEASE, _SET_DELEGATION)), _PASS]),
        # Threat: a program with setuid in a directory that is not staged.
        ("chmod", _refuse_set_id(1)),
        ("fchmod", _refuse_set_id(1)),
        ("fchmodat", _refuse_set_id(2)),
        ("fchmodat2", _refuse_set_id(2)),
        ("creat", _refuse_set_id(1)),
        ("mknod", _refuse_set_id(1)),
        ("mknodat", _refuse_set_id(2)),
        ("open", _refuse_set_id(2, flags=1)),
        ("openat", _refuse_set_id(3, flags=2)),
        # Threat: a device that stands for no file in an old name's place, where none may be made.
        ("renameat2", _refuse_bits(4, _RENAME_WHITEOUT)),
        # Threat: a crash that has the host's handler of core dumps read what a command wrote.
        # A limit of 1 keeps it from being started, a limit of 0 does not (core(5)).
        ("setrlimit", _keep_core_limit(0, None)),
    ]


def build_filter(families: tuple[int, ...], machine: int | None = None) -> bytes:
    """Build for `install_filter`, in a pid namespace of its own: struct sock_filter, packed.

    socket(2) may use `families`: AF_INET and AF_INET6 where the network namespace is private or the
    host's network is granted. Raises: OSError(ENOSYS) for an unknown machine.
    """
    return _build(families, _spare_first, (), machine)


def build_filter_among_others(families: tuple[int, ...], machine: int | None = None) -> bytes:
    """As `build_filter` without namespaces: a command changes itself alone, shares no memory."""
    return _build(families, _spare_others, SHARED_MEMORY, machine)


def _build(
    families: tuple[int, ...], spare: _Sparing, more: tuple[str, ...], machine: int | None
) -> bytes:
    at = this_machine() if machine is None else machine
    # Threat: a 32-bit or foreign entry, in which every number means another call.
    program = [
        _load(_AT_ARCH),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[at]),
        _answer(_KILL_PROCESS),
        _load(_AT_NUMBER),
        # Unsigned: this takes x32 too, which sets bit 30 of the number.
        (_JUMP_GREATER, 0, 1, LAST_KNOWN_CALL),
        _MISSING,
    ]
    bodies = {name: [_REFUSE] for name in (*REFUSED, *more)} | {name: [_MISSING] for name in ABSENT}
    bodies |= dict([*_judged_calls(families), *_calls_on_processes(spare)])
    numbers = {name: call_number(name, at) for name in bodies}
    program += _search(
        sorted((number, bodies[name]) for name, number in numbers.items() if number is not None)
    )
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _search(calls: list[tuple[int, list[_Instruction]]]) -> list[_Instruction]:
    """Find the number by halves, else allow: at installing the kernel tries every number."""
    if len(calls) <= _SEARCH_LEAF:
        found: list[_Instruction] = []
        for number, body in calls:
            found += [(_JUMP_EQUAL, 0, len(body), number), *body]
        return [*found, _PASS]
    middle = len(calls) // 2
    lower = _search(calls[:middle])
    return [
        (_JUMP_AT_LEAST, 0, 1, calls[middle][0]),
        (_JUMP, 0, 0, len(lower)),
        *lower,
        *_search(calls[middle:]),
    ]


class _Program(ctypes.Structure):
    """struct sock_fprog (linux/filter.h): a count, padding, a pointer."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install_filter(program: bytes) -> None:
    """Raises: OSError(EACCES) before no_new_privs is set, EINVAL for a broken program, ENOSYS."""
    seccomp = SystemCall("seccomp", ctypes.c_long, ctypes.c_long, ctypes.c_void_p)
    instructions = ctypes.create_string_buffer(program, len(program))
    prepared = _Program(len(program) // 8, ctypes.addressof(instructions))
    seccomp(_MODE_FILTER, 0, ctypes.addressof(prepared))
