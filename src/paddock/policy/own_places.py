"""Directories that are named exactly: what is below them is another matter.

A `PathList` covers what is below a directory that it names. The directories in which
Paddock's own files stand are the other way round: agents work below some of them, and
none removes, replaces, moves, links over or re-modes the directory itself.
"""

from collections.abc import Iterable
from typing import Final

from paddock.policy.globs import Glob, fold, fold_segment, literal_of, regex_of
from paddock.policy.path_index import LazyRegex
from paddock.policy.patterns import ROOT, PathPattern

_ROOT_PATTERN: Final = PathPattern(Glob("/", False, False, True, ()))


class DirectoryList:
    """Anchored patterns and the root, each for exactly what it names, whatever its case."""

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
        """Return the pattern that names `path` itself; the root is always named."""
        if path in (ROOT, ""):
            return _ROOT_PATTERN
        folded = fold(path)
        found = self._by_name.get(folded)
        if found is not None:
            return found
        return next((pattern for regex, pattern in self._wild if regex.matches(folded)), None)
