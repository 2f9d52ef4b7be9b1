"""`policy test`: each example of each rule, judged again and reported one by one.

A file with a false example does not load, so a policy that exists has none; the
report shows which promises were kept, and how many.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.policy.actions import parse_concrete
from paddock.policy.engine import Policy
from paddock.policy.matching import rule_matches
from paddock.policy.reader import Text
from paddock.policy.rules import Rule


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """One example: `wanted` is whether it should match, `holds` whether that is so."""

    profile: str
    pattern: str
    example: Text
    wanted: bool
    holds: bool

    def render(self) -> str:
        verdict = "ok" if self.holds else "FALSE"
        verb = "matches" if self.wanted else "does not match"
        return f"{verdict}: {self.example.text!r} {verb} {self.pattern!r} ({self.example.place})"


def run_examples(policy: Policy) -> tuple[ExampleResult, ...]:
    """Judge every example of the policy's profiles, in the order of the files."""
    # A rule that other profiles have from its own is judged once.
    return tuple({(each.example, each.pattern): each for each in _results(policy)}.values())


def _results(policy: Policy) -> Iterator[ExampleResult]:
    for profile in (*policy.profile_table, *policy.overlays):
        for rule in profile.rules:
            for example in rule.match:
                yield _result(profile.name, rule, example, wanted=True)
            for example in rule.not_match:
                yield _result(profile.name, rule, example, wanted=False)


def _result(profile: str, rule: Rule, example: Text, wanted: bool) -> ExampleResult:
    holds = rule_matches(rule, parse_concrete(example.text)) is wanted
    return ExampleResult(profile, rule.pattern.text, example, wanted, holds)
