"""A set of one: a file is created, replaced or edited, an entry moved or deleted.

    make missing parents → lock the directory → look → build the draft → keep what stands
    there → change places in one call → look at what was displaced → sync → unlock

One rename is atomic, so the journal has no record of it. Durability (open(2), rename(2)):

  new file     unnamed file → write → fsync → link to its name → fsync of the directory
  replacement  unnamed file → owner, mode, attributes → write → fsync → keep the old content
               → link to a temporary name → exchange with the old file → look at what came
               out → fsync of the directory → unlink what came out

Rules kept here:
  * what is replaced is what was judged, and it is kept first: a surprise at the place, before or
    in the last moment, is an error, and everything is put back;
  * a move overwrites nothing: the kernel's own RENAME_NOREPLACE, not a look before;
  * a file whose permissions say no is not written, though a rename could do it;
  * a file with other names (hard links) gets a copy of its own, and the receipt says so;
  * a directory is moved or deleted only while it is empty: policy judged its name alone;
  * a refused or failed call leaves neither temporary nor directory.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from functools import partial
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace as replace_fields

from paddock import limits
from paddock.errors import (
    DirectoryNotEmptyError,
    FileChangedError,
    InvalidPathError,
    PathExistsError,
    PathNotAFileError,
    PathNotFoundError,
    TextTooLargeError,
)
from paddock.storage.atomic import held_open
from paddock.storage.disk import PRIVATE_MODE, Disk, digest_of_file, read_bytes
from paddock.storage.history import Kept
from paddock.storage.journal import SwapStep
from paddock.storage.notes import Doing, DoingKind
from paddock.text.show import quote
from paddock.workspace.build import NEW_FILE_MODE, Draft, Pieces, open_draft
from paddock.workspace.changes import EntryState
from paddock.workspace.exchange import BoundSwap, mark_of, require_same
from paddock.workspace.failures import NOT_A_FILE_HINT, NOT_FOUND_HINT, converting
from paddock.workspace.metadata import (
    FileStatus,
    Parents,
    carry_metadata,
    parted_note,
    require_writable,
    status_at,
    status_of,
)
from paddock.workspace.paths import (
    DeleteReceipt,
    EntryKind,
    EntryPath,
    EntryVersion,
    MoveReceipt,
    WorkspacePath,
    WritePath,
    WriteReceipt,
)
from paddock.workspace.places import LockedDirectories, LockedPlace, Site, changed
from paddock.workspace.preflight import state_at
from paddock.workspace.read import (
    require_regular,
    require_versionable,
    version_of,
)
from paddock.workspace.resolve import READ_DIRECTORY, READ_FILE

_PARENT_ROUNDS_MAX: Final = 16
_OPEN_ENTRY: Final = READ_FILE | os.O_NOFOLLOW
_ROOT_HINT: Final = "name something in it"
DIRECTORY_VERSION: Final = "directory"
"""Stands for the content of a directory, which is empty whenever it matters."""


class Expected(Enum):
    """What a writer believes about the place that it writes to."""

    AS_RESOLVED = "as resolved"
    """What resolving found: there, or not there. A surprise is a FileChangedError."""
    ABSENT = "absent"
    """Nothing: exclusive creation. Anything there is a PathExistsError."""
    ANYTHING = "anything"
    """A file or nothing, whichever it is when the lock is held: the last writer wins."""


class Edit(Protocol):
    """A pure change of a file's bytes."""

    def apply(self, content: bytes) -> Pieces:
        """The new bytes; raises a TextError where the change does not fit."""
        ...


@contextmanager
def _locked(
    site: Site, parents: Parents | None, directory: WorkspacePath, *others: WorkspacePath
) -> Generator[tuple[int, ...]]:
    """Make `directory` if `parents` may, lock it and `others`; undo the making on failure."""
    if parents is None:
        with site.lock(directory, *others) as fds:
            yield fds
        return
    locked = site.lock(directory, *others)
    try:
        fds = _ensured(parents, directory, locked)
        try:
            # Before the file appears: a name in a directory that a crash forgets is lost.
            parents.sync()
            yield fds
        finally:
            locked.release()
    except BaseException:
        parents.take_back()
        raise


def _ensured(
    parents: Parents, directory: WorkspacePath, locked: LockedDirectories
) -> tuple[int, ...]:
    # A writer that failed may take a directory back just before we lock it.
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
    parents = Parents(site.root_fd, site.resolution, site.disk)
    with (
        converting(target, "write"),
        _locked(site, parents if create_parents else None, target.parent) as (dir_fd,),
    ):
        place = LockedPlace(site, target, dir_fd)
        before = place.status()
        _require_expected(path, before, if_version, expected)
        if before is None:
            return _create(place, content, expected, parents.made)
        with _old_file(place, before) as old_fd:
            require_versionable(target, before)
            version_before = digest_of_file(old_fd, before.size_bytes)
            _require_version(target, if_version, version_before)
            receipt = _replace(place, before, old_fd, (content,), version_before, "overwritten")
            return replace_fields(receipt, created_directories=tuple(parents.made))


def edit_file(site: Site, path: WritePath, change: Edit, if_version: str | None) -> WriteReceipt:
    target = _require_file_path(path)
    with converting(target, "edit"), site.lock(target.parent) as (dir_fd,):
        place = LockedPlace(site, target, dir_fd)
        before = place.status()
        if before is None:
            raise PathNotFoundError(
                f"file not found: {quote(target.relative)}", hint="create it, or list the files"
            )
        with _old_file(place, before) as old_fd:
            if before.size_bytes > limits.edited_file_bytes_max:
                raise TextTooLargeError(
                    f"{quote(target.relative)} has {before.size_bytes} bytes; "
                    f"files over {limits.edited_file_bytes_max} are not edited",
                    hint="change it by a command, if you may run one",
                )
            content = read_bytes(old_fd, before.size_bytes)
            version_before = version_of(content)
            _require_version(target, if_version, version_before)
            new = change.apply(content)
            return _replace(place, before, old_fd, new, version_before, "edited")


def _require_file_path(path: WritePath) -> WorkspacePath:
    if path.real.is_root:
        raise PathNotAFileError("the workspace root is a directory", hint=NOT_A_FILE_HINT)
    return path.real


def _require_expected(
    path: WritePath, before: FileStatus | None, if_version: str | None, expected: Expected
) -> None:
    name = quote(path.real.relative)
    if before is not None and expected is Expected.ABSENT:
        raise PathExistsError(f"{name} exists already", hint="use another path")
    if before is None and if_version is not None:
        raise FileChangedError(
            f"{name} is not at version {quote(if_version)}: it does not exist",
            hint="leave if_version out to create it",
        )
    if expected is Expected.AS_RESOLVED and path.exists != (before is not None):
        raise changed(path.real)


def _require_version(path: WorkspacePath, wanted: str | None, found: str) -> None:
    if wanted is not None and wanted != found:
        raise FileChangedError(
            f"{quote(path.relative)} is not at version {quote(wanted)} any more: it is at {found}",
            hint="read it again, then repeat the call with the new version",
        )


@contextmanager
def _old_file(place: LockedPlace, before: FileStatus) -> Generator[int]:
    if before.is_link:
        # It was no link when the path was resolved, or the path would be another.
        raise changed(place.path)
    require_regular(place.path, before)
    require_writable(place.path, before, place.dir_fd, place.name)
    with held_open(os.open(place.name, _OPEN_ENTRY, dir_fd=place.dir_fd)) as fd:
        require_same(fd, before, place.path)
        yield fd


def _create(
    place: LockedPlace, content: bytes, expected: Expected, made: Sequence[WorkspacePath]
) -> WriteReceipt:
    version = version_of(content)
    with open_draft(place, NEW_FILE_MODE) as draft:
        draft.fill((content,))
        directories = tuple(directory.relative for directory in made)
        doing = Doing(place.path.relative, "created", after=version, made=directories)
        try:
            kept = place.site.keeper.note(doing)
            _happen(place.site.disk, kept, draft.appear, draft.vanish, place.dir_fd)
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
        created_directories=tuple(made),
    )


def _replace(
    place: LockedPlace,
    before: FileStatus,
    old_fd: int,
    content: Pieces,
    version_before: str,
    kind: DoingKind,
) -> WriteReceipt:
    version = version_of(*content)
    # Nobody may read the draft until it has the old file's permissions.
    with open_draft(place, PRIVATE_MODE) as draft:
        notes = carry_metadata(place.site.disk, old_fd, draft.fd, place.path)
        draft.fill(content)
        doing = Doing(place.path.relative, kind, before=version_before, after=version)
        # With its change time, which keeping it may move: attributes are part of the file.
        if place.status() != before:
            raise changed(place.path)
        keeper = place.site.keeper
        _give_way(place, before, lambda: keeper.keep_file(doing, old_fd), draft)
    return WriteReceipt(
        path=place.path,
        created=False,
        bytes_before=before.size_bytes,
        bytes_written=sum(map(len, content)),
        version=version,
        version_before=version_before,
        notes=(*notes, *parted_note(place.path, before)),
    )


def _happen(
    disk: Disk,
    kept: Kept,
    do: Callable[[], object],
    undo: Callable[[], object],
    *synced: int,
) -> None:
    """All of it, on the device, or nothing of it; and so with what was `kept` for it."""
    try:
        do()
        for fd in synced:
            disk.sync(fd)
        # Last: nothing may fail once what was displaced belongs to the history.
        kept.settle()
    except BaseException:
        try:
            undo()
        finally:
            kept.release()
        raise


def _give_way(
    place: LockedPlace, old: FileStatus, keep: Callable[[], Kept], draft: Draft | None
) -> None:
    disk, dir_fd = place.site.disk, place.dir_fd
    name, new = (None, None) if draft is None else (draft.name, mark_of(status_of(draft.fd)))
    with ExitStack() as held:
        if name is None:
            name = held.enter_context(place.temporary())
            if draft is not None:
                disk.link_open(draft.fd, dir_fd, name)
        step = SwapStep(place.path.parent.relative, place.name, 0, mark_of(old), new)
        swap = BoundSwap(disk, dir_fd, place.path, step, name)
        kept = keep()

        def do() -> None:
            if old.is_regular:
                _require_untouched(place, old, kept)
            swap.do()

        _happen(disk, kept, do, swap.undo, dir_fd)


def _require_untouched(place: LockedPlace, old: FileStatus, kept: Kept) -> None:
    """The last look at what is about to lose its place, with the change time.

    Threat: rewritten in place since it was kept, with as many bytes, and its old
    modification time set again. After our own rename the change time tells nothing.
    """
    now = place.status()
    # Keeping it may have given it one more name, and a change time with it.
    if now != old and (
        now is None
        or now.links == old.links
        or (now.content_mark, now.mode, now.uid, now.gid)
        != (old.content_mark, old.mode, old.uid, old.gid)
    ):
        raise changed(place.path)
    kept.require_untouched()


class _Judged(Struct, frozen=True):
    status: FileStatus
    state: EntryState

    @property
    def mode(self) -> int | None:
        return None if self.status.is_link else self.status.permissions

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
            entry=self.state.kind.value,
            before=self.state.version,
            after=self.state.version if to else None,
            to=to.relative if to else None,
            mode=self.mode,
            made=tuple(directory.relative for directory in made),
        )

    @property
    def version(self) -> EntryVersion:
        return EntryVersion(self.state.kind, self.state.version or DIRECTORY_VERSION)

    def is_still(self, now: FileStatus | None) -> bool:
        counts = 4 if self.status.is_regular else 2
        return now is not None and now.content_mark[:counts] == self.status.content_mark[:counts]


def _judge(place: LockedPlace) -> _Judged:
    status = place.status()
    if status is None:
        raise _not_found(place.path)
    if status.is_directory:
        _require_empty(place)
    elif status.is_regular:
        require_writable(place.path, status, place.dir_fd, place.name)
    return _Judged(status, state_at(place.path, place.dir_fd, status))


def entry_version(site: Site, entry: EntryPath) -> EntryVersion:
    with converting(entry.path, "look at"), site.parent(entry.path) as fd:
        return _judge(LockedPlace(site, entry.path, fd)).version


def move(
    site: Site, entry: EntryPath, to: WritePath, if_version: str | EntryVersion | None
) -> MoveReceipt:
    path, target = entry.path, to.real
    _require_movable(path, to)
    with converting(path, "move"):
        others = _directories_of(site, path)
    parents = Parents(site.root_fd, site.resolution, site.disk)
    with (
        converting(target, "move to"),
        _locked(site, parents, target.parent, *others) as (to_fd, from_fd, *_),
    ):
        old, new = LockedPlace(site, path, from_fd), LockedPlace(site, target, to_fd)
        judged = _judge(old)
        _require_at(path, if_version, judged)
        kept = site.keeper.note(judged.doing(path, "moved", target, parents.made))
        moving = _Moving(judged, old, new)
        _happen(site.disk, kept, moving.do, moving.undo, *dict.fromkeys((to_fd, from_fd)))
    state = judged.state
    return MoveReceipt(path, target, state.kind, state.version, tuple(parents.made))


class _Moving(Struct):
    judged: _Judged
    old: LockedPlace
    new: LockedPlace
    is_taken: bool = False
    """Somebody else's entry has the new name: nothing of ours is to be undone."""

    def do(self) -> None:
        old, new = self.old, self.new
        try:
            old.site.disk.move_new(old.dir_fd, old.name, new.dir_fd, new.name)
        except FileExistsError:
            self.is_taken = True
            raise
        # Threat: swapped between look and rename, or filled, if it is a directory.
        if not self.judged.is_still(new.status()):
            raise changed(old.path)
        if self.judged.status.is_directory:
            _require_empty(new)

    def undo(self) -> None:
        old, new = self.old, self.new
        # The old name is free exactly if the move took place.
        if not self.is_taken and old.status() is None and new.status() is not None:
            old.site.disk.move_new(new.dir_fd, new.name, old.dir_fd, old.name)


def _require_at(path: WorkspacePath, wanted: str | EntryVersion | None, judged: _Judged) -> None:
    """Of another kind than `wanted` names, it is at another version whatever it holds."""
    if not isinstance(wanted, EntryVersion):
        _require_version(path, wanted, judged.version.version)
    elif wanted != judged.version:
        _require_version(path, str(wanted), str(judged.version))


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


def delete(site: Site, entry: EntryPath, if_version: str | EntryVersion | None) -> DeleteReceipt:
    path = entry.path
    if path.is_root:
        raise InvalidPathError("the workspace root itself is not deleted", hint=_ROOT_HINT)
    with converting(path, "delete"), site.lock(*_directories_of(site, path)) as (dir_fd, *_):
        place = LockedPlace(site, path, dir_fd)
        judged = _judge(place)
        _require_at(path, if_version, judged)
        if judged.status.is_directory:
            # It goes only while it is empty (rmdir(2)), so there is nothing to look at after it.
            disk, kept = site.disk, _keep(place, judged)
            remove = partial(disk.remove_directory, dir_fd, path.name)
            _happen(disk, kept, remove, lambda: None, dir_fd)
        else:
            _give_way(place, judged.status, lambda: _keep(place, judged), None)
    state = judged.state
    bytes_before = state.size_bytes if state.kind is EntryKind.FILE else 0
    return DeleteReceipt(path, state.kind, state.version, bytes_before, judged.mode)


def _keep(place: LockedPlace, judged: _Judged) -> Kept:
    keeper, doing = place.site.keeper, judged.doing(place.path, "deleted")
    if judged.status.is_directory:
        return keeper.note(doing)
    if judged.state.link_text is not None:
        return keeper.keep_link(doing, os.fsencode(judged.state.link_text))
    with held_open(os.open(place.name, _OPEN_ENTRY, dir_fd=place.dir_fd)) as fd:
        require_same(fd, judged.status, place.path)
        return keeper.keep_file(doing, fd)


def _directories_of(site: Site, path: WorkspacePath) -> tuple[WorkspacePath, ...]:
    with site.parent(path) as fd:
        status = status_at(fd, path.name)
    if status is None:
        raise _not_found(path)
    return (path.parent, path) if status.is_directory else (path.parent,)


def _not_found(path: WorkspacePath) -> PathNotFoundError:
    return PathNotFoundError(
        f"no such file or directory: {quote(path.relative)}", hint=NOT_FOUND_HINT
    )


def _require_empty(place: LockedPlace) -> None:
    flags = READ_DIRECTORY | os.O_NOFOLLOW
    with held_open(os.open(place.name, flags, dir_fd=place.dir_fd)) as fd, os.scandir(fd) as found:
        if next(found, None) is not None:
            raise DirectoryNotEmptyError(
                f"directory {quote(place.path.relative)} is not empty",
                hint="move or delete what it holds first",
            )
