"""landlock(7): restrict a process's access to files, TCP ports and signals, permanently.

A rule set lists the kinds of access it handles; handled access is then refused unless a
rule allows it. Rules can only allow, and a right allowed on a directory cannot be revoked
further down. A rule set is a descriptor: a process that has it can restrict itself with it.

The launcher loads this module too, so it imports nothing slow.
"""

from __future__ import annotations

import ctypes
import errno

from paddock.kernel.syscalls import SystemCall

_create = SystemCall("landlock_create_ruleset", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32)
_add = SystemCall(
    "landlock_add_rule", ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32
)
_restrict = SystemCall("landlock_restrict_self", ctypes.c_int, ctypes.c_uint32)

_CREATE_RULESET_VERSION = 1
"""Asks for the ABI version instead of creating a rule set; the attributes must be null, 0."""
_RULE_PATH_BENEATH = 1
_ATTRIBUTE_BYTES = (0, 8, 8, 8, 16, 16, 24)
"""Size of struct landlock_ruleset_attr by ABI; the last one holds for all later ABIs."""

# Rights over files (linux/landlock.h).
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
REMOVE_DIR = 1 << 4
REMOVE_FILE = 1 << 5
MAKE_CHAR = 1 << 6
MAKE_DIR = 1 << 7
MAKE_REG = 1 << 8
MAKE_SOCK = 1 << 9
MAKE_FIFO = 1 << 10
MAKE_BLOCK = 1 << 11
MAKE_SYM = 1 << 12
REFER = 1 << 13
"""ABI 2: link or rename into another directory. Below ABI 2 that is always refused."""
TRUNCATE = 1 << 14
"""ABI 3: truncate(2) and O_TRUNC. Below ABI 3 it is never refused."""
IOCTL_DEV = 1 << 15
"""ABI 5: ioctl(2) on devices."""

OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""The rights that a rule for a non-directory may contain; others fail with EINVAL."""

_BIND_TCP = 1 << 0
_CONNECT_TCP = 1 << 1
_SCOPES = 0b11
"""Abstract unix sockets and signals: only to processes restricted by the same rule set."""

_NETWORK_ABI = 4
_SCOPE_ABI = 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr: packed, 12 bytes on every architecture."""

    _pack_ = 1
    _layout_ = "ms"  # Python 3.14 requires an explicit layout for packed structures.
    _fields_ = (("allowed", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, 1 or higher; 0 if it has none. Raises: OSError."""
    try:
        return _create(None, 0, _CREATE_RULESET_VERSION)
    except OSError as refused:
        if refused.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def handled_files(abi: int) -> int:
    handled = (MAKE_SYM << 1) - 1
    if abi >= 2:
        handled |= REFER
    if abi >= 3:
        handled |= TRUNCATE
    if abi >= 5:
        handled |= IOCTL_DEV
    return handled


def create_ruleset(abi: int, *, holds_network: bool) -> int:
    """Return a close-on-exec rule set that handles all access this ABI knows. Raises: OSError.

    Handled access is refused without a rule; TCP ports are handled only with `holds_network`.
    """
    network = _BIND_TCP | _CONNECT_TCP if holds_network and abi >= _NETWORK_ABI else 0
    scopes = _SCOPES if abi >= _SCOPE_ABI else 0
    attributes = _Ruleset(handled_files(abi), network, scopes)
    size = _ATTRIBUTE_BYTES[min(abi, len(_ATTRIBUTE_BYTES) - 1)]
    return _create(ctypes.addressof(attributes), size, 0)


def allow_path(ruleset_fd: int, path_fd: int, rights: int) -> None:
    """Raises: OSError(EINVAL) for unhandled or directory-only rights; EBADFD for a pipe."""
    rule = _PathBeneath(rights, path_fd)
    _add(ruleset_fd, _RULE_PATH_BENEATH, ctypes.addressof(rule), 0)


def restrict_self(ruleset_fd: int) -> None:
    """Raises: OSError(EPERM) before no_new_privs is set, E2BIG after 16 rule sets."""
    _restrict(ruleset_fd, 0)
