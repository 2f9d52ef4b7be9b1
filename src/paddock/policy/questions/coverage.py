"""Find whether one pattern of a policy leaves another one nothing to decide.

Decided on samples: the covered pattern with its wildcards filled in. A pattern that matches
all of them matches by its own wildcards. Brackets take some and leave others: a pattern that
has them is never said to cover another one.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.policy.actions import ActionPattern
from paddock.policy.compiled import find_hits
from paddock.policy.engine import Layers, PathGuards, assemble
from paddock.policy.globs import CharClass, Segment, Wild
from paddock.policy.load import PathsTable
from paddock.policy.pathset import (
    ROOT,
    Comparison,
    PathList,
    PathPattern,
    build_index,
    compile_pattern,
    has_class,
)
from paddock.policy.places import PatternError
from paddock.policy.questions.sampling import common_row, path_parts
from paddock.policy.rules import Rule
from paddock.values.decisions import WRITING_OPERATIONS, Outcome

FILL: Final = "\x01\x02"
"""A text that no pattern of a policy holds."""
_FILLS: Final = ("", FILL[0], FILL, FILL * 2)
"""What a star is filled with. Nothing and one character first: `??*` takes neither."""

GUARDING_LISTS: Final = ("protected", "generated", "secret")


class IdleException(Struct, frozen=True):
    name: str
    pattern: PathPattern
    above: PathPattern
    instead: str
    """What to write for `above`; empty where no one pattern does."""


def covering_rules(rules: tuple[Rule, ...]) -> Iterator[tuple[Rule, Rule]]:
    index = build_index(
        (number, rule.pattern.path, Comparison.GUARDING)
        for number, rule in enumerate(rules)
        if rule.pattern.path is not None and not has_class(rule.pattern.path.glob)
    )
    first: dict[str, int] = {}
    others = [n for n, rule in enumerate(rules) if rule.pattern.path is None]
    for number, rule in enumerate(rules):
        candidates = list(others)
        if rule.pattern.path is not None:
            samples = _samples(rule.pattern.path)
            found = ({number for _, number in find_hits(index, sample)} for sample in samples)
            candidates += sorted(set[int].intersection(*found))
        candidates.append(first.setdefault(rule.pattern.text, number))
        for candidate in candidates:
            other = rules[candidate]
            if candidate != number and _is_stronger(other, rule, candidate < number):
                yield rule, other
                break


def idle_exceptions(paths: PathsTable) -> Iterator[IdleException]:
    for name in GUARDING_LISTS:
        patterns: tuple[PathPattern, ...] = getattr(paths, name) or ()
        listed = PathList(patterns, Comparison.GUARDING)
        for pattern in patterns:
            above = listed.find_above(pattern) if pattern.negated else None
            if above is not None:
                yield IdleException(name, pattern, above, _instead(patterns, pattern, above))


def _instead(patterns: tuple[PathPattern, ...], pattern: PathPattern, above: PathPattern) -> str:
    # With a slash in it a pattern begins at the root.
    text = f"{'**/' if above.glob.anywhere else ''}{above.text.rstrip('/')}/**"
    try:
        wide = compile_pattern(text)
    except PatternError:
        return ""
    changed = (wide if each == above else each for each in patterns)
    listed = PathList(changed, Comparison.GUARDING)
    is_open = all(listed.find(sample) is None for sample in path_samples(pattern))
    return text if is_open and not above.text.endswith(" ") else ""


def is_swallowed(guards: PathGuards, rule: Rule) -> PathPattern | None:
    path = rule.pattern.path
    if path is None:
        return None
    closed = (_whole(getattr(guards, name), path) for name in GUARDING_LISTS)
    whole = assemble(guards.ours, *closed, guards.warned, guards.safe)
    found = [_swallowing(whole, rule.pattern, sample) for sample in _samples(path)]
    first = found[0]
    return first if first is not None and all(each is not None for each in found) else None


def _whole(layers: Layers, path: PathPattern) -> Layers:
    parts = path_parts(path.glob)
    return tuple(
        layer
        for layer in layers
        if not any(
            pattern.negated and common_row(parts, path_parts(pattern.glob)) is not None
            for pattern in layer.patterns
        )
    )


def _without_brackets(pattern: PathPattern) -> PathPattern:
    segments = tuple(
        tuple(Wild.ONE if isinstance(piece, CharClass) else piece for piece in segment)
        for segment in pattern.glob.segments
    )
    return replace(pattern, glob=replace(pattern.glob, segments=segments))


def _samples(pattern: PathPattern) -> tuple[str, ...]:
    root = (ROOT,) if pattern.glob.covers_root else ()
    return path_samples(_without_brackets(pattern)) + root


def path_samples(pattern: PathPattern) -> tuple[str, ...]:
    glob = pattern.glob
    found: list[str] = []
    for fill, depth in product(_FILLS, (0, 1, 2)):
        # No component is empty: where a star is all of it, it takes a character.
        name = fill or FILL[0]
        parts: list[str] = []
        for segment in glob.segments:
            if segment == (Wild.DEPTH,):
                parts += [name] * depth
            else:
                parts.append(_filled(segment, fill) or name)
        if glob.segments[-1] == (Wild.DEPTH,) and depth == 0:
            parts.append(name)
        if glob.anywhere:
            parts = [name] * depth + parts
        found.append("/".join(parts))
    return tuple(dict.fromkeys(found))


def _filled(segment: Segment, fill: str) -> str:
    out = ""
    for piece in segment:
        if isinstance(piece, str):
            out += piece
        elif isinstance(piece, CharClass):
            out += piece.ranges[0][0] if piece.ranges and not piece.negated else FILL[0]
        else:
            out += FILL[0] if piece is Wild.ONE else fill
    return out


def _swallowing(guards: PathGuards, pattern: ActionPattern, path: str) -> PathPattern | None:
    secret = guards.find_secret(path)
    if secret is not None:
        return None if has_class(secret.glob) else secret
    head = pattern.head
    # A rule that also reads still decides something on a protected path.
    if (head.category, head.operation) not in WRITING_OPERATIONS:
        return None
    found = guards.find_protected(path) or guards.find_generated(path)
    return None if found is None or has_class(found.glob) else found


def _is_stronger(other: Rule, rule: Rule, is_earlier: bool) -> bool:
    if other.outcome < rule.outcome or not _covers_head(other.pattern, rule.pattern):
        return False
    if other.outcome is rule.outcome:
        # Twins: of two rules that say the same, only the later one is superfluous.
        is_twin = other.pattern.text == rule.pattern.text and other.network == rule.network
        return is_twin and is_earlier
    # What a rule says of the network holds although a stricter one decides.
    return rule.network is None and _covers_target(other, rule)


def _covers_head(wide: ActionPattern, narrow: ActionPattern) -> bool:
    return wide.head.category in ("*", narrow.head.category) and wide.head.operation in (
        "*",
        narrow.head.operation,
    )


def _covers_target(other: Rule, rule: Rule) -> bool:
    if not other.pattern.has_target:
        return True
    if other.pattern.path is not None:
        # The index has said that it matches every sample of `rule`.
        return rule.pattern.path is not None
    if other.pattern.name is not None and rule.pattern.name is not None:
        return all(
            other.pattern.name.matches_widely(rule.pattern.target.replace("*", fill))
            for fill in ("", FILL)
        )
    return other.command is not None and _covers_command(other, rule)


def _covers_command(other: Rule, rule: Rule) -> bool:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if other.command is None or other.command.is_any:
        return other.command is not None
    if rule.command is None or rule.command.is_any:
        return False
    target = rule.pattern.target
    bare = target.removesuffix(" *")
    samples = [bare.replace("*", "qqq"), target.replace("*", "qqq"), target.replace("*", "qqq qq")]
    for sample in samples:
        commands = parse_line(sample).commands
        # Where `confine` is only one reading, the other rule decides whether it holds.
        is_confined = other.outcome is Outcome.CONFINE
        pattern = other.command
        matches = pattern.matches_exactly if is_confined else pattern.matches_any_reading
        if not commands or not all(map(matches, commands)):
            return False
    return True
