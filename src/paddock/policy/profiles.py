"""Compile profiles (`policy.compiled`) and judge calls and command lines by them.

Deny before ask before confine before allow, whatever their order in the file; then the
strictest entry of `otherwise`; then deny. The overlay of an untrusted file is a separate
profile; the stricter of both answers decides.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.compiled import conclude, find_rules, means
from paddock.policy.pathset import build_index, comparison_of
from paddock.policy.positions import BUILT_IN, quote_toml
from paddock.policy.rules import ANY, HeadPattern, Profile, Rule, TargetKind, read_arguments
from paddock.values.calls import Json
from paddock.values.decisions import Action, Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.commands import CommandPattern, SimpleCommand


class Finding(Struct, frozen=True):
    """One answer. Among equally strict ones the lowest `rank` decides; no `rule`: none matched."""

    outcome: Outcome
    rule: RuleMatch | None
    reason: str
    rank: int
    """0: a rule; 1: `otherwise`; 2: nothing matched."""


class Verdict(Struct, frozen=True):
    finding: Finding
    matched: tuple[Rule, ...] = ()

    def findings(self) -> Iterator[Finding]:
        yield self.finding
        for rule in self.matched:
            yield Finding(rule.outcome, rule.shown, rule.reason, 3)


def compile_profile(profile: Profile, note: str = "") -> Json:
    rules = tuple(enumerate(profile.rules))
    paths = ((number, rule.pattern.path, rule.outcome) for number, rule in rules)
    return {
        "name": profile.name,
        "note": note,
        "rules": tuple(
            _row(rule.pattern.head, rule.shown, rule.said, rule.reason) for _, rule in rules
        ),
        "otherwise": tuple(_row(entry.head, entry.as_match()) for entry in profile.otherwise),
        "plain": tuple(number for number, rule in rules if rule.pattern.kind is None),
        "paths": build_index(
            (number, path, comparison_of(outcome))
            for number, path, outcome in paths
            if path is not None
        ),
        "names": tuple(
            (number, _name_parts(rule))
            for number, rule in rules
            if rule.pattern.kind is TargetKind.NAME
        ),
        "commands": tuple(
            (number, _program(rule.command)) for number, rule in rules if rule.command is not None
        ),
        "when": {
            number: rule.when.compiled(rule.outcome)
            for number, rule in rules
            if rule.when is not None
        },
    }


def _row(head: HeadPattern, shown: RuleMatch, said: str = "", reason: str = "") -> Json:
    place = (shown.text, shown.source, shown.file, shown.line)
    return (head.category, head.operation, int(shown.outcome), *place, said, reason)


def _name_parts(rule: Rule) -> tuple[str, ...]:
    name = rule.pattern.target
    return tuple((name if rule.outcome is Outcome.ALLOW else name.casefold()).split(ANY))


def _program(command: "CommandPattern") -> str | None:
    if command.is_any:
        return None
    first = command.words[0]
    if not first.is_literal:
        return ""
    from paddock.policy.commands.words import program_name  # noqa: PLC0415 - late on purpose

    return program_name(first.parts[0]).casefold()


def rule_matches(rule: Rule, action: Action) -> bool:
    """Match a line by one of its commands under any reading; an allow needs all, exactly."""
    if rule.pattern.kind is TargetKind.COMMAND:
        is_meant = rule.pattern.head.matches(action.category, action.operation)
        return is_meant and _line_matches(rule, action.target)
    if rule.pattern.net is not None:
        return action.category == "net" and rule.pattern.net.matches(action, rule.outcome)
    return _find_rules(compile_profile(Profile("", (rule,))), action) != []


def _find_rules(table: Json, action: Action) -> list[int]:
    head, given = (action.category, action.operation), read_arguments(action.arguments)
    # A search target is usually a directory; if `docs/` is a file, the rule named it anyway.
    return find_rules(table, *head, action.target, action.category == "search", given)


def _line_matches(rule: Rule, line: str) -> bool:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    parsed, is_allow = parse_line(line), rule.outcome is Outcome.ALLOW
    commands = (parsed.wanted if is_allow else parsed.commands) or (None,)
    matched = (_command_matches(rule, each) for each in commands)
    return all(matched) if is_allow else any(matched)


class CompiledProfile:
    def __init__(
        self, profile: Profile, note: str = "", is_overlay: bool = False, title: str = ""
    ) -> None:
        """Put `title` before each reason and `note` after it; `is_overlay`: an untrusted file's."""
        self.profile = profile
        self.is_overlay = is_overlay
        self.title = title
        self.table = compile_profile(profile, note)

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.profile.rules

    def judge(self, action: Action) -> Verdict:
        if action.category == "net":
            from paddock.policy.network import judge_net  # noqa: PLC0415 - late on purpose

            return judge_net(self, action)
        return self.verdict(_find_rules(self.table, action), action, str(action))

    def judge_command(self, action: Action, command: "SimpleCommand | None") -> Verdict:
        """`command` None: a part that was not parsed, which only rules for any command match."""
        matched = find_rules(self.table, action.category, action.operation, "")
        matched += [
            number
            for number, rule in enumerate(self.profile.rules)
            if _command_matches(rule, command)
            and means(self.table["rules"][number], action.category, action.operation)
        ]
        asked = f"{action.head} {action.target if command is None else command.text}"
        verdict = self.verdict(matched, action, asked)
        if verdict.finding.outcome is Outcome.CONFINE and not _is_named(verdict.matched, command):
            # Threat: a `confine` that matches only a possible reading must not soften the answer.
            unmatched = self.verdict([], action, asked).finding
            finding = min(verdict.finding, unmatched, key=strictness)
            verdict = Verdict(finding, verdict.matched)
        return verdict

    def closes(self, category: str, operation: str) -> bool:
        rows = zip(self.table["rules"], self.profile.rules, strict=True)
        rules = [rule for row, rule in rows if means(row, category, operation)]
        if any(rule.outcome is Outcome.DENY and _is_for_all(rule) for rule in rules):
            return True
        if any(rule.outcome is not Outcome.DENY for rule in rules):
            return False
        return conclude(self.table, [], category, operation, "")[0] == Outcome.DENY

    def verdict(self, matched: list[int], action: Action, asked: str) -> Verdict:
        outcome, rank, row, reason = conclude(
            self.table, matched, action.category, action.operation, asked
        )
        rule = None
        if row is not None:
            _, _, _, text, source, file, line, _, why = row
            rule = RuleMatch(Outcome(outcome), text, source, file, line, why)
        rules = tuple(self.profile.rules[number] for number in matched)
        return Verdict(Finding(Outcome(outcome), rule, self.title + reason, rank), rules)


def strictness(finding: Finding) -> tuple[int, int]:
    return -finding.outcome, finding.rank


def _is_for_all(rule: Rule) -> bool:
    if rule.pattern.path is not None:
        return rule.pattern.path.glob.covers_root
    return rule.is_for_every_call or (rule.command is not None and rule.command.is_any)


def _is_named(matched: tuple[Rule, ...], command: "SimpleCommand | None") -> bool:
    milder = (rule.command for rule in matched if rule.outcome < Outcome.ASK)
    return any(
        pattern is None
        or pattern.is_any
        or (command is not None and pattern.matches_exactly(command))
        for pattern in milder
    )


def _command_matches(rule: Rule, command: "SimpleCommand | None") -> bool:
    pattern = rule.command
    if pattern is None or pattern.is_any or command is None:
        return pattern is not None and pattern.is_any
    if rule.outcome is Outcome.ALLOW:
        return pattern.matches_exactly(command)
    return pattern.matches_any_reading(command)


# The strictest simple command decides. A part that cannot be parsed, or is known only at run
# time, is judged by what it could be: if a rule that denies, asks or sets the network could
# match it, the answer is ask; else rules for any command and `otherwise` decide. Redirections
# are writes, judged as `tool:file:create` as well. A line of only assignments or tests is
# judged by rules for any command; a line without even that (a comment) is refused.

_PRIVATE: Final = lazy_pattern(r"(?:~|/+(?:tmp|var/+tmp|dev/+shm))/.*[^/.].*", re.DOTALL)
"""Paths that are private to a sandboxed command. A caller without a sandbox must check them."""


PERSONS_ACT: Final = (
    "is a person's act, which no policy allows to an agent; run it in a terminal of your own"
)


@lru_cache(maxsize=64)
def judge_line(action: Action) -> "LineJudge":
    return LineJudge(action)


UNREADABLE_REMEDY: Final = "write the whole command literally in the line"


class LineJudge:
    def __init__(self, action: Action) -> None:
        # The command parser is loaded only when a command is judged.
        from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose
        from paddock.policy.commands.operator_commands import find_persons_act  # noqa: PLC0415 - as above

        line = parse_line(action.target)
        self._action = action
        self._line = line
        self.reasons = tuple(dict.fromkeys((*line.runtime_only, *line.problems)))
        commands: tuple[SimpleCommand | None, ...] = line.commands
        if line.problems or not commands:
            # A part that was not parsed is judged too; only a rule for any command matches it.
            # The same for a line of only a redirection, which creates or empties a file.
            commands = (*commands, None)
        self.commands = commands
        self._targets = tuple(target for target in line.writes if _is_file(target))
        self._stays = not self.reasons and not line.moves and not any(map(_may_move, line.commands))
        self.refusal = ""
        is_statement = line.has_statement and not line.problems
        if not (line.commands or line.writes or is_statement):
            self.refusal = f"{quote_toml(action.target)} contains no command"
        if line.bound:
            self.refusal = f"{line.bound}: write it into a file, and run that"
        act = find_persons_act(line)
        if act:
            self.refusal = f"{quote_toml(act)} {PERSONS_ACT}"

    def verdicts(
        self, profile: CompiledProfile
    ) -> tuple[tuple["SimpleCommand | None", Verdict], ...]:
        """Return each command's verdict, without neutral ones if rules name all the others."""
        said = [(each, profile.judge_command(self._action, each)) for each in self.commands]
        wanted = [verdict for each, verdict in said if each is None or not each.is_neutral]
        if wanted and all(verdict.finding.rank == 0 for verdict in wanted):
            said = [(each, verdict) for each, verdict in said if verdict.finding.rank == 0]
        return tuple(said)

    def findings(self, profile: CompiledProfile) -> Iterator[Finding]:
        for _, verdict in self.verdicts(profile):
            yield from verdict.findings()
        outcome, rule, reasons = self._find_possible(profile)
        if rule is None:
            return
        for reason in reasons:
            possible = RuleMatch(outcome, reason, BUILT_IN, BUILT_IN, 0, reason)
            named = f"{quote_toml(rule.pattern.text)} ({rule.place})"
            yield Finding(outcome, possible, f"{profile.title}{reason}, so {named} could match", 0)

    def _find_possible(
        self, profile: CompiledProfile
    ) -> tuple[Outcome, Rule | None, Sequence[str]]:
        """Threat: `g=git; $g push` under an allow of any command and a deny of `git push *`.

        A file that runs under another name (`source`, `PATH=`) can do what any script can, which
        no rule sees: such a line is not asked about, but only runs where the sandbox holds it.
        """
        guarding = [
            (rule, rule.command)
            for rule in profile.rules
            if rule.command is not None and not rule.command.is_any
            if rule.outcome >= Outcome.ASK or rule.network is not None
        ]
        for rule, pattern in guarding:
            if self.reasons and (
                self._line.may_be_any or any(map(pattern.may_come_to_match, self._line.commands))
            ):
                return Outcome.ASK, rule, self.reasons
            starting = next(filter(pattern.may_be_started, self._line.commands), None)
            if starting is not None:
                return (
                    Outcome.ASK,
                    rule,
                    [f"{quote_toml(starting.program)} may start what its words name"],
                )
        return Outcome.CONFINE, guarding[0][0] if guarding else None, self._line.hiding

    def written(self) -> list[Action]:
        return [write for write in self.writes() if isinstance(write, Action)]

    def writes(self, added: frozenset[str] = frozenset()) -> Iterator[Action | Finding]:
        """Yield each write by redirection, or why it is denied, resolved from the root.

        `added` are the writes that the caller resolved from the line's working directory. If they
        are all of the line's, a target that leaves the workspace only from the root is not denied.
        """
        is_named = self._stays and _are_named(self._targets, added)
        grounds = ["."]
        for move in self._line.moves:
            grounds += [f"{ground}/{move}" for ground in grounds]
        for target in self._targets:
            paths = dict.fromkeys(written_path(target, ground) for ground in grounds)
            for path in filter(None, paths):
                yield Action("file", "create", path)
            if not any(paths) and not is_named:
                reason = f"the redirection to {quote_toml(target)} leaves the workspace"
                yield Finding(Outcome.DENY, None, reason, 2)


def written_path(target: str, cwd: str = ".") -> str:
    if target.startswith(("/", "~")):
        return ""
    parts: list[str] = []
    for part in f"{cwd}/{target}".split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _is_file(target: str) -> bool:
    return ".." in target.split("/") or _PRIVATE.fullmatch(target) is None


def _may_move(command: "SimpleCommand") -> bool:
    """Threat: a hidden `cd` before the redirection, under any name or in any script."""
    if command.obstacles or command.starts != (0,):
        return True
    holds_script = len(command.readings) > 1
    return holds_script and any(">" in word.text for word in command.words)


def _are_named(targets: tuple[str, ...], named: frozenset[str]) -> bool:
    """Return True if some one directory resolves every target to a named path.

    Threat: one target is named and the other leaves the workspace. Resolved from a directory
    deeper than the line's, every target is a longer path, and one of them is not named.
    """
    if not named or any(map(_climbs_late, targets)):
        return False
    # Each `x/` is an unknown directory that the target's `..` leaves again.
    highest = min(targets, key=_climbs, default="")
    below = written_path("/".join(part for part in highest.split("/") if part != ".."))
    ends = (path for path in named if below and f"/{path}".endswith(f"/{below}"))
    starts = (f"{path.removesuffix(below)}{'x/' * _climbs(highest)}" for path in ends)
    return any(all(written_path(target, start) in named for target in targets) for start in starts)


def _climbs(target: str) -> int:
    return target.split("/").count("..")


def _climbs_late(target: str) -> bool:
    return ".." in dropwhile(lambda part: part in ("", ".", ".."), target.split("/"))
