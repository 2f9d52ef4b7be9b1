"""An index over many parsed path patterns: which of them match this path?

One walk over the components of a path; at each of them, look-ups instead of
tries: names by hash, `*.ext` and `name*` by the hash of their fixed part,
patterns under a literal directory only once that directory was walked into, and
what is left by a run of three characters that it needs. A regular expression is
compiled and tried only for a pattern whose run occurs.

Shape and aim: the cost follows the path's length, not the number of patterns.
"""

import re
from collections import Counter
from dataclasses import dataclass

from paddock.policy.globs import (
    DEPTH,
    RUN,
    Glob,
    Segment,
    Wild,
    fold_segment,
    literal_of,
    regex_of,
    split_lead,
)

Hit = tuple[int, int]
"""(level, number): the component, from 0, up to which the pattern matched; the pattern."""

Entry = tuple[int, bool]
"""(number, whether it matches directories only)."""

GRAM_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Indexed:
    """A pattern with its number, and whether it is compared folded."""

    number: int
    glob: Glob
    folded: bool
    directory_only: bool


class LazyRegex:
    """A regular expression that is compiled when first needed."""

    __slots__ = ("_compiled", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        self._compiled: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        """Whether it matches the whole of `text`."""
        if self._compiled is None:
            self._compiled = re.compile(self._source, re.DOTALL)
        return self._compiled.fullmatch(text) is not None


class GramIndex:
    """Expressions by a run of characters that every match contains."""

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
        """Append a hit for each expression that matches the whole of `text`."""
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


class NameIndex:
    """Patterns of one component."""

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
        """Append a hit for each pattern that matches the component `name`."""
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
    """Patterns whose literal beginning is one directory, by what follows there."""

    __slots__ = ("all_below", "deep", "names")

    def __init__(self, items: list[tuple[Entry, tuple[Segment, ...]]]) -> None:
        self.names = NameIndex([(entry, rest[0]) for entry, rest in items if len(rest) == 1])
        self.all_below = [entry for entry, rest in items if rest == (DEPTH,)]
        deep = [(entry, rest) for entry, rest in items if len(rest) > 1]
        self.deep = GramIndex(deep) if deep else None


class _Side:
    """Patterns that are all compared with one form of the path: raw or folded."""

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
        self._anywhere = NameIndex(anywhere) if anywhere else None
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
    """Patterns to be found by a path, raw ones and folded ones side by side."""

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
        """Return every match of every pattern, at each level; in no order, maybe twice."""
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
