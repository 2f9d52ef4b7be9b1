"""`policy diff`: calls that two policies answer differently, found from what differs.

Each rule, entry and path pattern is made concrete, and every such call, each example of a rule
and each call on record is put to both policies. What was not tried is not proved alike. Where
nothing that decides differs at all, every answer is the same.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import chain, groupby, islice, product
from itertools import count as numbers
from typing import Final

from msgspec import Struct, field
from msgspec.structs import asdict

from paddock.policy.decide import ChainJudge, judge_for
from paddock.policy.engine import Policy
from paddock.policy.places import BUILT_IN, Place
from paddock.policy.questions.differences import (
    CLOSES,
    ENDS,
    EVERYTHING,
    UNTRUSTED,
    Differences,
    Item,
    find_calls,
    find_differences,
)
from paddock.policy.questions.replay import KINDS
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


class _Group(Struct):
    said: tuple[str, str]
    agents: dict[str, None] = field(default_factory=dict[str, None])
    calls: dict[Action, Hashable] = field(default_factory=dict[Action, Hashable])
    """With the rules that decide, so that each set of them has its call shown."""
    old: Rules = field(default_factory=Rules)
    new: Rules = field(default_factory=Rules)


def rows_of(witnesses: Iterable["WitnessCall"], differences: Differences) -> list[str]:
    removed = frozenset(map(_key_of_item, differences.removed))
    added = frozenset(map(_key_of_item, differences.added))
    rows: dict[Hashable, _Group] = {}
    for group in _by_call(witnesses):
        # By what came; only where nothing did by what went, or by what held before.
        cause = _named(group.new, added) or _named(group.old, removed) or frozenset(group.old)
        row = rows.setdefault((group.said, frozenset(group.agents), cause), group)
        row.calls |= group.calls
        row.old |= group.old
        row.new |= group.new
    return [_row(group, removed, added) for group in rows.values()]


def _named(rules: Rules, changed: frozenset[RuleKey]) -> frozenset[RuleKey | tuple[str, str]]:
    # Those built in are many, and nobody wrote them one by one.
    return frozenset(
        (rule.source, BUILT_IN) if rule.file == BUILT_IN else key
        for key, rule in rules.items()
        if key is not None and rule is not None and key in changed
    )


def _by_call(witnesses: Iterable["WitnessCall"]) -> list[_Group]:
    found: dict[Hashable, _Group] = {}
    for witness in witnesses:
        old, new = witness.old, witness.new
        said = old.outcome.word, new.outcome.word
        if bool(old.warnings) != bool(new.warnings):
            said = _with_warning(old), _with_warning(new)
        for action, agents in witness.calls.items():
            known = found.setdefault((said, action), _Group(said))
            known.agents |= dict.fromkeys(agents)
            known.old[_key_of(old.rule)] = old.rule
            known.new[_key_of(new.rule)] = new.rule
            known.calls[action] = (frozenset(known.old), frozenset(known.new))
    return list(found.values())


def _row(group: _Group, removed: frozenset[RuleKey], added: frozenset[RuleKey]) -> str:
    # By name is shown the first for each set of rules that decides.
    first: dict[Hashable, Action] = {}
    for action, rules in group.calls.items():
        first.setdefault(rules, action)
    shown = [each.told for each in _mixed(first.values())][:CALLS_MAX]
    like = "like it" if len(shown) == 1 else "like them"
    also = _and_more(len(group.calls) - len(shown), "tried call", like)
    old, new = (word.partition(",")[0] for word in group.said)
    said = " → ".join(group.said)
    said = said if old == new else f"{KINDS[Outcome.parse(new)].value} ({said})"
    lines = [f"{said}: {', '.join(shown)}{also}"]
    if group.old.keys() != group.new.keys():
        # The rules are the same where a warning alone differs.
        lines.append(f"  old: {_side(group.old, removed)}")
        lines.append(f"  new: {_side(group.new, added)}")
    lines.append(f"  for: {', '.join(group.agents)}")
    return "\n".join(lines)


def _mixed(actions: Iterable[Action]) -> list[Action]:
    count: Counter[str] = Counter()
    ranked: list[tuple[int, Action]] = []
    for action in actions:
        ranked.append((count[action.category], action))
        count[action.category] += 1
    return [action for _, action in sorted(ranked, key=lambda each: each[0])]


def _side(rules: Rules, changed: frozenset[RuleKey]) -> str:
    """Name what changed; else one rule, for the others only say the same elsewhere."""
    found = [rule for key, rule in rules.items() if rule is not None and key in changed]
    named = (found or [*rules.values()][:1])[:RULES_MAX]
    parts: list[str] = []
    for where, alike in groupby(named, key=_where):
        texts = ", ".join("" if rule is None else rule.text for rule in alike)
        parts.append(f"{texts} ({where})" if where else _NO_RULE)
    return "; ".join(parts) + _and_more(len(rules) - len(named), "other rule")


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
        titles = (*self.calls[self.action], *(t for each in self.calls.values() for t in each))
        return list(dict.fromkeys(titles))

    @property
    def what(self) -> str:
        return "outcome" if self.old.outcome is not self.new.outcome else "warning"

    def as_json(self) -> dict[str, Json]:
        return {
            "action": self.action.told,
            "what": self.what,
            "agents": list(self.agents),
            "old": _decision_json(self.old),
            "new": _decision_json(self.new),
            "others": len(self.calls) - 1,
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
        return tuple(
            item
            for item in (*self.differences.removed, *self.differences.added)
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
            " differs, and each has the same answer in both. That is no proof: a call in which"
            " patterns meet, or a command in a form that was not tried, may still differ"
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
            "settings": [asdict(change) for change in found.settings],
        }

    def render(self) -> str:
        lines: list[str] = []
        rows = rows_of(self.witnesses, self.differences)
        for row in rows[:SHOWN_MAX]:
            lines += [row, ""]
        if len(rows) > SHOWN_MAX:
            lines += [f"… and {len(rows) - SHOWN_MAX} more such rows: --json", ""]
        if self.unseen:
            lines.append("differs, and no example was found for it:")
            lines += [f"  {item.render()}" for item in self.unseen]
        for change in self.differences.settings:
            lines.append(f"setting {change.key}: {change.old} → {change.new}")
        lines.append(self.conclusion)
        return "\n".join(lines)


def diff(old: Policy, new: Policy, chain_of: ChainOf, recorded: Iterable[Action] = ()) -> Diff:
    """Look for calls that both answer differently, `TRIES_MAX` at most; `chain_of` may raise."""
    found = find_differences(old, new)
    search = _Search(Diff(found))
    if not found.can_decide:
        return search.report
    changed = (*found.removed, *found.added)
    taken = {binding.name for policy in (old, new) for binding in policy.settings.agents}
    others = chain((NOBODY,), (f"{NOBODY}-{number}" for number in numbers(2)))
    nobody = next(name for name in others if name not in taken)
    profiles = dict.fromkeys((*old.profiles, *new.profiles))
    if all(item.profile for item in changed):
        profiles = dict.fromkeys(item.profile for item in changed)

    def pair(title: str, agents: AgentChain) -> _Pair:
        return _Pair(title, judge_for(old, agents), judge_for(new, agents))

    past = tuple(recorded)
    pairs = [pair(f"profile {name}", (Agent(nobody, name),)) for name in profiles]
    bound = [pair(f"agent {name}", chain_of(name)) for name in found.bound]
    ends = Item("", "", ENDS, Place("", 0), EVERYTHING)
    # One more than is tried, so that it shows where not all were.
    made = find_calls(changed, found.common, TRIES_MAX + 1)
    of_bound = find_calls((ends, *changed), found.common, TRIES_MAX + 1) if bound else ()
    tries = chain(
        product(pairs, dict.fromkeys((*past, *made))),
        product(bound, dict.fromkeys((*past, *of_bound))),
    )
    for each, action in islice(tries, TRIES_MAX):
        search.attempt(each, action)
    search.report.is_cut = next(tries, None) is not None
    search.report.witnesses = sorted(
        search.found.values(), key=lambda each: (each.what, -each.new.outcome, each.action.told)
    )
    return search.report


class _Pair(Struct, frozen=True):
    title: str
    old: ChainJudge
    new: ChainJudge


class _Search(Struct):
    report: Diff
    found: dict[object, WitnessCall] = field(default_factory=dict[object, WitnessCall])

    def attempt(self, pair: _Pair, action: Action) -> None:
        self.report.tried += 1
        old, new = pair.old.decide(action), pair.new.decide(action)
        if old.outcome is new.outcome and bool(old.warnings) == bool(new.warnings):
            return
        answers = (old.outcome, bool(old.warnings), new.outcome, bool(new.warnings))
        key = (action.category, answers, _rule_key(old.rule), _rule_key(new.rule))
        known = self.found.setdefault(key, WitnessCall(action, old, new, {}))
        known.calls.setdefault(action, []).append(pair.title)


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
