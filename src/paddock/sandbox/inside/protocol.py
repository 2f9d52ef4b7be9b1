"""What the launcher is told and what it answers: flat records and their bytes.

NULs separate: a field is its number of items, then the items.

The layers' directories of one sandbox, `upper` and `work`, are made and removed here, too.
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
    """Fields of three types, as a class names them: what is no list goes first, as one list."""

    def __init__(self, *first: object, **named: object) -> None:
        names = self.__annotations__
        given = dict(zip(names, first, strict=False)) | named
        if len(first) + len(named) != len(given) or given.keys() - names.keys():
            raise TypeError(f"{type(self).__name__} has the fields {list(names)}")
        vars(self).update(given)
        for name in names:
            getattr(self, name)

    def encode(self) -> bytes:
        plain: list[bytes] = []
        lists: list[list[bytes]] = []
        for name, kind in self.__annotations__.items():
            value = getattr(self, name)
            if kind == "list[bytes]":
                lists.append(value)
            else:
                plain.append(b"%d" % value if kind == "int" else value)
        return _encode([plain, *lists])

    @classmethod
    def decode(cls, content: bytes) -> Self:
        kinds = cls.__annotations__
        lists = [name for name, kind in kinds.items() if kind == "list[bytes]"]
        plain, *rest = _decode(content, 1 + len(lists))
        values: dict[str, object] = dict(zip(lists, rest, strict=True))
        for name, item in zip((each for each in kinds if each not in lists), plain, strict=True):
            values[name] = int(item) if kinds[name] == "int" else item
        return cls(**values)


class Base(_Record):
    """What a sandbox is made from, before anybody knows its command.

    Paths are absolute, of the host. The overlay appears at `workspace`; `stage` is made for the
    layers; `hidden` is a directory of whiteouts, or empty. At `git` a second overlay appears over a
    git directory outside, `git_shown` with what it shows there; `git_pointer` is a file that leads
    there, and where to. `home` is private. By turns: `links` names with texts, `files` names below
    `home` with contents. `caches` appears in `home`, `b"read"` behind it: read-only. `literals`:
    networks whose addresses a command may use by number. `known_hosts`:
    for ssh. `authorities`: certificates, where requests are judged. `sockets` (0 or 1): unix
    sockets with a path. `session`: what appears at /tmp, which the commands of a session share;
    `joins` (0 or 1): user and network namespace of that session come as the last descriptors.
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


class Start(_Record):
    """One command. `script` is for the shell to read first; `rows` 0: it has no terminal."""

    directory: bytes
    timeout_ms: int
    argv: list[bytes]
    environment: list[bytes]
    script: bytes = b""
    columns: int = 0
    rows: int = 0


class Laid(_Record):
    """What to put at a path of a running sandbox; the content of a file comes as a descriptor.

    `kind` is one of `file`, `directory`, `link` (with its `text`) and `gone`.
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
"""The sandbox itself could not be made; nothing ran."""

ENDED_IN = b"/run/ended-in"
"""In a sandbox: where a command's shell writes the directory in which it ends, and what else its
script tells it to. It comes as a descriptor with the report.
"""
BEGIN = b"/run/begin"
"""In a sandbox: the script that its shell reads first."""

TERMINAL = b"terminal"
"""Before a report, with a descriptor: the other end of the command's terminal."""

HOLD = b"hold"
"""To a running sandbox, with a socket: stop all processes until it is closed, and answer there."""
HELD = b"held"
TERMINATE = b"terminate"
"""To a running sandbox: send SIGTERM to all processes."""

UNHELD = "unheld"
"""Sent to a supervisor instead of a rule set's and a filter's descriptor: no confinement."""


NAME_FILES = (
    (b"hosts", b"127.0.0.1 localhost\n::1 localhost\n"),
    (b"resolv.conf", b"nameserver 127.0.0.53\n"),
    (b"nsswitch.conf", b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
    (b"host.conf", b"multi on\n"),
    (b"gai.conf", b"precedence ::ffff:0:0/96 100\n"),
)
"""Below /etc: by these a program asks for names here and nowhere else."""

AUTHORITIES = b"/run/authorities.pem"
"""In a sandbox whose requests are judged: the host's authorities, and the runtime's own."""

SERVED = b"served"
"""Before any report, with the descriptors of `confine.open_network`."""


class CommandReport(_Record):
    """How it ended: `status` as wait(2) gives it.

    `where` and `code` (an errno) say what failed. `unreached`: how often its network had no way to
    where it wanted.
    """

    ending: bytes
    status: int = 0
    survivors: int = 0
    memory_kb: int = 0
    code: int = 0
    where: bytes = b""
    unreached: int = 0


def _encode(fields: list[list[bytes]]) -> bytes:
    if any(b"\0" in item for items in fields for item in items):
        raise ValueError("a NUL in an argument, a path or a variable")
    return b"\0".join(part for items in fields for part in (b"%d" % len(items), *items))


def _decode(content: bytes, count: int) -> list[list[bytes]]:
    parts = content.split(b"\0")
    fields: list[list[bytes]] = []
    at = 0
    while at < len(parts) and parts[at].isdigit():
        end = at + 1 + int(parts[at])
        fields.append(parts[at + 1 : end])
        at = end
    if len(fields) != count or at != len(parts):
        raise ValueError("not an order of the launcher")
    return fields


# Started as root, their owner is the user that root is inside, see `HOST_IDS_FIRST`.

HOST_IDS_FIRST = 0x7A000000
"""Started as root, user and group N of the sandbox are this + N of the host: above the ranges of
systemd for containers (to 0x6FFFFFFF), below those for foreign trees (from 0x7FFE0000).
"""
HOST_IDS_COUNT = 0x01000000
"""Owners from here on are not mapped: such a file can be read, as far as its mode allows
everybody, and not changed (EOVERFLOW)."""

ROOT_MODE = 0o3777
"""What `upper` has of the mode of the workspace's root. With the setgid bit, so that what is
made there looks as it does in any other such directory."""

HIDDEN_PREFIX = b"hidden-"
"""Names of layers of whiteouts, which many sandboxes share."""

WORKSPACE = (b"upper", b"work")
GIT = (b"upper-git", b"work-git")
"""Names in a stage: what the overlay of each writes to, and what it works in."""


def make_stage(area: int, name: bytes, workspace: int, git: int, *, as_root: bool) -> int:
    """Make `name`, `upper` as the workspace's root; return its descriptor. Raises: OSError."""
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
"""For one directory to be empty, while somebody goes on filling it."""


def remove_tree(parent: int, name: str) -> None:
    """Remove the directory `name` and all below it; nothing to do where it is not there.

    Threat: directories without any mode bit, nested deeper than a process has stack or descriptors.
    So each is opened up, moved to the top and emptied there: no depth, one descriptor.
    Threat: who owns what is removed exchanges it meanwhile: no name that he could turn into another
    thing's. Another may be removing the same. Raises: OSError; what is left nobody else enters.
    """
    grave, top = _dig(parent, name)
    made = at = 0
    try:
        made = int(_move(parent, name, top, "0"))
        while at < made:
            made = _bury(top, at, made)
            at += 1
    finally:
        os.close(top)
        if at == made:
            _rmdir(parent, grave)


def _dig(parent: int, name: str) -> tuple[str, int]:
    for _ in range(_TRIES_MAX):
        grave = f".{name}-{os.urandom(4).hex()}"
        os.mkdir(grave, 0o700, dir_fd=parent)
        try:
            return grave, os.open(grave, _DIRECTORY, dir_fd=parent)
        except FileNotFoundError:
            continue  # Whoever removes all that is here took it along.
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def _bury(top: int, at: int, made: int) -> int:
    """Remove what was moved to the top as number `at`; return how many are there then."""
    name = str(at)
    for _ in range(_TRIES_MAX):
        try:
            made = _empty(top, name, made)
        except FileNotFoundError:
            return made
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                raise
            # It was exchanged before it was moved. Here nobody exchanges anything.
            _unlink(top, name)
            return made
        if _rmdir(top, name):
            return made
    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))


def _empty(top: int, name: str, made: int) -> int:
    _open_up(top, name)
    fd = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry_name, is_directory in found:
            if is_directory:
                made += _move(fd, entry_name, top, str(made))
            else:
                _unlink(fd, entry_name)
    finally:
        os.close(fd)
    return made


def _move(source: int, name: str, target: int, new_name: str) -> bool:
    """Return False where it is gone, or no directory any more: then it is removed."""
    try:
        # Its `..` changes with the move: that takes the right to write to it.
        _open_up(source, name)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_DIRECTORY:
            raise
        _unlink(source, name)
        return False
    return True


def _open_up(source: int, name: str) -> None:
    """Let its owner, or root, do anything in it. Raises: OSError, for a link too."""
    fd = os.open(name, _HELD, dir_fd=source)
    try:
        # By a descriptor, which is the very directory: chmod(2) of a name follows a link, and
        # fchmod(2) wants it opened for reading, which its mode may forbid.
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
