"""Near misses: rules that an author may have meant for an action, and why they are not."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final

from paddock.policy.actions import ActionPattern, NamePattern
from paddock.policy.globs import DEPTH
from paddock.policy.lines import judge_line
from paddock.policy.matching import comparison_of, names_directory, rule_matches
from paddock.policy.patterns import Comparison, PathPattern, PathSet
from paddock.policy.profiles import CompiledProfile
from paddock.policy.rules import Rule
from paddock.values.decisions import Action, RuleMatch

SHOWN_MAX: Final = 5
SIMILAR: Final = 0.6
NO_TELLING: Final = 0.75
"""As near as texts come that are only similar: whether that rule was meant is a guess."""
COMPARED_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A rule that does not match, and what keeps it from matching."""

    rule: RuleMatch
    why: str
    nearness: float
    """0 to 1; above `NO_TELLING` it is told, not guessed, what keeps the rule from matching."""


def near_misses(
    profiles: Iterable[CompiledProfile], action: Action
) -> tuple[tuple[NearMiss, ...], int]:
    """Return the nearest misses, best first, and how many more there are.

    Limits: `SHOWN_MAX`.
    """
    found: dict[RuleMatch, tuple[float, str]] = {}
    for profile in profiles:
        for rule in profile.rules:
            miss = _miss(rule, action)
            if miss is not None:
                found[rule.shown] = miss
    ordered = sorted(found.items(), key=lambda item: -item[1][0])
    shown = tuple(NearMiss(rule, why, nearness) for rule, (nearness, why) in ordered[:SHOWN_MAX])
    return shown, len(ordered) - len(shown)


def _miss(rule: Rule, action: Action) -> tuple[float, str] | None:
    """Return how near the rule is, 0 to 1, and why it does not match; None for no near miss."""
    pattern = rule.pattern
    if rule_matches(rule, action) or not pattern.has_target:
        return None
    if pattern.head.category not in ("*", action.category):
        return None
    if not pattern.head.matches(action.category, action.operation):
        other = replace(pattern.head, operation="*")
        if rule_matches(replace(rule, pattern=replace(pattern, head=other)), action):
            return 0.9, f"it is for {pattern.head.text}, not for {action.head}"
        return None
    if pattern.path is not None:
        return _path_miss(rule, pattern.path, action)
    if rule.command is not None:
        return _command_miss(rule, action)
    return _name_miss(pattern, action)


def _path_miss(rule: Rule, path: PathPattern, action: Action) -> tuple[float, str] | None:
    target, comparison = action.target or ".", comparison_of(rule.outcome)
    is_directory = names_directory(action)
    if _matches(path, Comparison.GUARDING, target, is_directory):
        if path.glob.directory_only:
            return 0.95, "its trailing slash wants a directory"
        return 0.95, "letter case or Unicode form differs, and an allow compares exactly"
    if _matches(path, comparison, f"{target}/x", is_directory=True):
        return 0.9, "it matches what is below, not the directory itself"
    if not path.glob.anywhere:
        unanchored = replace(path.glob, segments=(DEPTH, *path.glob.segments))
        if _matches(replace(path, glob=unanchored), comparison, target, is_directory):
            return 0.85, "it is anchored at the workspace root"
    if NamePattern(path.text.replace("**", "*").lstrip("/")).matches(target):
        return 0.8, "its * does not cross a slash"
    near = _similarity(path.text, target)
    return (near, "the path differs") if near >= SIMILAR else None


def _command_miss(rule: Rule, action: Action) -> tuple[float, str] | None:
    from paddock.policy.commands.pattern import WORDS_DIFFER  # noqa: PLC0415 - late on purpose

    commands = [command for command in judge_line(action).commands if command is not None]
    for command in commands:
        if rule.command is None or not rule.command.matches_any_reading(command):
            continue
        if rule.command.matches_exactly(command):
            return 0.9, "an allow has to match every command of the line"
        doubt = rule.command.find_obstacle(command)
        if doubt == WORDS_DIFFER:
            doubt = (*command.obstacles, "the words of the rule are only one reading of it")[0]
        return 0.95, f"an allow matches only the exact command: {doubt}"
    first = rule.pattern.target.split(" ")[0]
    if any(command.words and command.words[0].text == first for command in commands):
        return 0.7, "the words behind the program differ"
    near = _similarity(rule.pattern.target, action.target)
    return (near, "the words differ") if near >= SIMILAR else None


def _name_miss(pattern: ActionPattern, action: Action) -> tuple[float, str] | None:
    if pattern.name is not None and pattern.name.matches_widely(action.target):
        return 0.95, "letter case differs, and an allow compares exactly"
    near = _similarity(pattern.target, action.target)
    return (near, "the name differs") if near >= SIMILAR else None


def _matches(path: PathPattern, comparison: Comparison, target: str, is_directory: bool) -> bool:
    return bool(PathSet([(0, path, comparison)]).matching(target, is_directory))


def _similarity(one: str, other: str) -> float:
    # The matcher's time is quadratic; what people mistype is short.
    ratio = SequenceMatcher(None, one[:COMPARED_CHARS_MAX], other[:COMPARED_CHARS_MAX]).ratio()
    return min(ratio, NO_TELLING)
