"""What is to stand at a path, built under a temporary name beside it.

In the directory where it will stand, because only there inherited group, default ACL and
file system are right. Nothing is synced one by one: one wait for the whole set comes
after all of it (see `apply`).
"""

import errno
import os
import stat
from typing import Final

from msgspec import Struct, field

from paddock.storage.atomic import held_open
from paddock.storage.disk import PRIVATE_MODE, Disk, chunks_of, digest_of_file, write_chunks
from paddock.storage.objects import ObjectStore
from paddock.workspace.changes import (
    BytesContent,
    Content,
    CreatedBranch,
    GivenContent,
    MakeDirectory,
    MakeLink,
    StoredContent,
    WriteFile,
)
from paddock.workspace.failures import changed, converting
from paddock.workspace.metadata import (
    NEW_FILE_MODE,
    FileStatus,
    carry_metadata,
    require_same,
    status_at,
    status_of,
)
from paddock.workspace.paths import WorkspacePath
from paddock.workspace.read import version_of
from paddock.workspace.resolve import PASS, READ_DIRECTORY
from paddock.workspace.states import OPEN_ENTRY, EntryState, state_of

# What is taken must look afterwards as a copy would: owner and group of what is made in
# that directory, no attributes. Where that cannot be had, it is copied.

_DEFAULT_ACL: Final = "system.posix_acl_default"
_BY_THE_SYSTEM: Final = "security."
_CAPABILITIES: Final = "security.capability"
_LABEL: Final = "security.selinux"
_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
_NINE_BITS: Final = 0o777
_OPEN_DIRECTORY: Final = READ_DIRECTORY | os.O_NOFOLLOW


def take_file(disk: Disk, given: GivenContent, dir_fd: int, name: str) -> int | None:
    """Move the file to `name`; a descriptor to read it, or None where it has to be copied.

    Also where it raises it may stand under `name` by then.
    """
    found = os.stat(given.path, dir_fd=given.dir_fd, follow_symlinks=False)
    # Threat: a second name of it, which could be written through later.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        return None
    if not _can_be_ours(found, given, dir_fd) or not disk.take(
        given.dir_fd, given.path, dir_fd, name
    ):
        return None
    fd = os.open(name, OPEN_ENTRY, dir_fd=dir_fd)
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
        with held_open(os.open(name, _OPEN_DIRECTORY, dir_fd=dir_fd)) as fd:
            children = {child.path.name: child for child in branch.children}
            # Threat: something in there that nobody judged.
            if set(os.listdir(fd)) != children.keys():
                raise changed(branch.path)
            for child_name, child in children.items():
                self._child(child, fd, child_name)
            _make_plain(self._disk, fd, self._owner)
            self._looks[branch.path] = state_of(status_of(fd), None)

    def _child(self, branch: CreatedBranch, dir_fd: int, name: str) -> None:
        change = branch.change
        if isinstance(change, MakeDirectory):
            self.directory(branch, dir_fd, name)
        elif isinstance(change, MakeLink):
            self._link(change, dir_fd, name)
        else:
            with held_open(os.open(name, OPEN_ENTRY, dir_fd=dir_fd)) as fd:
                _make_plain(self._disk, fd, self._owner)
                status = status_of(fd)
                if not status.is_regular or status.links != 1:
                    raise changed(branch.path)
                version = digest_of_file(fd, status.size_bytes)
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


class Drafts(Struct):
    disk: Disk
    objects: ObjectStore
    after: dict[WorkspacePath, EntryState] = field(default_factory=dict[WorkspacePath, EntryState])
    notes: list[str] = field(default_factory=list[str])

    def build(
        self, branch: CreatedBranch, dir_fd: int, name: str, replaced: FileStatus | None
    ) -> FileStatus:
        """Build it under `name`; `replaced` stands at its own name in the same directory."""
        change = branch.change
        with converting(change.path, "write"):
            if isinstance(change, WriteFile):
                version = self._file(change, dir_fd, name, replaced)
                return self._built(change.path, dir_fd, name, version, None)
            if isinstance(change, MakeLink):
                self.disk.make_link(dir_fd, name, change.text)
                self._set_modified(dir_fd, name, change.modified_ns)
                version = version_of(os.fsencode(change.text))
                return self._built(change.path, dir_fd, name, version, change.text)
            if change.given is not None and self._take(branch, change.given, dir_fd, name):
                return self._status(dir_fd, name)
            self._directory(branch, change, dir_fd, name)
            return self._built(change.path, dir_fd, name, None, None)

    def _built(
        self, path: WorkspacePath, dir_fd: int, name: str, version: str | None, text: str | None
    ) -> FileStatus:
        status = self._status(dir_fd, name)
        self.after[path] = state_of(status, version, text)
        return status

    @staticmethod
    def _status(dir_fd: int, name: str) -> FileStatus:
        status = status_at(dir_fd, name)
        if status is None:
            raise FileNotFoundError
        return status

    def _take(self, branch: CreatedBranch, given: GivenContent, dir_fd: int, name: str) -> bool:
        looks = take_tree(self.disk, branch, given, dir_fd, name)
        if looks is not None:
            self.after.update(looks)
        return looks is not None

    def _file(self, change: WriteFile, dir_fd: int, name: str, replaced: FileStatus | None) -> str:
        kept = replaced if replaced is not None and replaced.is_regular else None
        fd, is_taken = self._open_draft(change, dir_fd, name, is_new=kept is None)
        try:
            if kept is not None:
                self._carry(change, dir_fd, fd, kept)
            version = (
                digest_of_file(fd, os.fstat(fd).st_size)
                if is_taken
                else self._fill(change.content, fd)
            )
            if change.mode is not None:
                self.disk.set_mode(fd, change.mode & _NINE_BITS)
            if change.modified_ns is not None:
                self.disk.set_modified(fd, change.modified_ns)
        finally:
            os.close(fd)
        return version

    def _open_draft(
        self, change: WriteFile, dir_fd: int, name: str, *, is_new: bool
    ) -> tuple[int, bool]:
        """The file that is to become the entry, and whether it has its content already."""
        given = change.content
        if isinstance(given, GivenContent) and change.mode is not None:
            fd = take_file(self.disk, given, dir_fd, name)
            if fd is not None:
                return fd, True
        # Nobody may read a replacement until it has the old file's permissions.
        return self.disk.create(dir_fd, name, NEW_FILE_MODE if is_new else PRIVATE_MODE), False

    def _carry(self, change: WriteFile, dir_fd: int, fd: int, replaced: FileStatus) -> None:
        path = change.path
        with held_open(os.open(path.name, OPEN_ENTRY, dir_fd=dir_fd)) as old_fd:
            require_same(old_fd, replaced, path)
            self.notes += carry_metadata(self.disk, old_fd, replaced, fd, path)

    def _fill(self, content: Content, fd: int) -> str:
        if isinstance(content, StoredContent):
            self.objects.copy_to(content.digest, fd)
            return content.digest
        if isinstance(content, BytesContent):
            return write_chunks((content.content,), self.disk, fd)
        with held_open(os.open(content.path, OPEN_ENTRY, dir_fd=content.dir_fd)) as source:
            return write_chunks(chunks_of(source, os.fstat(source).st_size), self.disk, fd)

    def _directory(
        self, branch: CreatedBranch, change: MakeDirectory, dir_fd: int, name: str
    ) -> None:
        self.disk.make_directory(dir_fd, name)
        with held_open(os.open(name, _OPEN_DIRECTORY, dir_fd=dir_fd)) as fd:
            for child in branch.children:
                self.build(child, fd, child.path.name, None)
            # Last: a directory may forbid what was just done in it.
            if change.mode is not None:
                inherited = status_of(fd).mode & ~_NINE_BITS & 0o7777
                self.disk.set_mode(fd, change.mode & _NINE_BITS | inherited)
            if change.modified_ns is not None:
                self.disk.set_modified(fd, change.modified_ns)

    def _set_modified(self, dir_fd: int, name: str, modified_ns: int | None) -> None:
        if modified_ns is None:
            return
        with held_open(os.open(name, PASS | os.O_NOFOLLOW, dir_fd=dir_fd)) as fd:
            self.disk.set_modified(fd, modified_ns)
