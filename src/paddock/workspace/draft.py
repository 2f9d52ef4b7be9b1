"""Build new entries under temporary names, in the directories where they will be.

Only there are the inherited group, default ACL and file system right. One sync of the whole set
follows. Given content (`GivenContent`) is moved there instead, and then gets the metadata that a
copy would have: owner and group of a new file in that directory, no attributes.
"""

import errno
import os
import stat
from typing import Final, TypeAlias

from msgspec import Struct, field

from paddock.storage.atomic import held_open
from paddock.storage.disk import PRIVATE_MODE, Disk, chunks_of, digest_of_file, write_chunks
from paddock.storage.objects import ObjectStore
from paddock.workspace import changes, metadata
from paddock.workspace.changes import CreatedBranch, Creation, EntryState, MakeLink
from paddock.workspace.failures import changed, converting
from paddock.workspace.metadata import NINE_BITS, FileStatus
from paddock.workspace.paths import WorkspacePath
from paddock.workspace.read import version_of
from paddock.workspace.workspace import PASS, READ_DIRECTORY, READ_FILE

_DEFAULT_ACL: Final = "system.posix_acl_default"
_BY_THE_SYSTEM: Final = "security."
_LABEL: Final = "security.selinux"
_Old: TypeAlias = FileStatus | None
_Owner: TypeAlias = tuple[int, int] | None
_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
_OPEN_DIRECTORY: Final = READ_DIRECTORY | os.O_NOFOLLOW
_OPEN_FILE: Final = READ_FILE | os.O_NOFOLLOW


class Drafts(Struct):
    disk: Disk
    objects: ObjectStore
    after: dict[WorkspacePath, EntryState] = field(default_factory=dict[WorkspacePath, EntryState])
    notes: list[str] = field(default_factory=list[str])

    def build(
        self,
        branch: CreatedBranch,
        dir_fd: int,
        name: str,
        replaced: _Old = None,
        owner: _Owner = None,
    ) -> FileStatus:
        # With `owner`, it was moved there already: check it, and set the owner.
        change, path = branch.change, branch.change.path
        version = text = None
        with converting(path, "write"):
            if owner is None:
                owner = self._take(change, dir_fd, name)
            if isinstance(change, changes.WriteFile):
                version = self._file(change, dir_fd, name, replaced, owner)
            elif isinstance(change, MakeLink):
                text, version = change.text, version_of(os.fsencode(change.text))
                self._link(change, dir_fd, name, owner)
            else:
                self._directory(branch, dir_fd, name, owner)
            status = metadata.found_at(dir_fd, name)
        self.after[path] = changes.state_of(status, version, text)
        return status

    def _file(
        self, change: changes.WriteFile, dir_fd: int, name: str, replaced: _Old, owner: _Owner
    ) -> str:
        kept = replaced if replaced is not None and replaced.is_regular else None
        if owner is not None:
            fd = os.open(name, _OPEN_FILE, dir_fd=dir_fd)
        else:
            # A replacement is private until it has the old file's permissions.
            fd = self.disk.create(dir_fd, name, PRIVATE_MODE if kept else metadata.NEW_FILE_MODE)
        with held_open(fd):
            if owner is not None:
                _make_plain(self.disk, fd, owner)
            if kept is not None:
                with changes.held_file(change.path, dir_fd, kept) as old_fd:
                    self.notes += metadata.carry_metadata(self.disk, old_fd, kept, fd, change.path)
            if owner is None:
                version = self._fill(change.content, fd)
            else:
                status = metadata.status_of(fd)
                if not status.is_regular or status.links != 1:
                    raise changed(change.path)
                version = digest_of_file(fd, status.size_bytes)
            self._finish(change, fd)
        return version

    def _finish(self, change: Creation, fd: int, inherited: int = 0) -> None:
        if not isinstance(change, MakeLink) and change.mode is not None:
            self.disk.set_mode(fd, change.mode & NINE_BITS | inherited)
        if change.modified_ns is not None:
            self.disk.set_modified(fd, change.modified_ns)

    def _fill(self, content: changes.Content, fd: int) -> str:
        if isinstance(content, changes.StoredContent):
            self.objects.copy_to(content.digest, fd)
            return content.digest
        if isinstance(content, bytes):
            return write_chunks((content,), self.disk, fd)
        with held_open(os.open(content.path, _OPEN_FILE, dir_fd=content.dir_fd)) as source:
            return write_chunks(chunks_of(source, os.fstat(source).st_size), self.disk, fd)

    def _link(self, change: MakeLink, dir_fd: int, name: str, owner: _Owner) -> None:
        if owner is None:
            self.disk.make_link(dir_fd, name, change.text)
        else:
            status = metadata.found_at(dir_fd, name)
            if not status.is_link or os.readlink(name, dir_fd=dir_fd) != change.text:
                raise changed(change.path)
            if (status.uid, status.gid) != owner:
                self.disk.set_link_owner(dir_fd, name, *owner)
        if change.modified_ns is not None:
            with held_open(os.open(name, PASS | os.O_NOFOLLOW, dir_fd=dir_fd)) as fd:
                self._finish(change, fd)

    def _directory(self, branch: CreatedBranch, dir_fd: int, name: str, owner: _Owner) -> None:
        if owner is None:
            self.disk.make_directory(dir_fd, name)
        with held_open(os.open(name, _OPEN_DIRECTORY, dir_fd=dir_fd)) as fd:
            # Threat: the directory has an entry that was not judged.
            names = {child.change.path.name for child in branch.children}
            if owner is not None and set(os.listdir(fd)) != names:
                raise changed(branch.change.path)
            for child in branch.children:
                self.build(child, fd, child.change.path.name, owner=owner)
            # Last: the directory's final mode may forbid these changes in it.
            if owner is not None:
                _make_plain(self.disk, fd, owner)
            else:
                inherited = metadata.status_of(fd).mode & ~NINE_BITS & 0o7777
                self._finish(branch.change, fd, inherited)

    def _take(self, change: Creation, dir_fd: int, name: str) -> _Owner:
        """Move given content to `name` and return its new owner; None if it must be copied."""
        given, kind = None, stat.S_IFREG
        if isinstance(change, changes.MakeDirectory):
            given, kind = change.given, stat.S_IFDIR
        elif isinstance(change, changes.WriteFile) and change.mode is not None:
            given = change.content
        if not isinstance(given, changes.GivenContent):
            return None
        found = os.stat(given.path, dir_fd=given.dir_fd, follow_symlinks=False)
        # The owner of a new file in that directory (open(2), O_CREAT).
        directory = os.fstat(dir_fd)
        group = directory.st_gid if directory.st_mode & stat.S_ISGID else os.getegid()
        owner = os.geteuid(), group
        if stat.S_IFMT(found.st_mode) != kind:
            return None
        if kind == stat.S_IFDIR:
            is_whole = not (found.st_mode | directory.st_mode) & stat.S_ISGID
        else:
            # Threat: the file could later be written through a second hard link.
            is_whole = found.st_nlink == 1
        is_ours = os.geteuid() == 0 or (found.st_uid, found.st_gid) == owner
        label = _attribute(f"/proc/self/fd/{given.dir_fd}/{given.path}", _LABEL)
        looks_alike = not _attribute(dir_fd, _DEFAULT_ACL) and _attribute(dir_fd, _LABEL) == label
        if not (is_whole and is_ours and looks_alike):
            return None
        return owner if self.disk.take(given.dir_fd, given.path, dir_fd, name) else None


def _make_plain(disk: Disk, fd: int, owner: tuple[int, int]) -> None:
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != owner:
        disk.set_owner(fd, *owner)
    names = os.listxattr(fd)
    # Keep the labels that the system sets, as on a new file.
    names = [n for n in names if n == "security.capability" or not n.startswith(_BY_THE_SYSTEM)]
    mode = found.st_mode & NINE_BITS
    # Removing attributes needs write permission; owning the file is not enough (xattr(7)).
    is_closed = bool(names) and not mode & stat.S_IWUSR
    if is_closed:
        disk.set_mode(fd, mode | stat.S_IWUSR)
    for name in names:
        disk.remove_attribute(fd, name)
    if is_closed:
        disk.set_mode(fd, mode)


def _attribute(place: int | str, name: str) -> bytes:
    try:
        return os.getxattr(place, name)
    except OSError as failure:
        if failure.errno in _NONE:
            return b""
        raise
