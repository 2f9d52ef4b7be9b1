"""What stands at a path, stood there, and will."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar, cast

from msgspec import Struct

from paddock.storage.atomic import held_open
from paddock.storage.disk import digest_of_file
from paddock.storage.notes import Doing
from paddock.workspace.failures import converting, special_file
from paddock.workspace.metadata import FileStatus, kind_of, require_same, status_at
from paddock.workspace.paths import ChangeableKind, EntryPath, WorkspacePath
from paddock.workspace.read import require_versionable, version_of
from paddock.workspace.resolve import PASS_DIRECTORY, READ_FILE
from paddock.workspace.workspace import Workspace

T = TypeVar("T")
Read: TypeAlias = Callable[[int, int], str]
"""Which version a file is, by its descriptor and size."""


class Seen(Struct, frozen=True):
    """The very entry that had this status; of a directory the identity and the permissions."""

    status: FileStatus
    version: str | None = None  # where the content counts as well: a status can be set back


class EntryState(Struct, frozen=True):
    kind: ChangeableKind
    mode: int
    version: str | None  # of content or link text; None where it is none, or was not read
    link_text: str | None = None


class ChangedPath(Struct, frozen=True):
    path: WorkspacePath
    before: EntryState | None
    after: EntryState | None
    kept: bool  # the file that stood there, in the store, under `before.version`


def state_of(status: FileStatus, version: str | None, text: str | None = None) -> EntryState:
    kind = cast("ChangeableKind", kind_of(status.mode))
    return EntryState(kind, status.permissions, version, text)


def entry_state(workspace: Workspace, entry: EntryPath) -> EntryState | None:
    """No link is followed. Raises: PathError: of a special kind, not readable, or changed."""
    return _look(workspace, entry.path, partial(state_at, entry.path))


def entry_seen(workspace: Workspace, entry: EntryPath) -> Seen | None:
    return _look(workspace, entry.path, lambda _, status: Seen(status))


def _look(
    workspace: Workspace, path: WorkspacePath, look: Callable[[int, FileStatus], T]
) -> T | None:
    with converting(path, "look at"):
        try:
            dir_fd = workspace.open_at(path.parent, PASS_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with held_open(dir_fd):
            status = status_at(dir_fd, path.name)
            return None if status is None else look(dir_fd, status)


@contextmanager
def held_file(path: WorkspacePath, dir_fd: int, status: FileStatus) -> Generator[int]:
    with held_open(os.open(path.name, READ_FILE | os.O_NOFOLLOW, dir_fd=dir_fd)) as fd:
        require_same(fd, status, path)
        yield fd


def state_at(
    path: WorkspacePath, dir_fd: int, status: FileStatus, read: Read | None = digest_of_file
) -> EntryState:
    if status.is_link:
        text = os.readlink(path.name, dir_fd=dir_fd)
        return state_of(status, version_of(os.fsencode(text)), text)
    if not (status.is_directory or status.is_regular):
        raise special_file(path)
    if status.is_directory or read is None:
        return state_of(status, None)
    require_versionable(path, status)
    with held_file(path, dir_fd, status) as fd:
        version = read(fd, status.size_bytes)
        require_same(fd, status, path)
        return state_of(status, version)


def doing_of_path(row: ChangedPath) -> Doing | None:
    path, before, after = row.path.relative, row.before, row.after
    if before is None:
        if after is None:
            return None
        mode, version = mode_of(after), after.version
        return Doing(path, "created", after.kind.value, after=version, mode_after=mode)
    kind, entry_after = "overwritten", ""
    if after is None:
        kind = "deleted"
    elif after.kind is not before.kind:
        entry_after = after.kind.value
    elif after.version == before.version:
        kind = "touched" if after.mode == before.mode else "mode"
    # Of another kind the number alone says nothing: what comes back gets the usual mode.
    is_gone = after is None or after.kind is not before.kind or after.mode != before.mode
    return Doing(
        path,
        kind,
        before.kind.value,
        before=before.version,
        after=None if after is None else after.version,
        entry_after=entry_after,
        mode=mode_of(before) if is_gone else None,
        mode_after=mode_of(after),
        # Of a directory there is no content to keep, and the text of a link is always kept.
        is_kept=row.kept or before.kind.value != "file" or kind in {"mode", "touched"},
    )


def mode_of(state: EntryState | None) -> int | None:
    return None if state is None or state.kind.value == "link" else state.mode
