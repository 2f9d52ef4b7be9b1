"""`policy replay`: recorded calls decided again under another policy.

Nothing is run, no file is looked at. An `ask` that somebody granted stays an `ask`. Equal
digests with unequal answers are reported as lost: something off the record had a say.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, field

from paddock.policy.decide import decide, judge_for, writer_of
from paddock.policy.engine import Policy
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
from paddock.values.decisions import Decision, Outcome, RuleMatch, confined, rule_as_json

EXAMPLES_MAX: Final = 3
NO_PARENT: Final = "whose child the agent was: it was recorded without the default agent"
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
        """Whether the record names every agent that a call like this one is decided for."""
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
            lines.append(f"  was: {group.was.word} by {_was_text(group)}")
            lines.append(f"  now: {group.now.word} by {rule_text(group.now_rule)}")
            if group.now_rule is None:
                lines.append(f"  reason: {group.reason}")
            lines += _example_lines(group)
        for lost in self.lost:
            detail = f" ({lost.detail})" if lost.detail else ""
            said = f"{MEANINGS[lost.why]}{detail}"
            lines += ["", f"not replayable: agent {lost.agent}, {_calls(lost.calls)}: {said}"]
            lines += _example_lines(lost)
        # Threat: an action with line breaks, which a model writes, would draw rows of its own.
        return "\n".join(map(show_name, lines))


def replay(calls: Iterable[PastDecision | Lost], policies: Policies) -> Replay:
    report = Replay()
    groups: dict[object, Group] = {}
    lost: dict[object, LostGroup] = {}
    for past in calls:
        if isinstance(past, Lost):
            _lose(lost, past)
            continue
        policy = policies.policy_for(past.where.agent)
        if policy is None:
            _lose(lost, Lost(past.where, Why.WORKSPACE))
            continue
        if not policies.is_whole(past):
            _lose(lost, Lost(past.where, Why.INCOMPLETE, NO_PARENT))
            continue
        if lacks_arguments(policy, past):
            _lose(lost, Lost(past.where, Why.CUT, "the record keeps no arguments of it whole"))
            continue
        decision = decide_again(policy, past)
        if decision.outcome is not past.outcome and policy.digest == past.policy_digest:
            _lose(lost, Lost(past.where, Why.OTHERWISE))
            continue
        report.decided += 1
        if decision.outcome is past.outcome:
            report.unchanged += 1
        else:
            _count(groups, past, decision)
    order = list(DifferenceKind)
    report.groups = sorted(groups.values(), key=lambda each: (order.index(each.kind), -each.calls))
    report.lost = sorted(lost.values(), key=lambda each: -each.calls)
    return report


def decide_again(policy: Policy, past: PastDecision) -> Decision:
    if past.door is RecordedDoor.TOOL:
        decision = decide(policy, past.chain, past.actions, writer_of(past.actions))
    else:
        each_of = decide_each(policy, past)
        decision = max(each_of, key=lambda each: (each.outcome, each.rule is not None))
    # How far commands were held is the host's of then, and no policy's.
    return confined(decision, past.enforcement)


def lacks_arguments(policy: Policy, past: PastDecision) -> bool:
    """Whether a rule looks at arguments that the record does not keep."""
    are_kept = all(each.arguments for each in past.actions if each.category == "mcp")
    return not are_kept and judge_for(policy, past.chain).looks_at_arguments


def decide_each(policy: Policy, past: PastDecision) -> list[Decision]:
    judge = judge_for(policy, past.chain)
    writer = writer_of(past.actions)
    if past.door is RecordedDoor.TOOL:
        return judge.decide_each(past.actions, writer)
    # The hook names what a command writes by itself, from where the client stood.
    return [
        judge.decide_words(action) if action.category == "shell" else judge.decide(action, writer)
        for action in past.actions
    ]


def _count(groups: dict[object, Group], past: PastDecision, now: Decision) -> None:
    agent = past.where.agent
    key = (agent, past.outcome, _key(past.rule), now.outcome, _key(now.rule))
    new = Group(
        KINDS[now.outcome], agent, past.outcome, past.rule, now.outcome, now.rule, now.reason
    )
    groups.setdefault(key, new).note(Example(past.where, now.action))


def _lose(lost: dict[object, LostGroup], call: Lost) -> None:
    key = (call.where.agent, call.why, call.detail)
    new = LostGroup(call.why, call.where.agent, call.detail)
    lost.setdefault(key, new).note(Example(call.where, ""))


def rule_text(rule: RuleMatch | None) -> str:
    return "no rule; unknown is no" if rule is None else rule.said


def _was_text(group: Group) -> str:
    rule = group.was_rule
    if rule is None or group.was is not Outcome.ASK:
        return rule_text(rule)
    # Of what was asked about, the record's source is who answered.
    return f"{rule.text} ({rule.place})"


def _key(rule: RuleMatch | None) -> object:
    # Reasons name the path, and an ask's source who answered; the rule is the same.
    return None if rule is None else (rule.text, rule.file, rule.line)


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _example_lines(group: _Counted) -> list[str]:
    lines: list[str] = []
    for each in group.examples:
        where, shown = each.where, cut(each.action, EXAMPLE_CHARS_MAX) or each.where.tool
        lines.append(f"  {where.time}  {where.call_id or '-'} (seq {where.seq})  {shown}")
    left = group.calls - len(group.examples)
    return [*lines, f"  … and {left} more"] if left else lines
