"""Explain a decision: its reasons, the rules that nearly matched, and what would change it.

The decision comes from `decide`; a proposed change is tried on a changed policy first.
"""

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.policy.compiled import matches_wild
from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy
from paddock.policy.globs import DEPTH
from paddock.policy.pathset import PathPattern
from paddock.policy.positions import Text
from paddock.policy.profiles import CompiledProfile, judge_line, rule_matches
from paddock.policy.questions.compare import decide_each, lacks_arguments
from paddock.policy.questions.flip import ProposedChange, propose_changes
from paddock.policy.questions.record import MEANINGS, Lost, PastDecision, Why
from paddock.policy.rules import Rule, parse_concrete, read_arguments
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    AgentChain,
    Decision,
    Held,
    Outcome,
    RuleMatch,
    confined,
    rule_in_full,
)

NEAREST_SHOWN_MAX: Final = 5
SIMILAR: Final = 0.6
SIMILARITY_MAX: Final = 0.75
"""The most nearness of merely similar texts: whether that rule was meant is a guess."""
COMPARED_CHARS_MAX: Final = 300


class NearMiss(Struct, frozen=True):
    rule: RuleMatch
    why: str
    nearness: float
    """0 to 1; above `SIMILARITY_MAX` it is certain why the rule does not match."""


def near_misses(
    profiles: Iterable[CompiledProfile], action: Action
) -> tuple[tuple[NearMiss, ...], int]:
    found: dict[RuleMatch, tuple[float, str]] = {}
    for profile in profiles:
        for rule in profile.rules:
            miss = _miss(rule, action)
            if miss is not None:
                found[rule.shown] = miss
    misses = (NearMiss(rule, why, nearness) for rule, (nearness, why) in found.items())
    ordered = sorted(misses, key=lambda each: -each.nearness)
    return tuple(ordered[:NEAREST_SHOWN_MAX]), max(0, len(ordered) - NEAREST_SHOWN_MAX)


def _miss(rule: Rule, action: Action) -> tuple[float, str] | None:
    pattern = rule.pattern
    if pattern.net is not None and action.category == "net":
        from paddock.policy.network import find_miss  # noqa: PLC0415 - late on purpose

        if why := find_miss(rule, action):
            return 0.95, why
    if rule_matches(rule, action):
        return None
    if rule.when is not None and rule_matches(replace(rule, when=None), action):
        return 0.95, rule.when.find_miss(read_arguments(action.arguments), rule.outcome)
    if pattern.kind is None:
        return None
    if pattern.head.category not in ("*", action.category):
        return None
    if not pattern.head.matches(action.category, action.operation):
        widened = replace(pattern, head=replace(pattern.head, operation="*"))
        is_near = rule_matches(replace(rule, pattern=widened), action)
        return (0.9, f"it is for {pattern.head.text}, not for {action.head}") if is_near else None
    if rule.command is not None:
        return _command_miss(rule, action)
    miss = _path_miss(rule, pattern.path, action) if pattern.path is not None else None
    if miss is None and rule_matches(replace(rule, outcome=Outcome.DENY), action):
        miss = 0.95, "letter case differs, and an allow compares exactly"
    near = _similarity(pattern.target, action.target)
    what = "name" if pattern.path is None else "path"
    return miss or ((near, f"the {what} differs") if near >= SIMILAR else None)


def _path_miss(rule: Rule, path: PathPattern, action: Action) -> tuple[float, str] | None:
    if rule_matches(replace(rule, outcome=Outcome.DENY), action):
        if path.glob.directory_only:
            return 0.95, "its trailing slash means a directory"
        return 0.95, "letter case or Unicode form differs, and an allow compares exactly"
    if rule_matches(rule, action._replace(target=f"{action.target}/x")):
        return 0.9, "it matches entries below, not the directory itself"
    unanchored = replace(path.glob, segments=(DEPTH, *path.glob.segments))
    anywhere = replace(rule.pattern, path=replace(path, glob=unanchored))
    if not path.glob.anywhere and rule_matches(replace(rule, pattern=anywhere), action):
        return 0.85, "it is anchored at the workspace root"
    if matches_wild(path.text.replace("**", "*").lstrip("/"), action.target):
        return 0.8, "its * does not cross a slash"
    return None


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
        return 0.7, "the words after the program differ"
    near = _similarity(rule.pattern.target, action.target)
    return (near, "the words differ") if near >= SIMILAR else None


def _similarity(one: str, other: str) -> float:
    # The matcher's time is quadratic, and mistyped texts are short.
    ratio = SequenceMatcher(None, one[:COMPARED_CHARS_MAX], other[:COMPARED_CHARS_MAX]).ratio()
    return min(ratio, SIMILARITY_MAX)


class Explanation(Struct, frozen=True):
    decision: Decision
    agents: tuple[str, ...]
    profiles: tuple[str, ...]
    near_misses: tuple[NearMiss, ...]
    near_misses_left_off: int
    changes: tuple[ProposedChange, ...]

    def render(self) -> str:
        decision = self.decision
        lines = [f"{decision.said}: {decision.action}", f"  reason: {decision.reason}"]
        lines.append(f"  rule:   {_rule_text(decision.rule)}")
        lines.append(f"  agents: {', '.join(self.agents)} (profiles: {', '.join(self.profiles)})")
        others = [rule for rule in decision.matched if rule != decision.rule]
        lines += [f"  also matched: {_rule_text(rule)}" for rule in others]
        lines += [f"  warning: {warning}" for warning in decision.warnings]
        lines += self.surroundings()
        lines.append(f"  policy: {decision.policy_digest}")
        # Threat: an action of a model with line breaks could forge rows.
        return "\n".join(map(show_name, lines))

    def unasked(self) -> "Explanation":
        changes = tuple(replace(change, approval="") for change in self.changes)
        return replace(self, changes=changes)

    def with_refused_changes(self) -> "Explanation":
        """Of a command that ran: another rule for its line would let none of them land."""
        said = "the command ran, and only changes were refused: edit the rules named at `refused`"
        return replace(self, changes=(ProposedChange(said),))

    def surroundings(self) -> list[str]:
        misses = ((_rule_text(each.rule), each.why) for each in self.near_misses)
        lines = [f"  nearly matched: {rule}: {why}" for rule, why in misses]
        if self.near_misses_left_off:
            lines.append(f"  {self.near_misses_left_off} further near misses are not shown")
        lines += [f"  to change it: {change.shown}" for change in self.changes]
        return [show_name(line) for line in lines]

    def as_json(self) -> dict[str, Json]:
        decision = self.decision
        return {
            "action": decision.action,
            "outcome": decision.outcome.word,
            **here_json(decision),
            "code": decision.code,
            "reason": decision.reason,
            "rule": rule_in_full(decision.rule),
            "matched": [rule_in_full(rule) for rule in decision.matched],
            "warnings": list(decision.warnings),
            "agents": list(self.agents),
            "profiles": list(self.profiles),
            **self.surroundings_json(),
            "policy_digest": decision.policy_digest,
        }

    def surroundings_json(self) -> dict[str, Json]:
        return {
            "near_misses": [
                {"rule": rule_in_full(miss.rule), "why": miss.why} for miss in self.near_misses
            ],
            "near_misses_left_off": self.near_misses_left_off,
            "changes": [
                {"text": change.said, "outcome": change.word, "tried": change.was_tried}
                for change in self.changes
            ],
        }


def here_json(decision: Decision) -> dict[str, Json]:
    if not decision.enforcement:
        return {}
    return {"enforcement": decision.enforcement, "here": decision.comes_to.word}


def explain(
    policy: Policy, chain: AgentChain, action: Action, find_held: Callable[[], Held] = lambda: ""
) -> Explanation:
    """Explain a decision; `find_held` returns how far this host can confine the command."""
    judge = judge_for(policy, chain)
    shown, left_off = near_misses(judge.profiles(), action)
    decision = decide(policy, chain, (action,))
    if decision.outcome is Outcome.CONFINE:
        decision = confined(decision, held) if (held := find_held()) else decision
    return Explanation(
        decision=decision,
        agents=tuple(agent.name for agent in chain),
        profiles=tuple(dict.fromkeys(profile.name for profile in judge.profiles())),
        near_misses=shown,
        near_misses_left_off=left_off,
        changes=propose_changes(policy, chain, action),
    )


def find_nearly(
    policy: Policy, chain: AgentChain, action: Action, decision: Decision
) -> NearMiss | None:
    """Find the rule that would have made `decision` milder; None if that is a guess."""
    if decision.rule is not None and not decision.rule.source.endswith(".otherwise"):
        return None
    misses, _ = near_misses(judge_for(policy, chain).profiles(), action)
    certain = (each for each in misses if each.nearness > SIMILARITY_MAX)
    return next((each for each in certain if each.rule.outcome < decision.outcome), None)


def _rule_text(rule: RuleMatch | None) -> str:
    if rule is None:
        return "none matches, so it is denied"
    return f"{rule.text} ({rule.outcome.word}, {rule.source}, {rule.place})"


# The record gives the reasons of a past call (`record`), but not which rules nearly matched or
# what would flip the answer. Only the same policy can find those; another one would describe
# a decision that was never made.

CHANGED: Final = "the policy has changed since; for the current one: paddock policy explain ACTION"
SHOWN_MAX: Final = 5


class Now(Struct, frozen=True):
    """Additions of the current policy to a recorded call; `note`: why there are none."""

    note: str = ""
    explanations: tuple[Explanation, ...] = ()
    left_off: int = 0

    def unasked(self) -> "Now":
        return replace(self, explanations=tuple(each.unasked() for each in self.explanations))

    def with_refused_changes(self) -> "Now":
        explained = tuple(each.with_refused_changes() for each in self.explanations)
        return replace(self, explanations=explained)

    def render(self) -> str:
        if self.note:
            return f"  to change it: not known: {self.note}"
        rows = [row for each in self.explanations for row in each.surroundings()]
        if self.left_off:
            rows.append(f"  {self.left_off} further actions are not explained")
        return "\n".join(dict.fromkeys(rows))

    def as_json(self) -> dict[str, Json]:
        return {
            "note": self.note,
            "actions": [
                {"action": each.decision.action, **each.surroundings_json()}
                for each in self.explanations
            ],
            "actions_left_off": self.left_off,
        }


def explain_now(past: PastDecision | Lost | None, policy: Policy | None) -> Now:
    if isinstance(past, Lost):
        return Now(MEANINGS[past.why])
    if past is None or policy is None:
        return Now(MEANINGS[Why.WORKSPACE])
    if policy.digest != past.policy_digest:
        return Now(CHANGED)
    if lacks_arguments(policy, past):
        return Now(MEANINGS[Why.CUT])
    decisions = decide_each(policy, past)
    if max(each.outcome for each in decisions) is not past.outcome:
        return Now(MEANINGS[Why.OTHERWISE])
    both = zip(past.actions, decisions, strict=True)
    deciding = [action for action, each in both if each.outcome is past.outcome]
    if past.outcome is Outcome.ALLOW:
        # To flip an allow, one action that is no longer allowed is enough.
        deciding = deciding[:1]
    explained = [explain(policy, past.chain, action) for action in deciding[:SHOWN_MAX]]
    # An action's decision may depend on its call, as when a command writes the path.
    alike = tuple(each for each in explained if each.decision.outcome is past.outcome)
    return Now("", alike, len(deciding) - len(alike))


# A file with a false example does not load, so the report lists only examples that hold.


class ExampleResult(Struct, frozen=True):
    profile: str
    pattern: str
    example: Text
    wanted: bool
    holds: bool

    def render(self) -> str:
        verdict = "ok" if self.holds else "FALSE"
        verb = "matches" if self.wanted else "does not match"
        return f"{verdict}: {self.example.text!r} {verb} {self.pattern!r} ({self.example.place})"

    def as_json(self) -> dict[str, Json]:
        place, of_rule = self.example.place, {"profile": self.profile, "pattern": self.pattern}
        held = {"example": self.example.text, "wanted": self.wanted, "holds": self.holds}
        return {**of_rule, **held, "file": place.file, "line": place.line}


def run_examples(policy: Policy) -> tuple[ExampleResult, ...]:
    # A rule that other profiles inherit is tested once.
    found = (
        ExampleResult(profile.name, rule.pattern.text, example, wanted, holds)
        for profile in (*policy.profile_table, *policy.overlays)
        for rule in profile.rules
        for example, wanted in rule.examples
        for holds in [rule_matches(rule, parse_concrete(example.text)) is wanted]
    )
    return tuple({(each.example, each.pattern): each for each in found}.values())
