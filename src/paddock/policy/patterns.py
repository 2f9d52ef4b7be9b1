"""Path patterns by gitignore's rules: compiled once, asked often.

A `PathList` is one list of a policy: later patterns win over earlier ones, `!`
takes out again, a directory covers what is below it, and nothing below a
directory that matched can be taken out again. Those are git's own rules.

There are two ways to compare, and a list has one of them:

  * `GUARDING`, for lists that forbid or ask (`protected`, `generated`,
    `secret`, `forbidden`, deny and ask rules): without regard to case and
    Unicode form, and a pattern with a trailing slash also matches a last
    component of that name, since a file called `.git` is as dangerous as a
    directory;
  * `PERMITTING`, for lists that open something (`safe`, `warned`, `read`,
    `write`, allow rules): exactly as written.

A `!` pattern works against its list, so it is compared the other way.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from paddock.policy.globs import Glob, fold, fold_segment, parse_glob, regex_of, split_lead
from paddock.policy.path_index import Hit, Indexed, PathIndex
from paddock.policy.places import BUILT_IN_PLACE, Place
from paddock.policy.problems import PatternError, quote_toml

CACHED_PATHS = 2048
"""Answers that one list keeps; the oldest give way."""

ROOT = "."


class Comparison(Enum):
    """How a list compares; see the module."""

    GUARDING = "guarding"
    PERMITTING = "permitting"


@dataclass(frozen=True, slots=True)
class PathPattern:
    glob: Glob
    place: Place = BUILT_IN_PLACE

    @property
    def text(self) -> str:
        return self.glob.text

    @property
    def negated(self) -> bool:
        """Whether it takes out again (`!`)."""
        return self.glob.negated

    @property
    def is_file_name(self) -> bool:
        """Whether it forbids by a name without any slash."""
        return self.glob.anywhere and not self.glob.directory_only and not self.glob.negated

    def lifting(self, path: str) -> str:
        """Return the `!` pattern that would take `path` out behind this one; empty for none."""
        if not self.is_file_name:
            return ""
        regex = re.compile(regex_of((fold_segment(self.glob.segments[0]),)), re.DOTALL)
        named = (name for name in path.split("/") if regex.fullmatch(fold(name)))
        return next((f"!{name}" for name in named), "")


MatchedPattern = PathPattern
"""The pattern that decided for a path."""


def compile_pattern(text: str, place: Place = BUILT_IN_PLACE) -> PathPattern:
    """Return the pattern of a list's element.

    Raises:
        PatternError: it can match nothing (empty, `!` alone, a component that
            is empty, `.` or `..`, an open bracket, a comment), or it names a
            place of the host (a tilde or a drive letter in front).
    """
    return PathPattern(parse_glob(text), place)


def compile_target(text: str) -> PathPattern:
    """Return the pattern of a rule's path target: the same, and `!` is a PatternError too."""
    pattern = compile_pattern(text)
    if pattern.negated:
        raise PatternError(
            f"the target {quote_toml(text)} begins with !, and a rule's target is one pattern",
            "write a rule of the opposite outcome, or a backslash before the !",
        )
    return pattern


def indexed(number: int, pattern: PathPattern, comparison: Comparison) -> Indexed:
    """Return `pattern` as an index takes it."""
    is_wide = (comparison is Comparison.GUARDING) is not pattern.negated
    glob = pattern.glob
    return Indexed(number, glob, folded=is_wide, directory_only=glob.directory_only and not is_wide)


class PathList:
    """Patterns in their order, one comparison, one question: which one decides?"""

    __slots__ = ("_has_negation", "_index", "_root", "comparison", "match", "patterns")

    def __init__(self, patterns: Iterable[PathPattern], comparison: Comparison) -> None:
        self.patterns = tuple(patterns)
        self.comparison = comparison
        self._index = PathIndex(
            [indexed(number, pattern, comparison) for number, pattern in enumerate(self.patterns)]
        )
        self._has_negation = any(pattern.negated for pattern in self.patterns)
        covering = [pattern for pattern in self.patterns if pattern.glob.covers_root]
        self._root = covering[-1] if covering and not covering[-1].negated else None
        self.match = lru_cache(maxsize=CACHED_PATHS)(self.find)

    def find(self, path: str) -> MatchedPattern | None:
        """Return the pattern that decides for `path`, or None.

        `path` is workspace-relative and normal (no empty component, `.` or
        `..`); `.` is the root, which only patterns for everything match.
        `match` is the same with a bounded cache.
        """
        if path == ROOT or not path:
            return self._root
        hits = self._index.hits(path, fold(path), is_final_directory=False)
        return self._first(hits) if hits else None

    def find_down_to(self, path: str, level: int) -> MatchedPattern | None:
        """As `find`, but mere names of files count for no component deeper than `level`.

        What names a folder, by a slash anywhere in it, counts at every depth, and so does
        what names `.git`: no name of a file.
        """
        names = path.split("/")
        hits = [
            hit
            for hit in self._index.hits(path, fold(path), is_final_directory=False)
            if hit[0] <= level
            or not self.patterns[hit[1]].is_file_name
            or names[hit[0]].lower() == ".git"
        ]
        return self._first(hits)

    def find_above(self, pattern: PathPattern) -> MatchedPattern | None:
        """Return what decides for a directory that holds all that `pattern` matches, or None.

        `pattern` is taken as written; only the names in front of its first wildcard are looked
        at. What is found decides for everything below: no `!` takes out anything there.
        """
        lead, _ = split_lead(pattern.glob.segments)
        if not lead:
            return None
        return self._first(self._index.hits(lead, fold(lead), is_final_directory=True))

    def _first(self, hits: list[Hit]) -> MatchedPattern | None:
        best: dict[int, int] = {}
        for level, number in hits:
            if number > best.get(level, -1):
                best[level] = number
        # From the top down: the first level at which the last match is no
        # negation decides for everything below.
        for level in sorted(best):
            pattern = self.patterns[best[level]]
            if not pattern.negated:
                return pattern
        return None

    def permits(self, path: str) -> bool:
        """Whether `path` is matched, and the list's last word on it is no `!`.

        Threat: in `["**", "!secrets/"]` gitignore takes out the directory alone,
        and `**` matches what is below it again. A list that opens something
        must not open what its author took out.
        """
        if self.match(path) is None:
            return False
        if not self._has_negation or path == ROOT or not path:
            # The root has no name that a pattern could take out.
            return True
        hits = self._index.hits(path, fold(path), is_final_directory=False)
        return not hits or not self.patterns[max(number for _, number in hits)].negated


class Screen:
    """Many lists asked at once: which of them have a pattern that matches at all?

    Most paths are in no list, and one walk tells so for all of them.
    """

    __slots__ = ("_index", "_lists", "touching")

    def __init__(self, lists: Iterable[PathList]) -> None:
        positive = [
            (listed, pattern)
            for listed in lists
            for pattern in listed.patterns
            if not pattern.negated
        ]
        self._lists = [listed for listed, _ in positive]
        self._index = PathIndex(
            [
                indexed(number, pattern, listed.comparison)
                for number, (listed, pattern) in enumerate(positive)
            ]
        )
        self.touching = lru_cache(maxsize=CACHED_PATHS)(self._touching)

    def _touching(self, path: str) -> frozenset[PathList]:
        if path == ROOT or not path:
            return frozenset(self._lists)
        hits = self._index.hits(path, fold(path), is_final_directory=False)
        return frozenset([self._lists[number] for _, number in hits])


class PathSet:
    """Patterns that stand for themselves: all that match a path, in no order."""

    __slots__ = ("_covering", "_index")

    def __init__(self, patterns: Iterable[tuple[int, PathPattern, Comparison]]) -> None:
        listed = list(patterns)
        self._index = PathIndex([indexed(*item) for item in listed])
        self._covering = frozenset(
            number for number, pattern, _ in listed if pattern.glob.covers_root
        )

    def matching(self, path: str, is_directory: bool = False) -> frozenset[int]:
        """Return the numbers of the patterns that match `path` or a directory above it."""
        if path == ROOT or not path:
            return self._covering
        hits: list[Hit] = self._index.hits(path, fold(path), is_directory)
        return frozenset([number for _, number in hits])
