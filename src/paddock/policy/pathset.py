"""Lists of path patterns and which one decides a path; the path permissions of an agent.

Lists are compiled into an index that `policy.compiled` searches.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from paddock.errors import ConfigError, ForbiddenPathError
from paddock.policy.compiled import (
    RUN,
    Hit,
    find_deciding,
    find_hits,
    fold,
    matches_name,
    permits,
)
from paddock.policy.globs import (
    DEPTH,
    Glob,
    Segment,
    fold_segment,
    literal_of,
    parse_glob,
    split_lead,
)
from paddock.policy.positions import BUILT_IN_PLACE, PatternError, Place, quote_toml
from paddock.text.json import find_lines
from paddock.values.calls import Json
from paddock.values.decisions import Action, Agent, Outcome, Permissions, RuleMatch

# A `PathList` is one list of a policy. By git's rules later patterns win over earlier ones, `!`
# excludes again, a directory covers what is below it, and nothing below a directory that
# matched can be excluded again. A list compares in one of two ways:
#
#   * `GUARDING` (`protected`, `generated`, `secret`, `forbidden`, deny and ask rules): without
#     regard to case and Unicode form, and a pattern with a trailing slash also matches a last
#     component of that name, since a file called `.git` is as dangerous as a directory;
#   * `PERMITTING` (`safe`, `warned`, `read`, `write`, allow rules): exactly as written.
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
        """Return the `!` pattern that, placed after this one, excludes `path`; "" for none."""
        if not self.is_file_name:
            return ""
        segment = fold_segment(self.glob.segments[0])
        named = (name for name in path.split("/") if matches_name(segment, fold(name)))
        return next((f"!{name}" for name in named), "")


def compile_pattern(text: str, place: Place = BUILT_IN_PLACE) -> PathPattern:
    return PathPattern(parse_glob(text), place)


def compile_target(text: str) -> PathPattern:
    pattern = compile_pattern(text)
    if pattern.negated:
        raise PatternError(
            f"the target {quote_toml(text)} begins with !, but a rule's target is one pattern",
            "write a rule of the opposite outcome, or a backslash before the !",
        )
    return pattern


def build_index(patterns: Iterable[tuple[int, PathPattern, Comparison]]) -> Json:
    raw: Json = {}
    folded: Json = {}
    covering: list[int] = []
    for number, pattern, comparison in patterns:
        glob = pattern.glob
        is_wide = (comparison is Comparison.GUARDING) is not pattern.negated
        directory_only = glob.directory_only and not is_wide
        _enter(raw, glob, (number, directory_only))
        if is_wide:
            segments = tuple(map(fold_segment, glob.segments))
            _enter(folded, replace(glob, segments=segments), (number, directory_only))
        if glob.covers_root:
            covering.append(number)
    return raw, folded, covering


def has_class(glob: Glob) -> bool:
    return any(isinstance(piece, tuple) for segment in glob.segments for piece in segment)


def _enter(side: Json, glob: Glob, entry: tuple[int, bool]) -> None:
    lead, rest = (None, glob.segments) if glob.anywhere else split_lead(glob.segments)
    names, deep = side.setdefault(lead, ({}, []))
    if lead is not None and (len(rest) > 1 or rest == (DEPTH,)):
        deep.append((*entry, code_path(rest)))
        return
    segment = glob.segments[-1]
    literal, first, last = literal_of(segment), segment[0], segment[-1]
    front = first if isinstance(first, str) else ""
    end = last if literal is None and isinstance(last, str) else ""
    table = names.setdefault((len(front) if literal is None else None, len(end)), {})
    table.setdefault((front, end), []).append((*entry, segment))


def code_path(segments: Sequence[Segment]) -> Json:
    coded = [RUN if segment == DEPTH else segment for segment in segments]
    # `a/**` matches what is below `a`, not `a` itself.
    return (*coded, (RUN,)) if segments[-1:] == (DEPTH,) else tuple(coded)


_ROOT_PATTERN: Final = PathPattern(Glob("/", False, False, True, ()))


class PathList:
    def __init__(self, patterns: Iterable[PathPattern], comparison: Comparison) -> None:
        self.patterns = tuple(patterns)
        self.comparison = comparison

    @cached_property
    def _index(self) -> Json:
        return build_index((*each, self.comparison) for each in enumerate(self.patterns))

    @cached_property
    def _negated(self) -> tuple[bool, ...]:
        return tuple(pattern.negated for pattern in self.patterns)

    def find(self, path: str) -> PathPattern | None:
        """`path` is workspace-relative and normal; only patterns for everything match `.`."""
        return self._deciding(find_hits(self._index, path))

    def find_above(self, pattern: PathPattern) -> PathPattern | None:
        lead, _ = split_lead(pattern.glob.segments)
        return self._deciding(find_hits(self._index, lead, is_directory=True)) if lead else None

    def find_itself(self, path: str) -> PathPattern | None:
        """Find the pattern that names `path` itself, not a parent; every non-empty list names `.`.

        Agents may work below some of the directories that hold Paddock's own files, but may not
        remove, replace, move, link over or change the mode of the directory itself.
        """
        if path in (ROOT, ""):
            return _ROOT_PATTERN if self.patterns else None
        last = path.count("/")
        numbers = [number for level, number in find_hits(self._index, path) if level == last]
        return self.patterns[min(numbers)] if numbers else None

    def permits(self, path: str) -> bool:
        return permits(find_hits(self._index, path), self._negated)

    def _deciding(self, hits: list[Hit]) -> PathPattern | None:
        number = find_deciding(hits, self._negated)
        return None if number < 0 else self.patterns[number]


def compile_lists(lists: Sequence[tuple[str, PathList]]) -> Json:
    owned = [(owner, each) for owner, (_, listed) in enumerate(lists) for each in listed.patterns]
    return (
        build_index(
            (number, pattern, lists[owner][1].comparison)
            for number, (owner, pattern) in enumerate(owned)
        ),
        tuple(pattern.negated for _, pattern in owned),
        tuple(owner for owner, _ in owned),
        tuple(kind for kind, _ in lists),
        tuple(pattern.is_file_name for _, pattern in owned),
        tuple((each.text, each.place.file, each.place.line) for _, each in owned),
    )


def comparison_of(outcome: Outcome) -> Comparison:
    return Comparison.PERMITTING if outcome is Outcome.ALLOW else Comparison.GUARDING


# `forbidden` closes contents, not names: it refuses reading and searching contents, but not
# a listing or a search by name. A search of a directory needs `read` to permit anything
# below it; each file that is found is judged separately.

NAMES_ONLY = frozenset({("search", "find"), ("search", "ls")})

_EVERYTHING = Permissions()


class AgentPermissions(Struct, frozen=True):
    agent: Agent
    read: PathList | None
    write: PathList | None
    forbidden: PathList | None

    def denials(self, action: Action) -> tuple[RuleMatch, ...]:
        path = action.target or "."
        found: list[RuleMatch] = []
        if self.forbidden is not None and (action.category, action.operation) not in NAMES_ONLY:
            pattern = self.forbidden.find(path)
            if pattern is not None:
                reason = f"path matches forbidden pattern: {pattern.text}"
                line = _line_of(self.agent.declaration, "forbidden", pattern.text)
                found.append(self._denial("forbidden", pattern.text, line, reason))
        if action.is_write:
            if self.write is not None and not self.write.permits(path):
                found.append(self._outside("write", self.write, path))
        elif self.read is not None and not self.read.permits(path):
            # A search needs only something below that may be read.
            below = self.read.patterns if action.category == "search" else ()
            if not any(_reaches_below(pattern, path) for pattern in below):
                found.append(self._outside("read", self.read, path))
        return tuple(found)

    def _outside(self, name: str, listed: PathList, path: str) -> RuleMatch:
        texts = ", ".join(quote_toml(pattern.text) for pattern in listed.patterns)
        reason = f"{quote_toml(path)} is outside the paths that this agent may {name}: [{texts}]"
        line = _line_of(self.agent.declaration, name, None)
        return self._denial(name, f"[{texts}]", line, reason)

    def _denial(self, name: str, text: str, line: int, reason: str) -> RuleMatch:
        source = f"agents.{self.agent.name}.permissions.{name}"
        file = self.agent.source
        return RuleMatch(Outcome.DENY, text, source, file, line, reason, ForbiddenPathError.code)


class _Declaration(Struct):
    permissions: Permissions = _EVERYTHING


@lru_cache(maxsize=256)
def _line_of(declaration: bytes, name: str, text: str | None) -> int:
    """Return 0 where the list is not found: it was loaded already, so only the line is missing."""
    try:
        listed: tuple[str, ...] = getattr(decode(declaration, type=_Declaration).permissions, name)
        key = ("permissions", name) if text is None else ("permissions", name, listed.index(text))
    except (DecodeError, ValueError):
        return 0
    return find_lines(declaration.decode()).get(key, 0)


@lru_cache(maxsize=256)
def compile_permissions(agent: Agent) -> AgentPermissions:
    """Compile an agent's lists; ConfigError with its file if a pattern can match nothing."""
    guarding = Comparison.GUARDING
    return AgentPermissions(
        agent, _list(agent, "read"), _list(agent, "write"), _list(agent, "forbidden", guarding)
    )


def _list(
    agent: Agent, name: str, comparison: Comparison = Comparison.PERMITTING
) -> PathList | None:
    texts = getattr(agent.permissions, name)
    is_default = texts == getattr(_EVERYTHING, name)
    return None if is_default else PathList(_patterns(agent, name, texts), comparison)


def _patterns(agent: Agent, name: str, texts: tuple[str, ...]) -> list[PathPattern]:
    try:
        return [compile_pattern(text, Place(agent.source, 0)) for text in texts]
    except PatternError as problem:
        message = f"permissions.{name} of the agent {quote_toml(agent.name)}: {problem.message}"
        raise ConfigError(message, where=agent.source, hint=problem.hint) from problem


def _reaches_below(pattern: PathPattern, path: str) -> bool:
    if pattern.negated or pattern.glob.anywhere or path == ".":
        return not pattern.negated
    segments = pattern.glob.segments
    names = path.split("/")
    for segment, name in zip(segments, names, strict=False):
        if segment == DEPTH:
            return True
        if not matches_name(segment, name):
            return False
    # Equal lengths count: `src/` names the directory itself, and permits what is in it.
    return len(names) <= len(segments)
