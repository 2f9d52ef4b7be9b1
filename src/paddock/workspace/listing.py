"""Walking directories by descriptor, in the order of the paths' bytes.

Each is opened under the descriptor of its parent, with O_NOFOLLOW, so one that is swapped for a
link during the walk is an error of that one entry. Links are shown and never followed.
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
_SORTED_SHARE: Final = 4  # of which one is wanted: two sorts are quicker than a heap then


class DirectoryEntry(Struct, frozen=True):
    path: WorkspacePath
    kind: EntryKind
    size_bytes: int = 0  # but for files
    target: WorkspacePath | None = None  # of a link that leads to something inside
    target_kind: EntryKind | None = None  # FILE, DIRECTORY or SPECIAL; None if it dangles


class Listing(Struct, frozen=True):
    entries: tuple[DirectoryEntry, ...]  # in byte order of their paths
    total: int
    unreadable: tuple[WorkspacePath, ...] = ()  # listed; what they hold is not


class EntryFilter:
    """Which entries a listing is about, and counts; this one, about all."""

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
    """Raises: PathError: not found, no directory, or not readable."""
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
                    # Unreadable, gone, or swapped for something else: said in the result.
                    closed.append(path)
                else:
                    visit(fd, path, depth - 1)

    with converting(directory, "list"):
        visit(_searchable(workspace.open_at(directory, READ_DIRECTORY)), directory, depth)
        found.sort(key=_in_bytes)
        wanted = found[skipped : skipped + entries_max]
        entries = _look_at(workspace, wanted)
    gone = len(wanted) - len(entries)
    return Listing(entries, len(found) - gone, tuple(sorted(closed, key=_in_bytes)))


def first_entries(
    workspace: Workspace,
    path: ReadPath | WorkspacePath,
    entries_max: int,
    is_shown: Callable[[str], bool],
) -> tuple[list[tuple[str, EntryKind | DirectoryEntry]], bool]:
    """The first names, without regard to case, and whether there are more; of links, the entry."""
    directory = path.real if isinstance(path, ReadPath) else path
    prefix = "" if directory.is_root else f"{directory.relative}/"

    def told(entry: os.DirEntry[str]) -> EntryKind | DirectoryEntry:
        if entry.is_symlink():
            return _link(workspace, paths.unchecked_path(prefix + entry.name))
        if entry.is_file(follow_symlinks=False):
            return EntryKind.FILE
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
        first = [(name, told(found[name])) for name in islice(shown, entries_max)]
        return first, next(shown, None) is not None


def _searchable(fd: int) -> int:
    # Threat: where names can be read, and nothing of what they name, the directory would seem
    # empty. path_resolution(7): "." below a descriptor asks for search permission.
    try:
        os.stat(".", dir_fd=fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _in_order(names: list[str], wanted: int) -> Iterator[str]:
    taken = 0
    if wanted * _SORTED_SHARE < len(names):
        # Folded names first: the names themselves only tell those apart that fold alike.
        taken = wanted + _HIDDEN_LIKELY
        keyed = zip(map(str.casefold, names), names, strict=True)
        yield from [name for _, name in heapq.nsmallest(taken, keyed)]
    # More of those were hidden than is likely, or most are wanted.
    names.sort()
    yield from sorted(names, key=str.casefold)[taken:]


_in_bytes: Final = attrgetter("in_bytes")


def _look_at(workspace: Workspace, wanted: Iterable[WorkspacePath]) -> tuple[DirectoryEntry, ...]:
    found: list[DirectoryEntry] = []
    for parent, group in groupby(wanted, key=lambda path: path.parent):
        # It may be gone by now, and what it held.
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
        # A loop, a target that no path can name, or one that cannot be reached.
        return DirectoryEntry(path, EntryKind.DANGLING_LINK)
    if not found.exists:
        return DirectoryEntry(path, EntryKind.DANGLING_LINK, target=found.real)
    return DirectoryEntry(path, EntryKind.LINK, target=found.real, target_kind=kind_of(found.mode))
