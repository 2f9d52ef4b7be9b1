"""`policy diff`: calls that two policies answer differently, found from what differs.

Each rule, entry and path pattern that stands in one policy alone is filled in, by itself
and together with each rule and pattern that it may meet, so that a call stands where they
overlap. Every such call is put to both policies, and only one that is really answered
differently is a witness.

What was not found is not proved away: three patterns may overlap where no two of them
were tried. Where nothing that decides differs at all, every answer is the same, and that
is proved: the same items judge.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from paddock.policy.decide import ChainJudge, judge_for
from paddock.policy.engine import Policy
from paddock.policy.presets import LOCKED
from paddock.policy.questions.diff_rows import Call, rows_of
from paddock.policy.questions.differences import (
    CLOSES,
    ENDS,
    Differences,
    Item,
    SettingChange,
    find_differences,
)
from paddock.policy.questions.witness_calls import calls_for, may_meet, may_meet_across
from paddock.values.calls import Json
from paddock.values.decisions import Action, Agent, AgentChain, Decision, RuleMatch, rule_as_json

TRIES_MAX: Final = 50_000
"""Calls that are put to both policies; where that is not enough, the report says so."""
SHOWN_MAX: Final = 40
"""Rows in text; JSON has every witness."""
NOBODY: Final = "example-agent"
"""An agent that no `[agents]` names; were there one, another name is taken."""

ChainOf = Callable[[str], AgentChain]
"""The agent of a name that `[agents]` binds, with its ancestors: as it is declared, or as a
client's kind of agent stands. May raise, where the agents do not load."""


@dataclass(slots=True)
class Witness:
    """A call that is answered differently, and those that are by the same rules and answers."""

    action: Action
    old: Decision
    new: Decision
    calls: dict[Action, list[str]]
    """Every tried call that shows the same, this one included, with the agents that showed it."""

    @property
    def agents(self) -> list[str]:
        """For whom: first the agents that `action` itself was tried for."""
        titles = (*self.calls[self.action], *(t for each in self.calls.values() for t in each))
        return list(dict.fromkeys(titles))

    @property
    def others(self) -> int:
        """How many further calls are like it."""
        return len(self.calls) - 1

    @property
    def what(self) -> str:
        """`outcome`, or `warning` where only that differs."""
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


@dataclass(slots=True)
class Diff:
    """What differs, and the calls that show it."""

    differences: Differences
    witnesses: list[Witness] = field(default_factory=list[Witness])
    tried: int = 0
    is_cut: bool = False

    @property
    def unseen(self) -> tuple[Item, ...]:
        """What differs and had a say in no witness."""
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
        """What was found, and what that does not prove."""
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
        """The whole as a JSON object."""
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
        """The whole as text for a person."""
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

    def _calls(self) -> Iterator[Call]:
        for witness in self.witnesses:
            for action, agents in witness.calls.items():
                yield Call(action, tuple(agents), witness.old, witness.new)


def diff(old: Policy, new: Policy, chain_of: ChainOf) -> Diff:
    """Look for calls that `old` and `new` answer differently.

    `chain_of` is asked for each name whose binding differs, and what it raises is raised.

    Limits: `TRIES_MAX` calls.
    """
    search = _Search(old, new, chain_of)
    search.run()
    return search.report


@dataclass(frozen=True, slots=True)
class _Pair:
    """An agent before both policies."""

    title: str
    old: ChainJudge
    new: ChainJudge


class _Search:
    """One search. `_seen` are calls that were tried, `_found` witnesses by what they show."""

    def __init__(self, old: Policy, new: Policy, chain_of: ChainOf) -> None:
        self._old, self._new = old, new
        self._chain_of = chain_of
        self.report = Diff(find_differences(old, new))
        self._seen: set[tuple[str, Action]] = set()
        self._found: dict[object, Witness] = {}
        self._profiles = tuple(dict.fromkeys((*old.profiles, *new.profiles)))
        taken = {binding.name for policy in (old, new) for binding in policy.settings.agents}
        self._nobody = next(name for name in _names(NOBODY) if name not in taken)

    def run(self) -> None:
        """Try everything that differs, and keep the witnesses in a fixed order."""
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
            self._found[key] = Witness(action, old, new, {action: [title]})
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
