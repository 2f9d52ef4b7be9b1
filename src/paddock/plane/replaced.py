"""What a profile of a file takes away from the one of its name that it replaces whole."""

from typing import Final

from paddock.policy.actions import ANY, HeadPattern
from paddock.policy.rules import Profile
from paddock.text.show import show_name
from paddock.values.decisions import Outcome

_DONE: Final = {
    Outcome.ALLOW: "allowed",
    Outcome.CONFINE: "confined",
    Outcome.ASK: "asked about",
    Outcome.DENY: "denied",
}


def repeats(profile: Profile, replaced: Profile) -> bool:
    """Whether it says every rule again and ends alike: then what it does not name is as it was."""
    rules = {(rule.pattern.text, rule.outcome) for rule in profile.rules}
    is_whole = all((rule.pattern.text, rule.outcome) in rules for rule in replaced.rules)
    return is_whole and _ends(profile) == _ends(replaced)


def unnamed_answer(profile: Profile) -> str:
    """Say what it answers where no rule of it matches, the strictest first: of two that wins."""
    parts: list[str] = []
    for outcome in reversed(Outcome):
        heads = [entry.head for entry in profile.otherwise if entry.outcome is outcome]
        if any((head.category, head.operation) == (ANY, ANY) for head in heads):
            return ", else ".join((*parts, _DONE[outcome]))
        if heads:
            parts.append(f"{_DONE[outcome]} ({', '.join(map(_short, heads))})")
    if all(entry.outcome is Outcome.DENY for entry in profile.otherwise):
        return _DONE[Outcome.DENY]
    return f"{', '.join(parts)}, else {_DONE[Outcome.DENY]}"


def _ends(profile: Profile) -> set[tuple[str, Outcome]]:
    return {(entry.head.text, entry.outcome) for entry in profile.otherwise}


def _short(head: HeadPattern) -> str:
    words = (head.category,) if head.operation == ANY else (head.category, head.operation)
    return show_name(":".join(words))
