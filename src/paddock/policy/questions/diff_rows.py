"""The rows of `policy diff` as text: what is the same for several profiles is said once.

A row is made of calls that are answered alike, for the same agents, and for the same new
thing; so whatever a row says of its calls holds for each of them, and for each agent.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from paddock.policy.places import BUILT_IN
from paddock.policy.questions.differences import UNTRUSTED, Differences, Item
from paddock.policy.questions.replay import KINDS
from paddock.values.decisions import Action, Decision, Outcome, RuleMatch

CALLS_MAX: Final = 4
"""Calls that a row names; it counts the others."""
RULES_MAX: Final = 20
"""Rules that a row names on each side; it counts the others."""
_NO_RULE: Final = "no rule; unknown is no"

RuleKey = tuple[str, str, str]
"""Profile (empty for a path list), text, and what it says: as `Item.key`, network aside."""
Rules = dict[RuleKey | None, RuleMatch | None]
"""Rules that decide, by their keys; None for no rule."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is answered differently, with some of the agents for whom it is."""

    action: Action
    agents: tuple[str, ...]
    old: Decision
    new: Decision

    @property
    def said(self) -> tuple[str, str]:
        """Both answers in words; a warning is named where only one of them has it."""
        old, new = self.old, self.new
        if bool(old.warnings) == bool(new.warnings):
            return old.outcome.word, new.outcome.word
        return _with_warning(old), _with_warning(new)


@dataclass(frozen=True, slots=True)
class _Side:
    rules: tuple[RuleMatch | None, ...]
    changed: tuple[RuleMatch, ...]

    def render(self) -> str:
        """Name what changed; else one rule, for the others only say the same elsewhere."""
        named = (self.changed or self.rules[:1])[:RULES_MAX]
        parts: list[str] = []
        for where, rules in groupby(named, key=_where):
            texts = ", ".join("" if rule is None else rule.text for rule in rules)
            parts.append(f"{texts} ({where})" if where else _NO_RULE)
        return "; ".join(parts) + _and_more(len(self.rules) - len(named), "other rule")


@dataclass(frozen=True, slots=True)
class Row:
    """Calls that are answered alike in both policies."""

    said: tuple[str, str]
    agents: tuple[str, ...]
    shown: tuple[str, ...]
    """Calls by name: the shortest for each set of rules that decides."""
    others: int
    """Calls that are like them, and not named."""
    sides: tuple[tuple[str, _Side], ...]
    """`old` and `new`; none where the rules are the same and a warning alone differs."""

    def render(self) -> str:
        """Return it as text for a person."""
        also = _and_more(
            self.others, "tried call", "like it" if len(self.shown) == 1 else "like them"
        )
        old, new = (word.partition(",")[0] for word in self.said)
        said = " → ".join(self.said)
        said = said if old == new else f"{KINDS[Outcome.parse(new)].value} ({said})"
        lines = [f"{said}: {', '.join(self.shown)}{also}"]
        lines += [f"  {name}: {side.render()}" for name, side in self.sides]
        lines.append(f"  for: {', '.join(self.agents)}")
        return "\n".join(lines)


@dataclass(slots=True)
class _Group:
    said: tuple[str, str]
    agents: dict[str, None]
    calls: dict[Action, Hashable]
    """With the rules that decide, so that each set of them has its call shown."""
    old: Rules
    new: Rules

    @property
    def is_warning(self) -> bool:
        """Whether the same rules decide."""
        return self.old.keys() == self.new.keys()


def rows_of(calls: Iterable[Call], differences: Differences) -> tuple[Row, ...]:
    """Merge calls into rows: the strictest new answers first, bare warnings last."""
    removed = frozenset(_key_of_item(item) for item in differences.removed)
    added = frozenset(_key_of_item(item) for item in differences.added)

    # A rule that came is one row, whatever held before in each profile; then what went is.
    groups = _merged(_by_call(calls), lambda group: _cause(group, group.new, added))
    groups = _merged(groups, lambda group: _cause(group, group.old, added))
    return tuple(_row(group, removed, added) for group in groups)


def _cause(group: _Group, rules: Rules, added: frozenset[RuleKey]) -> Hashable:
    """What tells rows of one outcome apart: what came, and only where nothing did, `rules`."""
    came = frozenset(
        # Those built in are many, and nobody wrote them one by one.
        (rule.source, BUILT_IN) if rule.file == BUILT_IN else key
        for key, rule in group.new.items()
        if rule is not None and key in added
    )
    return came if came or group.is_warning else frozenset(rules)


def _by_call(calls: Iterable[Call]) -> list[_Group]:
    found: dict[Hashable, _Group] = {}
    for call in calls:
        said = call.said
        known = found.setdefault((said, call.action), _Group(said, {}, {}, {}, {}))
        known.agents.update(dict.fromkeys(call.agents))
        known.old[_key_of(call.old.rule)] = call.old.rule
        known.new[_key_of(call.new.rule)] = call.new.rule
        known.calls[call.action] = (frozenset(known.old), frozenset(known.new))
    return list(found.values())


def _merged(groups: Iterable[_Group], cause: Callable[[_Group], Hashable]) -> list[_Group]:
    found: dict[Hashable, _Group] = {}
    for group in groups:
        key = (group.said, frozenset(group.agents), cause(group))
        known = found.setdefault(key, group)
        if known is not group:
            known.calls.update(group.calls)
            known.old.update(group.old)
            known.new.update(group.new)
    return list(found.values())


def _row(group: _Group, removed: frozenset[RuleKey], added: frozenset[RuleKey]) -> Row:
    shortest: dict[Hashable, Action] = {}
    for action, rules in group.calls.items():
        known = shortest.get(rules, action)
        shortest[rules] = min(known, action, key=lambda each: (len(str(each)), str(each)))
    shown = tuple(str(each) for each in _mixed(shortest.values()))[:CALLS_MAX]
    sides = (("old", _side(group.old, removed)), ("new", _side(group.new, added)))
    return Row(
        group.said,
        tuple(group.agents),
        shown,
        len(group.calls) - len(shown),
        () if group.is_warning else sides,
    )


def _mixed(actions: Iterable[Action]) -> list[Action]:
    """Put one of each category first, so that a few of them show what there is."""
    count: Counter[str] = Counter()
    ranked: list[tuple[int, Action]] = []
    for action in actions:
        ranked.append((count[action.category], action))
        count[action.category] += 1
    return [action for _, action in sorted(ranked, key=lambda each: each[0])]


def _side(rules: Rules, changed: frozenset[RuleKey]) -> _Side:
    found = tuple(rule for key, rule in rules.items() if rule is not None and key in changed)
    return _Side(tuple(rules.values()), found)


def _key_of(rule: RuleMatch | None) -> RuleKey | None:
    if rule is None:
        return None
    owner, _, part = rule.source.rpartition(".")
    if not owner.startswith("profiles."):
        return "", rule.text, rule.source
    says = f"otherwise {rule.outcome.word}" if part == "otherwise" else rule.outcome.word
    return owner.removeprefix("profiles."), rule.text, says


def _key_of_item(item: Item) -> RuleKey:
    says = item.says.removeprefix(f"{UNTRUSTED} ").partition("+")[0]
    return item.profile, item.text, says


def _and_more(count: int, what: str, like: str = "") -> str:
    if not count:
        return ""
    counted = f"one {what}" if count == 1 else f"{count} {what}s"
    return f", and {counted} {like}".rstrip()


def _where(rule: RuleMatch | None) -> str:
    return "" if rule is None else f"{rule.source}, {rule.place}"


def _with_warning(decision: Decision) -> str:
    return f"{decision.outcome.word}, warned" if decision.warnings else decision.outcome.word
