"""The path lists that stand above every profile, and the warnings below them all.

A list may have several layers: what an untrusted file adds never touches the
layer under it, so that no `!` in it can take out what stood there before. A
path is forbidden if any layer forbids it, and `safe` only if all of them say so.
"""

import re
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final

from paddock.errors import GeneratedPathError, ProtectedPathError, SecretPathError
from paddock.policy.own_places import DirectoryList
from paddock.policy.patterns import ROOT, Comparison, MatchedPattern, PathList, PathPattern, Screen
from paddock.policy.presets import (
    CLIENT_SETTINGS,
    INSTALLED_FOLDERS,
    MIXED_FOLDERS,
    above_own_files,
    built_in_paths,
    client_folders,
    own_directories,
    own_files,
    own_state,
)
from paddock.policy.problems import quote_toml
from paddock.policy.tables import PathsTable
from paddock.values.decisions import Outcome, PlaneKind, RuleMatch

Layers = tuple[PathList, ...]
_CLIENT: Final = "where a coding agent's client takes its hooks from"
_CODES: Final = {
    "protected": ProtectedPathError.code,
    "generated": GeneratedPathError.code,
    "secret": SecretPathError.code,
}
"""By the list that forbids."""
_READ: Final = frozenset(INSTALLED_FOLDERS)
_WRITTEN: Final = _READ | frozenset(MIXED_FOLDERS)
_NO_DEPENDENCY: Final = -1
_DEPENDENCIES: Final = re.compile(rf"(?:^|/)(?:{'|'.join(map(re.escape, sorted(_WRITTEN)))})/")
"""Most paths are in none, and one look tells so."""


class Writer(Enum):
    """Who changes a file: a file tool, or a command (in the sandbox or by redirection).

    Only commands may write what is `generated`, and in a folder of dependencies they meet
    none of the patterns of `protected` and `secret` that are names of files.
    """

    FILE_TOOL = "file tool"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class OwnPlaces:
    """What is Paddock's own on a plane: files, the directories that hold them, state.

    None where there are none: those of a project are all outside of it.
    """

    files: PathList
    above: DirectoryList | None
    directories: DirectoryList | None
    state: PathList | None
    folders: DirectoryList
    """In which clients look for their settings."""

    def denials(self, path: str, touched: frozenset[PathList], is_write: bool) -> list[RuleMatch]:
        """Return what stands against touching `path`, whoever asks."""
        found: list[RuleMatch] = []
        own = self.files.match(path) if is_write and self.files in touched else None
        if own is not None:
            is_client = own.text in CLIENT_SETTINGS
            what = _CLIENT if is_client else "one of Paddock's own files"
            found.append(_denial(own, path, "own", ProtectedPathError.code, what))
        if is_write and self.directories is not None:
            directory = self.directories.find(path)
            if directory is not None:
                what = "one of Paddock's own directories"
                found.append(_denial(directory, path, "own", ProtectedPathError.code, what))
        state = None if self.state is None or self.state not in touched else self.state.match(path)
        if state is not None:
            what = "Paddock's own state, which no agent reads"
            found.append(_denial(state, path, "own", SecretPathError.code, what))
        return found

    def link_denials(self, path: str) -> list[RuleMatch]:
        """Return what stands against a link at `path`, wherever it leads."""
        # The root is what every such list names, and no link can stand in its place.
        folder = None if path in (ROOT, "") else self.folders.find(path)
        if folder is None:
            return []
        return [_denial(folder, path, "own", ProtectedPathError.code, _CLIENT)]


@dataclass(frozen=True, slots=True)
class PathGuards:
    """The compiled path lists of a policy."""

    ours: OwnPlaces
    protected: Layers
    generated: Layers
    secret: Layers
    warned: Layers
    safe: Layers
    screen: Screen

    @property
    def own(self) -> PathList:
        """Paddock's own files."""
        return self.ours.files

    def denials(self, path: str, is_write: bool, writer: Writer) -> tuple[RuleMatch, ...]:
        """Return every list's say against touching `path`, the first one deciding."""
        touched = self.screen.touching(path)
        found = self.ours.denials(path, touched, is_write)
        if not touched:
            return tuple(found)
        level = _NO_DEPENDENCY
        if writer is Writer.COMMAND:
            level = _dependency_level(path, is_write)
        if is_write:
            protected = _touched(self.protected, touched)
            found += _denials(protected, path, "protected", "protected", level)
            if writer is Writer.FILE_TOOL:
                what = "written by commands alone"
                found += _denials(_touched(self.generated, touched), path, "generated", what)
        secret = tuple(
            layer for layer in _touched(self.secret, touched) if layer is not self.ours.state
        )
        found += _denials(secret, path, "secret", "secret", level)
        return tuple(found)

    def find_warning(self, path: str) -> MatchedPattern | None:
        """Return the pattern that warns of writing `path`, unless it is safe."""
        touched = self.screen.touching(path)
        pattern = _first(tuple(layer for layer in self.warned if layer in touched), path)
        return None if pattern is None or self.is_safe(path) else pattern

    def is_safe(self, path: str) -> bool:
        """Whether `safe` names `path`, in every layer."""
        return all(layer.permits(path) for layer in self.safe)

    def find_secret(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which `path` is neither read nor shown."""
        return _first(self.secret, path)

    def find_secret_for_command(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which a command cannot read `path`."""
        return _first(self.secret, path, _dependency_level(path, is_write=False))

    def is_in_dependency(self, path: str) -> bool:
        """Whether `path` lies in a folder of dependencies, where fewer names are closed."""
        return _dependency_level(path, is_write=False) >= 0

    def find_generated(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which only commands write `path`."""
        return _first(self.generated, path)

    def is_below_generated(self, path: str) -> bool:
        """Whether `path` lies in a directory that is generated: one of thousands, made again."""
        parent = path.rpartition("/")[0]
        return parent != "" and self.find_generated(parent) is not None

    def find_protected(self, path: str) -> MatchedPattern | None:
        """Return the pattern by which no agent writes `path`, own files included."""
        return self.own.match(path) or _first(self.protected, path)

    def is_above_own(self, path: str) -> bool:
        """Whether `path` is a directory in which an own file stands or could come to stand."""
        return self.ours.above is not None and self.ours.above.find(path) is not None

    def is_own_directory(self, path: str) -> bool:
        """Whether `path` is one of the plane's own directories, which stay as they are."""
        return self.ours.directories is not None and self.ours.directories.find(path) is not None


def compile_guards(
    kind: PlaneKind, tables: tuple[PathsTable, ...], planes_below: tuple[str, ...] = ()
) -> PathGuards:
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
    ours = _own_places(kind, planes_below)
    return _assemble(
        ours,
        _layer(effective.protected, Comparison.GUARDING),
        _layer(effective.generated, Comparison.GUARDING),
        # Secret to everybody who asks what is; no file's `!` or empty list takes it out.
        (() if ours.state is None else (ours.state,))
        + _layer(effective.secret, Comparison.GUARDING),
        _layer(effective.warned, Comparison.PERMITTING),
        _layer(effective.safe, Comparison.PERMITTING),
    )


def tighten(guards: PathGuards, table: PathsTable) -> PathGuards:
    """Lay an untrusted table over `guards`: more is forbidden and warned of, less is safe."""
    return _assemble(
        guards.ours,
        guards.protected + _added(table.protected, Comparison.GUARDING),
        guards.generated + _added(table.generated, Comparison.GUARDING),
        guards.secret + _added(table.secret, Comparison.GUARDING),
        guards.warned + _added(table.warned, Comparison.PERMITTING),
        guards.safe + _added(table.safe, Comparison.PERMITTING),
    )


def _own_places(kind: PlaneKind, planes_below: tuple[str, ...]) -> OwnPlaces:
    above, directories = above_own_files(kind), own_directories(kind)
    state = own_state(kind, planes_below)
    return OwnPlaces(
        PathList(own_files(kind, planes_below), Comparison.GUARDING),
        DirectoryList(above) if above else None,
        DirectoryList(directories) if directories else None,
        PathList(state, Comparison.GUARDING) if state else None,
        DirectoryList(client_folders()),
    )


def _assemble(ours: OwnPlaces, *layers: Layers) -> PathGuards:
    return PathGuards(ours, *layers, screen=Screen([ours.files, *chain.from_iterable(layers)]))


def _given(
    later: tuple[PathPattern, ...] | None, earlier: tuple[PathPattern, ...] | None
) -> tuple[PathPattern, ...] | None:
    return earlier if later is None else later


def _layer(patterns: tuple[PathPattern, ...] | None, comparison: Comparison) -> Layers:
    return (PathList(patterns or (), comparison),)


def _added(patterns: tuple[PathPattern, ...] | None, comparison: Comparison) -> Layers:
    return () if patterns is None else _layer(patterns, comparison)


def _first(layers: Layers, path: str, level: int = _NO_DEPENDENCY) -> MatchedPattern | None:
    for layer in layers:
        pattern = _match(layer, path, level)
        if pattern is not None:
            return pattern
    return None


def _dependency_level(path: str, is_write: bool) -> int:
    """Return at which component of `path` a folder of dependencies stands.

    Exactly by name: where a file system ignores case, `Node_Modules` is the project's own.
    """
    if _DEPENDENCIES.search(path) is None:
        return _NO_DEPENDENCY
    folders = _WRITTEN if is_write else _READ
    above = path.split("/")[:-1]
    return next((at for at, name in enumerate(above) if name in folders), _NO_DEPENDENCY)


def _match(layer: PathList, path: str, level: int) -> MatchedPattern | None:
    return layer.match(path) if level < 0 else layer.find_down_to(path, level)


def _touched(layers: Layers, touched: frozenset[PathList]) -> Layers:
    return tuple(layer for layer in layers if layer in touched)


def _denials(
    layers: Layers, path: str, name: str, what: str, level: int = _NO_DEPENDENCY
) -> list[RuleMatch]:
    found = (_match(layer, path, level) for layer in layers)
    code = _CODES[name]
    return [_denial(pattern, path, name, code, what) for pattern in found if pattern is not None]


def _denial(pattern: MatchedPattern, path: str, name: str, code: str, what: str) -> RuleMatch:
    place = pattern.place
    reason = f"{quote_toml(path)} is {what} ({quote_toml(pattern.text)}, {place})"
    lifting = pattern.lifting(path) if name in ("protected", "secret") else ""
    if lifting:
        reason += f"; a person lifts it by {quote_toml(lifting)} as the last of {name} in [paths]"
    return RuleMatch(
        Outcome.DENY,
        pattern.text,
        f"paths.{name}",
        place.file,
        place.line,
        reason,
        code,
    )
