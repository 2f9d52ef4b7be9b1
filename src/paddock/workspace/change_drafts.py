"""What is to stand at a path, built under a temporary name beside it.

In the directory where it will stand, because only there inherited group, default ACL and
file system are right. Nothing is synced one by one: one wait for the whole set comes
after all of it (see `changeset`).
"""

import hashlib
import os
from dataclasses import dataclass, field
from typing import Final

from paddock.values.entries import DIGEST_PREFIX
from paddock.workspace.change_looks import state_of
from paddock.workspace.change_plan import CreatedBranch
from paddock.workspace.change_taking import take_file, take_tree
from paddock.workspace.change_trees import require_same
from paddock.workspace.changes import (
    Content,
    EntryState,
    GivenContent,
    MakeDirectory,
    MakeLink,
    Objects,
    OpenContent,
    StoredContent,
    WriteFile,
)
from paddock.workspace.disk import Disk
from paddock.workspace.failures import converting
from paddock.workspace.metadata import FileStatus, carry_metadata, status_at, status_of
from paddock.workspace.names import WorkspacePath
from paddock.workspace.reading import version_of, version_of_file
from paddock.workspace.resolution import PASS, READ_DIRECTORY, READ_FILE
from paddock.workspace.writing import parted_note

_NEW_FILE_MODE: Final = 0o666
"""Less the umask, or as the directory's default ACL says."""
_PRIVATE_MODE: Final = 0o600
_CHUNK_BYTES: Final = 1 << 20
_OPEN_ENTRY: Final = READ_FILE | os.O_NOFOLLOW
_OPEN_DIRECTORY: Final = READ_DIRECTORY | os.O_NOFOLLOW
_NINE_BITS: Final = 0o777


@dataclass(slots=True)
class Drafts:
    """Builds, and remembers what was built, for the receipt."""

    disk: Disk
    objects: Objects
    after: dict[WorkspacePath, EntryState] = field(default_factory=dict[WorkspacePath, EntryState])
    notes: list[str] = field(default_factory=list[str])

    def build(
        self, branch: CreatedBranch, dir_fd: int, name: str, replaced: FileStatus | None
    ) -> FileStatus:
        """Build it under `name`; `replaced` is what stands at its own name in the same directory.

        Raises:
            FileChangedError: what is replaced is not what was looked at.
            ReadOnlyPathError: its owner or an attribute cannot be kept by this user.
            IntegrityError, HostError: the content is not in the store.
            ToolError or HostError: the disk fails; something may stand under `name`.
        """
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
            version = self._digest(fd) if is_taken else self._fill(change.content, fd)
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
        return self.disk.create(dir_fd, name, _NEW_FILE_MODE if is_new else _PRIVATE_MODE), False

    def _carry(self, change: WriteFile, dir_fd: int, fd: int, replaced: FileStatus) -> None:
        path = change.path
        old_fd = os.open(path.name, _OPEN_ENTRY, dir_fd=dir_fd)
        try:
            require_same(old_fd, replaced, path)
            self.notes += carry_metadata(self.disk, old_fd, fd, path)
        finally:
            os.close(old_fd)
        if replaced.links > 1:
            self.notes.append(parted_note(path, replaced.links - 1))

    def _fill(self, content: Content, fd: int) -> str:
        if isinstance(content, StoredContent):
            self.objects.copy_to(content.digest, fd)
            return content.digest
        if isinstance(content, OpenContent):
            return self._copy(content.fd, fd)
        if isinstance(content, GivenContent):
            source = os.open(content.path, _OPEN_ENTRY, dir_fd=content.dir_fd)
        else:
            source = content.opener.open()
        try:
            return self._copy(source, fd)
        finally:
            os.close(source)

    def _copy(self, source: int, fd: int) -> str:
        digest = hashlib.sha256()
        offset = 0
        while chunk := os.pread(source, _CHUNK_BYTES, offset):
            digest.update(chunk)
            self.disk.write(fd, chunk)
            offset += len(chunk)
        return DIGEST_PREFIX + digest.hexdigest()

    @staticmethod
    def _digest(fd: int) -> str:
        return version_of_file(fd, os.fstat(fd).st_size)

    def _directory(
        self, branch: CreatedBranch, change: MakeDirectory, dir_fd: int, name: str
    ) -> None:
        self.disk.make_directory(dir_fd, name)
        fd = os.open(name, _OPEN_DIRECTORY, dir_fd=dir_fd)
        try:
            for child in branch.children:
                self.build(child, fd, child.path.name, None)
            # Last: a directory may forbid what was just done in it.
            if change.mode is not None:
                inherited = status_of(fd).mode & ~_NINE_BITS & 0o7777
                self.disk.set_mode(fd, change.mode & _NINE_BITS | inherited)
            if change.modified_ns is not None:
                self.disk.set_modified(fd, change.modified_ns)
        finally:
            os.close(fd)

    def _set_modified(self, dir_fd: int, name: str, modified_ns: int | None) -> None:
        if modified_ns is None:
            return
        fd = os.open(name, PASS | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            self.disk.set_modified(fd, modified_ns)
        finally:
            os.close(fd)
