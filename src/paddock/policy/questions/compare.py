"""`policy replay` and `policy diff`: find calls that another policy answers differently.

A replay runs no command and reads no file. An `ask` that was granted stays an `ask`. A different
answer under an equal digest is reported as lost: something that is not recorded had an effect.

For a diff, sample calls are built from each rule, entry and path pattern that differs; they, the
rules' examples and the recorded calls are decided by both policies. Calls that were not tried may
differ. If nothing that decides differs, every answer is the same.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import StrEnum
from itertools import chain, groupby, islice, product
from itertools import count as numbers
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict

from paddock.policy.decide import ChainJudge, judge_for, writer_of
from paddock.policy.engine import Policy
from paddock.policy.positions import BUILT_IN, Place
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
from paddock.policy.questions.record import (
    MEANINGS,
    Lost,
    PastDecision,
    Recorded,
    RecordedDoor,
    Why,
)
from paddock.text.show import cut, show_name
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    Agent,
    AgentChain,
    Decision,
    Outcome,
    RuleMatch,
    confined,
    rule_as_json,
)

EXAMPLES_MAX: Final = 3
_NO_RULE: Final = "no rule (denied by default)"
NO_PARENT: Final = "the agent's parent: it was recorded without the default agent"
EXAMPLE_CHARS_MAX: Final = 400


class DifferenceKind(StrEnum):
    DENIED = "newly denied"
    ASKED = "newly asked"
    CONFINED = "newly confined"
    ALLOWED = "newly allowed"


KINDS: Final = dict(zip(reversed(Outcome), DifferenceKind, strict=True))


class Policies(Protocol):
    def policy_for(self, agent: str) -> Policy | None: ...

    def is_whole(self, past: PastDecision) -> bool:
        """Return True if the record names every agent in the chain of such a call."""
        ...


class Example(Struct, frozen=True):
    where: Recorded
    action: str

    def as_json(self) -> dict[str, Json]:
        names = ("call_id", "session_id", "seq", "time", "tool")
        return {**{name: getattr(self.where, name) for name in names}, "action": self.action}


class _Counted(Struct, kw_only=True):
    calls: int = 0
    examples: list[Example] = field(default_factory=list[Example])

    def note(self, example: Example) -> None:
        self.calls += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(example)

    def counts_json(self) -> dict[str, Json]:
        return {"calls": self.calls, "examples": [each.as_json() for each in self.examples]}


class Group(_Counted):
    kind: DifferenceKind
    agent: str
    was: Outcome
    was_rule: RuleMatch | None
    now: Outcome
    now_rule: RuleMatch | None
    reason: str

    def as_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind.value,
            "agent": self.agent,
            "was": {"outcome": self.was.word, "rule": rule_as_json(self.was_rule)},
            "now": {
                "outcome": self.now.word,
                "rule": rule_as_json(self.now_rule),
                "reason": self.reason,
            },
            **self.counts_json(),
        }


class LostGroup(_Counted):
    why: Why
    agent: str
    detail: str

    def as_json(self) -> dict[str, Json]:
        return {
            "why": self.why.value,
            "meaning": MEANINGS[self.why],
            "detail": self.detail,
            "agent": self.agent,
            **self.counts_json(),
        }


class Replay(Struct):
    decided: int = 0
    unchanged: int = 0
    groups: list[Group] = field(default_factory=list[Group])
    lost: list[LostGroup] = field(default_factory=list[LostGroup])

    def count(self, kind: DifferenceKind) -> int:
        return sum(group.calls for group in self.groups if group.kind is kind)

    @property
    def lost_calls(self) -> int:
        return sum(group.calls for group in self.lost)

    def as_json(self) -> dict[str, Json]:
        return {
            "replayed": self.decided,
            "unchanged": self.unchanged,
            **{kind.value.replace(" ", "_"): self.count(kind) for kind in DifferenceKind},
            "not_replayable": self.lost_calls,
            "groups": [group.as_json() for group in self.groups],
            "lost": [group.as_json() for group in self.lost],
        }

    def render(self) -> str:
        lines = [
            f"{self.decided} calls decided again: {self.unchanged} as before, "
            + ", ".join(f"{self.count(kind)} {kind.value}" for kind in DifferenceKind)
            + f"; {self.lost_calls} not replayable"
        ]
        for group in self.groups:
            lines += ["", f"{group.kind.value}: agent {group.agent}, {_calls(group.calls)}"]
            lines.append(f"  was: {group.was.word} by {_rule_text(group.was_rule, group.was)}")
            now = _NO_RULE if group.now_rule is None else group.now_rule.said
            lines.append(f"  now: {group.now.word} by {now}")
            if group.now_rule is None:
                lines.append(f"  reason: {group.reason}")
            lines += _example_lines(group)
        for lost in self.lost:
            detail = f" ({lost.detail})" if lost.detail else ""
            said = f"{MEANINGS[lost.why]}{detail}"
            lines += ["", f"not replayable: agent {lost.agent}, {_calls(lost.calls)}: {said}"]
            lines += _example_lines(lost)
        # Threat: an action of a model with line breaks could forge rows.
        return "\n".join(map(show_name, lines))


def replay(calls: Iterable[PastDecision | Lost], policies: Policies) -> Replay:
    report = Replay()
    groups: dict[object, Group] = {}
    lost: dict[object, LostGroup] = {}
    for past in calls:
        now = _decide_past(past, policies)
        agent = past.where.agent
        if isinstance(now, Lost):
            why = LostGroup(now.why, agent, now.detail)
            lost.setdefault((agent, now.why, now.detail), why).note(Example(now.where, ""))
            continue
        report.decided += 1
        if isinstance(past, Lost) or now.outcome is past.outcome:
            report.unchanged += 1
            continue
        # The recorded source of an ask is the approver.
        key = (agent, past.outcome, _rule_key(past.rule)[:3], now.outcome, _rule_key(now.rule)[:3])
        was = past.outcome, past.rule
        new = Group(KINDS[now.outcome], agent, *was, now.outcome, now.rule, now.reason)
        groups.setdefault(key, new).note(Example(past.where, now.action))
    order = list(DifferenceKind)
    report.groups = sorted(groups.values(), key=lambda each: (order.index(each.kind), -each.calls))
    report.lost = sorted(lost.values(), key=lambda each: -each.calls)
    return report


def _decide_past(past: PastDecision | Lost, policies: Policies) -> Decision | Lost:
    if isinstance(past, Lost):
        return past
    policy = policies.policy_for(past.where.agent)
    if policy is None:
        return Lost(past.where, Why.WORKSPACE)
    if not policies.is_whole(past):
        return Lost(past.where, Why.INCOMPLETE, NO_PARENT)
    if lacks_arguments(policy, past):
        return Lost(past.where, Why.CUT, "the record does not keep its arguments completely")
    now = decide_again(policy, past)
    is_same = now.outcome is past.outcome or policy.digest != past.policy_digest
    return now if is_same else Lost(past.where, Why.OTHERWISE)


def decide_again(policy: Policy, past: PastDecision) -> Decision:
    each_of = decide_each(policy, past)
    decision = max(each_of, key=lambda each: (each.outcome, each.rule is not None))
    # How far a command was confined depended on the host then, not on the policy.
    return confined(decision, past.enforcement)


def lacks_arguments(policy: Policy, past: PastDecision) -> bool:
    """Return True if a rule checks arguments that the record does not keep."""
    are_kept = all(each.arguments for each in past.actions if each.category == "mcp")
    profiles = judge_for(policy, past.chain).profiles()
    return not are_kept and any(each.table["when"] for each in profiles)


def decide_each(policy: Policy, past: PastDecision) -> list[Decision]:
    judge = judge_for(policy, past.chain)
    writer = writer_of(past.actions)
    if past.door is RecordedDoor.TOOL:
        return judge.decide_each(past.actions, writer)
    # The hook adds a command's writes as actions, resolved from the client's working directory.
    return [
        judge.decide_words(action) if action.category == "shell" else judge.decide(action, writer)
        for action in past.actions
    ]


def _rule_text(rule: RuleMatch | None, outcome: Outcome) -> str:
    if rule is None:
        return _NO_RULE
    return f"{rule.text} ({rule.place})" if outcome is Outcome.ASK else rule.said


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _example_lines(group: _Counted) -> list[str]:
    lines: list[str] = []
    for each in group.examples:
        where, shown = each.where, cut(each.action, EXAMPLE_CHARS_MAX) or each.where.tool
        lines.append(f"  {where.time}  {where.call_id or '-'} (seq {where.seq})  {shown}")
    left = group.calls - len(group.examples)
    return [*lines, f"  … and {left} more"] if left else lines


# A row groups calls with the same answers, the same agents and the same changed rules, so that
# every statement of a row is true for each of its calls and agents.

CALLS_MAX: Final = 4
RULES_MAX: Final = 20

RuleKey = tuple[str, str, str]
"""Profile (empty for a path list), text and outcome: as `Item.key`, without the network."""
Rules = dict[RuleKey | None, RuleMatch | None]


class _Group(Struct):
    said: tuple[str, str]
    agents: dict[str, None] = field(default_factory=dict[str, None])
    calls: dict[Action, Hashable] = field(default_factory=dict[Action, Hashable])
    """Each call with its deciding rules, so that one call is shown for each set of rules."""
    old: Rules = field(default_factory=Rules)
    new: Rules = field(default_factory=Rules)


def rows_of(witnesses: Iterable["WitnessCall"], differences: Differences) -> list[str]:
    removed = frozenset(map(_key_of_item, differences.removed))
    added = frozenset(map(_key_of_item, differences.added))
    rows: dict[Hashable, _Group] = {}
    for group in _by_call(witnesses):
        # Group by the added rules; without any by the removed ones, else by the old ones.
        cause = _named(group.new, added) or _named(group.old, removed) or frozenset(group.old)
        row = rows.setdefault((group.said, frozenset(group.agents), cause), group)
        row.calls |= group.calls
        row.old |= group.old
        row.new |= group.new
    return [_row(group, removed, added) for group in rows.values()]


def _named(rules: Rules, changed: frozenset[RuleKey]) -> frozenset[RuleKey | tuple[str, str]]:
    # Built-in rules are many, so those of a list count as one.
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
    # Show the first call for each set of deciding rules.
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
        # The rules are the same if only a warning differs.
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
    """Name the changed rules; if none changed one rule, since all others say the same."""
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
"""The most calls decided by both policies; the report says if there were more."""
SHOWN_MAX: Final = 40
NOBODY: Final = "example-agent"
"""An agent that no `[agents]` names; if one does, a number is added."""

ChainOf = Callable[[str], AgentChain]
"""Returns the agent of a name in `[agents]`, with its ancestors. May raise."""


_Pair = tuple[str, ChainJudge, ChainJudge]
"""A profile or an agent, and both policies' judges for it."""


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
                f"{self.tried} calls tried{cut}; each one shown is decided differently."
                " Calls that were not tried may differ, too"
            )
        return (
            f"no example was found: {self.tried} calls were tried{cut}, built from all that"
            " differs, and each has the same answer in both. This is not a proof: a call that"
            " several patterns match, or a command in a form that was not tried, may still differ"
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
    """Find calls that both answer differently, with at most `TRIES_MAX` tries."""
    report = Diff(find_differences(old, new))
    if not report.differences.can_decide:
        return report
    found: dict[object, WitnessCall] = {}
    tries = _tries(old, new, report.differences, chain_of, tuple(recorded))
    for (title, before, after), action in islice(tries, TRIES_MAX):
        report.tried += 1
        _compare(found, title, action, before.decide(action), after.decide(action))
    report.is_cut = next(tries, None) is not None
    report.witnesses = sorted(
        found.values(), key=lambda each: (each.what, -each.new.outcome, each.action.told)
    )
    return report


def _tries(
    old: Policy, new: Policy, found: Differences, chain_of: ChainOf, past: tuple[Action, ...]
) -> Iterator[tuple[_Pair, Action]]:
    changed = (*found.removed, *found.added)
    taken = {binding.name for policy in (old, new) for binding in policy.settings.agents}
    others = chain((NOBODY,), (f"{NOBODY}-{number}" for number in numbers(2)))
    nobody = next(name for name in others if name not in taken)
    profiles = dict.fromkeys((*old.profiles, *new.profiles))
    if all(item.profile for item in changed):
        profiles = dict.fromkeys(item.profile for item in changed)

    def pair(title: str, agents: AgentChain) -> _Pair:
        return title, judge_for(old, agents), judge_for(new, agents)

    pairs = [pair(f"profile {name}", (Agent(nobody, name),)) for name in profiles]
    bound = [pair(f"agent {name}", chain_of(name)) for name in found.bound]
    ends = Item("", ENDS, Place("", 0), EVERYTHING)
    # One more than is tried shows that not all were.
    made = find_calls(changed, found.common, TRIES_MAX + 1)
    of_bound = find_calls((ends, *changed), found.common, TRIES_MAX + 1) if bound else ()
    return chain(
        product(pairs, dict.fromkeys((*past, *made))),
        product(bound, dict.fromkeys((*past, *of_bound))),
    )


def _compare(
    found: dict[object, WitnessCall], title: str, action: Action, old: Decision, new: Decision
) -> None:
    if old.outcome is new.outcome and bool(old.warnings) == bool(new.warnings):
        return
    answers = (old.outcome, bool(old.warnings), new.outcome, bool(new.warnings))
    key = (action.category, answers, _rule_key(old.rule), _rule_key(new.rule))
    known = found.setdefault(key, WitnessCall(action, old, new, {}))
    known.calls.setdefault(action, []).append(title)


def _rule_key(rule: RuleMatch | None) -> tuple[object, ...]:
    # Without the reason, which names the path.
    return () if rule is None else (rule.text, rule.file, rule.line, rule.source)


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
