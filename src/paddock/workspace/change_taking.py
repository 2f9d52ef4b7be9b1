"""Taking what a command left as the new entry itself, instead of copying it.

What is taken must look afterwards as a copy would: owner and group of what is made in
that directory, no attributes. Where that cannot be had, it is copied.
"""

import errno
import os
import stat
from typing import Final

from paddock.storage.disk import Disk
from paddock.workspace.change_looks import state_of
from paddock.workspace.change_plan import CreatedBranch
from paddock.workspace.changes import EntryState, GivenContent, MakeDirectory, MakeLink
from paddock.workspace.drafts import changed
from paddock.workspace.metadata import status_at, status_of
from paddock.workspace.names import WorkspacePath
from paddock.workspace.reading import version_of, version_of_file
from paddock.workspace.resolution import READ_DIRECTORY, READ_FILE

_DEFAULT_ACL: Final = "system.posix_acl_default"
_BY_THE_SYSTEM: Final = "security."
_CAPABILITIES: Final = "security.capability"
_LABEL: Final = "security.selinux"
_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
_NINE_BITS: Final = 0o777
_OPEN_FILE: Final = READ_FILE | os.O_NOFOLLOW
_OPEN_DIRECTORY: Final = READ_DIRECTORY | os.O_NOFOLLOW


def take_file(disk: Disk, given: GivenContent, dir_fd: int, name: str) -> int | None:
    """Move the file to `name`; a descriptor to read it, or None where it has to be copied.

    Raises: OSError; it may stand under `name` by then.
    """
    found = os.stat(given.path, dir_fd=given.dir_fd, follow_symlinks=False)
    # Threat: a second name of it, which could be written through later.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return None
    if not _can_be_ours(found, given, dir_fd) or not disk.take(
        given.dir_fd, given.path, dir_fd, name
    ):
        return None
    fd = os.open(name, _OPEN_FILE, dir_fd=dir_fd)
    try:
        _make_plain(disk, fd, _owner_in(dir_fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def take_tree(
    disk: Disk, branch: CreatedBranch, given: GivenContent, dir_fd: int, name: str
) -> dict[WorkspacePath, EntryState] | None:
    """Move the directory to `name` with all that it holds; how everything looks.

    None where it has to be built anew.

    Raises:
        FileChangedError: it does not hold what it was to hold.
        OSError; it may stand under `name` by then.
    """
    found = os.stat(given.path, dir_fd=given.dir_fd, follow_symlinks=False)
    directory = os.fstat(dir_fd)
    if not stat.S_ISDIR(found.st_mode) or (found.st_mode | directory.st_mode) & stat.S_ISGID:
        return None
    if not _can_be_ours(found, given, dir_fd) or not disk.take(
        given.dir_fd, given.path, dir_fd, name
    ):
        return None
    looks: dict[WorkspacePath, EntryState] = {}
    _Adopting(disk, _owner_in(dir_fd), looks).directory(branch, dir_fd, name)
    return looks


class _Adopting:
    """Makes a tree that was moved look as if it had been built here."""

    __slots__ = ("_disk", "_looks", "_owner")

    def __init__(
        self, disk: Disk, owner: tuple[int, int], looks: dict[WorkspacePath, EntryState]
    ) -> None:
        self._disk = disk
        self._owner = owner
        self._looks = looks

    def directory(self, branch: CreatedBranch, dir_fd: int, name: str) -> None:
        fd = os.open(name, _OPEN_DIRECTORY, dir_fd=dir_fd)
        try:
            children = {child.path.name: child for child in branch.children}
            # Threat: something in there that nobody judged.
            if set(os.listdir(fd)) != children.keys():
                raise changed(branch.path)
            for child_name, child in children.items():
                self._child(child, fd, child_name)
            _make_plain(self._disk, fd, self._owner)
            self._looks[branch.path] = state_of(status_of(fd), None)
        finally:
            os.close(fd)

    def _child(self, branch: CreatedBranch, dir_fd: int, name: str) -> None:
        change = branch.change
        if isinstance(change, MakeDirectory):
            self.directory(branch, dir_fd, name)
        elif isinstance(change, MakeLink):
            self._link(change, dir_fd, name)
        else:
            fd = os.open(name, _OPEN_FILE, dir_fd=dir_fd)
            try:
                _make_plain(self._disk, fd, self._owner)
                status = status_of(fd)
                if not status.is_regular or status.links != 1:
                    raise changed(branch.path)
                version = version_of_file(fd, status.size_bytes)
            finally:
                os.close(fd)
            self._looks[branch.path] = state_of(status, version)

    def _link(self, change: MakeLink, dir_fd: int, name: str) -> None:
        status = status_at(dir_fd, name)
        if status is None or not status.is_link or os.readlink(name, dir_fd=dir_fd) != change.text:
            raise changed(change.path)
        if (status.uid, status.gid) != self._owner:
            self._disk.set_link_owner(dir_fd, name, *self._owner)
        version = version_of(os.fsencode(change.text))
        self._looks[change.path] = state_of(status, version, change.text)


def _make_plain(disk: Disk, fd: int, owner: tuple[int, int]) -> None:
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != owner:
        disk.set_owner(fd, *owner)
    # A label that the system gave is its own affair, as on a new file.
    names = [
        name
        for name in os.listxattr(fd)
        if name == _CAPABILITIES or not name.startswith(_BY_THE_SYSTEM)
    ]
    mode = found.st_mode & _NINE_BITS
    # Attributes are removed only by who may write, and being the owner is not enough (xattr(7)).
    is_closed = bool(names) and not mode & stat.S_IWUSR
    if is_closed:
        disk.set_mode(fd, mode | stat.S_IWUSR)
    for name in names:
        disk.remove_attribute(fd, name)
    if is_closed:
        disk.set_mode(fd, mode)


def _can_be_ours(found: os.stat_result, given: GivenContent, dir_fd: int) -> bool:
    """Whether it can look like what is made in the directory."""
    owner = _owner_in(dir_fd)
    if os.geteuid() != 0 and (found.st_uid, found.st_gid) != owner:
        return False
    return not _attribute(dir_fd, _DEFAULT_ACL) and _attribute(dir_fd, _LABEL) == _attribute(
        f"/proc/self/fd/{given.dir_fd}/{given.path}", _LABEL
    )


def _owner_in(dir_fd: int) -> tuple[int, int]:
    """Whose a new file in that directory is (open(2), O_CREAT)."""
    directory = os.fstat(dir_fd)
    group = directory.st_gid if directory.st_mode & stat.S_ISGID else os.getegid()
    return os.geteuid(), group


def _attribute(place: int | str, name: str) -> bytes:
    try:
        return os.getxattr(place, name)
    except OSError as failure:
        if failure.errno in _NONE:
            return b""
        raise
