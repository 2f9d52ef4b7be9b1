"""Whether one rule matches one action. A rule that allows matches exactly, any other widely."""

from paddock.policy.actions import HeadPattern, TargetKind
from paddock.policy.patterns import Comparison, PathSet
from paddock.policy.rules import Rule
from paddock.values.decisions import Action, Outcome


def comparison_of(outcome: Outcome) -> Comparison:
    """Return how the targets of rules with this outcome compare."""
    return Comparison.PERMITTING if outcome is Outcome.ALLOW else Comparison.GUARDING


def names_directory(action: Action) -> bool:
    """Whether the last component of the action's path counts as a directory.

    What is searched or listed mostly is one; a file of that name that is read
    under `docs/` instead is no more than the rule's author named.
    """
    return action.category == "search"


def means_head(head: HeadPattern, outcome: Outcome, category: str, operation: str) -> bool:
    if outcome is Outcome.ALLOW:
        return head.matches(category, operation)
    return head.matches_widely(category, operation)


def rule_matches(rule: Rule, action: Action) -> bool:
    """Whether `rule` matches `action`, judged alone.

    A command line is matched by a deny or an ask if one of its simple commands
    is, under any reading; by an allow only if all of them are, exactly.
    """
    pattern = rule.pattern
    if not means_head(pattern.head, rule.outcome, action.category, action.operation):
        return False
    if pattern.kind is None:
        return True
    if pattern.path is not None:
        single = PathSet([(0, pattern.path, comparison_of(rule.outcome))])
        return bool(single.matching(action.target, names_directory(action)))
    if pattern.name is not None:
        if rule.outcome is Outcome.ALLOW:
            return pattern.name.matches(action.target)
        return pattern.name.matches_widely(action.target)
    return pattern.kind is TargetKind.COMMAND and _line_matches(rule, action.target)


def _line_matches(rule: Rule, line: str) -> bool:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if rule.command is None:
        return False
    if rule.command.is_any:
        return True
    parsed = parse_line(line)
    if rule.outcome is Outcome.ALLOW:
        return bool(parsed.commands) and all(map(rule.command.matches_exactly, parsed.wanted))
    return any(map(rule.command.matches_any_reading, parsed.commands))
