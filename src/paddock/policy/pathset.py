"""An index over many parsed path patterns: which of them match this path?

One walk over the components of a path, look-ups instead of tries: names by hash, `*.ext` and
`name*` by the hash of their fixed part, patterns under a literal directory only once that
was walked into, the rest by a run of three characters that it needs. The cost follows the
path's length, not the number of patterns.
"""

import re
from collections import Counter
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Final

from msgspec import Struct

from paddock.policy.globs import (
    DEPTH,
    RUN,
    Glob,
    Segment,
    Wild,
    fold,
    fold_segment,
    literal_of,
    parse_glob,
    regex_of,
    split_lead,
)
from paddock.policy.places import BUILT_IN_PLACE, PatternError, Place, quote_toml

Hit = tuple[int, int]
"""(level, number): the component, from 0, up to which the pattern matched; the pattern."""

Entry = tuple[int, bool]
"""(number, whether it matches directories only)."""

GRAM_LENGTH = 3


class Indexed(Struct, frozen=True):
    number: int
    glob: Glob
    folded: bool
    directory_only: bool


class LazyRegex:
    __slots__ = ("_compiled", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        self._compiled: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        if self._compiled is None:
            self._compiled = re.compile(self._source, re.DOTALL)
        return self._compiled.fullmatch(text) is not None


class GramIndex:
    __slots__ = ("_by_gram", "_loose")

    def __init__(self, items: list[tuple[Entry, tuple[Segment, ...]]]) -> None:
        grams_of = [_grams(segments) for _, segments in items]
        use = Counter(gram for grams in grams_of for gram in grams)
        self._by_gram: dict[str, list[tuple[Entry, LazyRegex]]] = {}
        self._loose: list[tuple[Entry, LazyRegex]] = []
        for (entry, segments), grams in zip(items, grams_of, strict=True):
            pair = (entry, LazyRegex(regex_of(segments)))
            if grams:
                # The rarest run tells most; ties are broken so that a build repeats.
                rarest = min(grams, key=lambda gram: (use[gram], gram))
                self._by_gram.setdefault(rarest, []).append(pair)
            else:
                self._loose.append(pair)

    def collect(self, text: str, is_directory: bool, level: int, hits: list[Hit]) -> None:
        for entry, regex in self._loose:
            if (is_directory or not entry[1]) and regex.matches(text):
                hits.append((level, entry[0]))
        if not self._by_gram:
            return
        seen: set[str] = set()
        for at in range(len(text) - GRAM_LENGTH + 1):
            gram = text[at : at + GRAM_LENGTH]
            found = self._by_gram.get(gram)
            if found is None or gram in seen:
                continue
            seen.add(gram)
            for entry, regex in found:
                if (is_directory or not entry[1]) and regex.matches(text):
                    hits.append((level, entry[0]))


class PatternIndex:
    __slots__ = ("_all", "_exact", "_prefixes", "_rest", "_suffixes")

    def __init__(self, items: list[tuple[Entry, Segment]]) -> None:
        self._all: list[Entry] = []
        self._exact: dict[str, list[Entry]] = {}
        prefixes: dict[int, dict[str, list[Entry]]] = {}
        suffixes: dict[int, dict[str, list[Entry]]] = {}
        rest: list[tuple[Entry, tuple[Segment, ...]]] = []
        for entry, segment in items:
            literal = literal_of(segment)
            if segment in (RUN, DEPTH):
                self._all.append(entry)
            elif literal is not None:
                self._exact.setdefault(literal, []).append(entry)
            elif len(segment) == 2 and segment[0] is Wild.RUN and isinstance(segment[1], str):
                by_text = suffixes.setdefault(len(segment[1]), {})
                by_text.setdefault(segment[1], []).append(entry)
            elif len(segment) == 2 and segment[1] is Wild.RUN and isinstance(segment[0], str):
                by_text = prefixes.setdefault(len(segment[0]), {})
                by_text.setdefault(segment[0], []).append(entry)
            else:
                rest.append((entry, (segment,)))
        self._prefixes = tuple(prefixes.items())
        self._suffixes = tuple(suffixes.items())
        self._rest = GramIndex(rest) if rest else None

    def collect(self, name: str, is_directory: bool, level: int, hits: list[Hit]) -> None:
        if self._all:
            _append(self._all, is_directory, level, hits)
        found = self._exact.get(name)
        if found is not None:
            _append(found, is_directory, level, hits)
        for length, table in self._suffixes:
            found = table.get(name[-length:])
            if found is not None:
                _append(found, is_directory, level, hits)
        for length, table in self._prefixes:
            found = table.get(name[:length])
            if found is not None:
                _append(found, is_directory, level, hits)
        if self._rest is not None:
            self._rest.collect(name, is_directory, level, hits)


class _Node:
    __slots__ = ("all_below", "deep", "names")

    def __init__(self, items: list[tuple[Entry, tuple[Segment, ...]]]) -> None:
        self.names = PatternIndex([(entry, rest[0]) for entry, rest in items if len(rest) == 1])
        self.all_below = [entry for entry, rest in items if rest == (DEPTH,)]
        deep = [(entry, rest) for entry, rest in items if len(rest) > 1]
        self.deep = GramIndex(deep) if deep else None


class _Side:
    __slots__ = ("_anywhere", "_at_every_level", "_nodes")

    def __init__(self, patterns: list[Indexed], *, fold: bool, at_every_level: bool) -> None:
        self._at_every_level = at_every_level
        anywhere: list[tuple[Entry, Segment]] = []
        under: dict[str, list[tuple[Entry, tuple[Segment, ...]]]] = {}
        for pattern in patterns:
            entry = (pattern.number, pattern.directory_only)
            segments = pattern.glob.segments
            if fold:
                segments = tuple(fold_segment(segment) for segment in segments)
            if pattern.glob.anywhere:
                anywhere.append((entry, segments[0]))
            else:
                lead, rest = split_lead(segments)
                under.setdefault(lead, []).append((entry, rest))
        self._anywhere = PatternIndex(anywhere) if anywhere else None
        self._nodes = {lead: _Node(items) for lead, items in under.items()}

    def collect(self, path: str, is_final_directory: bool, hits: list[Hit]) -> None:
        anywhere, nodes = self._anywhere, self._nodes
        node = nodes.get("")
        deep: list[tuple[GramIndex, int]] = []
        all_below: list[Entry] = []
        start = level = 0
        while True:
            end = path.find("/", start)
            is_final = end < 0
            name = path[start:] if is_final else path[start:end]
            is_directory = is_final_directory if is_final else True
            if anywhere is not None:
                anywhere.collect(name, is_directory, level, hits)
            if node is not None:
                node.names.collect(name, is_directory, level, hits)
                if node.deep is not None:
                    deep.append((node.deep, start))
            if all_below:
                _append(all_below, is_directory, level, hits)
            if self._at_every_level and node is not None and node.all_below:
                all_below = all_below + node.all_below
            prefix = path if is_final else path[:end]
            for patterns, offset in deep:
                patterns.collect(prefix[offset:], is_directory, level, hits)
            if is_final:
                return
            node = nodes.get(prefix) if nodes else None
            start = end + 1
            level += 1


def _side(patterns: list[Indexed], *, fold: bool, at_every_level: bool) -> _Side | None:
    return _Side(patterns, fold=fold, at_every_level=at_every_level) if patterns else None


class PathIndex:
    __slots__ = ("_folded", "_folded_as_written", "_raw", "_sees_raw_always")

    def __init__(self, patterns: list[Indexed]) -> None:
        folded = [pattern for pattern in patterns if pattern.folded]
        raw = [pattern for pattern in patterns if not pattern.folded]
        # Without `!`, what matches a directory has decided for all below it.
        at_every_level = any(pattern.glob.negated for pattern in patterns)
        self._raw = _side(raw, fold=False, at_every_level=at_every_level)
        self._folded = _side(folded, fold=True, at_every_level=at_every_level)
        # Folding can lose a match (a bracket's range, `?` for a letter that folds
        # to two, a combining mark at a wildcard's edge). What a pattern matches
        # as written, it matches here too.
        self._folded_as_written = _side(folded, fold=False, at_every_level=at_every_level)
        self._sees_raw_always = any("[" in pattern.glob.text for pattern in folded)

    def hits(self, path: str, folded_path: str, is_final_directory: bool) -> list[Hit]:
        hits: list[Hit] = []
        if self._raw is not None:
            self._raw.collect(path, is_final_directory, hits)
        if self._folded is not None:
            self._folded.collect(folded_path, is_final_directory, hits)
        if self._folded_as_written is not None and (self._sees_raw_always or not path.isascii()):
            self._folded_as_written.collect(path, is_final_directory, hits)
        return hits


def _append(entries: list[Entry], is_directory: bool, level: int, hits: list[Hit]) -> None:
    for number, directory_only in entries:
        if is_directory or not directory_only:
            hits.append((level, number))


def _grams(segments: tuple[Segment, ...]) -> set[str]:
    return {
        piece[at : at + GRAM_LENGTH]
        for segment in segments
        for piece in segment
        if isinstance(piece, str)
        for at in range(len(piece) - GRAM_LENGTH + 1)
    }


# A `PathList` is one list of a policy: later patterns win over earlier ones, `!`
# takes out again, a directory covers what is below it, and nothing below a
# directory that matched can be taken out again. Those are git's own rules.
#
# There are two ways to compare, and a list has one of them:
#
#   * `GUARDING`, for lists that forbid or ask (`protected`, `generated`,
#     `secret`, `forbidden`, deny and ask rules): without regard to case and
#     Unicode form, and a pattern with a trailing slash also matches a last
#     component of that name, since a file called `.git` is as dangerous as a
#     directory;
#   * `PERMITTING`, for lists that open something (`safe`, `warned`, `read`,
#     `write`, allow rules): exactly as written.
#
# A `!` pattern works against its list, so it is compared the other way.

CACHED_PATHS = 2048

ROOT = "."


class Comparison(Enum):
    GUARDING = "guarding"
    PERMITTING = "permitting"


class PathPattern(Struct, frozen=True):
    glob: Glob
    place: Place = BUILT_IN_PLACE

    @property
    def text(self) -> str:
        return self.glob.text

    @property
    def negated(self) -> bool:
        return self.glob.negated

    @property
    def is_file_name(self) -> bool:
        return self.glob.anywhere and not self.glob.directory_only and not self.glob.negated

    def lifting(self, path: str) -> str:
        """Return the `!` pattern that would take `path` out behind this one; empty for none."""
        if not self.is_file_name:
            return ""
        regex = re.compile(regex_of((fold_segment(self.glob.segments[0]),)), re.DOTALL)
        named = (name for name in path.split("/") if regex.fullmatch(fold(name)))
        return next((f"!{name}" for name in named), "")


MatchedPattern = PathPattern


def compile_pattern(text: str, place: Place = BUILT_IN_PLACE) -> PathPattern:
    """Compile a list's element; PatternError where it matches nothing or a place of the host."""
    return PathPattern(parse_glob(text), place)


def compile_target(text: str) -> PathPattern:
    pattern = compile_pattern(text)
    if pattern.negated:
        raise PatternError(
            f"the target {quote_toml(text)} begins with !, and a rule's target is one pattern",
            "write a rule of the opposite outcome, or a backslash before the !",
        )
    return pattern


def indexed(number: int, pattern: PathPattern, comparison: Comparison) -> Indexed:
    is_wide = (comparison is Comparison.GUARDING) is not pattern.negated
    glob = pattern.glob
    return Indexed(number, glob, folded=is_wide, directory_only=glob.directory_only and not is_wide)


class PathList:
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
        """`path` is workspace-relative and normal; `.` only patterns for everything match."""
        if path == ROOT or not path:
            return self._root
        hits = self._index.hits(path, fold(path), is_final_directory=False)
        return self._first(hits) if hits else None

    def find_down_to(self, path: str, level: int) -> MatchedPattern | None:
        """As `find`, but mere file names count no deeper than `level`, save `.git`."""
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
        """Return what decides for all below the names before the first wildcard of `pattern`."""
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
        """Return whether `path` is matched, and the list's last word on it is no `!`.

        Threat: in `["**", "!secrets/"]` gitignore takes out the directory alone, and `**` matches
        what is below it again.
        """
        if self.match(path) is None:
            return False
        if not self._has_negation or path == ROOT or not path:
            # The root has no name that a pattern could take out.
            return True
        hits = self._index.hits(path, fold(path), is_final_directory=False)
        return not hits or not self.patterns[max(number for _, number in hits)].negated


class PathScreen:
    """Many lists asked at once: most paths are in none, and one walk tells so."""

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
    __slots__ = ("_covering", "_index")

    def __init__(self, patterns: Iterable[tuple[int, PathPattern, Comparison]]) -> None:
        listed = list(patterns)
        self._index = PathIndex([indexed(*item) for item in listed])
        self._covering = frozenset(
            number for number, pattern, _ in listed if pattern.glob.covers_root
        )

    def matching(self, path: str, is_directory: bool = False) -> frozenset[int]:
        if path == ROOT or not path:
            return self._covering
        hits: list[Hit] = self._index.hits(path, fold(path), is_directory)
        return frozenset([number for _, number in hits])


# A `PathList` covers what is below a directory that it names. The directories in which
# Paddock's own files stand are the other way round: agents work below some of them, and
# none removes, replaces, moves, links over or re-modes the directory itself.

_ROOT_PATTERN: Final = PathPattern(Glob("/", False, False, True, ()))


class DirectoryList:
    __slots__ = ("_by_name", "_wild", "patterns")

    def __init__(self, patterns: Iterable[PathPattern]) -> None:
        self.patterns = tuple(patterns)
        self._by_name: dict[str, PathPattern] = {}
        self._wild: list[tuple[LazyRegex, PathPattern]] = []
        for pattern in self.patterns:
            segments = tuple(fold_segment(segment) for segment in pattern.glob.segments)
            names = [literal_of(segment) for segment in segments]
            literal = [name for name in names if name is not None]
            if len(literal) == len(names):
                self._by_name["/".join(literal)] = pattern
            else:
                self._wild.append((LazyRegex(regex_of(segments)), pattern))

    def find(self, path: str) -> PathPattern | None:
        if path in (ROOT, ""):
            return _ROOT_PATTERN
        folded = fold(path)
        found = self._by_name.get(folded)
        if found is not None:
            return found
        return next((pattern for regex, pattern in self._wild if regex.matches(folded)), None)
