"""Walk directories by descriptor, in byte order of the paths.

Each is opened relative to its parent's descriptor with O_NOFOLLOW, so a directory that is swapped
for a link during the walk is an error of that entry only. Links are shown and never followed.
"""

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from msgspec import Struct

from paddock.errors import PathError, PathTraversalError
from paddock.storage.atomic import held_open
from paddock.workspace import paths
from paddock.workspace.failures import converting
from paddock.workspace.metadata import found_at, kind_of
from paddock.workspace.paths import AskedPath, EntryKind, ReadPath, WorkspacePath
from paddock.workspace.workspace import PASS_DIRECTORY, READ_DIRECTORY, Workspace, find_real

_OPEN_BELOW: Final = READ_DIRECTORY | os.O_NOFOLLOW
_HIDDEN_LIKELY: Final = 16
_SORTED_SHARE: Final = 4  # if more than 1 in 4 names is wanted, sorting twice beats a heap


class DirectoryEntry(Struct, frozen=True):
    path: WorkspacePath
    kind: EntryKind
    size_bytes: int = 0  # 0 except for files
    target: WorkspacePath | None = None  # of a link to a path inside the workspace
    target_kind: EntryKind | None = None  # FILE, DIRECTORY or SPECIAL; None if it dangles


class Listing(Struct, frozen=True):
    entries: tuple[DirectoryEntry, ...]  # in byte order of their paths
    total: int
    unreadable: tuple[WorkspacePath, ...] = ()  # listed, but without their content


class EntryFilter:
    """Selects the entries that a listing shows and counts; this class selects all."""

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        del path, is_directory
        return True

    def enters(self, path: WorkspacePath) -> bool:
        del path
        return True


_EVERY_ENTRY: Final = EntryFilter()


def is_directory(workspace: Workspace, path: WorkspacePath) -> bool:
    try:
        os.close(workspace.open_at(path, PASS_DIRECTORY))
    except OSError:
        return False
    return True


def list_directory(
    workspace: Workspace,
    path: ReadPath | WorkspacePath,
    depth: int,
    entries_max: int,
    about: EntryFilter = _EVERY_ENTRY,
    *,
    skipped: int = 0,
) -> Listing:
    directory = path.real if isinstance(path, ReadPath) else path
    found: list[WorkspacePath] = []
    closed: list[WorkspacePath] = []

    def visit(dir_fd: int, directory: WorkspacePath, depth: int) -> None:
        below: list[WorkspacePath] = []
        with held_open(dir_fd):
            with os.scandir(dir_fd) as entries:
                for entry in entries:
                    if paths.is_temporary_name(entry.name):
                        continue
                    path = paths.child_of(directory, entry.name)
                    is_directory = entry.is_dir(follow_symlinks=False)
                    if about.shows(path, is_directory=is_directory):
                        found.append(path)
                    if is_directory and depth > 1 and about.enters(path):
                        below.append(path)
            for path in below:
                try:
                    fd = _searchable(os.open(path.name, _OPEN_BELOW, dir_fd=dir_fd))
                except OSError:
                    # Unreadable, gone, or swapped for something else: reported in the result.
                    closed.append(path)
                else:
                    visit(fd, path, depth - 1)

    with converting(directory, "list"):
        visit(_searchable(workspace.open_at(directory, READ_DIRECTORY)), directory, depth)
        found.sort(key=_in_bytes)
        wanted = found[skipped : skipped + entries_max]
        entries = _read(workspace, wanted)
    gone = len(wanted) - len(entries)
    return Listing(entries, len(found) - gone, tuple(sorted(closed, key=_in_bytes)))


def first_entries(
    workspace: Workspace,
    path: ReadPath | WorkspacePath,
    entries_max: int,
    is_shown: Callable[[str], bool],
) -> tuple[list[tuple[str, EntryKind | DirectoryEntry]], bool]:
    """Return the first names in case-insensitive order, and if there are more; resolve links."""
    directory = path.real if isinstance(path, ReadPath) else path
    prefix = "" if directory.is_root else f"{directory.relative}/"

    def kind_or_link(entry: os.DirEntry[str]) -> EntryKind | DirectoryEntry:
        if entry.is_file(follow_symlinks=False):
            return EntryKind.FILE
        if entry.is_symlink():
            return _link(workspace, paths.unchecked_path(prefix + entry.name))
        is_directory = entry.is_dir(follow_symlinks=False)
        return EntryKind.DIRECTORY if is_directory else EntryKind.SPECIAL

    with (
        converting(directory, "list"),
        held_open(_searchable(workspace.open_at(directory, READ_DIRECTORY))) as fd,
    ):
        with os.scandir(fd) as listed:
            found = {entry.name: entry for entry in listed}
        shown = (
            name
            for name in _in_order(list(found), entries_max)
            if not paths.is_temporary_name(name) and is_shown(prefix + name)
        )
        first = [(name, kind_or_link(found[name])) for name in islice(shown, entries_max)]
        return first, next(shown, None) is not None


def _searchable(fd: int) -> int:
    # Threat: a directory with readable names but no search permission would seem empty.
    # path_resolution(7): "." relative to a descriptor needs search permission.
    try:
        os.stat(".", dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _in_order(names: list[str], wanted: int) -> Iterator[str]:
    taken = 0
    if wanted * _SORTED_SHARE < len(names):
        # Folded names first: the original names only order those that fold alike.
        taken = wanted + _HIDDEN_LIKELY
        keyed = zip(map(str.casefold, names), names, strict=True)
        yield from [name for _, name in heapq.nsmallest(taken, keyed)]
    # More names were hidden than expected, or most are wanted.
    names.sort()
    yield from sorted(names, key=str.casefold)[taken:]


_in_bytes: Final = attrgetter("in_bytes")


def _read(workspace: Workspace, wanted: Iterable[WorkspacePath]) -> tuple[DirectoryEntry, ...]:
    found: list[DirectoryEntry] = []
    for parent, group in groupby(wanted, key=lambda path: path.parent):
        # The directory and its entries may be gone by now.
        with suppress(OSError), held_open(workspace.open_at(parent, PASS_DIRECTORY)) as fd:
            for path in group:
                with suppress(OSError):
                    status = found_at(fd, path.name)
                    kind = kind_of(status.mode)
                    size_bytes = status.size_bytes if kind is EntryKind.FILE else 0
                    entry = DirectoryEntry(path, kind, size_bytes)
                    found.append(_link(workspace, path) if status.is_link else entry)
    return tuple(found)


def _link(workspace: Workspace, path: WorkspacePath) -> DirectoryEntry:
    asked = AskedPath(path.relative, path.parts, as_directory=False)
    try:
        found = find_real(workspace.root_fd, asked, workspace.root_names, follow_last=True)
    except PathTraversalError:
        return DirectoryEntry(path, EntryKind.LINK_OUT)
    except (PathError, OSError):
        # A loop, or a target that is not a valid path or cannot be reached.
        return DirectoryEntry(path, EntryKind.DANGLING_LINK)
    if not found.exists:
        return DirectoryEntry(path, EntryKind.DANGLING_LINK, target=found.real)
    return DirectoryEntry(path, EntryKind.LINK, target=found.real, target_kind=kind_of(found.mode))
