"""What a profile answers as a rule: what a file's rule is held against when it is to be trusted."""

from paddock.policy.actions import ANY, HeadPattern
from paddock.policy.rules import Otherwise, Profile
from paddock.values.decisions import Outcome


def usual_answer(before: Profile, head: HeadPattern, kept: tuple[Otherwise, ...] = ()) -> Outcome:
    """The strictest answer that `before` gives to anything that `head` names.

    What `kept`, the entries of the profile that replaces it, says as strictly is left aside.

    Threat: a rule that loosens one operation of several must not pass for strict. So what
    answers mildly counts only if it is for all that `head` names, whatever the target, and
    what answers strictly if it is for any of it.
    """
    if any(rule.outcome is not Outcome.ALLOW for rule in before.rules):
        return Outcome.DENY
    allowed = (rule.pattern.head for rule in before.rules if not rule.pattern.has_target)
    if any(_covers(each, head) for each in allowed):
        return Outcome.ALLOW
    if not any(_covers(entry.head, head) for entry in before.otherwise):
        return Outcome.DENY
    lost = (
        entry.outcome
        for entry in before.otherwise
        if _meets(entry.head, head) and not _is_kept(entry, kept)
    )
    return max(lost, default=Outcome.ALLOW)


def _is_kept(entry: Otherwise, kept: tuple[Otherwise, ...]) -> bool:
    # Where entries overlap, the strictest answers.
    return any(_covers(each.head, entry.head) and each.outcome >= entry.outcome for each in kept)


def _covers(one: HeadPattern, other: HeadPattern) -> bool:
    return one.matches(other.category, other.operation)


def _meets(one: HeadPattern, other: HeadPattern) -> bool:
    operations = (one.operation, other.operation)
    is_named_alike = one.operation.casefold() == other.operation.casefold()
    return (ANY in (one.category, other.category) or one.category == other.category) and (
        ANY in operations or is_named_alike
    )
