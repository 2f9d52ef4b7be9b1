"""Writing a file: atomic, durable, one writer at a time, and nothing left behind.

    make missing parents → lock the directory → look → draft → keep what stands there
    → place or exchange → unlock

Rules kept here:
  * what is replaced is what was judged: a file believed absent that is there, or the
    other way round, is an error, and so is any change between look and exchange;
  * mode bits, owner, group and attributes survive (see `metadata`);
  * a file whose permissions say no is not written, though a rename could do it;
  * a file with other names (hard links) gets a copy of its own, and the receipt says so;
  * what is replaced is kept first, and what cannot be kept is not replaced;
  * a refused or failed call leaves neither temporary nor directory.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from paddock import limits
from paddock.errors import (
    FileChangedError,
    PathExistsError,
    PathNotAFileError,
    PathNotFoundError,
    TextTooLargeError,
)
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper
from paddock.storage.notes import Doing, DoingKind
from paddock.text.show import quote
from paddock.workspace.draft import Draft, DraftPlace, LockedDirectories, changed
from paddock.workspace.failures import NOT_A_FILE_HINT, converting
from paddock.workspace.metadata import (
    FileStatus,
    Parents,
    carry_metadata,
    require_writable,
    status_of,
)
from paddock.workspace.paths import WorkspacePath, WritePath, WriteReceipt
from paddock.workspace.read import (
    read_bytes,
    require_regular,
    require_versionable,
    version_of,
    version_of_file,
)
from paddock.workspace.resolve import READ_FILE, Resolution

_PARENT_ROUNDS_MAX: Final = 16
_OPEN_ENTRY: Final = READ_FILE | os.O_NOFOLLOW
_NO_KEEPER: Final = Keeper()


class Expected(Enum):
    """What a writer believes about the place that it writes to."""

    AS_RESOLVED = "as resolved"
    """What resolving found: there, or not there. A surprise is a FileChangedError."""
    ABSENT = "absent"
    """Nothing: exclusive creation. Anything there is a PathExistsError."""
    ANYTHING = "anything"
    """A file or nothing, whichever it is when the lock is held: the last writer wins."""


Pieces: TypeAlias = Sequence[bytes | memoryview]
"""A content in pieces that follow one another."""


class Edit(Protocol):
    """A pure change of a file's bytes."""

    def apply(self, content: bytes) -> Pieces:
        """The new bytes; raises a TextError where the change does not fit."""
        ...


class Site(Struct, frozen=True):
    """Where acts take place: the root's descriptor, the way to open, the disk, the keeper."""

    root_fd: int
    resolution: Resolution
    disk: Disk
    keeper: Keeper = _NO_KEEPER

    def parents(self) -> Parents:
        return Parents(self.root_fd, self.resolution, self.disk)

    def lock(self, *directories: WorkspacePath) -> LockedDirectories:
        return LockedDirectories(self.root_fd, self.resolution, *directories)

    def place(self, path: WorkspacePath, dir_fd: int) -> DraftPlace:
        return DraftPlace(self.disk, self.root_fd, path.parent, dir_fd, path, self.keeper)


@contextmanager
def locked_with_parents(
    site: Site, parents: Parents, directory: WorkspacePath, *others: WorkspacePath
) -> Generator[tuple[int, ...]]:
    """Make `directory` if it is missing, then lock it and `others`; undo the making on failure.

    A writer that failed may take a directory back just before we lock it, so both
    are repeated together.
    """
    locked = site.lock(directory, *others)
    try:
        fds = _ensured_and_locked(parents, directory, locked)
        try:
            # Before the file appears: a name in a directory that a crash forgets is lost.
            parents.sync()
            yield fds
        finally:
            locked.release()
    except BaseException:
        parents.take_back()
        raise


def _ensured_and_locked(
    parents: Parents, directory: WorkspacePath, locked: LockedDirectories
) -> tuple[int, ...]:
    for _ in range(_PARENT_ROUNDS_MAX):
        parents.ensure(directory)
        try:
            return locked.acquire()
        except FileNotFoundError:
            continue
    return locked.acquire()


def write_file(
    site: Site,
    path: WritePath,
    content: bytes,
    if_version: str | None,
    expected: Expected,
    *,
    create_parents: bool,
) -> WriteReceipt:
    target = _require_file_path(path)
    parents = site.parents()
    with converting(target, "write"):
        if not create_parents:
            with site.lock(target.parent) as (dir_fd,):
                return _write(site.place(target, dir_fd), path, content, if_version, expected)
        with locked_with_parents(site, parents, target.parent) as (dir_fd,):
            place = site.place(target, dir_fd)
            receipt = _write(place, path, content, if_version, expected, parents.made)
            return with_directories(receipt, parents)


def edit_file(site: Site, path: WritePath, change: Edit, if_version: str | None) -> WriteReceipt:
    target = _require_file_path(path)
    with converting(target, "edit"), site.lock(target.parent) as (dir_fd,):
        place = site.place(target, dir_fd)
        before = place.status()
        if before is None:
            raise PathNotFoundError(
                f"file not found: {quote(target.relative)}", hint="create it, or list the files"
            )
        with _old_file(place, before) as old:
            return _apply(place, old, change, if_version)


def _require_file_path(path: WritePath) -> WorkspacePath:
    if path.real.is_root:
        raise PathNotAFileError("the workspace root is a directory", hint=NOT_A_FILE_HINT)
    return path.real


def _write(
    place: DraftPlace,
    path: WritePath,
    content: bytes,
    if_version: str | None,
    expected: Expected,
    made: Sequence[WorkspacePath] = (),
) -> WriteReceipt:
    before = place.status()
    if before is not None and expected is Expected.ABSENT:
        raise PathExistsError(
            f"{quote(place.path.relative)} exists already", hint="use another path"
        )
    if before is None and if_version is not None:
        raise FileChangedError(
            f"{quote(place.path.relative)} is not at version {quote(if_version)}: "
            "it does not exist",
            hint="leave if_version out to create it",
        )
    if expected is Expected.AS_RESOLVED and path.exists != (before is not None):
        raise changed(place.path)
    if before is None:
        return _create(place, content, expected, made)
    with _old_file(place, before) as old:
        require_versionable(place.path, old.status)
        version_before = version_of_file(old.fd, old.status.size_bytes)
        require_version(place.path, if_version, version_before)
        return _replace(place, old, (content,), version_before, "overwritten")


def _create(
    place: DraftPlace, content: bytes, expected: Expected, made: Sequence[WorkspacePath]
) -> WriteReceipt:
    version = version_of(content)
    with Draft.of_new_file(place) as draft:
        draft.fill(content)
        directories = tuple(directory.relative for directory in made)
        doing = Doing(place.path.relative, "created", after=version, made=directories)
        try:
            draft.place_new(place.keeper.note(doing))
        except FileExistsError as failure:
            if expected is Expected.ABSENT:
                raise
            raise changed(place.path) from failure
    return WriteReceipt(
        path=place.path,
        created=True,
        bytes_before=0,
        bytes_written=len(content),
        version=version,
        version_before=None,
    )


class _OldFile(Struct, frozen=True):
    fd: int
    status: FileStatus


@contextmanager
def _old_file(place: DraftPlace, before: FileStatus) -> Generator[_OldFile]:
    """The file that is to be replaced, open; refused where it may not be written."""
    if before.is_link:
        # It was no link when the path was resolved, or the path would be another.
        raise changed(place.path)
    require_regular(place.path, before)
    require_writable(place.path, before, place.dir_fd, place.name)
    fd = os.open(place.name, _OPEN_ENTRY, dir_fd=place.dir_fd)
    try:
        if status_of(fd) != before:
            raise changed(place.path)
        yield _OldFile(fd, before)
    finally:
        os.close(fd)


def require_version(path: WorkspacePath, wanted: str | None, found: str) -> None:
    """Refuse if the caller read another version.

    Raises:
        FileChangedError: `wanted` is given and is not `found`.
    """
    if wanted is not None and wanted != found:
        raise FileChangedError(
            f"{quote(path.relative)} is not at version {quote(wanted)} any more: it is at {found}",
            hint="read it again, then repeat the call with the new version",
        )


def _apply(place: DraftPlace, old: _OldFile, change: Edit, if_version: str | None) -> WriteReceipt:
    size_bytes = old.status.size_bytes
    if size_bytes > limits.edited_file_bytes_max:
        raise TextTooLargeError(
            f"{quote(place.path.relative)} has {size_bytes} bytes; "
            f"files over {limits.edited_file_bytes_max} are not edited",
            hint="change it by a command, if you may run one",
        )
    content = read_bytes(old.fd, size_bytes)
    version_before = version_of(content)
    require_version(place.path, if_version, version_before)
    return _replace(place, old, change.apply(content), version_before, "edited")


def _replace(
    place: DraftPlace, old: _OldFile, content: Pieces, version_before: str, kind: DoingKind
) -> WriteReceipt:
    version = version_of(*content)
    with Draft.of_replacement(place) as draft:
        notes = carry_metadata(place.disk, old.fd, draft.fd, place.path)
        draft.fill(*content)
        doing = Doing(place.path.relative, kind, before=version_before, after=version)
        # With its change time, which keeping it may move: attributes are part of the file.
        if place.status() != old.status:
            raise changed(place.path)
        draft.replace(old.status, place.keeper.keep_file(doing, old.fd))
    others = old.status.links - 1
    if others:
        notes += (parted_note(place.path, others),)
    return WriteReceipt(
        path=place.path,
        created=False,
        bytes_before=old.status.size_bytes,
        bytes_written=sum(map(len, content)),
        version=version,
        version_before=version_before,
        notes=notes,
    )


def parted_note(path: WorkspacePath, others: int) -> str:
    names = "1 other hard link keeps" if others == 1 else f"{others} other hard links keep"
    return f"{quote(path.relative)} has a copy of its own now; {names} the old content"


def with_directories(receipt: WriteReceipt, parents: Parents) -> WriteReceipt:
    if not parents.made:
        return receipt
    return replace_fields(receipt, created_directories=tuple(parents.made))
