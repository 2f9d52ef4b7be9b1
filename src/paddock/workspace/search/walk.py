"""Walk the files below a directory lazily, in byte order.

* each directory is opened relative to its parent's descriptor with O_NOFOLLOW, so a
  directory swapped for a link during the walk is left out, and nothing else;
* paths are ordered by their bytes, a directory as its name with a slash;
* it reads no more directories than the caller's files need;
* it goes no deeper than `limits.path_depth_max`: deeper files could not be viewed;
* links, FIFOs, sockets, devices and Paddock's temporary files are left out;
* so is a directory without a file below it that no rule ignores.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath, is_temporary_name
from paddock.workspace.search.globs import SearchGlob
from paddock.workspace.search.ignore import (
    IGNORE_FILE,
    IgnoreScope,
    read_rules,
    read_rules_of,
    scope_above,
)
from paddock.workspace.search.request import NamesFound, ShownPaths, Until
from paddock.workspace.workspace import READ_DIRECTORY, Workspace

NEVER: Final = frozenset({".git", "node_modules"})
"""Names that `grep` and `find` always leave out."""

_OPEN_BELOW: Final = READ_DIRECTORY | os.O_NOFOLLOW
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM})
_CLOCK_ENTRIES: Final = 64
"""Entries between two checks of the clock."""


class WalkTerms(Struct, frozen=True):
    glob: SearchGlob
    skipped: frozenset[str] = NEVER
    """Names that are left out everywhere below the searched directory."""
    honours_ignore: bool = True
    with_directories: bool = False
    """True to yield matching directories too."""


class _Level(Struct):
    fd: int
    prefix: str
    names: Iterator[str]
    scope: IgnoreScope | None


class Walk:
    def __init__(
        self, workspace: Workspace, directory: WorkspacePath, terms: WalkTerms, until: Until
    ) -> None:
        """Raises: OSError: `directory` cannot be opened or listed."""
        self._terms = terms
        self._until = until
        self._levels: list[_Level] = []
        self._pending: list[tuple[int, str]] = []
        """Matching directories with their depths, yielded once a file is seen below them."""
        self.skipped_by_name = 0
        self.unreadable: list[str] = []
        self.too_deep: list[str] = []
        """Directories that it did not enter, as paths below them would be too deep."""
        prefix = "" if directory.is_root else directory.relative + "/"
        self._base = len(prefix)
        self._above = len(directory.parts)
        scope = scope_above(workspace, directory) if terms.honours_ignore else None
        fd = workspace.open_at(directory, READ_DIRECTORY)
        if self._push(fd, prefix, scope) and self._above >= limits.path_depth_max:
            self.too_deep.append(directory.relative)
            self._leave()

    def close(self) -> None:
        while self._levels:
            self._leave()

    @property
    def is_late(self) -> bool:
        return self._until.is_over

    def paths(self) -> Iterator[str]:
        """Yield matching workspace paths, directories with a trailing slash; end early if late.

        Raises: OSError.
        """
        glob, skipped, base = self._terms.glob, self._terms.skipped, self._base
        levels, pending = self._levels, self._pending
        checked = 0
        while levels:
            level = levels[-1]
            prefix, scope = level.prefix, level.scope
            for name in level.names:
                checked += 1
                if checked % _CLOCK_ENTRIES == 0 and self.is_late:
                    # Rules can make each entry slow. The caller reports `is_late`.
                    return
                if name[-1] == "/":
                    if self._enter(level, name[:-1]):
                        break
                    continue
                if name in skipped:
                    self.skipped_by_name += 1
                    continue
                path = prefix + name
                is_match = glob.matches(name, path[base:], is_directory=False)
                # Names before rules: most entries match no glob, so their rules do not matter.
                if not (is_match or pending):
                    continue
                if scope is not None and scope.ignores(path, name, is_directory=False):
                    continue
                if pending:
                    yield from [directory for _, directory in pending]
                    pending.clear()
                if is_match:
                    yield path
            else:
                self._leave()

    def _enter(self, level: _Level, name: str) -> bool:
        """Enter a directory; return False if it has nothing to search."""
        terms, path = self._terms, level.prefix + name
        if name in terms.skipped:
            self.skipped_by_name += 1
            return False
        if level.scope is not None and level.scope.ignores(path, name, is_directory=True):
            return False
        depth = len(self._levels)
        if terms.with_directories or terms.glob.negated:
            is_match = terms.glob.matches(name, path[self._base :], is_directory=True)
            if terms.glob.negated and not is_match:
                return False
            if terms.with_directories and is_match:
                self._pending.append((depth, path + "/"))
        if self._above + depth >= limits.path_depth_max:
            self.too_deep.append(path)
            is_entered = False
        else:
            try:
                fd = os.open(name, _OPEN_BELOW, dir_fd=level.fd)
                is_entered = self._push(fd, path + "/", level.scope)
            except OSError as failure:
                is_entered = False
                if failure.errno in _CLOSED:
                    self.unreadable.append(path)
                elif failure.errno not in _GONE:
                    raise
        if self._pending and not is_entered:
            self._drop_pending(depth)
        return is_entered

    def _leave(self) -> None:
        os.close(self._levels.pop().fd)
        self._drop_pending(len(self._levels))

    def _drop_pending(self, depth: int) -> None:
        while self._pending and self._pending[-1][0] >= depth:
            self._pending.pop()

    def _push(self, fd: int, prefix: str, scope: IgnoreScope | None) -> bool:
        is_kept = False
        try:
            names, has_rules = self._names(fd)
            if names:
                if has_rules and (rules := read_rules(fd)):
                    scope = IgnoreScope(rules, len(prefix), scope)
                self._levels.append(_Level(fd, prefix, iter(names), scope))
                is_kept = True
        finally:
            if not is_kept:
                os.close(fd)
        return is_kept

    def _names(self, fd: int) -> tuple[list[str], bool]:
        """Return directories and relevant files in order, and True if there is an ignore file."""
        terms, names, has_rules = self._terms, list[str](), False
        is_meant = terms.glob.name_matches
        if self._pending or terms.glob.negated or not terms.honours_ignore:
            # Other files count too, or show that a pending directory has a file.
            is_meant = None
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    names.append(name + "/")
                    continue
                if name == IGNORE_FILE:
                    has_rules = terms.honours_ignore
                if (
                    (is_meant is None or is_meant(name))
                    and entry.is_file(follow_symlinks=False)
                    and not is_temporary_name(name)
                ):
                    names.append(name)
        if len(names) > 1:
            # For ASCII names, the order of code points is that of the bytes.
            names.sort(key=None if "".join(names).isascii() else os.fsencode)
        return names, has_rules


def search_names(
    workspace: Workspace,
    shown: ShownPaths,
    directory: WorkspacePath,
    glob: SearchGlob,
    entries_max: int,
    until: Until | None = None,
) -> NamesFound:
    """Return the first entries below `directory` that match `glob` and may be shown.

    Other entries do not count. Raises: PathNotFoundError, PathNotADirectoryError,
    PathError: `directory` cannot be listed.
    """
    found = NamesFound()
    remarks = found.remarks
    terms = WalkTerms(glob, with_directories=True)
    with (
        converting(directory, "list"),
        contextlib.closing(Walk(workspace, directory, terms, until or Until())) as walk,
    ):
        for path in walk.paths():
            if not shown.is_shown(path.removesuffix("/")):
                continue
            if len(found.paths) == entries_max:
                found.has_more = True
                break
            found.paths.append(path)
        remarks.is_late = walk.is_late
        remarks.unreadable.update(filter(shown.is_shown, walk.unreadable))
        if not found.has_more:
            remarks.too_deep.update(filter(shown.is_shown, walk.too_deep))
    return found


class SearchReach:
    """Tells if a walk of a directory would reach given files; reads each directory once."""

    def __init__(self, workspace: Workspace, directory: WorkspacePath, glob: SearchGlob) -> None:
        self._workspace = workspace
        self._glob = glob
        self._base = "" if directory.is_root else directory.relative + "/"
        # A directory's prefix → its scope; False if a walk does not enter it.
        self._scopes: dict[str, IgnoreScope | bool | None] = {
            self._base: self._with_own(self._base, scope_above(workspace, directory))
        }
        self.too_deep: set[str] = set()
        """Directories that a walk does not enter but that have a given file."""

    def holds(self, path: str) -> bool:
        prefix, name = path[: path.rfind("/") + 1], path[path.rfind("/") + 1 :]
        if not self._glob.matches(name, path[len(self._base) :], is_directory=False):
            return False
        # Only after a name match: the rules cost a read of each directory.
        scope = self._scope(prefix)
        if isinstance(scope, bool):
            return False
        if scope is not None and scope.ignores(path, name, is_directory=False):
            return False
        if path.count("/") < limits.path_depth_max:
            return True
        self.too_deep.add("/".join(path.split("/", limits.path_depth_max)[:-1]))
        return False

    def _scope(self, prefix: str) -> IgnoreScope | bool | None:
        new: list[str] = []
        # No recursion: ripgrep reaches directories deeper than Python's stack.
        while prefix not in self._scopes:
            new.append(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
        found = self._scopes[prefix]
        for prefix in reversed(new):
            if not isinstance(found, bool):
                found = self._with_own(prefix, found) if self._enters(prefix[:-1], found) else False
            self._scopes[prefix] = found
        return found

    def _enters(self, directory: str, scope: IgnoreScope | None) -> bool:
        name, below = directory.rpartition("/")[2], directory[len(self._base) :]
        if self._glob.negated and not self._glob.matches(name, below, is_directory=True):
            return False
        return scope is None or not scope.ignores(directory, name, is_directory=True)

    def _with_own(self, prefix: str, above: IgnoreScope | None) -> IgnoreScope | None:
        rules = read_rules_of(self._workspace, prefix[:-1] or ".")
        return IgnoreScope(rules, len(prefix), above) if rules else above
