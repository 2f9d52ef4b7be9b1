"""What policy answers, and everything needed to explain or replay it."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, Literal

from paddock.errors import PermissionDeniedError
from paddock.values.calls import Json


class Outcome(IntEnum):
    """Ordered by strictness: the strictest of several is their maximum."""

    ALLOW = 0
    CONFINE = 1
    """Of commands alone: allowed where the sandbox holds it whole, else `ask`."""
    ASK = 2
    DENY = 3

    @property
    def word(self) -> str:
        """`allow`, `confine`, `ask` or `deny`, as in files and messages."""
        return self.name.lower()

    @classmethod
    def parse(cls, word: str) -> "Outcome":
        """The outcome of a lower-case word; `KeyError` for anything else."""
        return _BY_WORD[word]


Held = Literal["", "full", "partial", "none"]
"""How far the host holds a command to the policy; empty where nobody looked."""
HELD_WHOLE: Final = "full"

_BY_WORD = {outcome.word: outcome for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule that had a say: what it says, where it stands.

    `source` names the list or profile it belongs to (`paths.protected`,
    `profiles.standard.deny`, `agents.writer.permissions.forbidden`); `file` is
    `built-in` for what Paddock brings itself, and then `line` is 0.
    """

    outcome: Outcome
    text: str
    source: str
    file: str
    line: int
    reason: str = ""
    code: str = PermissionDeniedError.code
    """The refusal's code if this rule denies."""

    @property
    def place(self) -> str:
        """Where it stands: `FILE:LINE`, or what it comes from where there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    @property
    def said(self) -> str:
        """What it says and where it stands, in one line for a person."""
        return f"{self.text} ({self.source}, {self.place})"


def rule_as_json(rule: RuleMatch | None) -> Json:
    """What a rule says and where it stands, as commands print it; null for none."""
    if rule is None:
        return None
    return {"text": rule.text, "source": rule.source, "file": rule.file, "line": rule.line}


def rule_in_full(rule: RuleMatch | None) -> Json:
    """As an explanation prints it: also what it decides and why; null for none."""
    if rule is None:
        return None
    return {
        "text": rule.text,
        "outcome": rule.outcome.word,
        "source": rule.source,
        "file": rule.file,
        "line": rule.line,
        "reason": rule.reason,
    }


def rule_in_brief(rule: RuleMatch | None) -> Json:
    """As an entry of the ledger and a refusal keep it, without its source; null for none."""
    return None if rule is None else {"text": rule.text, "file": rule.file, "line": rule.line}


def match_in_brief(match: RuleMatch) -> Json:
    """As an entry of the ledger keeps one of several rules that matched."""
    return {
        "outcome": match.outcome.word,
        "text": match.text,
        "file": match.file,
        "line": match.line,
    }


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one call: the strictest over all its actions.

    `rule` decided; None means that nothing matched and unknown is no. `matched`
    is every rule that matched any action, the deciding one included.
    `warnings` are shown to model and user and never change the outcome. `enforcement`
    is set by `confined` alone, of a decision to confine.
    """

    outcome: Outcome
    action: str
    reason: str
    rule: RuleMatch | None
    code: str
    policy_digest: str
    matched: tuple[RuleMatch, ...] = ()
    warnings: tuple[str, ...] = ()
    enforcement: Held = ""

    @property
    def comes_to(self) -> Outcome:
        """What it is for whoever calls: `confine` where the command is not held whole is `ask`."""
        # Threat: a command that nothing holds runs because policy counted on a sandbox.
        if self.outcome is Outcome.CONFINE and self.enforcement != HELD_WHOLE:
            return Outcome.ASK
        return self.outcome

    @property
    def said(self) -> str:
        """Its outcome for a person: `confine (here: ask)` where the host does not hold it."""
        word = self.outcome.word
        if self.comes_to is self.outcome or not self.enforcement:
            return word
        return f"{word} (here: {self.comes_to.word})"


def confined(decision: Decision, enforcement: Held) -> Decision:
    """Return a decision with how far its command would be held, where it is to be confined.

    The outcome stays policy's; `comes_to` is what it is with that.
    """
    if decision.outcome is not Outcome.CONFINE:
        return decision
    found = replace(decision, enforcement=enforcement)
    if found.comes_to is Outcome.CONFINE:
        return found
    return replace(found, reason=f"{decision.reason}; {_UNHELD[enforcement]}")


_UNHELD: Final = {
    "": "whether this host holds it is not known, so it is asked about",
    "partial": "its sandbox here is not whole, so it is asked about",
    "none": "nothing holds it here, so it is asked about",
}
