"""Encode the launcher's orders and reports as flat records; create and remove stages.

In a record NULs separate the items: each field is its number of items, then the items. A stage is
the directory with a sandbox's overlay layers, `upper` and `work`.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self, dataclass_transform
else:

    def dataclass_transform() -> object:
        return lambda record: record


@dataclass_transform()
class _Record:
    """A record of int, bytes and list[bytes] fields."""

    def __init__(self, *first: object, **named: object) -> None:
        names = self.__annotations__
        given = dict(zip(names, first, strict=False)) | named
        if len(first) + len(named) != len(given) or given.keys() - names.keys():
            raise TypeError(f"{type(self).__name__} has the fields {list(names)}")
        vars(self).update(given)
        for name in names:
            getattr(self, name)

    def encode(self) -> bytes:
        parts: list[bytes] = []
        for name, kind in self.__annotations__.items():
            value = getattr(self, name)
            if kind != "list[bytes]":
                value = [b"%d" % value if kind == "int" else value]
            if any(b"\0" in item for item in value):
                raise ValueError("a NUL in an argument, a path or a variable")
            parts += [b"%d" % len(value), *value]
        return b"\0".join(parts)

    @classmethod
    def decode(cls, content: bytes) -> Self:
        """Raises: ValueError."""
        parts = content.split(b"\0")
        values: dict[str, object] = {}
        for name, kind in cls.__annotations__.items():
            count = int(parts[0]) if parts and parts[0].isdigit() else -1
            items, parts = parts[1 : 1 + count], parts[1 + count :]
            is_list = kind == "list[bytes]"
            if len(items) != count or not (is_list or count == 1):
                raise ValueError("not an order of the launcher")
            item = items if is_list else items[0]
            values[name] = int(items[0]) if kind == "int" else item
        if parts:
            raise ValueError("not an order of the launcher")
        return cls(**values)


NAME_SERVER = b"127.0.0.53"


class Base(_Record):
    """Specification of a sandbox, without its command.

    Paths are absolute host paths. The overlay is mounted at `workspace`; `stage` is created for its
    layers; `hidden` is a directory of whiteouts, or empty. `git` is an outside git directory with a
    second overlay, `git_shown` a layer above it; `git_pointer` is a file that points to it, and its
    target. `home` is private. Alternating: in `links` names and targets, in `files` names below
    `home` and contents. `caches` is mounted in `home`, read-only if `b"read"` follows. `literals`:
    networks that a command may address by number. `known_hosts`: for ssh. `authorities`: CA
    certificates, if requests are judged. `sockets` (0 or 1): allow unix sockets. `session`: the
    directory that a session's commands share as /tmp; `joins` (0 or 1): that session's user and
    network namespaces are the last descriptors. `name_server`: its address in that network.
    """

    workspace: bytes
    stage: bytes
    hidden: bytes
    git: bytes
    git_shown: bytes
    git_pointer: list[bytes]
    home: bytes
    network: bytes
    readable: list[bytes]
    writable: list[bytes]
    links: list[bytes]
    files: list[bytes]
    caches: list[bytes]
    processes: int
    memory_mb: int
    file_mb: int
    cpu_s: int
    literals: list[bytes]
    known_hosts: bytes
    authorities: bytes
    sockets: int = 0
    session: bytes = b""
    joins: int = 0
    name_server: bytes = NAME_SERVER


class Start(_Record):
    """One command. Its shell reads `script` first; `rows` 0: it has no terminal."""

    directory: bytes
    timeout_ms: int
    argv: list[bytes]
    environment: list[bytes]
    script: bytes = b""
    columns: int = 0
    rows: int = 0


class ViewChange(_Record):
    """A change at a path of a running sandbox; a file's content is sent as a descriptor.

    `kind` is `file`, `directory`, `link` (with its target as `text`) or `gone`.
    """

    kind: bytes
    path: bytes
    mode: int = 0
    modified_ns: int = 0
    text: bytes = b""


EXITED = b"exited"
TIMED_OUT = b"timed out"
CANCELLED = b"cancelled"
MEMORY = b"out of memory"
NOT_STARTED = b"not started"
NOT_CONFINED = b"not confined"
"""The sandbox could not be created; nothing ran."""

ENDED_IN = b"/run/ended-in"
"""File in a sandbox to which a command's shell writes its final state, as its script says. It is
sent as a descriptor with the report.
"""
BEGIN = b"/run/begin"
"""File in a sandbox: the script that its shell reads first."""

TERMINAL = b"terminal"
"""Sent before a report, with a descriptor: the master side of the command's terminal."""

HOLD = b"hold"
"""To a running sandbox, with a socket for replies: stop all processes until it is closed."""
HELD = b"held"
TERMINATE = b"terminate"
"""To a running sandbox: send SIGTERM to all processes."""

UNHELD = "unheld"
"""Sent to a supervisor instead of a rule set's and a filter's descriptor: no confinement."""


NAME_FILES = (
    (b"hosts", b"127.0.0.1 localhost\n::1 localhost\n"),
    (b"resolv.conf", b"nameserver %b\n" % NAME_SERVER),
    (b"nsswitch.conf", b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
    (b"host.conf", b"multi on\n"),
    (b"gai.conf", b"precedence ::ffff:0:0/96 100\n"),
)
"""Files below /etc that make programs resolve names only in the sandbox."""

AUTHORITIES = b"/run/authorities.pem"
"""In a sandbox whose requests are judged: the host's certificate authorities and the runtime's."""

SERVED = b"served"
"""Sent before any report, with the descriptors of `confine.open_network`."""


class CommandReport(_Record):
    """The end of a command: `status` is that of wait(2).

    `where` and `code` (an errno) say what failed. `unreached` counts packets without a route.
    """

    ending: bytes
    status: int = 0
    survivors: int = 0
    memory_kb: int = 0
    code: int = 0
    where: bytes = b""
    unreached: int = 0


HOST_IDS_FIRST = 0x7A000000
"""Started as root, id N in the sandbox is this + N on the host: above systemd's ranges for
containers (to 0x6FFFFFFF), below those for foreign trees (from 0x7FFE0000).
"""
HOST_IDS_COUNT = 0x01000000
"""Ids from here on are not mapped: their files can be read if the mode allows others to, but not
changed (EOVERFLOW)."""

ROOT_MODE = 0o3777
"""The mode bits that `upper` gets from the workspace's root. It includes the setgid bit, so that
entries created there get the same group as in the workspace."""

HIDDEN_PREFIX = b"hidden-"
"""Prefix of layers of whiteouts, which many sandboxes share."""

WORKSPACE = (b"upper", b"work")
GIT = (b"upper-git", b"work-git")
"""Names in a stage: each overlay's upper and work directories."""


def make_stage(area: int, name: bytes, workspace: int, git: int, *, as_root: bool) -> int:
    """Create the stage `name`, its `upper` like the workspace's root. Raises: OSError."""
    os.mkdir(name, 0o700, dir_fd=area)
    stage = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=area)
    try:
        if as_root:
            os.chown(".", HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=stage)
        _make_layer(stage, WORKSPACE, workspace, as_root=as_root)
        if git >= 0:
            _make_layer(stage, GIT, git, as_root=as_root)
    except OSError:
        os.close(stage)
        raise
    return stage


def _make_layer(stage: int, names: tuple[bytes, bytes], below: int, *, as_root: bool) -> None:
    upper, work = names
    os.mkdir(work, 0o700, dir_fd=stage)
    os.mkdir(upper, 0o700, dir_fd=stage)
    root = os.fstat(below)
    if as_root:
        os.chown(work, HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=stage)
        os.chown(upper, inside_id(root.st_uid), inside_id(root.st_gid), dir_fd=stage)
    # The merged root shows the upper directory's mode and times.
    os.chmod(upper, root.st_mode & ROOT_MODE, dir_fd=stage)
    os.utime(upper, ns=(root.st_atime_ns, root.st_mtime_ns), dir_fd=stage)


def inside_id(owner: int) -> int:
    return HOST_IDS_FIRST + owner if owner < HOST_IDS_COUNT else HOST_IDS_FIRST


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)
_TRIES_MAX = 1000
"""Attempts to empty a directory while another process keeps filling it."""


def remove_tree(parent: int, name: str) -> None:
    """Remove the directory `name` and all below it, if it exists.

    Threat: directories without any mode bit, nested deeper than the stack or descriptor limit. Each
    is made accessible, moved into a private directory (`trash`) and emptied there: no recursion,
    one descriptor. Threat: the owner replaces entries meanwhile, so no name that it can change is
    followed. Another process may be removing the same tree. Raises: OSError; the rest stays in
    `trash`, which only this user can enter.
    """
    trash, top = _make_trash(parent, name)
    moved = at = 0
    try:
        moved = int(_move(parent, name, top, "0"))
        while at < moved:
            moved = _remove_moved(top, at, moved)
            at += 1
    finally:
        os.close(top)
        if at == moved:
            _rmdir(parent, trash)


def _make_trash(parent: int, name: str) -> tuple[str, int]:
    for _ in range(_TRIES_MAX):
        trash = f".{name}-{os.urandom(4).hex()}"
        os.mkdir(trash, 0o700, dir_fd=parent)
        try:
            return trash, os.open(trash, _DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            continue  # Another process is removing everything in `parent`.
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def _remove_moved(top: int, at: int, moved: int) -> int:
    """Remove the directory moved to number `at`; return how many were moved by then."""
    name = str(at)
    for _ in range(_TRIES_MAX):
        try:
            moved = _empty(top, name, moved)
        except FileNotFoundError:
            return moved
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            # It was replaced by a non-directory before the move. Nothing can replace it here.
            _unlink(top, name)
            return moved
        if _rmdir(top, name):
            return moved
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _empty(top: int, name: str, moved: int) -> int:
    _make_accessible(top, name)
    fd = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry_name, is_directory in found:
            if is_directory:
                moved += _move(fd, entry_name, top, str(moved))
            else:
                _unlink(fd, entry_name)
    finally:
        os.close(fd)
    return moved


def _move(source: int, name: str, target: int, new_name: str) -> bool:
    """Return False if it is gone, or no longer a directory: then it is unlinked."""
    try:
        # Moving a directory changes its `..`, which requires write permission on it.
        _make_accessible(source, name)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
        _unlink(source, name)
        return False
    return True


def _make_accessible(source: int, name: str) -> None:
    """Give the directory mode 0700. Raises: OSError, also for a link."""
    fd = os.open(name, _HELD, dir_fd=source)
    try:
        # Through the descriptor: chmod(2) on a name follows a link, and fchmod(2) requires a
        # directory opened for reading, which its mode may forbid.
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


def _rmdir(directory: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            return False
        raise
    return True
