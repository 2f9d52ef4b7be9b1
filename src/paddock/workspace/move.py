"""Moving and deleting entries: files, empty directories, and links themselves.

Rules kept here:
  * nothing is ever overwritten: the kernel's own RENAME_NOREPLACE, not a look before;
  * what was moved is looked at again under its new name; if it is not what was judged,
    it goes back. Deleting is moving aside, looking, and then unlinking;
  * a directory is moved or deleted only while it is empty, because policy judged its
    name and not the names in it;
  * the directories are locked in one order, whoever asks (see `draft`).
"""

import os
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from paddock.errors import (
    DirectoryNotEmptyError,
    InvalidPathError,
    PathExistsError,
    PathNotFoundError,
)
from paddock.storage.history import Kept
from paddock.storage.notes import Doing, DoingKind
from paddock.text.show import quote
from paddock.workspace.draft import DraftPlace, changed, require_untouched
from paddock.workspace.failures import NOT_FOUND_HINT, converting, special_file
from paddock.workspace.metadata import FileStatus, require_writable, status_at, status_of
from paddock.workspace.paths import (
    ChangeableKind,
    DeleteReceipt,
    EntryKind,
    EntryPath,
    EntryVersion,
    MoveReceipt,
    WorkspacePath,
    WritePath,
)
from paddock.workspace.read import require_versionable, version_of, version_of_file
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY, READ_FILE
from paddock.workspace.write import Site, locked_with_parents, require_version

_OPEN_ENTRY: Final = READ_FILE | os.O_NOFOLLOW
_ROOT_HINT: Final = "name something in it"


DIRECTORY_VERSION: Final = "directory"
"""Stands for the content of a directory, which is empty whenever it matters."""


class _Judged(Struct, frozen=True):
    """An entry as it was looked at, under the lock of its directory."""

    status: FileStatus
    kind: ChangeableKind
    version: str | None

    def doing(
        self,
        path: WorkspacePath,
        kind: DoingKind,
        to: WorkspacePath | None = None,
        made: Sequence[WorkspacePath] = (),
    ) -> Doing:
        return Doing(
            path=path.relative,
            kind=kind,
            entry=self.kind.value,
            before=self.version,
            after=self.version if to else None,
            to=to.relative if to else None,
            mode=None if self.kind is EntryKind.LINK else self.status.permissions,
            made=tuple(directory.relative for directory in made),
        )

    @property
    def entry_version(self) -> EntryVersion:
        return EntryVersion(self.kind, self.version or DIRECTORY_VERSION)

    def is_still(self, now: FileStatus | None) -> bool:
        """Whether `now` is the same thing, unchanged."""
        if now is None:
            return False
        if self.kind is EntryKind.FILE:
            return now.content_mark == self.status.content_mark
        return (now.device, now.inode) == (self.status.device, self.status.inode)


def move(
    site: Site, entry: EntryPath, to: WritePath, if_version: str | EntryVersion | None
) -> MoveReceipt:
    path, target = entry.path, to.real
    _require_movable(path, to)
    with converting(path, "move"):
        status = _peek(site, path)
    others = (path.parent, path) if status.is_directory else (path.parent,)
    parents = site.parents()
    with (
        converting(target, "move to"),
        locked_with_parents(site, parents, target.parent, *others) as (to_fd, from_fd, *_),
    ):
        judged = _judge(site.place(path, from_fd))
        _require_at(path, if_version, judged)
        doing = judged.doing(path, "moved", to=target, made=parents.made)
        kept = site.keeper.note(doing)
        _move_judged(site, judged, site.place(path, from_fd), site.place(target, to_fd), kept)
    return MoveReceipt(path, target, judged.kind, judged.version, tuple(parents.made))


def _require_at(path: WorkspacePath, wanted: str | EntryVersion | None, judged: _Judged) -> None:
    """Refuse what has another version than `wanted`, or is of another kind where that names one.

    Raises: FileChangedError.
    """
    found = judged.entry_version
    if not isinstance(wanted, EntryVersion):
        require_version(path, wanted, found.version)
    elif wanted != found:
        require_version(path, str(wanted), str(found))


def _require_movable(path: WorkspacePath, to: WritePath) -> None:
    if path.is_root:
        raise InvalidPathError("the workspace root itself is not moved", hint=_ROOT_HINT)
    if to.exists or to.asked != to.real or to.real.is_root:
        raise PathExistsError(
            f"{quote(to.asked.relative)} exists already", hint="a move never overwrites"
        )
    if to.real.parts[: len(path.parts)] == path.parts:
        raise InvalidPathError(
            f"{quote(path.relative)} cannot be moved into itself",
            hint="choose a new path outside it",
        )


def _move_judged(site: Site, judged: _Judged, old: DraftPlace, new: DraftPlace, kept: Kept) -> None:
    try:
        site.disk.move_new(old.dir_fd, old.name, new.dir_fd, new.name)
        # Threat: swapped between look and rename, or filled, if it is a directory.
        if not judged.is_still(new.status()):
            raise changed(old.path)
        if judged.kind is EntryKind.DIRECTORY:
            _require_empty(new)
        site.disk.sync(new.dir_fd)
        if new.dir_fd != old.dir_fd:
            site.disk.sync(old.dir_fd)
    except FileExistsError:
        # Somebody else's entry has the name: nothing of ours is to be undone.
        kept.release()
        raise
    except BaseException:
        _bring_back(old, new.dir_fd, new.name)
        kept.release()
        raise
    kept.settle()


def _bring_back(place: DraftPlace, from_fd: int, name: str) -> None:
    """Undo a move that failed or moved something else, if it took place at all.

    The old name is free exactly if it did.
    """
    if place.status() is None and status_at(from_fd, name) is not None:
        place.disk.move_new(from_fd, name, place.dir_fd, place.name)


def delete(site: Site, entry: EntryPath, if_version: str | EntryVersion | None) -> DeleteReceipt:
    path = entry.path
    if path.is_root:
        raise InvalidPathError("the workspace root itself is not deleted", hint=_ROOT_HINT)
    with converting(path, "delete"):
        status = _peek(site, path)
        directories = (path.parent, path) if status.is_directory else (path.parent,)
        with site.lock(*directories) as (dir_fd, *_):
            place = site.place(path, dir_fd)
            judged = _judge(place)
            _require_at(path, if_version, judged)
            kept = _keep(place, judged)
            if judged.kind is EntryKind.DIRECTORY:
                _delete_directory(place, kept)
            else:
                _delete_judged(place, judged, kept)
    bytes_before = judged.status.size_bytes if judged.kind is EntryKind.FILE else 0
    mode = None if judged.kind is EntryKind.LINK else judged.status.permissions
    return DeleteReceipt(path, judged.kind, judged.version, bytes_before, mode)


def _keep(place: DraftPlace, judged: _Judged) -> Kept:
    doing = judged.doing(place.path, "deleted")
    if judged.kind is EntryKind.DIRECTORY:
        return place.keeper.note(doing)
    if judged.kind is EntryKind.LINK:
        text = os.readlink(place.name, dir_fd=place.dir_fd)
        return place.keeper.keep_link(doing, os.fsencode(text))
    fd = os.open(place.name, _OPEN_ENTRY, dir_fd=place.dir_fd)
    try:
        if status_of(fd) != judged.status:
            raise changed(place.path)
        return place.keeper.keep_file(doing, fd)
    finally:
        os.close(fd)


def entry_version(site: Site, entry: EntryPath) -> EntryVersion:
    path = entry.path
    with converting(path, "look at"):
        fd = site.resolution.open(site.root_fd, path.parent.relative, PASS_DIRECTORY)
        try:
            return _judge(site.place(path, fd)).entry_version
        finally:
            os.close(fd)


def _delete_directory(place: DraftPlace, kept: Kept) -> None:
    try:
        place.disk.remove_directory(place.dir_fd, place.name)
        place.disk.sync(place.dir_fd)
    except BaseException:
        kept.release()
        raise
    kept.settle()


def _delete_judged(place: DraftPlace, judged: _Judged, kept: Kept) -> None:
    disk, dir_fd = place.disk, place.dir_fd
    try:
        with place.temporary() as aside:
            try:
                if judged.kind is EntryKind.FILE:
                    require_untouched(place, judged.status, kept)
                disk.move_new(dir_fd, place.name, dir_fd, aside)
                if not judged.is_still(status_at(dir_fd, aside)):
                    raise changed(place.path)
                disk.sync(dir_fd)
                # Last: nothing may fail once what was deleted belongs to the history.
                kept.settle()
            except BaseException:
                _bring_back(place, dir_fd, aside)
                raise
    except BaseException:
        kept.release()
        raise


def _peek(site: Site, path: WorkspacePath) -> FileStatus:
    """What the entry is, before any lock: only to know which locks are needed."""
    fd = site.resolution.open(site.root_fd, path.parent.relative, PASS_DIRECTORY)
    try:
        status = status_at(fd, path.name)
    finally:
        os.close(fd)
    if status is None:
        raise _not_found(path)
    return status


def _not_found(path: WorkspacePath) -> PathNotFoundError:
    return PathNotFoundError(
        f"no such file or directory: {quote(path.relative)}", hint=NOT_FOUND_HINT
    )


def _judge(place: DraftPlace) -> _Judged:
    """Look at the entry under the lock.

    Raises:
        PathNotFoundError, SpecialFileError, ReadOnlyPathError, DirectoryNotEmptyError.
    """
    status = place.status()
    if status is None:
        raise _not_found(place.path)
    if status.is_link:
        text = os.readlink(place.name, dir_fd=place.dir_fd)
        return _Judged(status, EntryKind.LINK, version_of(os.fsencode(text)))
    if status.is_directory:
        _require_empty(place)
        return _Judged(status, EntryKind.DIRECTORY, None)
    if not status.is_regular:
        raise special_file(place.path)
    require_writable(place.path, status, place.dir_fd, place.name)
    return _Judged(status, EntryKind.FILE, _version(place, status))


def _version(place: DraftPlace, status: FileStatus) -> str:
    require_versionable(place.path, status)
    fd = os.open(place.name, _OPEN_ENTRY, dir_fd=place.dir_fd)
    try:
        if status_of(fd) != status:
            raise changed(place.path)
        return version_of_file(fd, status.size_bytes)
    finally:
        os.close(fd)


def _require_empty(place: DraftPlace) -> None:
    fd = os.open(place.name, READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=place.dir_fd)
    try:
        with os.scandir(fd) as entries:
            if next(entries, None) is not None:
                raise DirectoryNotEmptyError(
                    f"directory {quote(place.path.relative)} is not empty",
                    hint="move or delete what it holds first",
                )
    finally:
        os.close(fd)
