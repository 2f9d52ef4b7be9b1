"""Namespaces: a child in new ones, the map of its users, its loopback.

`clone_process` is for a single-threaded process only. It is fork(2) with
namespaces: the child goes on at the same place with a copy of everything.
"""

from __future__ import annotations

import ctypes
import errno
import os

from paddock.kernel.machine import call_number, this_machine

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_CGROUP = 0x02000000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NETWORK = 0x40000000

_SIGCHLD = 17
"""The signal of a child's end, in the low byte of the flags; 17 on both machines."""

_PyDLL = ctypes.pythonapi
# fork() in Python is these three around the call: locks are taken before, and made anew in
# the child, whose only thread this is (Include/cpython/pylifecycle.h, C API "Operating System
# Utilities"). The raw call, not the C library's: that has no clone without a new stack.
_before_fork = _PyDLL.PyOS_BeforeFork
_after_in_parent = _PyDLL.PyOS_AfterFork_Parent
_after_in_child = _PyDLL.PyOS_AfterFork_Child
for _hook in (_before_fork, _after_in_parent, _after_in_child):
    _hook.argtypes = ()
    _hook.restype = None

# PyDLL, not CDLL: the child must come back holding the interpreter lock.
_clone = ctypes.PyDLL(None, use_errno=True)["syscall"]
_clone.argtypes = (ctypes.c_long,) * 6
_clone.restype = ctypes.c_long


def clone_process(flags: int) -> int:
    """Fork into new namespaces: the child's pid here, 0 in the child.

    Raises: OSError with the errno of clone(2): EPERM where the host forbids user
    namespaces, ENOSPC at their number's limit, ENOSYS on a machine without numbers.
    """
    number = call_number("clone", this_machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _before_fork()
    # No stack: the child keeps ours, as with fork. The rest is zero, so that the two machines'
    # different orders of it do not matter.
    pid = _clone(number, flags | _SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        _after_in_child()
        return 0
    code = ctypes.get_errno()
    _after_in_parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return int(pid)


def write_id_maps(pid: int | None, users: bytes, groups: bytes, *, keep_groups: bool) -> None:
    """Map the users and groups of a child's new user namespace; None for our own.

    Each map is lines of `inside outside count` (user_namespaces(7)). A process
    without privileges outside may map its own ids alone, and only after it gave
    up setgroups(2): `keep_groups` is for root.
    """
    where = "self" if pid is None else str(pid)
    if not keep_groups:
        _write(f"/proc/{where}/setgroups", b"deny")
    _write(f"/proc/{where}/gid_map", groups)
    _write(f"/proc/{where}/uid_map", users)


def forbid_user_namespaces() -> None:
    """No user namespace can be made below ours any more.

    The number belongs to the caller's own user namespace, whichever /proc it is
    written through, and takes a capability in it to raise again.
    """
    _write("/proc/sys/user/max_user_namespaces", b"0")


def _write(path: str, content: bytes) -> None:
    # These files take one write of everything, at offset 0.
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
