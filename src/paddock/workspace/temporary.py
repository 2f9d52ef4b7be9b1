"""Paddock's temporary names: how they look, and how none outlives a killed process.

A new file needs no temporary name where the file system has O_TMPFILE: it is written
without a name and linked to its place. Replacing a file does need one, for no call links
over an existing name; so does deleting, which moves the entry aside to see that it is
the one that was judged. Such a name stands in the directory of the file, because only
there inherited group, default ACL and file system are right.

A process can be killed while the name stands. Finding it again must not cost a walk of
the tree, so the intention is recorded first where the next open looks: a symbolic link
in the root, named like the temporary, whose text is the directory. One call makes such a
record whole and one removes it; there is no journal that could tear, and no place
outside the workspace is needed. `sweep` then reads one directory, the root. A name in
the root itself needs no record.

    lock directory → record → name the temporary → exchange or move → unlink → drop record

Names and records live only while the lock of the temporary's directory is held. So
whoever holds that lock and saw the record before knows that its writer is dead.

A set of changes has names of its own, which the sweep leaves alone: they may hold what
its journal still needs, so the journal's recovery is what removes them.

What stays: where the root directory itself may not be written there is no record, and a
temporary of a killed process remains there, hidden from every tool.
"""

import errno
import os
import re
import secrets
from typing import Final

from paddock.errors import PaddockError
from paddock.storage.disk import Disk
from paddock.workspace.locks import LockedDirectories
from paddock.workspace.names import ROOT, WorkspacePath, unchecked_path
from paddock.workspace.resolution import READ_DIRECTORY, Resolution

_PREFIX: Final = ".paddock-"
_NAMED: Final = ".tmp"
_RECORD: Final = ".at"
_OF_SET: Final = ".set"
_PATTERN: Final = re.compile(r"\.paddock-[0-9a-f]{32}\.(?:tmp|at|set)")
_UNWRITABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EOPNOTSUPP})
_SWEEP_WAIT_S: Final = 2.0
"""Longer than a write holds a lock; an open does not wait for a stuck writer."""


def is_temporary_name(name: str) -> bool:
    """Whether `name` is one of ours: hidden from every tool, and refused as a path.

    Compared without regard to case: a case-insensitive file system has only one of them.
    """
    return name[:9].lower() == _PREFIX and _PATTERN.fullmatch(name.lower()) is not None


def _is_swept(name: str) -> bool:
    # Threat: what stands under a set's name may be the only copy of an old version.
    return is_temporary_name(name) and not name.lower().endswith(_OF_SET)


def set_name(token: str, number: int) -> str:
    """A temporary name of a set of changes; `token` is 24 hexadecimal digits."""
    return f"{set_prefix(token)}{number:08x}{_OF_SET}"


def set_prefix(token: str) -> str:
    """What all temporary names of one set begin with."""
    return _PREFIX + token


class TemporaryName:
    """A name in a locked directory, recorded for as long as anything may stand there.

    Whatever stands there at the end is removed, so the block decides by what it leaves:
    a draft that was not used, an old version, a deleted entry.
    """

    __slots__ = ("_dir_fd", "_directory", "_disk", "_record", "_root_fd", "_token")

    def __init__(self, disk: Disk, root_fd: int, directory: WorkspacePath, dir_fd: int) -> None:
        self._disk = disk
        self._root_fd = root_fd
        self._directory = directory
        self._dir_fd = dir_fd
        # Threat: a name that can be guessed is a file that can be planted. 128 random bits.
        self._token = secrets.token_hex(16)
        self._record: str | None = None

    def __enter__(self) -> str:
        """Record the name and return it; nothing stands there yet."""
        if not self._directory.is_root:
            record = _PREFIX + self._token + _RECORD
            try:
                self._disk.make_link(self._root_fd, record, self._directory.relative)
                self._record = record
            except OSError as failure:
                if failure.errno not in _UNWRITABLE:
                    _removed(self._disk, self._root_fd, record)
                    raise
        return _PREFIX + self._token + _NAMED

    def __exit__(self, *_: object) -> None:
        # Before the lock is given up. If the name cannot be removed the record stays, and
        # the next open tries again; the write itself is over and keeps its outcome.
        if _removed(self._disk, self._dir_fd, _PREFIX + self._token + _NAMED) and self._record:
            _removed(self._disk, self._root_fd, self._record)


def _removed(disk: Disk, dir_fd: int, name: str) -> bool:
    try:
        disk.unlink(dir_fd, name)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def sweep(root_fd: int, resolution: Resolution, disk: Disk) -> int:
    """Remove what killed processes left, and return how many temporaries that were.

    Waits for no stuck writer, and leaves what this user may not remove: opening a
    workspace never fails because of either.
    """
    return sum(
        _sweep_one(root_fd, resolution, disk, name, directory)
        for name, directory in _left_behind(root_fd)
    )


def _left_behind(root_fd: int) -> list[tuple[str, WorkspacePath]]:
    # The root's descriptor is O_PATH, which cannot be read: open it once more.
    try:
        fd = os.open(".", READ_DIRECTORY, dir_fd=root_fd)
    except PermissionError:
        return []
    try:
        names = [name for name in os.listdir(fd) if _is_swept(name)]
        return [(name, _directory_of(fd, name)) for name in sorted(names)]
    finally:
        os.close(fd)


def _directory_of(root_fd: int, name: str) -> WorkspacePath:
    if not name.endswith(_RECORD):
        return ROOT
    try:
        text = os.readlink(name, dir_fd=root_fd)
    except OSError:
        return ROOT
    # Threat: anyone who may write the root can plant a record. It is opened like any other
    # path, without links and beneath the root, and removes nothing but a name of ours.
    parts = text.split("/")
    return ROOT if not all(parts) or ".." in parts else unchecked_path(text)


def _sweep_one(
    root_fd: int, resolution: Resolution, disk: Disk, name: str, directory: WorkspacePath
) -> int:
    is_record = name.endswith(_RECORD)
    temporary = name.removesuffix(_RECORD) + _NAMED if is_record else name
    found = 0
    try:
        with LockedDirectories(root_fd, resolution, directory, wait_s=_SWEEP_WAIT_S) as (fd,):
            found = int(_stands(fd, temporary))
            if not _removed(disk, fd, temporary):
                return 0
    except (PermissionError, PaddockError):
        return 0  # not ours to remove, or its writer lives: the record stays
    except OSError:
        # The directory is gone or became a link, and its temporary cannot be found again.
        found = 0
    if is_record:
        _removed(disk, root_fd, name)
    return found


def _stands(dir_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except OSError:
        return False
    return True
