"""Apply `.gitignore` files: decide which entries a search skips.

  * the last matching rule of a file decides; `!` includes again;
  * the nearest file with a matching rule decides: a directory's before its parent's;
  * a rule without a slash matches names, one with a slash paths relative to its file;
  * invalid lines are skipped, as in git; so are patterns that are too large (see
    `expand_braces`), and those over `limits.ignore_patterns_max` or
    `limits.ignore_braces_chars_max`.

Only `.gitignore` counts, not `.ignore`, `.rgignore`, `.git/info/exclude` or a user's
excludes, which would make results differ between machines. Most rules are plain names or
endings, found by hash; the others form expressions whose first alternative is the last rule.
"""

import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from paddock import limits
from paddock.policy.globs import RUN, Glob, literal_of, parse_glob, regex_of
from paddock.policy.positions import PatternError
from paddock.storage.atomic import held_open
from paddock.storage.disk import read_bytes
from paddock.workspace.paths import WorkspacePath, unchecked_path
from paddock.workspace.search.globs import expand_braces
from paddock.workspace.workspace import READ_DIRECTORY, READ_FILE, Workspace

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


class IgnoreScope:
    """The ignore files that apply in one directory: its own first, then those above it."""

    __slots__ = ("chain",)

    def __init__(self, rules: IgnoreRules, base: int, above: "IgnoreScope | None") -> None:
        """`base` is the length of the path prefix that `rules` do not see."""
        self.chain: tuple[tuple[IgnoreRules, int], ...] = ((rules, base),)
        if above is not None:
            self.chain += above.chain

    def ignores(self, path: str, name: str, *, is_directory: bool) -> bool:
        """Return True if `path`, a workspace path whose last component is `name`, is ignored.

        Its ancestors are not checked: a search does not enter an ignored directory.
        """
        for rules, base in self.chain:
            said = rules.verdict(name, path[base:], is_directory=is_directory)
            if said is not None:
                return said
        return False


def read_rules(directory_fd: int) -> IgnoreRules | None:
    """Return the rules of a directory's `.gitignore`; None if it has no readable one.

    A link does not count, as in git. Only the beginning of a very large file counts.
    """
    try:
        fd = os.open(IGNORE_FILE, _OPEN_RULES, dir_fd=directory_fd)
    except OSError:
        return None
    try:
        text = read_bytes(fd, limits.ignore_file_bytes_max + 1)
    except OSError:
        return None  # not a regular file
    finally:
        os.close(fd)
    if len(text) > limits.ignore_file_bytes_max:
        # A truncated rule may match more than the rule: `*.log`, cut short, everything.
        text = text[: text.rfind(b"\n") + 1]
    return compile_rules(text.decode("utf-8", "surrogateescape"))


def read_rules_of(workspace: Workspace, directory: str) -> IgnoreRules | None:
    try:
        fd = workspace.open_at(unchecked_path(directory), READ_DIRECTORY)
    except OSError:
        return None
    with held_open(fd):
        return read_rules(fd)


def scope_above(workspace: Workspace, directory: WorkspacePath) -> IgnoreScope | None:
    """Return the scope of the ignore files above `directory`, up to the root."""
    scope: IgnoreScope | None = None
    prefix = ""
    for part in directory.parts:
        if rules := read_rules_of(workspace, prefix[:-1] or "."):
            scope = IgnoreScope(rules, len(prefix), scope)
        prefix += part + "/"
    return scope
