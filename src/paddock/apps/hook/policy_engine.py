"""The policy engine as the hook asks it: every say as a finding."""

from collections.abc import Iterable

from paddock.apps.hook.lean.judging import (
    ALSO,
    ASK,
    DENY,
    GUARD,
    NOTHING,
    OTHERWISE,
    PARANOID,
    RULE,
    LeanFinding,
    LeanLine,
    LeanRule,
)
from paddock.apps.hook.lean.wrap import Holding
from paddock.apps.hook.lines import read_targets
from paddock.policy.commands import parse_line
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy, Writer
from paddock.policy.matching import compile_permissions
from paddock.policy.pathset import Comparison, PathList, PathPattern, compile_pattern
from paddock.policy.places import BUILT_IN
from paddock.policy.profiles import (
    UNREADABLE_REMEDY,
    CompiledProfile,
    LineJudge,
    judge_line,
    written_path,
)
from paddock.policy.profiles import Finding as PolicyFinding
from paddock.policy.rules import Profile, compile_rule
from paddock.policy.rules import Rule as PolicyRule
from paddock.policy.settings import HookSettings
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch


class PolicyEngine:
    __slots__ = (
        *("_also", "_chain", "_judge", "_outside", "_policy", "_secret_outside", "holding"),
        "hook",
    )

    def __init__(
        self,
        policy: Policy,
        chain: AgentChain,
        also_write: tuple[str, ...],
        holding: Holding | None = None,
    ) -> None:
        self.holding = holding
        self._policy = policy
        self._chain = chain
        self._judge = judge_for(policy, chain)
        self.hook: HookSettings = policy.settings.hook
        self._also = compile_also(also_write)
        self._outside = compile_outside(self.hook.outside)
        self._secret_outside = tuple(
            PathList(anywhere_of(layer.patterns), layer.comparison)
            for layer in policy.guards.secret
        )

    @property
    def on_allow(self) -> str:
        return self.hook.on_allow

    @property
    def warnings(self) -> str:
        return self.hook.warnings

    @property
    def paranoid(self) -> bool:
        return self.hook.paranoid

    @property
    def shell(self) -> str:
        return self.hook.shell

    def denials(self, path: str, is_write: bool, by_command: bool) -> list[LeanFinding]:
        writer = Writer.COMMAND if by_command else Writer.FILE_TOOL
        action = Action("file", "create" if is_write else "view", path)
        found = [_denial(each) for each in self._policy.guards.denials(path, is_write, writer)]
        for agent in self._chain:
            found += [_denial(each) for each in compile_permissions(agent).denials(action)]
        return found

    def profile(self, category: str, operation: str, target: str) -> list[LeanFinding]:
        action = Action(category, operation, target)
        found: list[LeanFinding] = []
        for profile in self._judge.profiles():
            verdict = profile.judge(action)
            found.append(_finding(verdict.finding))
            found += _others(verdict.matched, verdict.finding.rule)
        return found

    def held_line(self, text: str, directory: str) -> LeanLine:
        """Judge it as `run_shell` would be."""
        judge = judge_line(Action("shell", "run", text))
        if judge.refusal:
            return LeanLine([LeanFinding(DENY, NOTHING, judge.refusal)])
        found = self._words(judge)
        named = () if directory == "." else parse_line(text).writes
        added = frozenset(filter(None, (written_path(each, directory) for each in named)))
        written = {Action("file", "create", path): None for path in sorted(added)}
        for write in judge.writes(added):
            if isinstance(write, Action):
                written[write] = None
            else:
                found.append(_finding(write))
        for action in written:
            found += [_finding(each) for each in self._judge.findings(action, Writer.COMMAND)]
        return LeanLine(found, tuple(("create", (), action.target) for action in written))

    def is_outside(self, text: str) -> bool:
        if self._outside is None:
            return False
        action = Action("shell", "run", text)
        judge = judge_line(action)
        said = (self._outside.judge_command(action, each) for each in judge.commands)
        found = [each.finding.outcome for each in said]
        return bool(found) and not judge.refusal and set(found) == {Outcome.ALLOW}

    def _words(self, judge: LineJudge) -> list[LeanFinding]:
        return [
            _finding(each) for profile in self._judge.profiles() for each in judge.findings(profile)
        ]

    def line(self, text: str, base: str) -> LeanLine:
        judge = judge_line(Action("shell", "run", text))
        if judge.refusal:
            return LeanLine([LeanFinding(DENY, NOTHING, judge.refusal)])
        found = self._words(judge)
        parsed = parse_line(text)
        targets = read_targets(parsed, base)
        # What is not held may write what a path list closes: that is asked about, rule or none.
        sifted = any(command.touch.sifted for command in parsed.commands)
        is_changing = bool(parsed.touched or parsed.removed or sifted)
        doubts = parsed.runtime_only if is_changing else parsed.doubts
        unsure = dict.fromkeys((*doubts, *targets.unsure))
        found += [LeanFinding(ASK, RULE, reason, _asked(reason)) for reason in unsure]
        touched = (
            *(("create", *each) for each in targets.targets),
            *(("delete", *each) for each in targets.removed),
        )
        reads = tuple(targets.reads)
        return LeanLine(found, touched, tuple(targets.patches), targets.removes, reads)

    def find_warning(self, path: str) -> str:
        found = self._policy.guards.find_warning(path)
        return "" if found is None else found.text

    def is_safe(self, path: str) -> bool:
        return self._policy.guards.is_safe(path)

    def find_secret_outside(self, path: str) -> LeanRule | None:
        for layer in self._secret_outside:
            found = layer.match(path.lstrip("/") or ".")
            if found is not None:
                place = found.place
                return LeanRule(DENY, found.text, "paths.secret", place.file, place.line)
        return None

    def may_write_outside(self, path: str) -> bool:
        return self._also.permits(path.lstrip("/") or ".")


def anywhere_of(patterns: Iterable[PathPattern]) -> list[PathPattern]:
    """Return those that mean a name at any depth: outside the project only they apply."""
    return [pattern for pattern in patterns if pattern.glob.anywhere]


def compile_outside(patterns: tuple[str, ...]) -> CompiledProfile | None:
    if not patterns:
        return None
    rules = (
        compile_rule(f"tool:shell:run {each}", Outcome.ALLOW, "hook.outside") for each in patterns
    )
    return CompiledProfile(Profile("outside", tuple(rules), ()))


def compile_also(patterns: tuple[str, ...]) -> PathList:
    return PathList([compile_pattern(text) for text in patterns], Comparison.PERMITTING)


def _denial(match: RuleMatch) -> LeanFinding:
    return LeanFinding(int(match.outcome), GUARD, match.reason, _rule(match), match.code)


def _finding(found: PolicyFinding) -> LeanFinding:
    rule = None if found.rule is None else _rule(found.rule)
    rank = found.rank if found.rank in (PARANOID, RULE, OTHERWISE, NOTHING) else ALSO
    if rank == PARANOID:
        # The policy's own rank of a path list; the hook has more of them.
        code = "" if found.rule is None else found.rule.code
        return LeanFinding(int(found.outcome), GUARD, found.reason, rule, code)
    is_unreadable = rule is not None and rule.source == BUILT_IN
    remedy = UNREADABLE_REMEDY if is_unreadable else ""
    return LeanFinding(int(found.outcome), rank, found.reason, rule, remedy=remedy)


def _others(matched: Iterable[PolicyRule], deciding: RuleMatch | None) -> list[LeanFinding]:
    return [
        LeanFinding(int(each.shown.outcome), ALSO, each.shown.reason, _rule(each.shown))
        for each in matched
        if each.shown is not deciding
    ]


def _asked(reason: str) -> LeanRule:
    return LeanRule(ASK, reason, "built-in", "built-in", 0)


def _rule(match: RuleMatch) -> LeanRule:
    return LeanRule(int(match.outcome), match.text, match.source, match.file, match.line)
