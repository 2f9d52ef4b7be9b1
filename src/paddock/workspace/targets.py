"""Lock directories before a change, and provide temporary names in them."""

import errno
import fcntl
import os
import resource
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

from paddock import limits
from paddock.errors import FileChangedError, PaddockError, PathError, StorageFullError
from paddock.storage.atomic import held_open
from paddock.storage.disk import Disk
from paddock.storage.locks import Identity, identity_of, unlock, wait_for_lock
from paddock.workspace import paths
from paddock.workspace.paths import ROOT, WorkspacePath
from paddock.workspace.workspace import PASS_DIRECTORY, READ_DIRECTORY, Workspace

# flock(2) on a descriptor of the parent directory itself: without a lock file, two planes on one
# tree exclude each other without knowing each other. Each lock opens the directory again, because
# flock belongs to the open file: a shared descriptor would let every thread in. Once locked, the
# name must still lead to the locked directory, else it is opened again: a lock on a directory that
# was moved protects nothing. Several locks are taken in the order of (device, inode), so that two
# moves never wait for each other. LOCK_UN comes before closing the descriptor: a child forked
# meanwhile holds a copy, which would keep the lock.

OpenAt: TypeAlias = Callable[[WorkspacePath, int], int]  # as `Workspace.open_at`
_REOPENS_MAX: Final = 64
_CHECKED_FROM: Final = 64
_SPARE: Final = 64  # descriptors for the work: drafts, walks, the store, the journal
_USED_AT_MOST: Final = 128  # assumed if the system does not list open descriptors


def lock_directory(fd: int, path: WorkspacePath, wait_s: float) -> None:
    if not wait_for_lock(fd, fcntl.LOCK_EX, wait_s):
        raise PathError(
            f"directory {path.shown} has been locked by another write for over {wait_s:g} s",
            hint="try again",
        )


def _require_descriptors(wanted: int) -> None:
    # Each lock needs an open descriptor, and the work itself needs some.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = _USED_AT_MOST
    room = max(0, most - used - _SPARE)
    if wanted > room:
        raise StorageFullError(
            f"the change needs {wanted} open directories, this process may open {room} more",
            hint="nothing was changed; change less at once, or raise the limit: ulimit -n",
        )


def is_still_there(open_at: OpenAt, path: WorkspacePath, identity: Identity) -> bool:
    try:
        with held_open(open_at(path, PASS_DIRECTORY)) as fd:
            return identity_of(fd) == identity
    except OSError:
        return False  # opening it again reports what is wrong


@contextmanager
def locked(
    open_at: OpenAt, *named: WorkspacePath, wait_s: float = limits.path_lock_timeout_s
) -> Generator[tuple[int, ...]]:
    if len(named) > _CHECKED_FROM:
        _require_descriptors(len(named))
    fds: dict[Identity, int] = {}

    def hold(path: WorkspacePath) -> Identity:
        fd = open_at(path, READ_DIRECTORY)
        identity = identity_of(fd)
        if fds.setdefault(identity, fd) != fd:
            os.close(fd)
        return identity

    for _ in range(_REOPENS_MAX):
        try:
            found = [hold(path) for path in named]
            for identity in sorted(fds):
                lock_directory(fds[identity], named[0], wait_s)
            if all(map(partial(is_still_there, open_at), named, found)):
                yield tuple(fds[identity] for identity in found)
                return
        finally:
            while fds:
                unlock(fds.popitem()[1])
    raise FileChangedError(
        f"directory {named[0].shown} keeps being replaced",
        hint="try again when no other process changes it",
    )


# Replacing a file needs a temporary name, as no system call links over an existing one; so does
# deleting, which moves the entry aside to check that it is the judged one. A process can be killed
# meanwhile. So the name is recorded first where the next open finds it: as a symlink in the root,
# named like the temporary, whose text is the directory. A name in the root needs no record.
#
#     lock directory → record → name the temporary → exchange or move → unlink → drop record
#
# A process that saw the record and then got the lock knows that its writer is dead. If the root is
# not writable there is no record, and the temporary of a killed process stays, hidden.

_NAMED: Final = ".tmp"
_RECORD: Final = ".at"
_UNWRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP})
_SWEEP_WAIT_S: Final = 2.0  # longer than a write holds a lock


@contextmanager
def temporary_name(workspace: Workspace, directory: WorkspacePath, dir_fd: int) -> Generator[str]:
    """Yield a temporary name in a locked directory; its entry is removed at the end."""
    disk, root_fd = workspace.disk, workspace.root_fd
    # Threat: an attacker could plant a file under a guessable name. 128 random bits.
    token = paths.TEMPORARY_PREFIX + os.urandom(16).hex()
    name, record, is_recorded = token + _NAMED, token + _RECORD, False
    if not directory.is_root:
        try:
            disk.make_link(root_fd, record, directory.relative)
            is_recorded = True
        except OSError as failure:
            if failure.errno not in _UNWRITABLE:
                _removed(disk, root_fd, record)
                raise
    try:
        yield name
    finally:
        # Before the lock is released. If the name cannot be removed, the record stays, and
        # the next open tries again; the outcome of the write does not change.
        if _removed(disk, dir_fd, name) and is_recorded:
            _removed(disk, root_fd, record)


def _removed(disk: Disk, dir_fd: int, name: str) -> bool:
    try:
        disk.unlink(dir_fd, name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep(workspace: Workspace, names: Iterable[str]) -> None:
    """Remove temporary `names` that killed processes left in the root, and what they record."""
    disk, root_fd = workspace.disk, workspace.root_fd
    for name in sorted(names):
        # Threat: the entry under a set's name may be the only copy of an old version.
        if name.lower().endswith(paths.OF_SET):
            continue
        is_record = name.endswith(_RECORD)
        directory = _recorded(root_fd, name) if is_record else ROOT
        temporary = name.removesuffix(_RECORD) + _NAMED if is_record else name
        try:
            with locked(workspace.open_at, directory, wait_s=_SWEEP_WAIT_S) as (fd,):
                is_gone = _removed(disk, fd, temporary)
        except (PermissionError, PaddockError):
            continue  # not removable, or its writer is alive: the record stays
        except OSError:
            # The directory is gone or became a link, and its temporary cannot be found again.
            is_gone = True
        if is_record and is_gone:
            _removed(disk, root_fd, name)


def _recorded(root_fd: int, name: str) -> WorkspacePath:
    try:
        text = os.readlink(name, dir_fd=root_fd)
    except OSError:
        return ROOT
    # Threat: any process that may write the root can plant a record. Its path is opened like
    # any other, beneath the root and without links, and only a temporary name is removed.
    parts = text.split("/")
    return ROOT if not all(parts) or ".." in parts else paths.unchecked_path(text)
