"""Finding names: the first entries of a tree that a glob means, in byte order.

A small tree, and any tree in which what is looked for is frequent, is walked here, which
is quicker than starting a process and reads no more than is shown. What that does not
exhaust is left to ripgrep's parallel walk; of its names, those that are shown are looked
at again, each under a descriptor that the workspace opened.

Files, and directories with a file somewhere below them that no rule ignores: that is what
ripgrep can tell, and both ways have to give the same. Links are not among them.
"""

import bisect
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from paddock import limits
from paddock.errors import HostError
from paddock.storage.atomic import held_open
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath, is_temporary_name
from paddock.workspace.resolve import PASS_DIRECTORY, READ_DIRECTORY
from paddock.workspace.search.asked import NamesFound, Remarks, ShownPaths
from paddock.workspace.search.child import Child, require_enterable
from paddock.workspace.search.globs import Entered, SearchGlob
from paddock.workspace.search.program import NEVER, list_command
from paddock.workspace.search.until import Until
from paddock.workspace.search.walk import IgnoreLookup, Walk, WalkTerms, too_deep_above
from paddock.workspace.workspace import Workspace

_WORTH_WALKING_ENTRIES: Final = 16_384
"""So much of a tree we still walk ourselves, if it looks as if enough were found by then."""


def search_names(
    workspace: Workspace,
    shown: ShownPaths,
    directory: WorkspacePath,
    glob: SearchGlob,
    entries_max: int,
    until: Until | None = None,
) -> NamesFound:
    """The first entries below `directory` that `glob` means and that may be shown.

    Raises:
        PathNotFoundError, PathNotADirectoryError, PathError: `directory` cannot be listed.
        HostError: ripgrep cannot be run, or the disk fails.
    """
    found = NamesFound()
    until = until or Until()
    with converting(directory, "list"):
        terms = WalkTerms(NEVER, honours_ignore=True, glob=glob, with_directories=True)
        walk = Walk(workspace, directory, terms, until)
        try:
            _walked(walk, shown, found, entries_max)
            found.remarks.is_late = walk.is_late
            found.remarks.unreadable.update(filter(shown.is_shown, walk.unreadable))
            if not found.has_more:
                found.remarks.too_deep.update(filter(shown.is_shown, walk.too_deep))
            is_whole = walk.is_exhausted or found.has_more or walk.is_late
        finally:
            walk.close()
        if is_whole:
            return found
        listed = _Listed(workspace, directory, glob, until)
        return listed.first(shown, entries_max)


def _walked(walk: Walk, shown: ShownPaths, found: NamesFound, entries_max: int) -> None:
    walk.budget = limits.search_walked_entries_max
    while not (found.has_more or walk.is_late):
        _fill(found, walk.paths(), shown, entries_max)
        likely = walk.entries * (entries_max + 1) / max(1, len(found.paths))
        if walk.is_exhausted or likely > _WORTH_WALKING_ENTRIES or walk.entries > likely * 2:
            return
        walk.budget = walk.entries + limits.search_walked_entries_max


def _fill(found: NamesFound, paths: Iterable[str], shown: ShownPaths, entries_max: int) -> None:
    for path in paths:
        if not shown.is_shown(path.removesuffix("/")):
            continue
        if len(found.paths) == entries_max:
            found.has_more = True
            return
        found.paths.append(path)


class _Listed:
    __slots__ = ("_base", "_directory", "_glob", "_ignored", "_tree", "_until")

    def __init__(
        self, tree: Workspace, directory: WorkspacePath, glob: SearchGlob, until: Until
    ) -> None:
        self._tree = tree
        self._directory = directory
        self._base = "" if directory.is_root else directory.relative + "/"
        self._glob = glob
        self._until = until
        self._ignored = IgnoreLookup(tree, directory)

    def first(self, shown: ShownPaths, entries_max: int) -> NamesFound:
        found = NamesFound()
        names = self._run(found.remarks)
        if self._glob.negated:
            names = list(filter(Entered(self._glob).holds, names))
        names, deep = self._reached(names)
        names.sort()
        meant = self._meant(names)
        meant.sort(key=None if "".join(meant).isascii() else os.fsencode)
        standing = _Standing(self._tree)
        try:
            _fill(
                found,
                filter(standing.stands, self._not_ignored(meant, names, found.remarks)),
                shown,
                entries_max,
            )
        finally:
            standing.close()
        if not found.has_more:
            found.remarks.too_deep.update(
                path
                for path in filter(shown.is_shown, deep)
                if not self._ignored.ignores(f"{path}/")
            )
        return found

    def _run(self, remarks: Remarks) -> list[str]:
        with held_open(
            self._tree.resolution.open(self._tree.root_fd, self._directory.relative, READ_DIRECTORY)
        ) as fd:
            require_enterable(fd)
            with Child(list_command(self._glob), fd, self._until) as child:
                output = b"".join(child.output())
                remarks.is_late = child.is_late
                if not child.is_late and (code := child.finish()) < 0:
                    raise HostError(f"ripgrep was ended by signal {-code}")
        names = os.fsdecode(output).split("\0")[:-1]
        if b".paddock-" in output:
            names = [name for name in names if not is_temporary_name(name.rpartition("/")[2])]
        return names

    def _reached(self, names: list[str]) -> tuple[list[str], set[str]]:
        """Those of `names` that a walk comes to, and the directories in which the others stand."""
        # A path of so many directories is long, which is told sooner.
        short = 2 * (limits.path_depth_max - self._base.count("/"))
        if all(len(name) <= short for name in names):
            return names, set()
        above = {name: too_deep_above(self._base + name) for name in names}
        return [name for name in names if not above[name]], set(filter(None, above.values()))

    def _meant(self, names: list[str]) -> list[str]:
        """Files that match, and directories that do and have one of `names` below them."""
        base, glob = self._base, self._glob
        found: list[str] = []
        seen: set[str] = {""}
        for below in names:
            head, _, name = below.rpartition("/")
            if glob.matches(name, below, is_directory=False):
                found.append(base + below)
            while head not in seen:
                seen.add(head)
                above, _, name = head.rpartition("/")
                if glob.matches(name, head, is_directory=True):
                    found.append(f"{base}{head}/")
                head = above
        return found

    def _not_ignored(self, paths: list[str], names: list[str], remarks: Remarks) -> Iterator[str]:
        # A glob of ripgrep's brings back what .gitignore leaves out, so that is asked again.
        for path in paths:
            if self._until.is_over:
                remarks.is_late = True
                return
            if not self._ignored.ignores(path) and (
                not path.endswith("/") or self._has_file(path, names)
            ):
                yield path

    def _has_file(self, directory: str, names: list[str]) -> bool:
        """Whether one of `names`, which are sorted, stands below a directory and counts."""
        below = directory[len(self._base) :]
        for name in itertools.islice(names, bisect.bisect_left(names, below), None):
            if not name.startswith(below):
                return False
            if not self._ignored.ignores(self._base + name):
                return True
        return False


class _Standing:
    """Looks at single entries by the workspace's own descriptors; keeps the last parent open."""

    __slots__ = ("_fd", "_parent", "_tree")

    def __init__(self, tree: Workspace) -> None:
        self._tree = tree
        self._parent: str | None = None
        self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def stands(self, path: str) -> bool:
        """Whether a file stands there, or for a path with a slash behind, a directory."""
        parent, _, name = path.removesuffix("/").rpartition("/")
        try:
            if parent != self._parent:
                self.close()
                self._parent = None
                self._fd = self._tree.resolution.open(
                    self._tree.root_fd, parent or ".", PASS_DIRECTORY
                )
                self._parent = parent
            mode = os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode
        except OSError:
            # Gone, or a link stands on the way: it is nothing that we would have found.
            return False
        return stat.S_ISDIR(mode) if path.endswith("/") else stat.S_ISREG(mode)
