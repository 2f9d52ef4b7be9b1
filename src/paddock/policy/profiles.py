"""Profiles compiled for judging: rules by head, path targets in an index.

Deny before ask before confine before allow, whatever their order in the file; then the
strictest entry of `otherwise`; then no. What an untrusted file lays over a
profile is a profile by itself; the stricter of both answers holds.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.policy.matching import comparison_of, means_head, names_directory
from paddock.policy.patterns import PathSet
from paddock.policy.problems import quote_toml
from paddock.policy.rules import Profile, Rule
from paddock.values.decisions import Action, Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.commands import SimpleCommand


@dataclass(frozen=True, slots=True)
class Finding:
    """One say in a decision. Among equally strict ones the lowest `rank` decides.

    `rule` is None where nothing matched.
    """

    outcome: Outcome
    rule: RuleMatch | None
    reason: str
    rank: int
    """0: a rule; 1: `otherwise`; 2: nothing matched."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one profile says to one action or command: its finding, and all that matched."""

    finding: Finding
    matched: tuple[Rule, ...] = ()


@dataclass(slots=True)
class _HeadRules:
    untargeted: list[Rule] = field(default_factory=list[Rule])
    by_path: list[Rule] = field(default_factory=list[Rule])
    by_name: list[Rule] = field(default_factory=list[Rule])
    by_command: list[Rule] = field(default_factory=list[Rule])
    paths: PathSet | None = None
    otherwise: RuleMatch | None = None


class CompiledProfile:
    __slots__ = ("_heads", "_note", "overlay", "profile")

    def __init__(self, profile: Profile, overlay: Profile | None = None, note: str = "") -> None:
        """Compile `profile` under `overlay`, the one of its name of an untrusted file.

        `note` is said with every answer (as, that the profile asked for is unknown).
        """
        self.profile = profile
        self.overlay: CompiledProfile | None = None
        if overlay is not None:
            untrusted = f"{overlay.place.file} is not trusted, and only tightens"
            self.overlay = CompiledProfile(overlay, note=untrusted)
        self._note = note
        self._heads: dict[tuple[str, str], _HeadRules] = {}

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Its rules, and those of an untrusted file that are laid over them."""
        above = () if self.overlay is None else self.overlay.profile.rules
        return (*self.profile.rules, *above)

    @property
    def alone(self) -> "CompiledProfile":
        """The profile without what is laid over it."""
        return self if self.overlay is None else CompiledProfile(self.profile, note=self._note)

    def judge(self, action: Action) -> Verdict:
        """Judge an action whose target is no command."""
        head = self._head(action.category, action.operation)
        matched = list(head.untargeted)
        if head.paths is not None:
            numbers = head.paths.matching(action.target or ".", names_directory(action))
            matched.extend(head.by_path[number] for number in sorted(numbers))
        matched.extend(rule for rule in head.by_name if _name_matches(rule, action.target))
        verdict = self._verdict(head, matched, str(action))
        if self.overlay is None:
            return verdict
        return _stricter(verdict, self.overlay.judge(action))

    def judge_command(self, action: Action, command: "SimpleCommand | None") -> Verdict:
        """Judge one simple command of `action`'s line; None for what could not be parsed.

        Only a rule for any command matches what could not be parsed.
        """
        head = self._head(action.category, action.operation)
        matched = list(head.untargeted)
        matched.extend(rule for rule in head.by_command if _command_matches(rule, command))
        asked = f"{action.head} {action.target if command is None else command.text}"
        verdict = self._verdict(head, matched, asked)
        if verdict.finding.outcome is Outcome.CONFINE and not _is_named(matched, command):
            # Threat: a reading that only may be meant makes an allow stricter, and nothing milder.
            unmatched = self._verdict(head, [], asked).finding
            finding = min(verdict.finding, unmatched, key=strictness)
            verdict = Verdict(finding, verdict.matched)
        if self.overlay is None:
            return verdict
        return _stricter(verdict, self.overlay.judge_command(action, command))

    def closes(self, category: str, operation: str) -> bool:
        """Whether every target of an action with this head is denied."""
        if self.overlay is not None and self.overlay.closes(category, operation):
            return True
        head = self._head(category, operation)
        rules = [*head.untargeted, *head.by_path, *head.by_name, *head.by_command]
        if any(rule.outcome is Outcome.DENY and _is_for_all(rule) for rule in rules):
            return True
        if any(rule.outcome is not Outcome.DENY for rule in rules):
            return False
        return head.otherwise is None or head.otherwise.outcome is Outcome.DENY

    def _verdict(self, head: _HeadRules, matched: list[Rule], asked: str) -> Verdict:
        if matched:
            rule = max(matched, key=lambda each: each.outcome)
            finding = Finding(rule.outcome, rule.shown, self._noted(rule.said), 0)
            return Verdict(finding, tuple(matched))
        found = head.otherwise
        if found is not None:
            reason = (
                f"no rule matches {quote_toml(asked)}, and {quote_toml(found.text)} in"
                f" {found.source} says {found.outcome.word}"
            )
            return Verdict(Finding(found.outcome, found, self._noted(reason), 1))
        reason = (
            f"no rule of the profile {quote_toml(self.name)} matches {quote_toml(asked)}, "
            f"and unknown is no; an operator can allow it in [profiles.{self.name}]"
        )
        return Verdict(Finding(Outcome.DENY, None, self._noted(reason), 2))

    def _noted(self, reason: str) -> str:
        return f"{reason} ({self._note})" if self._note else reason

    def _head(self, category: str, operation: str) -> _HeadRules:
        known = self._heads.get((category, operation))
        if known is not None:
            return known
        head = _HeadRules()
        for rule in self.profile.rules:
            if not means_head(rule.pattern.head, rule.outcome, category, operation):
                continue
            if rule.pattern.path is not None:
                head.by_path.append(rule)
            elif rule.pattern.name is not None:
                head.by_name.append(rule)
            elif rule.command is not None:
                head.by_command.append(rule)
            else:
                head.untargeted.append(rule)
        if head.by_path:
            head.paths = PathSet(
                (number, rule.pattern.path, comparison_of(rule.outcome))
                for number, rule in enumerate(head.by_path)
                if rule.pattern.path is not None
            )
        entries = [
            entry
            for entry in self.profile.otherwise
            if means_head(entry.head, entry.outcome, category, operation)
        ]
        if entries:
            # Where keys overlap, the strictest.
            head.otherwise = max(entries, key=lambda each: each.outcome).as_match()
        if category != "client":
            # A client's tool names are its own: they are not kept.
            self._heads[category, operation] = head
        return head


def _stricter(below: Verdict, above: Verdict) -> Verdict:
    """Only ever stricter: an allow or an ask from above does not soften a no from below."""
    finding = min(below.finding, above.finding, key=strictness)
    return Verdict(finding, below.matched + above.matched)


def strictness(finding: Finding) -> tuple[int, int]:
    """Sort key: the strictest first, and among equals what a rule says."""
    return -finding.outcome, finding.rank


def _is_for_all(rule: Rule) -> bool:
    """Whether it matches every target."""
    if rule.pattern.path is not None:
        return rule.pattern.path.glob.covers_root
    return not rule.pattern.has_target or (rule.command is not None and rule.command.is_any)


def _name_matches(rule: Rule, name: str) -> bool:
    pattern = rule.pattern.name
    if pattern is None:
        return False
    return pattern.matches(name) if rule.outcome is Outcome.ALLOW else pattern.matches_widely(name)


def _is_named(matched: list[Rule], command: "SimpleCommand | None") -> bool:
    return any(_means_exactly(rule, command) for rule in matched if rule.outcome < Outcome.ASK)


def _means_exactly(rule: Rule, command: "SimpleCommand | None") -> bool:
    pattern = rule.command
    if pattern is None or pattern.is_any:
        return True
    return command is not None and pattern.matches_exactly(command)


def _command_matches(rule: Rule, command: "SimpleCommand | None") -> bool:
    pattern = rule.command
    if pattern is None:
        return False
    if pattern.is_any:
        return True
    if command is None:
        return False
    if rule.outcome is Outcome.ALLOW:
        return pattern.matches_exactly(command)
    return pattern.matches_any_reading(command)
