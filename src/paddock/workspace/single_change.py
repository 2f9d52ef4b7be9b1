"""One change: create, replace or edit a file; move or delete an entry.

    create missing parents → lock the directory → inspect → build the draft → store the old
    content → exchange in one call → check what was displaced → sync → unlock

One rename is atomic, so it needs no journal record. When a call returns, its change is complete
and on the device, or nothing has changed. Exactly the judged entry is replaced, after its content
is stored; if another process changes it, even in the last moment, the call fails. A file without
write permission is not written, though a rename could do it; a directory is moved or deleted
only while it is empty, because policy judged only its name.
"""

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock import errors, limits
from paddock.storage.atomic import held_open
from paddock.storage.disk import PRIVATE_MODE, digest_of_file, read_bytes
from paddock.storage.history import Kept
from paddock.storage.journal import SwapStep
from paddock.storage.notes import Doing
from paddock.text.show import quote
from paddock.workspace import metadata
from paddock.workspace.changes import Absent, AtVersion, EntryState, held_file, mode_of, state_at
from paddock.workspace.exchange import BoundSwap, mark_of
from paddock.workspace.failures import NOT_A_FILE_HINT, changed, converting
from paddock.workspace.metadata import FileStatus
from paddock.workspace.paths import EntryKind, EntryPath, EntryVersion, WorkspacePath, WritePath
from paddock.workspace.read import Pieces, require_regular, require_versionable, version_of
from paddock.workspace.targets import locked, temporary_name
from paddock.workspace.workspace import PASS_DIRECTORY, READ_DIRECTORY, Workspace

_PARENT_ROUNDS_MAX: Final = 16
_Act: TypeAlias = Callable[[], object]
_Wanted: TypeAlias = str | EntryVersion | None
_ROOT_HINT: Final = "name an entry in it"
DIRECTORY_VERSION: Final = "directory"  # only empty directories are changed


class Edit(Protocol):
    def apply(self, content: bytes) -> Pieces: ...  # pure; raises TextError if it does not apply


class SingleReceipt(Struct, frozen=True):
    doing: Doing
    bytes_before: int = 0
    bytes_written: int = 0
    notes: tuple[str, ...] = ()


def write_file(
    workspace: Workspace,
    path: WritePath,
    content: bytes,
    *,
    old: Absent | AtVersion | None = None,
    create_parents: bool = True,
) -> SingleReceipt:
    # `old` is checked under the lock; None: a file or none. Raises: FileChangedError: not at that
    # version, or changed since it was read; PathExistsError: not absent; ReadOnlyPathError;
    # StorageFullError; PathError: another kind of entry there or on the way, or locked for over
    # limits.path_lock_timeout_s.
    target = path.real
    if target.is_root:
        raise errors.PathNotAFileError("the workspace root is a directory", hint=NOT_A_FILE_HINT)
    with (
        converting(target, "write"),
        _locked(workspace, target.parent, makes=create_parents) as (made, dir_fd),
    ):
        place = _Place(workspace, target, dir_fd)
        before = place.status()
        wanted = old.version if isinstance(old, AtVersion) else None
        doing = Doing(target.relative, "created", made=made)
        if before is None:
            if wanted is not None:
                raise errors.FileChangedError(
                    f"{target.shown} is not at version {quote(wanted)}: it does not exist",
                    hint="leave if_version out to create it",
                )
            return _create(place, content, doing, is_exclusive=isinstance(old, Absent))
        if isinstance(old, Absent):
            raise errors.PathExistsError(f"{target.shown} already exists", hint="use another path")
        with _old_file(place, before) as old_fd:
            require_versionable(target, before)
            version = digest_of_file(old_fd, before.size_bytes)
            _require_at(target, wanted, EntryVersion(EntryKind.FILE, version))
            doing = replace(doing, kind="overwritten", before=version)
            return _replace(place, before, old_fd, (content,), doing)


def edit_file(
    workspace: Workspace, path: WritePath, change: Edit, *, if_version: str | None = None
) -> SingleReceipt:
    """Read and write under one lock. Raises: as `write_file`, and as `change`."""
    target = path.real
    with converting(target, "edit"), locked(workspace.open_at, target.parent) as (dir_fd,):
        place = _Place(workspace, target, dir_fd)
        before = place.status()
        if before is None:
            raise errors.PathNotFoundError(
                f"file not found: {target.shown}", hint="create it, or list files to find it"
            )
        with _old_file(place, before) as old_fd:
            if before.size_bytes > limits.edited_file_bytes_max:
                raise errors.TextTooLargeError(
                    f"{target.shown} has {before.size_bytes} bytes; "
                    f"files over {limits.edited_file_bytes_max} are not edited",
                    hint="change it with a command, if you may run one",
                )
            content = read_bytes(old_fd, before.size_bytes)
            version = version_of(content)
            _require_at(target, if_version, EntryVersion(EntryKind.FILE, version))
            doing = Doing(target.relative, "edited", before=version)
            return _replace(place, before, old_fd, change.apply(content), doing)


def entry_version(workspace: Workspace, entry: EntryPath) -> EntryVersion:
    path = entry.path
    with converting(path, "inspect"), workspace.hold_parent(path) as fd:
        return _version(_judge(_Place(workspace, path, fd))[1])


def move_entry(
    workspace: Workspace, entry: EntryPath, to: WritePath, *, if_version: _Wanted = None
) -> SingleReceipt:
    """Rename a file, an empty directory or a link itself. Raises: as `write_file`."""
    path, target = entry.path, to.real
    _require_movable(path, to)
    with converting(path, "move"):
        others = _directories_of(workspace, path)
    with (
        converting(target, "move to"),
        _locked(workspace, target.parent, *others) as (made, to_fd, from_fd, *_),
    ):
        old, new = _Place(workspace, path, from_fd), _Place(workspace, target, to_fd)
        with converting(path, "move"):
            status, state = _judge(old, if_version)
        version, to_name, mode = state.version, target.relative, mode_of(state)
        kind = state.kind.value
        doing = Doing(path.relative, "moved", kind, version, version, to_name, mode, made)
        _move(old, new, status, workspace.keeper.note(doing))
    return SingleReceipt(doing)


def delete_entry(
    workspace: Workspace, entry: EntryPath, *, if_version: _Wanted = None
) -> SingleReceipt:
    path, keeper = entry.path, workspace.keeper
    if path.is_root:
        raise errors.InvalidPathError("cannot delete the workspace root itself", hint=_ROOT_HINT)
    with (
        converting(path, "delete"),
        locked(workspace.open_at, *_directories_of(workspace, path)) as (dir_fd, *_),
    ):
        place = _Place(workspace, path, dir_fd)
        status, state = _judge(place, if_version)
        kind, mode = state.kind.value, mode_of(state)
        doing = Doing(path.relative, "deleted", kind, state.version, mode=mode)
        if status.is_directory:
            # rmdir(2) removes only an empty directory, so there is nothing to check afterwards.
            remove = partial(workspace.disk.remove_directory, dir_fd, path.name)
            _perform(workspace, keeper.note(doing), remove, lambda: None, dir_fd)
        elif state.link_text is not None:
            text = os.fsencode(state.link_text)
            _displace(place, status, lambda: keeper.keep_link(doing, text))
        else:
            with _old_file(place, status) as fd:
                _displace(place, status, lambda: keeper.keep_file(doing, fd))
    return SingleReceipt(doing, bytes_before=status.size_bytes if status.is_regular else 0)


class _Place(Struct, frozen=True):
    workspace: Workspace
    path: WorkspacePath
    dir_fd: int

    def status(self) -> FileStatus | None:
        return metadata.status_at(self.dir_fd, self.path.name)

    def temporary(self) -> AbstractContextManager[str]:
        return temporary_name(self.workspace, self.path.parent, self.dir_fd)

    def require_empty(self) -> None:
        flags, name = READ_DIRECTORY | os.O_NOFOLLOW, self.path.name
        with held_open(os.open(name, flags, dir_fd=self.dir_fd)) as fd, os.scandir(fd) as found:
            if next(found, None) is not None:
                raise errors.DirectoryNotEmptyError(
                    f"directory {self.path.shown} is not empty",
                    hint="move or delete what it holds first",
                )


def _require_at(path: WorkspacePath, wanted: _Wanted, found: EntryVersion) -> None:
    # An entry of another kind than `wanted` is at another version, whatever its content.
    if wanted not in (None, found if isinstance(wanted, EntryVersion) else found.version):
        raise errors.FileChangedError(
            f"{path.shown} is no longer at version {quote(str(wanted))}: it is at {found}",
            hint="read it again, then repeat the call with the new version",
        )


def _version(state: EntryState) -> EntryVersion:
    return EntryVersion(state.kind, state.version or DIRECTORY_VERSION)


def _require_movable(path: WorkspacePath, to: WritePath) -> None:
    if path.is_root:
        raise errors.InvalidPathError("cannot move the workspace root itself", hint=_ROOT_HINT)
    if to.exists or to.asked != to.real or to.real.is_root:
        raise errors.PathExistsError(
            f"{to.asked.shown} already exists", hint="a move never overwrites; use another path"
        )
    if to.real.parts[: len(path.parts)] == path.parts:
        raise errors.InvalidPathError(
            f"{path.shown} cannot be moved into itself", hint="choose a new path outside it"
        )


def _judge(place: _Place, if_version: _Wanted = None) -> tuple[FileStatus, EntryState]:
    status = metadata.found_at(place.dir_fd, place.path.name)
    if status.is_directory:
        place.require_empty()
    elif status.is_regular:
        metadata.require_writable(place.path, status, place.dir_fd)
    state = state_at(place.path, place.dir_fd, status)
    _require_at(place.path, if_version, _version(state))
    return status, state


def _directories_of(workspace: Workspace, path: WorkspacePath) -> tuple[WorkspacePath, ...]:
    with workspace.hold_parent(path) as fd:
        status = metadata.found_at(fd, path.name)
    return (path.parent, path) if status.is_directory else (path.parent,)


def _old_file(place: _Place, before: FileStatus) -> AbstractContextManager[int]:
    if before.is_link:
        # It was not a link when the path was resolved, or the path would be another.
        raise changed(place.path)
    require_regular(place.path, before)
    metadata.require_writable(place.path, before, place.dir_fd)
    return held_file(place.path, place.dir_fd, before)


@contextmanager
def _locked(
    workspace: Workspace, directory: WorkspacePath, *others: WorkspacePath, makes: bool = True
) -> Generator[tuple[tuple[str, ...], *tuple[int, ...]]]:
    """Yield the directories that were created (removed again on failure), and the descriptors."""
    made: list[WorkspacePath] = []
    is_held = False
    try:
        for left in reversed(range(_PARENT_ROUNDS_MAX)):
            try:
                with locked(workspace.open_at, directory, *others) as fds:
                    is_held = True
                    # Before the file appears: if a crash loses its directory, it is lost too.
                    for path in reversed(made):
                        with held_open(workspace.open_at(path.parent, READ_DIRECTORY)) as fd:
                            workspace.disk.sync(fd)
                    yield tuple(dict.fromkeys(path.relative for path in made)), *fds
                    return
            except FileNotFoundError:
                if is_held or not (makes and left):
                    raise
                # A failed writer may remove its directory just before we use it.
                with suppress(FileNotFoundError):
                    for path in (*directory.ancestors, directory):
                        _make_missing(workspace, path, made)
    except BaseException:
        _unmake(workspace, made)
        raise


def _make_missing(workspace: Workspace, path: WorkspacePath, made: list[WorkspacePath]) -> None:
    try:
        os.close(workspace.open_at(path, PASS_DIRECTORY))
    except FileNotFoundError:
        with workspace.hold_parent(path) as fd:
            made.append(path)
            try:
                workspace.disk.make_directory(fd, path.name)
            except FileExistsError:
                made.remove(path)  # another process was quicker; opening it shows the type


def _unmake(workspace: Workspace, made: list[WorkspacePath]) -> None:
    for path in reversed(made):
        try:
            # With its lock, so that no writer is about to create something in it. Do not wait:
            # the holder of the lock needs the directory.
            with locked(workspace.open_at, path, wait_s=0), workspace.hold_parent(path) as parent:
                workspace.disk.remove_directory(parent, path.name)
        except FileNotFoundError:
            continue  # it could not be created
        except (OSError, errors.PaddockError):
            return  # another process put something in it meanwhile: leave it


class _Draft(Struct, frozen=True):
    fd: int
    name: str  # empty if the file system has O_TMPFILE
    notes: tuple[str, ...]


@contextmanager
def _drafted(
    place: _Place, content: Pieces, old_fd: int = -1, old: FileStatus | None = None
) -> Generator[_Draft]:
    disk, notes = place.workspace.disk, ()
    # A replacement is private until it has the old file's permissions.
    mode = metadata.NEW_FILE_MODE if old is None else PRIVATE_MODE
    fd = disk.open_unnamed(place.dir_fd, mode)
    with place.temporary() if fd is None else nullcontext("") as name:
        if fd is None:
            fd = disk.create(place.dir_fd, name, mode)
        with held_open(fd):
            if old is not None:
                notes = metadata.carry_metadata(disk, old_fd, old, fd, place.path)
            for piece in content:
                disk.write(fd, piece)
            disk.begin_sync(fd)  # runs while the old content is stored
            yield _Draft(fd, name, notes)


def _name(place: _Place, draft: _Draft, name: str) -> None:
    disk, dir_fd = place.workspace.disk, place.dir_fd
    disk.sync(draft.fd)
    # link(2) never replaces, so a file that appeared meanwhile is not lost.
    if not draft.name:
        disk.link_open(draft.fd, dir_fd, name)
    elif draft.name != name:
        disk.move_new(dir_fd, draft.name, dir_fd, name)


def _perform(workspace: Workspace, kept: Kept, do: _Act, undo: _Act, *synced: int) -> None:
    try:
        do()
        for fd in synced:
            workspace.disk.sync(fd)
        # Last: nothing may fail after the history owns what was displaced.
        kept.settle()
    except BaseException:
        try:
            undo()
        finally:
            kept.release()
        raise


def _create(place: _Place, content: bytes, doing: Doing, *, is_exclusive: bool) -> SingleReceipt:
    workspace, doing = place.workspace, replace(doing, after=version_of(content))
    with _drafted(place, (content,)) as draft:

        def vanish() -> None:
            # Also if linking it failed: a network file system may have done it anyway.
            if metadata.status_of(draft.fd).is_same_entry(place.status()):
                workspace.disk.unlink(place.dir_fd, place.path.name)

        try:
            kept = workspace.keeper.note(doing)
            appear = partial(_name, place, draft, place.path.name)
            _perform(workspace, kept, appear, vanish, place.dir_fd)
        except FileExistsError as failure:
            if is_exclusive:
                raise
            raise changed(place.path) from failure
    return SingleReceipt(doing, bytes_written=len(content))


def _replace(
    place: _Place, before: FileStatus, old_fd: int, content: Pieces, doing: Doing
) -> SingleReceipt:
    doing, keeper = replace(doing, after=version_of(*content)), place.workspace.keeper
    with _drafted(place, content, old_fd, before) as draft:
        # Before storing, which may move the change time: it counts, as attributes do.
        if place.status() != before:
            raise changed(place.path)
        _displace(place, before, lambda: keeper.keep_file(doing, old_fd), draft)
    return SingleReceipt(doing, before.size_bytes, sum(map(len, content)), draft.notes)


def _displace(
    place: _Place, old: FileStatus, keep: Callable[[], Kept], draft: _Draft | None = None
) -> None:
    workspace, path, dir_fd = place.workspace, place.path, place.dir_fd
    drafted = draft.name if draft else ""
    with nullcontext(drafted) if drafted else place.temporary() as name:
        new = None if draft is None else mark_of(metadata.status_of(draft.fd))
        step = SwapStep(path.parent.relative, path.name, 0, mark_of(old), new)
        swap = BoundSwap(workspace.disk, dir_fd, path, step, name)
        kept = keep()

        def do() -> None:
            if draft is not None:
                _name(place, draft, name)
            if old.is_regular:
                _require_untouched(place, old, kept)
            swap.do()

        _perform(workspace, kept, do, swap.undo, dir_fd)


def _require_untouched(place: _Place, old: FileStatus, kept: Kept) -> None:
    # Threat: the file was rewritten in place since it was stored, with as many bytes, and its
    # old modification time was restored. After our rename the change time says nothing.
    now = place.status()
    if now is not None and now.links != old.links:
        # Storing it may have added a hard link, which moves the change time.
        now = replace(now, links=old.links, changed_ns=old.changed_ns)
    if now != old:
        raise changed(place.path)
    kept.require_untouched()


def _move(old: _Place, new: _Place, judged: FileStatus, kept: Kept) -> None:
    workspace, is_taken = old.workspace, False

    def rename(at: _Place, to: _Place) -> None:
        workspace.disk.move_new(at.dir_fd, at.path.name, to.dir_fd, to.path.name)

    def do() -> None:
        nonlocal is_taken
        try:
            rename(old, new)
        except FileExistsError:
            is_taken = True  # by another process: there is nothing to undo
            raise
        # Threat: swapped between check and rename, or, if a directory, filled.
        counts, now = 4 if judged.is_regular else 2, new.status()
        if now is None or now.content_mark[:counts] != judged.content_mark[:counts]:
            raise changed(old.path)
        if judged.is_directory:
            new.require_empty()

    def undo() -> None:
        # The old name is free only if the move took place.
        if not is_taken and old.status() is None and new.status() is not None:
            rename(new, old)

    _perform(workspace, kept, do, undo, *dict.fromkeys((new.dir_fd, old.dir_fd)))
