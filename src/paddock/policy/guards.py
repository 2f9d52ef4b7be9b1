"""The path lists that stand above every profile, and the warnings below them all.

A list may have several layers: what an untrusted file adds never touches the
layer under it, so that no `!` in it can take out what stood there before. A
path is forbidden if any layer forbids it, and `safe` only if all of them say so.
"""

from dataclasses import dataclass, replace
from enum import Enum

from paddock.policy.patterns import Comparison, MatchedPattern, PathList, PathPattern
from paddock.policy.presets import PlaneKind, built_in_paths, own_files
from paddock.policy.problems import quote
from paddock.policy.tables import PathsTable
from paddock.values.decisions import Outcome, RuleMatch

Layers = tuple[PathList, ...]


class Writer(Enum):
    """Who changes a file: a file tool, or a command (in the sandbox or by redirection).

    Only commands may write what is `generated`.
    """

    FILE_TOOL = "file tool"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class PathGuards:
    """The compiled path lists of a policy."""

    own: PathList
    protected: Layers
    generated: Layers
    secret: Layers
    warned: Layers
    safe: Layers

    def denials(self, path: str, is_write: bool, writer: Writer) -> tuple[RuleMatch, ...]:
        """Return every list's say against touching `path`, the first one deciding."""
        found: list[RuleMatch] = []
        if is_write:
            own = self.own.match(path)
            if own is not None:
                found.append(_denial(own, path, "own", "one of Paddock's own files", "protected"))
            found.extend(_denials(self.protected, path, "protected", "protected"))
            if writer is Writer.FILE_TOOL:
                found.extend(_denials(self.generated, path, "generated", "written by commands"))
        found.extend(_denials(self.secret, path, "secret", "secret"))
        return tuple(found)

    def find_warning(self, path: str) -> MatchedPattern | None:
        """Return the pattern that warns of writing `path`, unless it is safe."""
        for layer in self.warned:
            pattern = layer.match(path)
            if pattern is not None:
                return None if self.is_safe(path) else pattern
        return None

    def is_safe(self, path: str) -> bool:
        """Whether `safe` names `path`, in every layer."""
        return all(layer.permits(path) for layer in self.safe)

    def find_secret(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which `path` is neither read nor shown."""
        return _first(self.secret, path)

    def find_generated(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which only commands write `path`."""
        return _first(self.generated, path)

    def find_protected(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which no agent writes `path`, own files included."""
        return self.own.match(path) or _first(self.protected, path)


def compile_guards(kind: PlaneKind, tables: tuple[PathsTable, ...]) -> PathGuards:
    """Compile the lists; a list that a later table gives replaces the earlier whole."""
    effective = built_in_paths()
    for table in tables:
        effective = PathsTable(
            protected=_given(table.protected, effective.protected),
            generated=_given(table.generated, effective.generated),
            warned=_given(table.warned, effective.warned),
            safe=_given(table.safe, effective.safe),
            secret=_given(table.secret, effective.secret),
        )
    return PathGuards(
        own=PathList(own_files(kind), Comparison.GUARDING),
        protected=_layer(effective.protected, Comparison.GUARDING),
        generated=_layer(effective.generated, Comparison.GUARDING),
        secret=_layer(effective.secret, Comparison.GUARDING),
        warned=_layer(effective.warned, Comparison.PERMITTING),
        safe=_layer(effective.safe, Comparison.PERMITTING),
    )


def tighten(guards: PathGuards, table: PathsTable) -> PathGuards:
    """Lay an untrusted table over `guards`: more is forbidden and warned of, less is safe."""
    return replace(
        guards,
        protected=guards.protected + _added(table.protected, Comparison.GUARDING),
        generated=guards.generated + _added(table.generated, Comparison.GUARDING),
        secret=guards.secret + _added(table.secret, Comparison.GUARDING),
        warned=guards.warned + _added(table.warned, Comparison.PERMITTING),
        safe=guards.safe + _added(table.safe, Comparison.PERMITTING),
    )


def _given(
    later: tuple[PathPattern, ...] | None, earlier: tuple[PathPattern, ...] | None
) -> tuple[PathPattern, ...] | None:
    return earlier if later is None else later


def _layer(patterns: tuple[PathPattern, ...] | None, comparison: Comparison) -> Layers:
    return (PathList(patterns or (), comparison),)


def _added(patterns: tuple[PathPattern, ...] | None, comparison: Comparison) -> Layers:
    return () if patterns is None else _layer(patterns, comparison)


def _first(layers: Layers, path: str) -> MatchedPattern | None:
    for layer in layers:
        pattern = layer.match(path)
        if pattern is not None:
            return pattern
    return None


def _denials(layers: Layers, path: str, name: str, what: str) -> list[RuleMatch]:
    found = (layer.match(path) for layer in layers)
    return [_denial(pattern, path, name, what, name) for pattern in found if pattern is not None]


def _denial(pattern: MatchedPattern, path: str, name: str, what: str, code: str) -> RuleMatch:
    place = pattern.place
    reason = f"{quote(path)} is {what} ({quote(pattern.text)}, {place})"
    if name == "generated":
        reason = f"{quote(path)} is written by commands alone ({quote(pattern.text)}, {place})"
    return RuleMatch(
        Outcome.DENY,
        pattern.text,
        f"paths.{name}",
        place.file,
        place.line,
        reason,
        f"policy.{code}",
    )
