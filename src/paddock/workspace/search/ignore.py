"""`.gitignore` files: which entries of a directory a search passes by.

Rules kept here:
  * the last rule of a file that matches decides; `!` takes out again;
  * the nearest file that says anything decides: a directory's own before its parent's;
  * a rule without a slash is about names, one with a slash about paths from its file;
  * a line that is no pattern is passed over, as git does; so is one that is no pattern of
    a moderate size, see `expand_braces`, and what goes over `limits.ignore_patterns_max`
    or `limits.ignore_braces_chars_max`.

Only `.gitignore` counts. `.ignore`, `.rgignore`, `.git/info/exclude` and a user's own
excludes do not: they differ from machine to machine, and an agent's answer must not.

Most rules are plain names or endings: those are found by hash, and what is left of a
file is one expression whose first alternative is the last rule.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from paddock import limits
from paddock.policy.globs import RUN, Glob, literal_of, parse_glob, regex_of
from paddock.policy.places import PatternError
from paddock.workspace.search.globs import expand_braces

IGNORE_FILE: Final = ".gitignore"
_BOM: Final = "\ufeff"
_KEPT_CHARS_MAX: Final = 8_192
_TOGETHER: Final = 64
"""Rules in one expression; with many, each alternative costs as much as there are groups."""

_Part = tuple[Callable[[str], re.Match[str] | None], list[int]]
"""An expression of some rules, and their numbers: `lastindex - 1` of a match stands for one."""


class _Rule(NamedTuple):
    number: int
    glob: Glob


class _Last:
    """For each key the number of the last rule, of all and of those that mean files too."""

    __slots__ = ("directories", "files")

    def __init__(self) -> None:
        self.directories: dict[str, int] = {}
        self.files: dict[str, int] = {}

    def put(self, key: str, rule: _Rule) -> None:
        self.directories[key] = rule.number
        if not rule.glob.directory_only:
            self.files[key] = rule.number


def _parts(rules: list[_Rule]) -> list[_Part]:
    # Of rules that say the same, the last one counts.
    numbers = {regex_of(rule.glob.segments): rule.number for rule in rules}
    last_first = sorted(numbers.items(), key=lambda item: -item[1])
    return [_part(last_first[at : at + _TOGETHER]) for at in range(0, len(last_first), _TOGETHER)]


def _part(rules: list[tuple[str, int]]) -> _Part:
    source = "|".join(f"({regex})" for regex, _ in rules)
    return re.compile(source, re.DOTALL).fullmatch, [number for _, number in rules]


class _Rules:
    __slots__ = ("by_name", "by_path", "endings", "names", "path_names")

    def __init__(self, rules: list[_Rule], literal: "_Literal", *, for_directories: bool) -> None:
        def chosen(last: _Last) -> dict[str, int]:
            return last.directories if for_directories else last.files

        self.names = chosen(literal.names)
        self.endings = chosen(literal.endings)
        self.path_names = chosen(literal.paths)
        meant = [rule for rule in rules if for_directories or not rule.glob.directory_only]
        self.by_name = _parts([rule for rule in meant if rule.glob.anywhere])
        self.by_path = _parts([rule for rule in meant if not rule.glob.anywhere])

    def last(self, name: str, below: str) -> int:
        """The number of the last rule about an entry; -1 for none."""
        # Once for every entry of a walk: each branch here is worth its line.
        last = self.names.get(name, -1)
        if self.endings:
            # Without a dot it is the last character, which is no ending.
            last = max(last, self.endings.get(name[name.rfind(".") :], -1))
        if self.path_names:
            last = max(last, self.path_names.get(below, -1))
        for match, numbers in self.by_name:
            if (found := match(name)) is not None:
                last = max(last, numbers[(found.lastindex or 0) - 1])
                break
        for match, numbers in self.by_path:
            if (found := match(below)) is not None:
                last = max(last, numbers[(found.lastindex or 0) - 1])
                break
        return last


class _Literal:
    __slots__ = ("endings", "names", "paths")

    def __init__(self) -> None:
        self.names = _Last()
        self.endings = _Last()
        self.paths = _Last()

    def take(self, rule: _Rule) -> bool:
        segments = rule.glob.segments
        texts = [literal_of(segment) for segment in segments]
        if all(text is not None for text in texts):
            key = "/".join(text for text in texts if text is not None)
            (self.names if rule.glob.anywhere else self.paths).put(key, rule)
            return True
        match segments:
            case [[first, str(ending)]] if rule.glob.anywhere and first is RUN[0]:
                if ending.rfind(".") == 0:
                    self.endings.put(ending, rule)
                    return True
            case _:
                return False
        return False


class IgnoreRules:
    __slots__ = ("_directories", "_files", "_negated")

    def __init__(self, text: str) -> None:
        globs = list(_globs(text))
        self._negated = [glob.negated for glob in globs]
        literal = _Literal()
        numbered = [_Rule(number, glob) for number, glob in enumerate(globs)]
        rest = [rule for rule in numbered if not literal.take(rule)]
        # Threat: each of these costs a look for every entry of a walk.
        rest = rest[-limits.ignore_patterns_max :]
        self._directories = _Rules(rest, literal, for_directories=True)
        self._files = _Rules(rest, literal, for_directories=False)

    def __bool__(self) -> bool:
        return bool(self._negated)

    def verdict(self, name: str, below: str, *, is_directory: bool) -> bool | None:
        """Whether an entry is ignored; None where no rule is about it.

        `below` is its path from the directory of the file.
        """
        rules = self._directories if is_directory else self._files
        last = rules.last(name, below)
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
    """The files that have a say in one directory: its own first, then those above it."""

    __slots__ = ("chain",)

    def __init__(self, rules: IgnoreRules, base: int, above: "IgnoreScope | None") -> None:
        """`base` is how much of a path stands before what `rules` speak of."""
        self.chain: tuple[tuple[IgnoreRules, int], ...] = ((rules, base),)
        if above is not None:
            self.chain += above.chain

    def ignores(self, path: str, name: str, *, is_directory: bool) -> bool:
        """Whether the entry `path`, a workspace path whose last component is `name`, is passed by.

        Directories above it are not looked at: a search has not come here if one is ignored.
        """
        for rules, base in self.chain:
            said = rules.verdict(name, path[base:], is_directory=is_directory)
            if said is not None:
                return said
        return False
