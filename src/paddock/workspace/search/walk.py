"""Walk the files below a directory lazily, in byte order, without those that `.gitignore` excludes.

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
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.policy.globs import RUN, Glob, literal_of, parse_glob, regex_of
from paddock.policy.positions import PatternError
from paddock.storage.atomic import held_open
from paddock.storage.disk import read_bytes
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath, is_temporary_name, unchecked_path
from paddock.workspace.search.globs import SearchGlob, expand_braces
from paddock.workspace.search.request import NamesFound, ShownPaths, Until
from paddock.workspace.workspace import READ_DIRECTORY, READ_FILE, Workspace

NEVER: Final = frozenset({".git", "node_modules"})
"""Names that `grep` and `find` always leave out."""

_OPEN_BELOW: Final = READ_DIRECTORY | os.O_NOFOLLOW
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM})
_CLOCK_ENTRIES: Final = 64
"""Entries between two checks of the clock."""

# `.gitignore`:
#
#   * the last matching rule of a file decides; `!` includes again;
#   * the nearest file with a matching rule decides: a directory's before its parent's;
#   * a rule without a slash matches names, one with a slash paths relative to its file;
#   * invalid lines are skipped, as in git; so are patterns that are too large (see
#     `expand_braces`), and those over `limits.ignore_patterns_max` or
#     `limits.ignore_braces_chars_max`.
#
# Only `.gitignore` counts, not `.ignore`, `.rgignore`, `.git/info/exclude` or a user's
# excludes, which would make results differ between machines. Most rules are plain names or
# endings, found by hash; the others form expressions whose first alternative is the last rule.

IGNORE_FILE: Final = ".gitignore"
_OPEN_RULES: Final = READ_FILE | os.O_NOFOLLOW
_BOM: Final = "\ufeff"
_KEPT_CHARS_MAX: Final = 8_192
_TOGETHER: Final = 64
"""Rules in one expression; the cost of each alternative grows with the number of groups."""

_Rule = tuple[int, Glob]
_Part = tuple[Callable[[str], re.Match[str] | None], list[int]]
"""An expression of some rules, and their numbers, indexed by `lastindex - 1` of a match."""


class _Table:
    """The rules of a file for directories, or those for files."""

    __slots__ = ("_by_name", "_by_path", "_endings", "_names", "_paths")

    def __init__(self, rules: list[_Rule]) -> None:
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        self._endings: dict[str, int] = {}
        by_name: list[_Rule] = []
        by_path: list[_Rule] = []
        for number, glob in rules:
            if (literal := _literal(glob)) is not None:
                (self._names if glob.anywhere else self._paths)[literal] = number
            elif ending := _ending(glob):
                self._endings[ending] = number
            else:
                (by_name if glob.anywhere else by_path).append((number, glob))
        self._by_name = _parts(by_name)
        self._by_path = _parts(by_path)

    def last(self, name: str, below: str) -> int:
        """Return the number of the last rule that matches an entry; -1 for none."""
        # Called for every entry of a walk: each branch here saves time.
        last = self._names.get(name, -1)
        if self._endings and (dot := name.rfind(".")) >= 0:
            last = max(last, self._endings.get(name[dot:], -1))
        if self._paths:
            last = max(last, self._paths.get(below, -1))
        for match, numbers in self._by_name:
            if (found := match(name)) is not None:
                last = max(last, numbers[(found.lastindex or 0) - 1])
                break
        for match, numbers in self._by_path:
            if (found := match(below)) is not None:
                last = max(last, numbers[(found.lastindex or 0) - 1])
                break
        return last


def _literal(glob: Glob) -> str | None:
    texts = [literal_of(segment) for segment in glob.segments]
    return None if None in texts else "/".join(filter(None, texts))


def _ending(glob: Glob) -> str:
    segment = glob.segments[0]
    if not glob.anywhere or len(segment) != 2 or segment[0] is not RUN[0]:
        return ""
    ending = segment[1]
    return ending if isinstance(ending, str) and ending.rfind(".") == 0 else ""


def _parts(rules: list[_Rule]) -> list[_Part]:
    # Of equal rules, the last one counts.
    numbers = {regex_of(glob.segments): number for number, glob in rules}
    last_first = sorted(numbers.items(), key=lambda item: -item[1])
    return [_part(last_first[at : at + _TOGETHER]) for at in range(0, len(last_first), _TOGETHER)]


def _part(rules: list[tuple[str, int]]) -> _Part:
    source = "|".join(f"({regex})" for regex, _ in rules)
    return re.compile(source, re.DOTALL).fullmatch, [number for _, number in rules]


class IgnoreRules:
    __slots__ = ("_directories", "_files", "_negated")

    def __init__(self, text: str) -> None:
        globs = list(_globs(text))
        self._negated = [glob.negated for glob in globs]
        patterns = [
            at for at, glob in enumerate(globs) if _literal(glob) is None and not _ending(glob)
        ]
        # Threat: each of these costs time for every entry of a walk.
        dropped = set(patterns[: -limits.ignore_patterns_max])
        rules = [(number, glob) for number, glob in enumerate(globs) if number not in dropped]
        self._directories = _Table(rules)
        self._files = _Table([rule for rule in rules if not rule[1].directory_only])

    def __bool__(self) -> bool:
        return bool(self._negated)

    def verdict(self, name: str, below: str, *, is_directory: bool) -> bool | None:
        """Return True if an entry is ignored; None if no rule matches it.

        `below` is its path relative to the rules' file.
        """
        last = (self._directories if is_directory else self._files).last(name, below)
        return None if last < 0 else not self._negated[last]


@lru_cache(maxsize=256)
def _kept(text: str) -> IgnoreRules:
    return IgnoreRules(text)


def compile_rules(text: str) -> IgnoreRules:
    return _kept(text) if len(text) <= _KEPT_CHARS_MAX else IgnoreRules(text)


def _globs(text: str) -> Iterator[Glob]:
    room = limits.ignore_braces_chars_max
    for line in text.split("\n"):
        has_braces = "{" in line
        if has_braces and room < 0:
            continue
        globs = _parse_line(line)
        if has_braces:
            room -= sum(len(glob.text) for glob in globs)
        yield from globs


def _parse_line(line: str) -> list[Glob]:
    line = line.removesuffix("\r").removeprefix(_BOM)
    if not line or line.startswith("#"):
        return []
    if not line.endswith("\\ "):
        line = line.rstrip()
    negation = "!" if line.startswith("!") else ""
    try:
        return [parse_glob(negation + part) for part in expand_braces(line[len(negation) :])]
    except PatternError:
        return []


Scope = tuple[tuple[IgnoreRules, int], ...]
"""The rules that apply in a directory, its own first, then those above it; with each the length of
the path prefix that they do not see."""


def ignores(scope: Scope, path: str, name: str, *, is_directory: bool) -> bool:
    """Return True if `path`, a workspace path whose last component is `name`, is ignored.

    Its ancestors are not checked: a search does not enter an ignored directory.
    """
    for rules, base in scope:
        said = rules.verdict(name, path[base:], is_directory=is_directory)
        if said is not None:
            return said
    return False


def with_rules_in(directory_fd: int, prefix: str, above: Scope) -> Scope:
    """Return the scope of a directory: with its `.gitignore`, if it has a readable one.

    A link does not count, as in git. Only the beginning of a very large file counts.
    """
    try:
        fd = os.open(IGNORE_FILE, _OPEN_RULES, dir_fd=directory_fd)
    except OSError:
        return above
    try:
        text = read_bytes(fd, limits.ignore_file_bytes_max + 1)
    except OSError:
        return above  # not a regular file
    finally:
        os.close(fd)
    if len(text) > limits.ignore_file_bytes_max:
        # A truncated rule may match more than the rule: `*.log`, cut short, everything.
        text = text[: text.rfind(b"\n") + 1]
    rules = compile_rules(text.decode("utf-8", "surrogateescape"))
    return ((rules, len(prefix)), *above) if rules else above


def with_rules_of(workspace: Workspace, prefix: str, above: Scope) -> Scope:
    try:
        fd = workspace.open_at(unchecked_path(prefix[:-1] or "."), READ_DIRECTORY)
    except OSError:
        return above
    with held_open(fd):
        return with_rules_in(fd, prefix, above)


def scope_above(workspace: Workspace, directory: WorkspacePath) -> Scope:
    """Return the scope of the ignore files above `directory`, up to the root."""
    scope, prefix = Scope(), ""
    for part in directory.parts:
        scope = with_rules_of(workspace, prefix, scope)
        prefix += part + "/"
    return scope


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
    scope: Scope


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
        scope = scope_above(workspace, directory) if terms.honours_ignore else ()
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
                if scope and ignores(scope, path, name, is_directory=False):
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
        if ignores(level.scope, path, name, is_directory=True):
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

    def _push(self, fd: int, prefix: str, scope: Scope) -> bool:
        is_kept = False
        try:
            names, has_rules = self._names(fd)
            if names:
                if has_rules:
                    scope = with_rules_in(fd, prefix, scope)
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
        own = with_rules_of(workspace, self._base, scope_above(workspace, directory))
        # A directory's prefix → its scope; None if a walk does not enter it.
        self._scopes: dict[str, Scope | None] = {self._base: own}
        self.too_deep: set[str] = set()
        """Directories that a walk does not enter but that have a given file."""

    def holds(self, path: str) -> bool:
        prefix, name = path[: path.rfind("/") + 1], path[path.rfind("/") + 1 :]
        if not self._glob.matches(name, path[len(self._base) :], is_directory=False):
            return False
        # Only after a name match: the rules cost a read of each directory.
        scope = self._scope(prefix)
        if scope is None or ignores(scope, path, name, is_directory=False):
            return False
        if path.count("/") < limits.path_depth_max:
            return True
        self.too_deep.add("/".join(path.split("/", limits.path_depth_max)[:-1]))
        return False

    def _scope(self, prefix: str) -> Scope | None:
        new: list[str] = []
        # No recursion: ripgrep reaches directories deeper than Python's stack.
        while prefix not in self._scopes:
            new.append(prefix)
            prefix = prefix[: prefix.rfind("/", 0, -1) + 1]
        found = self._scopes[prefix]
        for prefix in reversed(new):
            if found is not None:
                is_entered = self._enters(prefix[:-1], found)
                found = with_rules_of(self._workspace, prefix, found) if is_entered else None
            self._scopes[prefix] = found
        return found

    def _enters(self, directory: str, scope: Scope) -> bool:
        name, below = directory.rpartition("/")[2], directory[len(self._base) :]
        if self._glob.negated and not self._glob.matches(name, below, is_directory=True):
            return False
        return not ignores(scope, directory, name, is_directory=True)
