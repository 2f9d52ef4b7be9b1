"""Walking directories by descriptor; links are shown and never followed.

Rules kept here:
  * each directory is opened under the descriptor of its parent, with O_NOFOLLOW, so a
    directory swapped for a link during the walk is an error of that one entry;
  * the order is that of the paths' bytes, whatever the disk says;
  * nothing is looked at closely (size, where a link leads) that is not shown;
  * a directory that cannot be read is noted, and the walk goes on;
  * Paddock's temporary files are not there.
"""

import heapq
import os
import stat
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field

from paddock.errors import PathError, PathTraversalError
from paddock.storage.atomic import held_open
from paddock.workspace.failures import converting
from paddock.workspace.metadata import FileStatus, status_at
from paddock.workspace.paths import (
    AskedPath,
    DirectoryEntry,
    EntryFilter,
    EntryKind,
    Listing,
    Page,
    ReadPath,
    WorkspacePath,
    child_of,
    is_temporary_name,
)
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY, Found, Resolution, find_real

_OPEN_BELOW: Final = READ_DIRECTORY | os.O_NOFOLLOW
_HIDDEN_LIKELY: Final = 16


class Tree(Struct, frozen=True):
    root_fd: int
    resolution: Resolution
    root_names: tuple[str, ...]


def is_directory(tree: Tree, path: WorkspacePath) -> bool:
    try:
        os.close(tree.resolution.open(tree.root_fd, path.relative, PASS_DIRECTORY))
    except OSError:
        return False
    return True


def list_directory(
    tree: Tree,
    directory: WorkspacePath,
    depth: int,
    entries_max: int,
    about: EntryFilter,
    *,
    skipped: int = 0,
) -> Listing:
    walk = _Walk(about, depth)
    walk.visit(_open_directory(tree, directory), directory, depth)
    paths = sorted(walk.found, key=_byte_order)
    wanted = paths[skipped : skipped + entries_max]
    shown = _Shown(tree)
    try:
        entries = [entry for path in wanted if (entry := shown.look(path))]
    finally:
        shown.close()
    gone = len(wanted) - len(entries)
    return Listing(tuple(entries), len(paths) - gone, tuple(sorted(walk.closed, key=_byte_order)))


def first_entries(
    tree: Tree, directory: ReadPath | WorkspacePath, entries_max: int, about: EntryFilter
) -> Page:
    """The first entries of a directory, without regard to case; at most `entries_max`.

    Names alone are read of what is not shown: any directory costs one pass. An entry
    that goes away leaves its place empty.

    Raises: PathNotFoundError, PathNotADirectoryError; PathError: not readable.
    """
    real = directory.real if isinstance(directory, ReadPath) else directory
    with converting(real, "list"):
        with held_open(_open_directory(tree, real)) as fd:
            names = os.listdir(fd)
        wanted, has_more = _first_shown(names, real, entries_max, about)
        shown = _Shown(tree)
        try:
            entries = [entry for path in wanted if (entry := shown.look(path))]
        finally:
            shown.close()
    return Page(tuple(entries), has_more)


def _open_directory(tree: Tree, directory: WorkspacePath) -> int:
    fd = tree.resolution.open(tree.root_fd, directory.relative, READ_DIRECTORY)
    try:
        _require_search(fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_search(fd: int) -> None:
    """Refuse a directory whose names can be read, and nothing of what they name.

    Threat: every entry would seem to have gone away, and the directory empty.
    path_resolution(7): "." below a descriptor asks for search permission of its directory.
    """
    os.stat(".", dir_fd=fd)


def _first_shown(
    names: list[str], directory: WorkspacePath, entries_max: int, about: EntryFilter
) -> tuple[list[WorkspacePath], bool]:
    # Folded names first: the names themselves only tell those apart that fold alike.
    keyed = zip(map(str.casefold, names), names, strict=True)
    taken = entries_max + _HIDDEN_LIKELY
    while True:
        candidates = sorted(keyed) if taken >= len(names) else heapq.nsmallest(taken, keyed)
        shown = [
            path
            for _, name in candidates
            if not is_temporary_name(name)
            and about.shows(path := child_of(directory, name), is_directory=False)
        ]
        if len(shown) > entries_max or taken >= len(names):
            return shown[:entries_max], len(shown) > entries_max
        # More of them may not be shown than was guessed.
        taken *= 4
        keyed = zip(map(str.casefold, names), names, strict=True)


def _byte_order(path: WorkspacePath) -> bytes:
    return os.fsencode(path.relative)


class _Walk(Struct):
    about: EntryFilter
    depth: int
    found: list[WorkspacePath] = field(default_factory=list[WorkspacePath])
    closed: list[WorkspacePath] = field(default_factory=list[WorkspacePath])

    def visit(self, fd: int, directory: WorkspacePath, depth: int) -> None:
        below: list[tuple[str, WorkspacePath]] = []
        try:
            for name, is_directory in _names(fd):
                path = child_of(directory, name)
                if self.about.shows(path, is_directory=is_directory):
                    self.found.append(path)
                if is_directory and depth > 1 and self.about.enters(path):
                    below.append((name, path))
            for name, path in below:
                self._enter(fd, name, path, depth - 1)
        finally:
            os.close(fd)

    def _enter(self, parent_fd: int, name: str, path: WorkspacePath, depth: int) -> None:
        try:
            fd = os.open(name, _OPEN_BELOW, dir_fd=parent_fd)
        except OSError:
            # Unreadable, gone, or swapped for something else: said in the result.
            self.closed.append(path)
            return
        try:
            _require_search(fd)
        except OSError:
            os.close(fd)
            self.closed.append(path)
            return
        self.visit(fd, path, depth)


def _names(fd: int) -> Iterator[tuple[str, bool]]:
    with os.scandir(fd) as entries:
        for entry in entries:
            if not is_temporary_name(entry.name):
                yield entry.name, entry.is_dir(follow_symlinks=False)


class _Shown:
    __slots__ = ("_fd", "_parent", "_tree")

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._parent: WorkspacePath | None = None
        self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def look(self, path: WorkspacePath) -> DirectoryEntry | None:
        try:
            status = status_at(self._open_parent(path.parent), path.name)
        except OSError:
            return None
        return None if status is None else self._entry(path, status)

    def _open_parent(self, parent: WorkspacePath) -> int:
        if parent != self._parent:
            self.close()
            self._parent = None
            self._fd = self._tree.resolution.open(
                self._tree.root_fd, parent.relative, PASS_DIRECTORY
            )
            self._parent = parent
        return self._fd

    def _entry(self, path: WorkspacePath, status: FileStatus) -> DirectoryEntry:
        if status.is_link:
            return self._link(path)
        kind = _kind(status.mode)
        return DirectoryEntry(path, kind, status.size_bytes if kind is EntryKind.FILE else 0)

    def _link(self, path: WorkspacePath) -> DirectoryEntry:
        try:
            found = self._follow(path)
        except PathTraversalError:
            return DirectoryEntry(path, EntryKind.LINK_OUT)
        except (PathError, OSError):
            # A loop, a target that no path can name, or one that cannot be reached.
            return DirectoryEntry(path, EntryKind.DANGLING_LINK)
        if not found.exists:
            return DirectoryEntry(path, EntryKind.DANGLING_LINK, target=found.real)
        return DirectoryEntry(
            path, EntryKind.LINK, target=found.real, target_kind=_kind(found.mode)
        )

    def _follow(self, path: WorkspacePath) -> Found:
        asked = AskedPath(path.relative, path.parts, as_directory=False)
        return find_real(self._tree.root_fd, asked, self._tree.root_names, last=True)


def _kind(mode: int) -> EntryKind:
    if stat.S_ISREG(mode):
        return EntryKind.FILE
    return EntryKind.DIRECTORY if stat.S_ISDIR(mode) else EntryKind.SPECIAL
