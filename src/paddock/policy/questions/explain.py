"""Why a decision is what it is, what nearly matched, and what would change it.

Nothing here decides: the decision comes from `decide`, and every proposed change
of a rule is tried on a changed policy before it is shown as one that works.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from paddock.policy.decide import decide, judge_for
from paddock.policy.engine import Policy
from paddock.policy.questions.changes import Change, propose_changes
from paddock.policy.questions.nearness import NO_TELLING, NearMiss, near_misses
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


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with its surroundings. `near_misses_left_off` were not kept."""

    decision: Decision
    agents: tuple[str, ...]
    profiles: tuple[str, ...]
    near_misses: tuple[NearMiss, ...]
    near_misses_left_off: int
    changes: tuple[Change, ...]

    def render(self) -> str:
        """Return the whole as text for a person."""
        decision = self.decision
        lines = [f"{decision.said}: {decision.action}", f"  reason: {decision.reason}"]
        lines.append(f"  rule:   {_rule_text(decision.rule)}")
        lines.append(f"  agents: {', '.join(self.agents)} (profiles: {', '.join(self.profiles)})")
        others = [rule for rule in decision.matched if rule != decision.rule]
        lines += [f"  also matched: {_rule_text(rule)}" for rule in others]
        lines += [f"  warning: {warning}" for warning in decision.warnings]
        lines += self.surroundings()
        lines.append(f"  policy: {decision.policy_digest}")
        # Threat: an action with line breaks, which a model writes, would draw rows of its own.
        return "\n".join(map(show_name, lines))

    def unasked(self) -> "Explanation":
        """Return it for a door that cannot ask a person: no approval is proposed."""
        changes = tuple(replace(change, approval="") for change in self.changes)
        return replace(self, changes=changes)

    def surroundings(self) -> list[str]:
        """What nearly matched and what would change it, in rows for a person."""
        lines = [
            f"  nearly matched: {_rule_text(miss.rule)}: {miss.why}" for miss in self.near_misses
        ]
        if self.near_misses_left_off:
            lines.append(f"  {self.near_misses_left_off} further near misses are not shown")
        lines += [f"  to change it: {_change_text(change)}" for change in self.changes]
        return [show_name(line) for line in lines]

    def as_json(self) -> dict[str, Json]:
        """Return the whole as a JSON object."""
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
        """What nearly matched and what would change it, as JSON members."""
        return {
            "near_misses": [
                {"rule": rule_in_full(miss.rule), "why": miss.why} for miss in self.near_misses
            ],
            "near_misses_left_off": self.near_misses_left_off,
            "changes": [
                {"text": change.said, "outcome": _outcome_word(change), "tried": change.was_tried}
                for change in self.changes
            ],
        }


def here_json(decision: Decision) -> dict[str, Json]:
    """What a decision to confine comes to on this host, as JSON members; none of any other."""
    if not decision.enforcement:
        return {}
    return {"enforcement": decision.enforcement, "here": decision.comes_to.word}


def explain(
    policy: Policy, chain: AgentChain, action: Action, find_held: Callable[[], Held] = lambda: ""
) -> Explanation:
    """Explain the decision about one action of the agent at the head of `chain`.

    `find_held` looks how far this host would hold the command, where that matters.
    """
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
    """Find the rule that would have made `decision` milder, had it counted.

    None where a rule decided, and where it would be a guess that the rule was meant.
    """
    if decision.rule is not None and not decision.rule.source.endswith(".otherwise"):
        return None
    misses, _ = near_misses(judge_for(policy, chain).profiles(), action)
    for miss in misses:
        if miss.nearness > NO_TELLING and miss.rule.outcome < decision.outcome:
            return miss
    return None


def _rule_text(rule: RuleMatch | None) -> str:
    if rule is None:
        return "none matches, and unknown is no"
    return f"{rule.text} ({rule.outcome.word}, {rule.source}, {rule.place})"


def _change_text(change: Change) -> str:
    if change.outcome is None:
        return change.said
    return f"{change.said} (then: {change.outcome.word})"


def _outcome_word(change: Change) -> str | None:
    return None if change.outcome is None else change.outcome.word
