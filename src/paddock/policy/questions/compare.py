"""`policy diff`: calls that two policies answer differently, found from what differs.

Each rule, entry and path pattern that stands in one policy alone is filled in, by itself and
with each that it may meet, and every such call is put to both policies. What was not found is
not proved away: three patterns may overlap where no two of them were tried. Where nothing that
decides differs at all, every answer is the same.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby
from typing import Final

from msgspec import Struct, field

from paddock.policy.decide import ChainJudge, judge_for
from paddock.policy.engine import Policy
from paddock.policy.places import BUILT_IN
from paddock.policy.presets import LOCKED
from paddock.policy.questions.replay import (
    CLOSES,
    ENDS,
    KINDS,
    UNTRUSTED,
    Differences,
    Item,
    SettingChange,
    find_differences,
)
from paddock.policy.questions.witness_calls import calls_for, may_meet, may_meet_across
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    Agent,
    AgentChain,
    Decision,
    Outcome,
    RuleMatch,
    rule_as_json,
)

# A row is made of calls that are answered alike, for the same agents, and for the same new
# thing; so whatever a row says of its calls holds for each of them, and for each agent.

CALLS_MAX: Final = 4
RULES_MAX: Final = 20
_NO_RULE: Final = "no rule; unknown is no"

RuleKey = tuple[str, str, str]
"""Profile (empty for a path list), text, and what it says: as `Item.key`, network aside."""
Rules = dict[RuleKey | None, RuleMatch | None]


class ComparedCall(Struct, frozen=True):
    action: Action
    agents: tuple[str, ...]
    old: Decision
    new: Decision

    @property
    def said(self) -> tuple[str, str]:
        old, new = self.old, self.new
        if bool(old.warnings) == bool(new.warnings):
            return old.outcome.word, new.outcome.word
        return _with_warning(old), _with_warning(new)


class _Side(Struct, frozen=True):
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


class Row(Struct, frozen=True):
    said: tuple[str, str]
    agents: tuple[str, ...]
    shown: tuple[str, ...]
    """Calls by name: the shortest for each set of rules that decides."""
    others: int
    sides: tuple[tuple[str, _Side], ...]
    """`old` and `new`; none where the rules are the same and a warning alone differs."""

    def render(self) -> str:
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


class _Group(Struct):
    said: tuple[str, str]
    agents: dict[str, None]
    calls: dict[Action, Hashable]
    """With the rules that decide, so that each set of them has its call shown."""
    old: Rules
    new: Rules

    @property
    def is_warning(self) -> bool:
        return self.old.keys() == self.new.keys()


def rows_of(calls: Iterable[ComparedCall], differences: Differences) -> tuple[Row, ...]:
    removed = frozenset(_key_of_item(item) for item in differences.removed)
    added = frozenset(_key_of_item(item) for item in differences.added)

    # A rule that came is one row, whatever held before in each profile; then what went is.
    groups = _merged(_by_call(calls), lambda group: _cause(group, group.new, added))
    groups = _merged(groups, lambda group: _cause(group, group.old, added))
    return tuple(_row(group, removed, added) for group in groups)


def _cause(group: _Group, rules: Rules, added: frozenset[RuleKey]) -> Hashable:
    """Tell rows of one outcome apart: by what came, and only where nothing did by `rules`."""
    came = frozenset(
        # Those built in are many, and nobody wrote them one by one.
        (rule.source, BUILT_IN) if rule.file == BUILT_IN else key
        for key, rule in group.new.items()
        if rule is not None and key in added
    )
    return came if came or group.is_warning else frozenset(rules)


def _by_call(calls: Iterable[ComparedCall]) -> list[_Group]:
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


TRIES_MAX: Final = 50_000
"""Calls that are put to both policies; where that is not enough, the report says so."""
SHOWN_MAX: Final = 40
NOBODY: Final = "example-agent"
"""An agent that no `[agents]` names; were there one, another name is taken."""

ChainOf = Callable[[str], AgentChain]
"""The agent of a name that `[agents]` binds, with its ancestors. May raise."""


class WitnessCall(Struct):
    action: Action
    old: Decision
    new: Decision
    calls: dict[Action, list[str]]

    @property
    def agents(self) -> list[str]:
        """Return first the agents that `action` itself was tried for."""
        titles = (*self.calls[self.action], *(t for each in self.calls.values() for t in each))
        return list(dict.fromkeys(titles))

    @property
    def others(self) -> int:
        return len(self.calls) - 1

    @property
    def what(self) -> str:
        return "outcome" if self.old.outcome is not self.new.outcome else "warning"

    def as_json(self) -> dict[str, Json]:
        return {
            "action": str(self.action),
            "what": self.what,
            "agents": list(self.agents),
            "old": _decision_json(self.old),
            "new": _decision_json(self.new),
            "others": self.others,
        }


class Diff(Struct):
    differences: Differences
    witnesses: list[WitnessCall] = field(default_factory=list[WitnessCall])
    tried: int = 0
    is_cut: bool = False

    @property
    def unseen(self) -> tuple[Item, ...]:
        seen = {
            (match.text, match.file, match.line)
            for witness in self.witnesses
            for decision in (witness.old, witness.new)
            for match in (*decision.matched, decision.rule)
            if match is not None
        }
        items = (*self.differences.removed, *self.differences.added)
        return tuple(
            item
            for item in items
            if (item.text, item.place.file, item.place.line) not in seen
            and item.says not in ("paths.warned", "paths.safe", CLOSES, ENDS)
        )

    @property
    def conclusion(self) -> str:
        if not self.differences.can_decide:
            return (
                "the policies decide alike: their rules, path lists and bindings are the same,"
                " so every call has the same answer"
            )
        cut = f" (the search stopped at {TRIES_MAX})" if self.is_cut else ""
        if self.witnesses:
            return (
                f"{self.tried} calls tried{cut}; each one shown is really decided differently."
                " Others may be: what was not tried is not proved alike"
            )
        return (
            f"no example was found: {self.tried} calls were tried{cut}, made from all that"
            " differs, and each has the same answer in both. That is no proof: a call where three"
            " or more patterns meet, or a command in a form that was not tried, may still differ"
        )

    def as_json(self) -> dict[str, Json]:
        found = self.differences
        return {
            "alike": not found.can_decide,
            "tried": self.tried,
            "is_cut": self.is_cut,
            "conclusion": self.conclusion,
            "witnesses": [witness.as_json() for witness in self.witnesses],
            "removed": [_item_json(item) for item in found.removed],
            "added": [_item_json(item) for item in found.added],
            "unseen": [_item_json(item) for item in self.unseen],
            "agents": list(found.bound),
            "settings": [_setting_json(change) for change in found.settings],
        }

    def render(self) -> str:
        lines: list[str] = []
        rows = rows_of(self._calls(), self.differences)
        for row in rows[:SHOWN_MAX]:
            lines += [row.render(), ""]
        if len(rows) > SHOWN_MAX:
            lines += [f"… and {len(rows) - SHOWN_MAX} more such rows: --json", ""]
        if self.unseen:
            lines.append("differs, and no example was found for it:")
            lines += [f"  {item.render()}" for item in self.unseen]
        for change in self.differences.settings:
            lines.append(f"setting {change.key}: {change.old} → {change.new}")
        lines.append(self.conclusion)
        return "\n".join(lines)

    def _calls(self) -> Iterator[ComparedCall]:
        for witness in self.witnesses:
            for action, agents in witness.calls.items():
                yield ComparedCall(action, tuple(agents), witness.old, witness.new)


def diff(old: Policy, new: Policy, chain_of: ChainOf) -> Diff:
    """Look for calls that both answer differently, `TRIES_MAX` at most; `chain_of` may raise."""
    search = _Search(old, new, chain_of)
    search.run()
    return search.report


class _Pair(Struct, frozen=True):
    title: str
    old: ChainJudge
    new: ChainJudge


class _Search:
    def __init__(self, old: Policy, new: Policy, chain_of: ChainOf) -> None:
        self._old, self._new = old, new
        self._chain_of = chain_of
        self.report = Diff(find_differences(old, new))
        self._seen: set[tuple[str, Action]] = set()
        self._found: dict[object, WitnessCall] = {}
        self._profiles = tuple(dict.fromkeys((*old.profiles, *new.profiles)))
        taken = {binding.name for policy in (old, new) for binding in policy.settings.agents}
        self._nobody = next(name for name in _names(NOBODY) if name not in taken)

    def run(self) -> None:
        found = self.report.differences
        changed = (*found.removed, *found.added)
        everything = (*changed, *found.common)
        for item in changed:
            partners = [each for each in everything if may_meet(item, each)]
            profiles = (item.profile,) if item.profile else self._profiles
            pairs = [
                self._pair(f"profile {each}", (Agent(self._nobody, each),)) for each in profiles
            ]
            for action in calls_for(item, partners):
                for pair in pairs:
                    self._try(pair, action)
        for name in found.bound:
            pair = self._pair(f"agent {name}", self._chain_of(name))
            for action in _actions_for(pair, everything):
                self._try(pair, action)
        self.report.witnesses = sorted(
            self._found.values(), key=lambda each: (each.what, -each.new.outcome, str(each.action))
        )

    def _pair(self, title: str, chain: AgentChain) -> _Pair:
        return _Pair(title, judge_for(self._old, chain), judge_for(self._new, chain))

    def _try(self, pair: _Pair, action: Action) -> None:
        title = pair.title
        if (title, action) in self._seen:
            return
        if self.report.tried >= TRIES_MAX:
            self.report.is_cut = True
            return
        self._seen.add((title, action))
        self.report.tried += 1
        old, new = pair.old.decide(action), pair.new.decide(action)
        if old.outcome is new.outcome and bool(old.warnings) == bool(new.warnings):
            return
        answers = (old.outcome, bool(old.warnings), new.outcome, bool(new.warnings))
        key = (action.category, answers, _rule_key(old.rule), _rule_key(new.rule))
        known = self._found.get(key)
        if known is None:
            self._found[key] = WitnessCall(action, old, new, {action: [title]})
            return
        known.calls.setdefault(action, []).append(title)
        if len(str(action)) < len(str(known.action)):
            # The shortest is the easiest to read.
            known.action, known.old, known.new = action, old, new


def _actions_for(pair: _Pair, everything: tuple[Item, ...]) -> Iterator[Action]:
    profiles = {each.name for judge in (pair.old, pair.new) for each in judge.profiles()}
    profiles.add(LOCKED)
    held = [item for item in everything if item.profile in profiles]
    for number, item in enumerate(held, 1):
        # All these profiles judge one call: what two of them allow shows that a third does not.
        yield from calls_for(item, [each for each in held[number:] if may_meet_across(item, each)])


def _names(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


def _rule_key(rule: RuleMatch | None) -> object:
    # Reasons name the path; the rule is the same.
    return None if rule is None else (rule.text, rule.source, rule.file, rule.line)


def _decision_json(decision: Decision) -> dict[str, Json]:
    return {
        "outcome": decision.outcome.word,
        "rule": rule_as_json(decision.rule),
        "reason": decision.reason,
        "warnings": list(decision.warnings),
    }


def _item_json(item: Item) -> dict[str, Json]:
    return {
        "profile": item.profile,
        "says": item.says,
        "text": item.text,
        "file": item.place.file,
        "line": item.place.line,
    }


def _setting_json(change: SettingChange) -> dict[str, Json]:
    return {"key": change.key, "old": change.old, "new": change.new}
