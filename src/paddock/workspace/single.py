"""A set of one: a file is created, replaced or edited, an entry moved or deleted.

    make missing parents → lock the directory → look → build the draft → keep what stands
    there → change places in one call → look at what was displaced → sync → unlock

One rename is atomic, so the journal has no record of it. Durability (open(2), rename(2)):

  new file     unnamed file → write → note → fsync → link to its name → fsync of the directory
  replacement  unnamed file → owner, mode, attributes → write → keep the old content, note
               → fsync → link to a temporary name → exchange with the old file → look at what
               came out → fsync of the directory → unlink what came out

Each call is whole and on the device when it returns, or it did nothing. Rules kept here:
  * what is replaced is what was judged, and it is kept first: a surprise at the place, before or
    in the last moment, is an error, and everything is put back;
  * a move overwrites nothing: the kernel's own RENAME_NOREPLACE, not a look before;
  * a file whose permissions say no is not written, though a rename could do it;
  * a file with other names (hard links) gets a copy of its own, and the receipt says so;
  * a directory is moved or deleted only while it is empty: policy judged its name alone;
  * a refused or failed call leaves neither temporary nor directory.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from enum import Enum
from functools import partial
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

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
from paddock.storage.disk import PRIVATE_MODE, digest_of_file, read_bytes
from paddock.storage.journal import SwapStep
from paddock.storage.locks import try_lock, unlock
from paddock.storage.notes import Doing, DoingKind
from paddock.storage.objects import Kept
from paddock.text.show import quote
from paddock.workspace.exchange import BoundSwap, mark_of
from paddock.workspace.failures import NOT_A_FILE_HINT, NOT_FOUND_HINT, changed, converting
from paddock.workspace.metadata import (
    NEW_FILE_MODE,
    FileStatus,
    carry_metadata,
    require_same,
    require_writable,
    status_at,
    status_of,
)
from paddock.workspace.paths import EntryPath, EntryVersion, WorkspacePath, WritePath, join_parts
from paddock.workspace.places import (
    Draft,
    LockedDirectories,
    LockedPlace,
    lock,
    open_draft,
)
from paddock.workspace.read import Pieces, require_regular, require_versionable, version_of
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY
from paddock.workspace.states import OPEN_ENTRY, EntryState, state_at
from paddock.workspace.workspace import Workspace

_PARENT_ROUNDS_MAX: Final = 16
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


class SingleReceipt(Struct, frozen=True):
    """One path was changed, and that is on the device; a path is the real one, links resolved."""

    doing: Doing
    bytes_before: int = 0
    bytes_written: int = 0
    notes: tuple[str, ...] = ()


def write_file(
    workspace: Workspace,
    path: WritePath,
    content: bytes,
    *,
    if_version: str | None = None,
    expected: Expected = Expected.AS_RESOLVED,
    create_parents: bool = True,
) -> SingleReceipt:
    """Create or replace a file.

    Raises:
        FileChangedError: not at `if_version`, or not what was resolved or read.
        PathExistsError: expected absent, and is there.
        PathNotFoundError: a parent is missing and `create_parents` is false.
        PathNotAFileError, SpecialFileError, PathNotADirectoryError (a parent).
        ReadOnlyPathError: its permissions, owner or attributes forbid it.
        StorageFullError: no space; the old content stands.
        PathError: the directory stays locked for limits.path_lock_timeout_s.
    """
    target = _require_file_path(path)
    made: list[WorkspacePath] = []
    with (
        converting(target, "write"),
        _locked(workspace, made, target.parent, makes=create_parents) as (dir_fd,),
    ):
        place = LockedPlace(workspace, target, dir_fd)
        doing = Doing(target.relative, "created", made=_names(made))
        before = place.status()
        _require_expected(path, before, if_version, expected)
        if before is None:
            return _create(place, content, doing, expected)
        with _old_file(place, before) as old_fd:
            require_versionable(target, before)
            version_before = digest_of_file(old_fd, before.size_bytes)
            _require_version(target, if_version, version_before)
            doing = replace(doing, kind="overwritten", before=version_before)
            return _replace(place, before, old_fd, (content,), doing)


def edit_file(
    workspace: Workspace, path: WritePath, change: Edit, *, if_version: str | None = None
) -> SingleReceipt:
    """Replace a file by `change` of its content, read and written under one lock.

    Raises:
        PathNotFoundError: it does not exist.
        TextTooLargeError: over limits.edited_file_bytes_max.
        TextError: what `change` raises; nothing was written.
        As `write_file` otherwise.
    """
    target = _require_file_path(path)
    with converting(target, "edit"), lock(workspace, target.parent) as (dir_fd,):
        place = LockedPlace(workspace, target, dir_fd)
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
            doing = Doing(target.relative, "edited", before=version_of(content))
            _require_version(target, if_version, doing.before)
            return _replace(place, before, old_fd, change.apply(content), doing)


def entry_version(workspace: Workspace, entry: EntryPath) -> EntryVersion:
    """Kind and version of what would be moved or deleted. Raises: as `delete_entry` does."""
    path = entry.path
    with converting(path, "look at"), workspace.hold_parent(path) as fd:
        return _version(_judge(LockedPlace(workspace, path, fd))[1])


def move_entry(
    workspace: Workspace,
    entry: EntryPath,
    to: WritePath,
    *,
    if_version: str | EntryVersion | None = None,
) -> SingleReceipt:
    """Give an entry another name; files, empty directories, links themselves.

    `if_version` with a kind is no other kind's, whatever that holds.

    Raises:
        PathNotFoundError; PathExistsError: a move never overwrites.
        DirectoryNotEmptyError, SpecialFileError, ReadOnlyPathError (a file's own bits).
        InvalidPathError: the root, or a directory into itself.
        FileChangedError: not at `if_version`, or not what was looked at; it stands
            where it stood.
    """
    path, target = entry.path, to.real
    _require_movable(path, to)
    with converting(path, "move"):
        others = _directories_of(workspace, path)
    made: list[WorkspacePath] = []
    with (
        converting(target, "move to"),
        _locked(workspace, made, target.parent, *others) as (to_fd, from_fd, *_),
    ):
        old, new = LockedPlace(workspace, path, from_fd), LockedPlace(workspace, target, to_fd)
        status, state = _judge(old)
        _require_at(path, if_version, state)
        doing = replace(
            _doing(path, "moved", status, state),
            after=state.version,
            to=target.relative,
            made=_names(made),
        )
        moving = _Moving(status, old, new)
        kept = workspace.keeper.note(doing)
        _happen(workspace, kept, moving.do, moving.undo, *dict.fromkeys((to_fd, from_fd)))
    return SingleReceipt(doing)


def delete_entry(
    workspace: Workspace, entry: EntryPath, *, if_version: str | EntryVersion | None = None
) -> SingleReceipt:
    """Remove an entry; raises as `move_entry` does."""
    path = entry.path
    if path.is_root:
        raise InvalidPathError("the workspace root itself is not deleted", hint=_ROOT_HINT)
    with (
        converting(path, "delete"),
        lock(workspace, *_directories_of(workspace, path)) as (dir_fd, *_),
    ):
        place = LockedPlace(workspace, path, dir_fd)
        status, state = _judge(place)
        _require_at(path, if_version, state)
        doing = _doing(path, "deleted", status, state)
        keeper = workspace.keeper
        if status.is_directory:
            # It goes only while it is empty (rmdir(2)), so there is nothing to look at after it.
            remove = partial(workspace.disk.remove_directory, dir_fd, path.name)
            _happen(workspace, keeper.note(doing), remove, lambda: None, dir_fd)
        elif state.link_text is not None:
            text = os.fsencode(state.link_text)
            _give_way(place, status, lambda: keeper.keep_link(doing, text), None)
        else:
            with _old_file(place, status) as fd:
                _give_way(place, status, lambda: keeper.keep_file(doing, fd), None)
    return SingleReceipt(doing, bytes_before=status.size_bytes if status.is_regular else 0)


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


def _require_version(path: WorkspacePath, wanted: str | None, found: str | None) -> None:
    if wanted is not None and wanted != found:
        raise FileChangedError(
            f"{quote(path.relative)} is not at version {quote(wanted)} any more: it is at {found}",
            hint="read it again, then repeat the call with the new version",
        )


def _require_at(path: WorkspacePath, wanted: str | EntryVersion | None, state: EntryState) -> None:
    """Of another kind than `wanted` names, it is at another version whatever it holds."""
    found = _version(state)
    if not isinstance(wanted, EntryVersion):
        _require_version(path, wanted, found.version)
    elif wanted != found:
        _require_version(path, str(wanted), str(found))


def _version(state: EntryState) -> EntryVersion:
    return EntryVersion(state.kind, state.version or DIRECTORY_VERSION)


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


def _judge(place: LockedPlace) -> tuple[FileStatus, EntryState]:
    """What is to be moved or deleted, if it may be."""
    status = place.status()
    if status is None:
        raise _not_found(place.path)
    if status.is_directory:
        _require_empty(place)
    elif status.is_regular:
        require_writable(place.path, status, place.dir_fd)
    return status, state_at(place.path, place.dir_fd, status)


def _doing(path: WorkspacePath, kind: DoingKind, status: FileStatus, state: EntryState) -> Doing:
    mode = None if status.is_link else status.permissions
    return Doing(path.relative, kind, state.kind.value, before=state.version, mode=mode)


def _directories_of(workspace: Workspace, path: WorkspacePath) -> tuple[WorkspacePath, ...]:
    with workspace.hold_parent(path) as fd:
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


@contextmanager
def _old_file(place: LockedPlace, before: FileStatus) -> Generator[int]:
    if before.is_link:
        # It was no link when the path was resolved, or the path would be another.
        raise changed(place.path)
    require_regular(place.path, before)
    require_writable(place.path, before, place.dir_fd)
    with held_open(os.open(place.name, OPEN_ENTRY, dir_fd=place.dir_fd)) as fd:
        require_same(fd, before, place.path)
        yield fd


# Resolving a path makes nothing; so a refused call leaves nothing.


@contextmanager
def _locked(
    workspace: Workspace,
    made: list[WorkspacePath],
    directory: WorkspacePath,
    *others: WorkspacePath,
    makes: bool = True,
) -> Generator[tuple[int, ...]]:
    """Lock `directory` and `others`. What of it is missing is `made` and, on failure, unmade."""
    locked = lock(workspace, directory, *others)
    try:
        fds = _acquire(workspace, locked, directory, made) if makes else locked.acquire()
        try:
            # Before the file appears: a name in a directory that a crash forgets is lost.
            for path in reversed(made):
                with held_open(workspace.open_at(path.parent, READ_DIRECTORY)) as fd:
                    workspace.disk.sync(fd)
            yield fds
        finally:
            locked.release()
    except BaseException:
        _unmake(workspace, made)
        raise


def _acquire(
    workspace: Workspace,
    locked: LockedDirectories,
    directory: WorkspacePath,
    made: list[WorkspacePath],
) -> tuple[int, ...]:
    for _ in range(_PARENT_ROUNDS_MAX):
        try:
            return locked.acquire()
        except FileNotFoundError:
            # A writer that failed may take a directory back just before we use it.
            with suppress(FileNotFoundError):
                _make_missing(workspace, directory, made)
    return locked.acquire()


def _make_missing(
    workspace: Workspace, directory: WorkspacePath, made: list[WorkspacePath]
) -> None:
    for depth in range(1, len(directory.parts) + 1):
        path = join_parts(directory.parts[:depth])
        try:
            os.close(workspace.open_at(path, PASS_DIRECTORY))
        except FileNotFoundError:
            with workspace.hold_parent(path) as fd:
                made.append(path)
                try:
                    workspace.disk.make_directory(fd, path.name)
                except FileExistsError:
                    made.remove(path)  # somebody else was quicker; opening says what it is


def _unmake(workspace: Workspace, made: list[WorkspacePath]) -> None:
    """Remove the directories made, as far as nobody uses them."""
    while made:
        path = made.pop()
        try:
            # Its lock, so that no writer is about to create something in it. Never waited for:
            # whoever holds it needs the directory.
            fd = workspace.open_at(path, READ_DIRECTORY)
            try:
                if try_lock(fd):
                    with workspace.hold_parent(path) as parent:
                        workspace.disk.remove_directory(parent, path.name)
            finally:
                unlock(fd)
        except FileNotFoundError:
            continue  # one that could not be made is not there
        except OSError:
            made.clear()  # somebody put something there meanwhile, so it is theirs now


def _names(made: list[WorkspacePath]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path.relative for path in made))


# Acts: what happens under the locks, whole and on the device, or not at all.


def _happen(
    workspace: Workspace,
    kept: Kept,
    do: Callable[[], object],
    undo: Callable[[], object],
    *synced: int,
) -> None:
    """All of it, on the device, or nothing of it; and so with what was `kept` for it."""
    try:
        do()
        for fd in synced:
            workspace.disk.sync(fd)
        # Last: nothing may fail once what was displaced belongs to the history.
        kept.settle()
    except BaseException:
        try:
            undo()
        finally:
            kept.release()
        raise


def _create(place: LockedPlace, content: bytes, doing: Doing, expected: Expected) -> SingleReceipt:
    doing = replace(doing, after=version_of(content))
    with open_draft(place, NEW_FILE_MODE) as draft:
        draft.fill((content,))
        try:
            kept = place.workspace.keeper.note(doing)
            _happen(place.workspace, kept, draft.appear, draft.vanish, place.dir_fd)
        except FileExistsError as failure:
            if expected is Expected.ABSENT:
                raise
            raise changed(place.path) from failure
    return SingleReceipt(doing, bytes_written=len(content))


def _replace(
    place: LockedPlace, before: FileStatus, old_fd: int, content: Pieces, doing: Doing
) -> SingleReceipt:
    doing = replace(doing, after=version_of(*content))
    # Nobody may read the draft until it has the old file's permissions.
    with open_draft(place, PRIVATE_MODE) as draft:
        notes = carry_metadata(place.workspace.disk, old_fd, before, draft.fd, place.path)
        draft.fill(content)
        # With its change time, which keeping it may move: attributes are part of the file.
        if place.status() != before:
            raise changed(place.path)
        keeper = place.workspace.keeper
        _give_way(place, before, lambda: keeper.keep_file(doing, old_fd), draft)
    written = sum(map(len, content))
    return SingleReceipt(doing, before.size_bytes, written, notes)


def _give_way(
    place: LockedPlace, old: FileStatus, keep: Callable[[], Kept], draft: Draft | None
) -> None:
    disk, dir_fd = place.workspace.disk, place.dir_fd
    drafted = None if draft is None else draft.name
    with place.temporary() if drafted is None else nullcontext(drafted) as name:
        new = None if draft is None else mark_of(status_of(draft.fd))
        step = SwapStep(place.path.parent.relative, place.name, 0, mark_of(old), new)
        swap = BoundSwap(disk, dir_fd, place.path, step, name)
        kept = keep()

        def do() -> None:
            if draft is not None:
                disk.sync(draft.fd)
                if drafted is None:
                    disk.link_open(draft.fd, dir_fd, name)
            if old.is_regular:
                _require_untouched(place, old, kept)
            swap.do()

        _happen(place.workspace, kept, do, swap.undo, dir_fd)


def _require_untouched(place: LockedPlace, old: FileStatus, kept: Kept) -> None:
    """The last look at what is about to lose its place, with the change time.

    Threat: rewritten in place since it was kept, with as many bytes, and its old
    modification time set again. After our own rename the change time tells nothing.
    """
    now = place.status()
    if now is not None and now.links != old.links:
        # Keeping it may have given it one more name, and a change time with it.
        now = replace(now, links=old.links, changed_ns=old.changed_ns)
    if now != old:
        raise changed(place.path)
    kept.require_untouched()


class _Moving(Struct):
    judged: FileStatus
    old: LockedPlace
    new: LockedPlace
    is_taken: bool = False
    """Somebody else's entry has the new name: nothing of ours is to be undone."""

    def do(self) -> None:
        old, new, judged = self.old, self.new, self.judged
        try:
            old.workspace.disk.move_new(old.dir_fd, old.name, new.dir_fd, new.name)
        except FileExistsError:
            self.is_taken = True
            raise
        # Threat: swapped between look and rename, or filled, if it is a directory.
        counts, now = 4 if judged.is_regular else 2, new.status()
        if now is None or now.content_mark[:counts] != judged.content_mark[:counts]:
            raise changed(old.path)
        if judged.is_directory:
            _require_empty(new)

    def undo(self) -> None:
        old, new = self.old, self.new
        # The old name is free exactly if the move took place.
        if not self.is_taken and old.status() is None and new.status() is not None:
            old.workspace.disk.move_new(new.dir_fd, new.name, old.dir_fd, old.name)
