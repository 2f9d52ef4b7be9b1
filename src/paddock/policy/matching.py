"""How a rule compares, and what agents may by themselves."""

from functools import lru_cache
from typing import cast

from msgspec import Struct

from paddock.errors import ConfigError, ForbiddenPathError
from paddock.policy.compiled import matches_name
from paddock.policy.globs import DEPTH
from paddock.policy.pathset import (
    Comparison,
    PathList,
    PathPattern,
    code_segment,
    compile_pattern,
)
from paddock.policy.places import PatternError, Place, parse_document, quote_toml
from paddock.values.calls import Json
from paddock.values.decisions import Action, Agent, Outcome, Permissions, RuleMatch


def comparison_of(outcome: Outcome) -> Comparison:
    return Comparison.PERMITTING if outcome is Outcome.ALLOW else Comparison.GUARDING


def names_directory(action: Action) -> bool:
    """What is searched mostly is one; a file read under `docs/` is no more than the rule named."""
    return action.category == "search"


# `forbidden` closes contents, not names: a listing or a search by name is not
# refused by it, reading and searching contents is. Where a directory is searched,
# `read` is asked whether it permits anything below; what is found is judged file
# by file.

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
            pattern = self.forbidden.match(path)
            if pattern is not None:
                reason = f"path matches forbidden pattern: {pattern.text}"
                line = _line_of(self.agent.declaration, "forbidden", pattern.text)
                found.append(self._denial("forbidden", pattern.text, line, reason))
        if action.is_write:
            if self.write is not None and not self.write.permits(path):
                found.append(self._outside("write", self.write, path))
        elif self.read is not None and not _permits(self.read, action, path):
            found.append(self._outside("read", self.read, path))
        return tuple(found)

    def _outside(self, name: str, listed: PathList, path: str) -> RuleMatch:
        texts = ", ".join(quote_toml(pattern.text) for pattern in listed.patterns)
        reason = f"{quote_toml(path)} is not among what this agent may {name}: [{texts}]"
        line = _line_of(self.agent.declaration, name, None)
        return self._denial(name, f"[{texts}]", line, reason)

    def _denial(self, name: str, text: str, line: int, reason: str) -> RuleMatch:
        source = f"agents.{self.agent.name}.permissions.{name}"
        file = self.agent.source
        return RuleMatch(Outcome.DENY, text, source, file, line, reason, ForbiddenPathError.code)


@lru_cache(maxsize=256)
def _line_of(declaration: bytes, name: str, text: str | None) -> int:
    if not declaration:
        return 0
    try:
        document = parse_document(".json", declaration)
    except ConfigError:
        # It has loaded, by the rules of its own kind of file; a line is all that is missing.
        return 0
    lists = document.values.get("permissions")
    listed = cast("dict[str, Json]", lists).get(name) if isinstance(lists, dict) else None
    texts = cast("list[Json]", listed) if isinstance(listed, list) else None
    if texts is None or (text is not None and text not in texts):
        return 0
    key = ("permissions", name)
    return document.line(key if text is None else (*key, texts.index(text)))


@lru_cache(maxsize=256)
def compile_permissions(agent: Agent) -> AgentPermissions:
    """Compile an agent's lists.

    Raises:
        ConfigError: a pattern can match nothing; `where` is the agent's file.
    """
    lists = agent.permissions
    return AgentPermissions(
        agent,
        None if lists.read == _EVERYTHING.read else _permitting(agent, "read", lists.read),
        None if lists.write == _EVERYTHING.write else _permitting(agent, "write", lists.write),
        PathList(_patterns(agent, "forbidden", lists.forbidden), Comparison.GUARDING)
        if lists.forbidden
        else None,
    )


def _permitting(agent: Agent, name: str, texts: tuple[str, ...]) -> PathList:
    return PathList(_patterns(agent, name, texts), Comparison.PERMITTING)


def _patterns(agent: Agent, name: str, texts: tuple[str, ...]) -> list[PathPattern]:
    try:
        return [compile_pattern(text, Place(agent.source, 0)) for text in texts]
    except PatternError as problem:
        message = f"permissions.{name} of the agent {quote_toml(agent.name)}: {problem.message}"
        raise ConfigError(message, where=agent.source, hint=problem.hint) from problem


def _permits(listed: PathList, action: Action, path: str) -> bool:
    if listed.permits(path):
        return True
    if action.category != "search":
        return False
    return any(_reaches_below(pattern, path) for pattern in listed.patterns)


def _reaches_below(pattern: PathPattern, path: str) -> bool:
    if pattern.negated:
        return False
    if pattern.glob.anywhere or path == ".":
        return True
    segments = pattern.glob.segments
    names = path.split("/")
    for segment, name in zip(segments, names, strict=False):
        if segment == DEPTH:
            return True
        if not matches_name(code_segment(segment), name):
            return False
    # As long as the pattern: `src/` names the directory itself, and permits what is in it.
    return len(names) <= len(segments)
