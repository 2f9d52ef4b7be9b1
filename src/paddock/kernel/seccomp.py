"""seccomp(2): build and install a filter over a command's system calls.

A caller builds the program once (`build_filter`, pure). The process to be confined calls
`set_no_new_privileges` and `install_filter` as its last steps before exec. Children inherit it.

A call that `REFUSED` and `build_filter` do not name is allowed: namespaces, mounts and Landlock
limit what it can reach. Newer calls do not exist for the command. A filter cannot dereference
pointers, so calls with arguments in memory (clone3, openat2, io_uring) fail with "not
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
"""BPF_JMP | BPF_JA: the only jump that can go further than 255."""
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
"""clone(2) has the exit signal in the low byte, where unshare(2) has NEWTIME (0x80)."""
_SET_ID_BITS = 0o6000
_RENAME_WHITEOUT = 4
"""RENAME_WHITEOUT (linux/fs.h)."""
_OPEN_CREATES = 0o100 | 0o20000000
"""O_CREAT and the bit that is specific to O_TMPFILE; the same on both architectures."""
_TIOCSTI = 0x5412
"""Types into a terminal as if its user did it (asm-generic/ioctls.h)."""
_TIOCLINUX = 0x541C
"""The console's selection: it can paste, which has the effect of TIOCSTI."""
_TIOCSETD = 0x5423
"""Sets a terminal's line discipline: the kernel loads its module for any caller."""
_MAP_HUGE_PAGES = 0x40000
"""MAP_HUGETLB (asm-generic/mman-common.h): uses the pages that the host has reserved."""
_SET_LEASE = 1024
_SET_DELEGATION = 1040
"""F_SETLEASE and F_SETDELEG (linux/fcntl.h)."""
_PRIORITY_OF_USER = 2
_IO_PRIORITY_OF_USER = 3
"""PRIO_USER (sys/resource.h) and IOPRIO_WHO_USER (linux/ioprio.h)."""
_CORE_LIMIT = 4
"""RLIMIT_CORE, the same on both architectures (asm-generic/resource.h)."""

AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10
_PROTOCOLS = (0, 1, 6, 17, 58, 262)
"""Any, ICMP, TCP, UDP, ICMPv6, MPTCP. Others would load rarely audited kernel modules."""

REFUSED = (
    # Threat: unmounting or moving mounts uncovers masked files; chroot changes the root.
    *("mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    # Threat: another process's memory, descriptors or namespaces.
    *("setns", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"),
    *("pidfd_getfd", "kcmp"),
    # Threat: opening a file by its inode, bypassing the directories that hide it.
    *("open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark"),
    # Threat: large attack surface in the kernel that a command does not need.
    *("bpf", "perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl"),
    *("init_module", "finit_module", "delete_module", "create_module", "query_module"),
    *("get_kernel_syms", "kexec_load", "kexec_file_load", "nfsservctl", "lookup_dcookie"),
    *("uselib", "quotactl", "quotactl_fd", "acct", "swapon", "swapoff", "reboot", "syslog"),
    *("vhangup", "iopl", "ioperm", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("sethostname", "setdomainname"),
)
"""Fail with EPERM, whatever the arguments."""

ABSENT = (
    # Arguments in memory, which a filter cannot read.
    *("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    # Threat: memory that belongs to no process is not counted by the memory limit.
    *("memfd_create", "memfd_secret"),
)
"""Fail with ENOSYS: libraries have fallbacks for kernels that are too old for these."""

SHARED_MEMORY = (
    # Threat: access to another process of the same user's data there, by its identifier.
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
"""Also fail with EPERM if the command has no private IPC namespace."""

_SCHEDULER_CALLS = ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler")
"""Their first argument names a process."""
_FIRST_PROCESS = (1,)
_ITSELF = (0,)

_SEARCH_LEAF = 4

_Instruction = tuple[int, int, int, int]

TYPE_CHECKING = False
"""The launcher must not load `typing`."""
if TYPE_CHECKING:
    from collections.abc import Callable

    _Sparing = Callable[[int], list[_Instruction]]
    """Takes the index of a process argument; returns checks that protect some processes."""


def _load(offset: int) -> _Instruction:
    return (_LOAD_WORD, 0, 0, offset)


def _load_argument(index: int) -> _Instruction:
    # The low half: both architectures are little-endian, and the kernel reads these arguments as
    # 32 bits or less.
    # Threat: bits above 32, which the kernel ignores, must not change the result here.
    return _load(_AT_ARGUMENTS + 8 * index)


def _answer(verdict: int) -> _Instruction:
    return (_RETURN, 0, 0, verdict)


_REFUSE = _answer(_ERRNO | errno.EPERM)
_MISSING = _answer(_ERRNO | errno.ENOSYS)
_PASS = _answer(_ALLOW)
_DONE = _answer(_ERRNO)
"""Return 0 without doing anything."""


def _refuse_bits(argument: int, bits: int) -> list[_Instruction]:
    """Refuse the call if any of the bits is set, else allow it."""
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
    """Refuse setuid and setgid modes. open(2) reads its mode only with O_CREAT in `flags`."""
    judged = _refuse_bits(mode, _SET_ID_BITS)
    if flags is None:
        return judged
    return [_load_argument(flags), (_JUMP_ANY_BIT, 1, 0, _OPEN_CREATES), _PASS, *judged]


def _refuse_odd_kinds(kind: int) -> list[_Instruction]:
    """Pass SOCK_STREAM (1), SOCK_DGRAM (2) and SOCK_RAW (3).

    Threat: protocol 0 means the default protocol of any kind: for SOCK_DCCP (6) it loads DCCP.
    """
    return [_load_argument(kind), (_JUMP_ANY_BIT, 0, 1, 0b1100), _REFUSE]


def _refuse_datagrams(kind: int) -> list[_Instruction]:
    """Pass SOCK_STREAM (1), SOCK_SEQPACKET (5): the low four bits; the flags are far above."""
    return [
        _load_argument(kind),
        (_JUMP_ANY_BIT, 1, 0, 0b1010),
        (_JUMP_ANY_BIT, 1, 0, 0b0001),
        _REFUSE,
    ]


def _keep_core_limit(resource_at: int, wanted_at: int | None) -> list[_Instruction]:
    """Report success for a new core dump limit but keep the old one: gpg aborts on an error.

    With a null pointer for the new limit the call only reads, and is allowed.
    """
    found = [_load_argument(resource_at), (_JUMP_EQUAL, 1, 0, _CORE_LIMIT), _PASS]
    if wanted_at is None:
        return [*found, _DONE]
    # Threat: a pointer with only one half zero is not null.
    low, high = _load_argument(wanted_at), _load(_AT_ARGUMENTS + 8 * wanted_at + 4)
    return [*found, low, (_JUMP_EQUAL, 0, 2, 0), high, (_JUMP_EQUAL, 1, 0, 0), _DONE, _PASS]


def _calls_on_processes(spare: _Sparing) -> list[tuple[str, list[_Instruction]]]:
    """Return the calls that can change another process of the same user, as the supervisor."""
    return [
        *((name, [*spare(0), _PASS]) for name in _SCHEDULER_CALLS),
        # Threat: changing all processes of the user slows the supervisor too.
        (
            "setpriority",
            [*_refuse_values(0, (_PRIORITY_OF_USER,)), *spare(1), _PASS],
        ),
        ("ioprio_set", [*_refuse_values(0, (_IO_PRIORITY_OF_USER,)), *spare(1), _PASS]),
        ("prlimit64", [*spare(0), *_keep_core_limit(1, 2)]),
    ]


def _judged_calls(families: tuple[int, ...]) -> list[tuple[str, list[_Instruction]]]:
    """Return the calls to allow or refuse by argument. Each list ends every path with a verdict."""
    return [
        # Threat: in a new user namespace the command has every capability again.
        ("clone", _refuse_bits(0, _NEW_NAMESPACES_CLONE)),
        ("unshare", _refuse_bits(0, _NEW_NAMESPACES)),
        # Threat: input injected into a terminal, which its shell runs after the command.
        ("ioctl", [*_refuse_values(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD)), _PASS]),
        # Threat: sockets that bypass the network namespace: vsock, netlink, packet, and the
        # host's unix sockets (seccomp cannot see their paths, so all are refused).
        (
            "socket",
            [
                *_refuse_other_values(0, families),
                *_refuse_odd_kinds(1),
                *_refuse_other_values(2, _PROTOCOLS),
                _PASS,
            ],
        ),
        # Threat: one of a pair of datagram sockets can send to any path, such as the host's log
        # or service manager, and pass descriptors.
        ("socketpair", [*_refuse_other_values(0, (AF_UNIX,)), *_refuse_datagrams(1), _PASS]),
        # Threat: huge pages are in no process's resident size, so the memory limit misses them.
        ("mmap", _refuse_bits(3, _MAP_HUGE_PAGES)),
        # Threat: a lease on a readable file blocks a writer on the host.
        ("fcntl", [*_refuse_values(1, (_SET_LEASE, _SET_DELEGATION)), _PASS]),
        # Threat: a setuid program in a directory that is not staged.
        ("chmod", _refuse_set_id(1)),
        ("fchmod", _refuse_set_id(1)),
        ("fchmodat", _refuse_set_id(2)),
        ("fchmodat2", _refuse_set_id(2)),
        ("creat", _refuse_set_id(1)),
        ("mknod", _refuse_set_id(1)),
        ("mknodat", _refuse_set_id(2)),
        ("open", _refuse_set_id(2, flags=1)),
        ("openat", _refuse_set_id(3, flags=2)),
        # Threat: RENAME_WHITEOUT creates a whiteout device at the old name.
        ("renameat2", _refuse_bits(4, _RENAME_WHITEOUT)),
        # Threat: a crash makes the host's core dump handler read data that a command wrote.
        # A limit of 1 keeps the handler from being started, a limit of 0 does not (core(5)).
        ("setrlimit", _keep_core_limit(0, None)),
    ]


def build_filter(families: tuple[int, ...], machine: int | None = None) -> bytes:
    """Build packed struct sock_filter for `install_filter`, for a private pid namespace.

    socket(2) may use `families`: AF_INET and AF_INET6 if the network namespace is private or the
    host's network is granted. Raises: OSError(ENOSYS) for an unknown machine.
    """
    return _build(families, lambda at: _refuse_values(at, _FIRST_PROCESS), (), machine)


def build_filter_among_others(families: tuple[int, ...], machine: int | None = None) -> bytes:
    """Build the filter without namespaces: a command may change only itself, share no memory."""
    return _build(families, lambda at: _refuse_other_values(at, _ITSELF), SHARED_MEMORY, machine)


def _build(
    families: tuple[int, ...], spare: _Sparing, more: tuple[str, ...], machine: int | None
) -> bytes:
    at = this_machine() if machine is None else machine
    # Threat: a 32-bit or foreign ABI, in which each number means another call.
    program = [
        _load(_AT_ARCH),
        (_JUMP_EQUAL, 1, 0, AUDIT_ARCH[at]),
        _answer(_KILL_PROCESS),
        _load(_AT_NUMBER),
        # Unsigned: this catches x32 too, which sets bit 30 of the number.
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
    """Match the number by binary search, else allow. On install the kernel tries every number."""
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
