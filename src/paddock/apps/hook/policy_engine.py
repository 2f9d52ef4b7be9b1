"""The policy as the hook asks it where it has a parser, and with what agents may by themselves."""

from string import ascii_letters, digits
from typing import Final

from paddock.apps.hook.lean.engine import Engine
from paddock.apps.hook.lean.judging import (
    GUARD,
    PARANOID,
    LeanFinding,
    LeanLine,
    Rule,
)
from paddock.apps.hook.lean.wrap import Holding
from paddock.apps.hook.lines import read_targets
from paddock.policy.commands import parse_line
from paddock.policy.commands.dangers import CAUTIONS_BY_PROGRAM, STARTS
from paddock.policy.commands.walk import RESERVED
from paddock.policy.commands.words import program_name
from paddock.policy.commands.wrappers import CHANGERS, NESTING, SHELLS, WRAPPERS
from paddock.policy.commands.writes import BY_OPTION, PROGRAMS
from paddock.policy.compiled import ASK, DENY, NOTHING, RULE, SECRET
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy, Writer
from paddock.policy.pathset import (
    Comparison,
    PathList,
    compile_lists,
    compile_pattern,
    compile_permissions,
)
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
from paddock.values.calls import Json
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch

INTERPRETERS: Final = frozenset(
    {
        *("nodejs", "deno", "bun", "Rscript", "osascript", "pwsh", "ed", "ex", "bc", "dc"),
        *("paddock", "gdb", "sqlite3", "psql", "mysql", "apply_patch", "applypatch", "chdir", "dd"),
    }
)
"""Programs that may run what stands on their input, or that a client takes for its own."""


_PLAIN_WORD: Final = frozenset(f"{ascii_letters}{digits}._+/-")


class PolicyEngine(Engine):
    def __init__(
        self,
        policy: Policy,
        chain: AgentChain,
        tables: Json,
        profiles: tuple[int, ...],
        holding: Holding | None,
    ) -> None:
        super().__init__(tables, profiles, holding)
        self._chain = chain
        self._judge = judge_for(policy, chain)
        self._outside = compile_outside(policy.settings.hook.outside)

    def denials(self, path: str, is_write: bool, by_command: bool) -> list[LeanFinding]:
        found = super().denials(path, is_write, by_command)
        action = Action("file", "create" if is_write else "view", path)
        for agent in self._chain:
            found += [_denial(each) for each in compile_permissions(agent).denials(action)]
        return found

    def held_line(self, text: str, directory: str) -> LeanLine:
        """Judge it as `run_shell` would be."""
        judge = judge_line(Action("shell", "run", text))
        if judge.refusal:
            return LeanLine([LeanFinding(DENY, NOTHING, judge.refusal)])
        found = self._findings(judge)
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

    def _findings(self, judge: LineJudge) -> list[LeanFinding]:
        return [
            _finding(each) for profile in self._judge.profiles() for each in judge.findings(profile)
        ]

    def line(self, text: str, base: str) -> LeanLine:
        judge = judge_line(Action("shell", "run", text))
        if judge.refusal:
            return LeanLine([LeanFinding(DENY, NOTHING, judge.refusal)])
        found = self._findings(judge)
        parsed = parse_line(text)
        targets = read_targets(parsed, base)
        # What is not held may write what a path list closes: that is asked about, rule or none.
        sifted = any(command.touch.sifted for command in parsed.commands)
        is_changing = bool(parsed.touched or parsed.removed or sifted)
        doubts = parsed.runtime_only if is_changing else parsed.doubts
        for reason in dict.fromkeys((*doubts, *targets.unsure)):
            asked = (ASK, reason, BUILT_IN, BUILT_IN, 0)
            found.append(LeanFinding(ASK, RULE, reason, asked))
        touched = (
            *(("create", *each) for each in targets.targets),
            *(("delete", *each) for each in targets.removed),
        )
        reads = tuple(targets.reads)
        return LeanLine(found, touched, tuple(targets.patches), targets.removes, reads)


def compile_outside(patterns: tuple[str, ...]) -> CompiledProfile | None:
    if not patterns:
        return None
    rules = (
        compile_rule(f"tool:shell:run {each}", Outcome.ALLOW, "hook.outside") for each in patterns
    )
    return CompiledProfile(Profile("outside", tuple(rules), ()))


def _denial(match: RuleMatch) -> LeanFinding:
    return LeanFinding(int(match.outcome), GUARD, match.reason, _rule(match), match.code)


def _finding(found: PolicyFinding) -> LeanFinding:
    match, outcome = found.rule, int(found.outcome)
    rule = None if match is None else _rule(match)
    if found.rank == PARANOID:
        # The policy's own rank of a path list; the hook has more of them.
        code = "" if match is None else match.code
        return LeanFinding(outcome, GUARD, found.reason, rule, code)
    is_unreadable = match is not None and match.source == BUILT_IN
    remedy = UNREADABLE_REMEDY if is_unreadable else ""
    return LeanFinding(outcome, found.rank, found.reason, rule, remedy=remedy)


def _rule(match: RuleMatch) -> Rule:
    return (int(match.outcome), match.text, match.source, match.file, match.line)


def hook_tables(policy: Policy, also_write: tuple[str, ...]) -> dict[str, Json]:
    """Return what the hook asks for whichever agent; `also_write` are absolute patterns."""
    hook = policy.settings.hook
    # Outside the project only those apply that mean a name at any depth.
    outside = (
        [pattern for pattern in layer.patterns if pattern.glob.anywhere]
        for layer in policy.guards.secret
    )
    also = PathList(map(compile_pattern, also_write), Comparison.PERMITTING)
    return {
        "hook": (hook.on_allow, hook.warnings, hook.paranoid, hook.shell),
        "guards": policy.guards.compiled,
        "outside": compile_lists(
            [(SECRET, PathList(each, Comparison.GUARDING)) for each in outside]
        ),
        "also": compile_lists([("also", also)]),
    }


def shell_tables() -> Json:
    starting = frozenset(CHANGERS | WRAPPERS.keys() | SHELLS | INTERPRETERS | {"["})
    special = starting | (PROGRAMS - BY_OPTION)
    given = frozenset(
        name for name, rows in CAUTIONS_BY_PROGRAM.items() if any(r.does == STARTS for r in rows)
    ) - {"git"}
    return (special, BY_OPTION, frozenset(RESERVED), dict(NESTING), starting, given)


def outside_table(patterns: tuple[str, ...]) -> Json:
    """Return programs whose commands may be left to the client, and whether any may be."""
    words = [pattern.split()[0] for pattern in patterns if pattern.split()]
    is_wild = any(not _PLAIN_WORD.issuperset(word) for word in words)
    return (frozenset(program_name(word).casefold() for word in words), is_wild)
