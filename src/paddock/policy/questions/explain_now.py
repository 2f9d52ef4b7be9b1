"""What would change the answer to a recorded call, if the policy that gave it is in force yet.

The record says why a call was decided as it was (`explain_record`). Which rules nearly
matched, and what would flip the answer, no record holds: that is found by the same policy,
and under another one it would be told of a decision that nobody made.
"""

from dataclasses import dataclass, replace
from typing import Final

from paddock.policy.engine import Policy
from paddock.policy.questions.explain import Explanation, explain
from paddock.policy.questions.recorded import MEANINGS, Lost, PastDecision, Why
from paddock.policy.questions.replay import decide_each
from paddock.values.calls import Json
from paddock.values.decisions import Outcome

CHANGED: Final = "the policy has changed since; of the one in force: paddock policy explain ACTION"
SHOWN_MAX: Final = 5
"""Actions of one call that are explained; the others are counted."""


@dataclass(frozen=True, slots=True)
class Now:
    """What the policy in force adds to a recorded call; `note` says why, where it is nothing."""

    note: str = ""
    explanations: tuple[Explanation, ...] = ()
    """Of the actions that decided, each by itself."""
    left_off: int = 0
    """Actions that decided likewise and are not explained."""

    def unasked(self) -> "Now":
        """Return it for a call whose client could not ask a person."""
        return replace(self, explanations=tuple(each.unasked() for each in self.explanations))

    def render(self) -> str:
        """The rows for a person, to stand below the call's."""
        if self.note:
            return f"  to change it: not told: {self.note}"
        rows = [row for each in self.explanations for row in each.surroundings()]
        if self.left_off:
            rows.append(f"  {self.left_off} further actions are not explained")
        return "\n".join(dict.fromkeys(rows))

    def as_json(self) -> dict[str, Json]:
        """The same for a program."""
        return {
            "note": self.note,
            "actions": [
                {"action": each.decision.action, **each.surroundings_json()}
                for each in self.explanations
            ],
            "actions_left_off": self.left_off,
        }


def explain_now(past: PastDecision | Lost | None, policy: Policy | None) -> Now:
    """Explain what decided a recorded call; `policy` is the one that its agent meets now.

    Limits: `SHOWN_MAX`.
    """
    if isinstance(past, Lost):
        return Now(MEANINGS[past.why])
    if past is None or policy is None:
        return Now(MEANINGS[Why.WORKSPACE])
    if policy.digest != past.policy_digest:
        return Now(CHANGED)
    decisions = decide_each(policy, past)
    if max(each.outcome for each in decisions) is not past.outcome:
        return Now(MEANINGS[Why.OTHERWISE])
    deciding = [
        action
        for action, each in zip(past.actions, decisions, strict=True)
        if each.outcome is past.outcome
    ]
    if past.outcome is Outcome.ALLOW:
        # One action that is not allowed any more is enough.
        deciding = deciding[:1]
    explained = [explain(policy, past.chain, action) for action in deciding[:SHOWN_MAX]]
    # A door may know of an action what it alone does not say, as that a command writes it.
    alike = tuple(each for each in explained if each.decision.outcome is past.outcome)
    return Now("", alike, len(deciding) - len(alike))
