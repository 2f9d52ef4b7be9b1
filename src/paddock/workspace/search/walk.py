"""A walk of our own: the files below a directory, in byte order, as far as somebody asks.

Rules kept here:
  * each directory is opened under the descriptor of its parent, with O_NOFOLLOW, so a
    directory swapped for a link during the walk is left out and nothing else;
  * the order is that of the paths' bytes, a directory standing as its name with a slash;
  * it is lazy: who wants ten files reads no more directories than that takes;
  * it goes no deeper than a path may be that is asked for: what it would find there, nobody
    could view;
  * links, FIFOs, sockets, devices and Paddock's temporary files are not there.
"""

import errno
import math
import os
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.storage.disk import read_bytes
from paddock.workspace.paths import WorkspacePath, is_temporary_name
from paddock.workspace.resolve import READ_DIRECTORY, READ_FILE
from paddock.workspace.search.globs import SearchGlob
from paddock.workspace.search.ignore import IGNORE_FILE, IgnoreRules, IgnoreScope, compile_rules
from paddock.workspace.search.until import Until
from paddock.workspace.workspace import Workspace

_OPEN_BELOW: Final = READ_DIRECTORY | os.O_NOFOLLOW
_OPEN_RULES: Final = READ_FILE | os.O_NOFOLLOW
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM})
_TEMPORARY: Final = ".paddock-"
_LOOK_ENTRIES: Final = 64
"""So often the clock is looked at within a directory."""


class WalkTerms(Struct, frozen=True):
    skipped: frozenset[str]
    """Names that are nowhere below the searched directory, whatever they are."""
    honours_ignore: bool
    glob: SearchGlob
    with_directories: bool = False
    """Whether directories that match are wanted too: those with a file in them."""


class _Level(Struct):
    fd: int
    prefix: str
    names: Iterator[str]
    scope: IgnoreScope | None


class _Wanted(Struct):
    """A directory that matches, and is told once a file is seen below it."""

    path: str
    depth: int


class Walk:
    __slots__ = (
        "_base",
        "_levels",
        "_terms",
        "_tree",
        "_until",
        "_wanted",
        "budget",
        "entries",
        "passed_by",
        "too_deep",
        "unreadable",
    )

    def __init__(
        self, tree: Workspace, directory: WorkspacePath, terms: WalkTerms, until: Until
    ) -> None:
        """Raises: OSError where `directory` cannot be opened or listed."""
        self._tree = tree
        self._terms = terms
        self._wanted: list[_Wanted] = []
        self._until = until
        self.budget: float = math.inf
        """How many entries may be looked at before `paths` pauses."""
        self.entries = 0
        self.passed_by = 0
        self.unreadable: list[str] = []
        self.too_deep: list[str] = []
        """Directories that it did not look into, for no path may be longer than what is there."""
        fd = tree.resolution.open(tree.root_fd, directory.relative, READ_DIRECTORY)
        prefix = "" if directory.is_root else directory.relative + "/"
        self._base = len(prefix)
        scope = scope_above(tree, directory) if terms.honours_ignore else None
        self._levels = [self._level(fd, prefix, scope)]
        if len(directory.parts) >= limits.path_depth_max:
            self.too_deep.append(directory.relative)
            self._levels[0].names = iter(())

    def close(self) -> None:
        while self._levels:
            os.close(self._levels.pop().fd)

    @property
    def is_late(self) -> bool:
        return self._until.is_over

    @property
    def is_exhausted(self) -> bool:
        return not self._levels

    def paths(self) -> Iterator[str]:
        """Workspace paths that match, directories with a slash behind; ends early when late.

        It ends over the budget, too, and goes on when called again. Raises: OSError.
        """
        glob, skipped, base = self._terms.glob, self._terms.skipped, self._base
        everything = glob.is_everything
        while self._levels:
            level = self._levels[-1]
            prefix, scope = level.prefix, level.scope
            for number, name in enumerate(level.names, 1):
                if number % _LOOK_ENTRIES == 0 and self.is_late:
                    # Rules can make each entry slow. What is left out is said to be.
                    return
                path = prefix + name
                if name[-1] == "/":
                    if self._enter(level, name[:-1], path[:-1]):
                        break
                    continue
                if name in skipped:
                    self.passed_by += 1
                    continue
                is_match = everything or glob.matches(name, path[base:], is_directory=False)
                # Names before rules: most entries match no glob, and need no more.
                if not (is_match or self._wanted):
                    continue
                if scope is not None and scope.ignores(path, name, is_directory=False):
                    continue
                if self._wanted:
                    yield from [wanted.path for wanted in self._wanted]
                    self._wanted.clear()
                if is_match:
                    yield path
            else:
                self._leave()
            if self.entries > self.budget or self.is_late:
                return

    def _enter(self, level: _Level, name: str, path: str) -> bool:
        terms = self._terms
        if name in terms.skipped:
            self.passed_by += 1
            return False
        if level.scope is not None and level.scope.ignores(path, name, is_directory=True):
            return False
        matches = (terms.with_directories or terms.glob.negated) and terms.glob.matches(
            name, path[self._base :], is_directory=True
        )
        if terms.glob.negated and not matches:
            return False
        if path.count("/") + 1 >= limits.path_depth_max:
            self.too_deep.append(path)
            return False
        try:
            fd = os.open(name, _OPEN_BELOW, dir_fd=level.fd)
        except OSError as failure:
            return self._cannot(failure, path)
        try:
            below = self._level(fd, path + "/", level.scope)
        except OSError as failure:
            os.close(fd)
            return self._cannot(failure, path)
        except BaseException:
            os.close(fd)
            raise
        if matches and terms.with_directories:
            self._wanted.append(_Wanted(path + "/", len(self._levels)))
        self._levels.append(below)
        return True

    def _cannot(self, failure: OSError, path: str) -> bool:
        if failure.errno in _CLOSED:
            self.unreadable.append(path)
        elif failure.errno not in _GONE:
            raise failure
        return False

    def _leave(self) -> None:
        os.close(self._levels.pop().fd)
        while self._wanted and self._wanted[-1].depth >= len(self._levels):
            self._wanted.pop()

    def _level(self, fd: int, prefix: str, scope: IgnoreScope | None) -> _Level:
        names: list[str] = []
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    names.append(entry.name + "/")
        self.entries += len(names)
        # The order of code points is that of the bytes, but for bytes that are no UTF-8.
        names.sort(key=None if "".join(names).isascii() else os.fsencode)
        first = bisect_left(names, _TEMPORARY) if names else 0
        if first < len(names) and names[first].startswith(_TEMPORARY):
            names = [name for name in names if not is_temporary_name(name)]
        if self._terms.honours_ignore and IGNORE_FILE in names:
            rules = read_rules(fd)
            if rules:
                scope = IgnoreScope(rules, len(prefix), scope)
        return _Level(fd, prefix, iter(names), scope)


def too_deep_above(path: str) -> str:
    """The directory above a file that no walk looks into; nothing where one comes to the file."""
    if path.count("/") < limits.path_depth_max:
        return ""
    return "/".join(path.split("/", limits.path_depth_max)[: limits.path_depth_max])


def read_rules(directory_fd: int) -> IgnoreRules | None:
    """The rules of a directory's `.gitignore`; None where there is none that can be read.

    A link is none, as for git: its text would stand elsewhere. Of a very large file, its
    beginning counts.
    """
    try:
        fd = os.open(IGNORE_FILE, _OPEN_RULES, dir_fd=directory_fd)
    except OSError:
        return None
    try:
        text = read_bytes(fd, limits.ignore_file_bytes_max + 1)
    except OSError:
        return None  # a directory or something stranger
    finally:
        os.close(fd)
    if len(text) > limits.ignore_file_bytes_max:
        # A piece of a rule may mean more than the rule: `*.log`, cut short, everything.
        text = text[: text.rfind(b"\n") + 1]
    return compile_rules(text.decode("utf-8", "surrogateescape"))


def scope_above(tree: Workspace, directory: WorkspacePath) -> IgnoreScope | None:
    """What the directories above `directory`, up to the root, say of what is below it."""
    scope: IgnoreScope | None = None
    prefix = ""
    for part in directory.parts:
        try:
            fd = tree.resolution.open(tree.root_fd, prefix[:-1] or ".", READ_DIRECTORY)
        except OSError:
            return scope
        try:
            rules = read_rules(fd)
        finally:
            os.close(fd)
        if rules:
            scope = IgnoreScope(rules, len(prefix), scope)
        prefix += part + "/"
    return scope


class IgnoreLookup:
    """Whether single paths below a directory are ignored, each directory read once."""

    __slots__ = ("_base", "_scopes", "_tree")

    def __init__(self, tree: Workspace, directory: WorkspacePath) -> None:
        self._tree = tree
        self._base = "" if directory.is_root else directory.relative + "/"
        above = scope_above(tree, directory)
        # A directory's prefix → its scope; False where it is ignored itself.
        self._scopes: dict[str, IgnoreScope | bool | None] = {
            self._base: self._with_own(self._base, above)
        }

    def ignores(self, path: str) -> bool:
        """Whether a file is, or a directory that it stands in; a slash behind means a directory."""
        is_directory = path.endswith("/")
        path = path.removesuffix("/")
        head, slash, name = path.rpartition("/")
        scope = self._scope(head + slash)
        if isinstance(scope, bool):
            return True
        return scope is not None and scope.ignores(path, name, is_directory=is_directory)

    def _scope(self, prefix: str) -> IgnoreScope | bool | None:
        new: list[str] = []
        # No recursion: ripgrep comes to directories deeper than Python's stack.
        while prefix not in self._scopes:
            new.append(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
        found = self._scopes[prefix]
        for prefix in reversed(new):
            directory = prefix[:-1]
            name = directory.rpartition("/")[2]
            if not isinstance(found, bool):
                is_ignored = found is not None and found.ignores(directory, name, is_directory=True)
                found = False if is_ignored else self._with_own(prefix, found)
            self._scopes[prefix] = found
        return found

    def _with_own(self, prefix: str, above: IgnoreScope | None) -> IgnoreScope | None:
        try:
            fd = self._tree.resolution.open(self._tree.root_fd, prefix[:-1] or ".", READ_DIRECTORY)
        except OSError:
            return above
        try:
            rules = read_rules(fd)
        finally:
            os.close(fd)
        return IgnoreScope(rules, len(prefix), above) if rules else above
