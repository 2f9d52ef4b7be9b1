"""Mounts by descriptor, and namespaces: open_tree(2), move_mount(2), mount_setattr(2), clone(2).

A tree is cloned (`clone_tree`), gets its flags while detached (`set_tree`), and is then attached
(`attach_tree`): it is never visible without its flags, and no name is looked up twice.
"""

from __future__ import annotations

import ctypes
import errno
import os

from paddock.kernel.syscalls import SystemCall, call_number, this_machine

AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_AT_SYMLINK_NOFOLLOW = 0x100
_OPEN_TREE_CLONE = 1
_OPEN_TREE_CLOEXEC = os.O_CLOEXEC
"""Defined as this machine's O_CLOEXEC (linux/mount.h)."""
_MOVE_FROM_EMPTY = 0x04
"""MOVE_MOUNT_F_EMPTY_PATH: the source is the descriptor itself."""
_MOVE_TO_EMPTY = 0x40
"""MOVE_MOUNT_T_EMPTY_PATH: the target is the descriptor itself."""

READ_ONLY = 0x01
NO_SUID = 0x02
NO_DEVICES = 0x04
NO_EXEC = 0x08
_ID_MAPPED = 0x00100000
"""MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC, IDMAP (linux/mount.h)."""

# Flags of the older call (sys/mount.h).
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_MNT_DETACH = 2

_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6
_FSOPEN_CLOEXEC = 1
_FSMOUNT_CLOEXEC = 1


class _MountAttr(ctypes.Structure):
    """struct mount_attr: four 64-bit words, size 32 (linux/mount.h)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


_int, _text, _pointer = ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p
_open_tree = SystemCall("open_tree", _int, _text, ctypes.c_uint)
_move_mount = SystemCall("move_mount", _int, _text, _int, _text, ctypes.c_uint)
_mount_setattr = SystemCall(
    "mount_setattr",
    *(_int, _text, ctypes.c_uint, _pointer, ctypes.c_size_t),
)
_fsopen = SystemCall("fsopen", _text, ctypes.c_uint)
_fsconfig = SystemCall("fsconfig", _int, ctypes.c_uint, _text, _text, _int)
_fsmount = SystemCall("fsmount", _int, ctypes.c_uint, ctypes.c_uint)
_pivot_root = SystemCall("pivot_root", _text, _text)
_mount = SystemCall("mount", _text, _text, _text, ctypes.c_ulong, _text)
_umount2 = SystemCall("umount2", _text, _int)
_setns = SystemCall("setns", _int, _int)


def clone_tree(dir_fd: int, path: bytes, *, recursive: bool) -> int:
    """Return a detached copy; an empty path means `dir_fd` itself. A final symlink is not followed.

    Raises: OSError; EINVAL if the path belongs to another mount namespace.
    """
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_SYMLINK_NOFOLLOW
    flags |= _AT_RECURSIVE if recursive else 0
    flags |= 0 if path else _AT_EMPTY_PATH
    return _open_tree(dir_fd, path, flags)


def set_tree(tree: int, attributes: int, *, recursive: bool, id_map: int = -1) -> None:
    """`id_map`: a user namespace that maps the owners (EINVAL before Linux 5.12)."""
    wanted = _MountAttr(attributes, 0, 0, 0)
    if id_map >= 0:
        wanted.attr_set |= _ID_MAPPED
        wanted.userns_fd = id_map
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    _mount_setattr(tree, b"", flags, ctypes.addressof(wanted), ctypes.sizeof(wanted))


def attach_tree(tree: int, target: int) -> None:
    _move_mount(tree, b"", target, b"", _MOVE_FROM_EMPTY | _MOVE_TO_EMPTY)


def make_file_system(kind: bytes, options: dict[bytes, bytes], attributes: int) -> int:
    """Create a file system as a detached tree: fsopen(2), fsconfig(2), fsmount(2)."""
    context = _fsopen(kind, _FSOPEN_CLOEXEC)
    try:
        for key, value in options.items():
            _fsconfig(context, _FSCONFIG_SET_STRING, key, value, 0)
        _fsconfig(context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return _fsmount(context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def mount_overlay(target: bytes, options: bytes) -> None:
    """Mount an overlay with mount(2). Raises: OSError; E2BIG for options of 4,096 bytes or more."""
    if len(options) >= 4096:
        raise OSError(errno.E2BIG, "overlay options longer than a page")
    _mount(b"overlay", target, b"overlay", _MS_NOSUID | _MS_NODEV, options)


def make_mounts_private() -> None:
    """Stop mount events from propagating to or from other mount namespaces."""
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def enter_root(root: int) -> None:
    # pivot_root(".", ".") stacks the old root on the new one, where it is unmounted at once: no
    # directory is needed for it (pivot_root(2), NOTES).
    os.fchdir(root)
    _pivot_root(b".", b".")
    # Threat: the old root is the host's; while it is mounted, `..` leads there.
    _umount2(b".", _MNT_DETACH)
    os.chdir("/")


# `clone_process` is for a single-threaded process only. It is fork(2) with namespaces.

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_CGROUP = 0x02000000
NEW_UTS = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NETWORK = 0x40000000
SAME_PARENT = 0x00008000
"""CLONE_PARENT: the child becomes the caller's sibling, so that the caller can exit."""

_SIGCHLD = 17
"""The signal for a child's exit, in the low byte of the flags; 17 on both architectures."""

_PyDLL = ctypes.pythonapi
# Python's fork() wraps the call in these three: they take locks before it and reinitialise them
# in the child (Include/cpython/pylifecycle.h, C API "Operating System Utilities"). This uses the
# raw call because the C library's clone() requires a new stack.
_before_fork = _PyDLL.PyOS_BeforeFork
_after_in_parent = _PyDLL.PyOS_AfterFork_Parent
_after_in_child = _PyDLL.PyOS_AfterFork_Child
for _hook in (_before_fork, _after_in_parent, _after_in_child):
    _hook.argtypes = ()
    _hook.restype = None

# PyDLL, not CDLL: the child must return holding the interpreter lock.
_clone = ctypes.PyDLL(None, use_errno=True)["syscall"]
_clone.argtypes = (ctypes.c_long,) * 6
_clone.restype = ctypes.c_long


def clone_process(flags: int) -> int:
    # EPERM: the host forbids user namespaces; ENOSPC: their limit; ENOSYS: unknown call number.
    number = call_number("clone", this_machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _before_fork()
    # No stack: the child keeps the parent's, as with fork. The other arguments are zero, so their
    # different order on the two architectures does not matter.
    pid = _clone(number, flags | _SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        _after_in_child()
        return 0
    code = ctypes.get_errno()
    _after_in_parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return int(pid)


def enter_namespace(fd: int, kind: int) -> None:
    """Move this single-threaded process permanently: setns(2). Raises: OSError."""
    _setns(fd, kind)


def write_id_maps(pid: int | None, users: bytes, groups: bytes, *, keep_groups: bool) -> None:
    """Map a child's users and groups (None: this process's) by lines of `inside outside count`.

    An unprivileged process can map only its own ids, after denying setgroups(2)
    (user_namespaces(7)); `keep_groups` is for root.
    """
    where = "self" if pid is None else str(pid)
    if not keep_groups:
        _write(f"/proc/{where}/setgroups", b"deny")
    _write(f"/proc/{where}/gid_map", groups)
    _write(f"/proc/{where}/uid_map", users)


def forbid_user_namespaces() -> None:
    # The limit is the caller's own user namespace's, whichever /proc it is written through, and
    # raising it again takes a capability in that namespace.
    _write("/proc/sys/user/max_user_namespaces", b"0")


def _write(path: str, content: bytes) -> None:
    # These files accept a single write, at offset 0.
    with open(path, "wb", buffering=0) as file:
        file.write(content)
