"""A command line in a decision: its simple commands, what is unknown, its writes.

The strictest simple command decides. What cannot be parsed, or is known only at
run time, is judged by what it could be: asked about, as if a rule said so, where a
rule that denies, asks or sets the network could match it, and else left to what is
said of any command, and to `otherwise`. Redirections are
writes, judged as `tool:file:create` besides. A line that starts nothing and
writes nothing (an assignment, a comment, half a word) is refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from paddock.policy.places import BUILT_IN
from paddock.policy.problems import quote_toml
from paddock.policy.profiles import CompiledProfile, Finding, Verdict
from paddock.policy.rules import Rule
from paddock.values.decisions import Action, Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.commands import SimpleCommand

HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_PRIVATE: Final = re.compile(r"(?:~|/+(?:tmp|var/+tmp|dev/+shm))/.*[^/.].*", re.DOTALL)
"""What a sandboxed command has of its own. A door without a sandbox holds its own boundary."""


MAY_START: Final = "may start what its words name"
PERSONS_ACT: Final = (
    "is a person's act, which no policy lets an agent do; run it in a terminal of your own"
)


@lru_cache(maxsize=64)
def judge_line(action: Action) -> "LineJudge":
    """Return the parsed line of an action, from a small cache: one decision asks often."""
    return LineJudge(action)


UNREADABLE_REMEDY: Final = "write the command so that all of it stands in the line"
"""What to do about a line that is asked about because it is not all known before it runs."""


class LineJudge:
    """One command line, parsed, ready for any number of profiles."""

    __slots__ = ("_action", "_line", "_stays", "_targets", "commands", "reasons", "refusal")

    def __init__(self, action: Action) -> None:
        # The command parser is loaded only when a command is judged.
        from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose
        from paddock.policy.commands.persons import find_persons_act  # noqa: PLC0415 - as above

        line = parse_line(action.target)
        self._action = action
        self._line = line
        self.reasons = tuple(dict.fromkeys((*line.runtime_only, *line.problems)))
        commands: tuple[SimpleCommand | None, ...] = line.commands
        if line.problems or not commands:
            # What was not understood is judged too: only a rule for any command matches it.
            # So is a line that is a redirection alone, which makes or empties a file.
            commands = (*commands, None)
        self.commands = commands
        self._targets = tuple(target for target in line.writes if _is_file(target))
        self._stays = not self.reasons and not line.moves and not any(map(_may_move, line.commands))
        self.refusal = ""
        if not line.commands and not line.writes:
            self.refusal = f"{quote_toml(action.target)} holds no command"
        if line.bound:
            self.refusal = f"{line.bound}: write it into a file, and run that"
        act = find_persons_act(line)
        if act:
            self.refusal = f"{quote_toml(act)} {PERSONS_ACT}"

    def verdicts(
        self, profile: CompiledProfile
    ) -> tuple[tuple["SimpleCommand | None", Verdict], ...]:
        """Return what a profile says to each simple command, in their order.

        Where rules name every other command, one that is neutral needs none.
        """
        said = [(each, profile.judge_command(self._action, each)) for each in self.commands]
        wanted = [verdict for each, verdict in said if each is None or not each.is_neutral]
        if wanted and all(verdict.finding.rank == 0 for verdict in wanted):
            said = [(each, verdict) for each, verdict in said if verdict.finding.rank == 0]
        return tuple(said)

    def findings(self, profile: CompiledProfile) -> Iterator[Finding]:
        """Yield every say of one profile."""
        for _, verdict in self.verdicts(profile):
            yield verdict.finding
            for rule in verdict.matched:
                if rule.shown is not verdict.finding.rule:
                    yield Finding(rule.outcome, rule.shown, rule.reason, 3)
        for rule, reason in self._find_possible(profile):
            asked = RuleMatch(Outcome.ASK, reason, BUILT_IN, BUILT_IN, 0, reason)
            said = f"{reason}, so {quote_toml(rule.pattern.text)} ({rule.place}) could match"
            yield Finding(Outcome.ASK, asked, said, 0)

    def _find_possible(self, profile: CompiledProfile) -> list[tuple[Rule, str]]:
        """Return a rule that closes or opens something, and each reason why it might match.

        Threat: `g=git; $g push` under an allow of any command and a deny of `git push *`.
        """
        for rule in profile.rules:
            pattern = rule.command
            if pattern is None or pattern.is_any:
                continue
            if rule.outcome < Outcome.ASK and rule.network is None:
                continue
            if self.reasons and (
                self._line.may_be_any or any(map(pattern.may_come_to_match, self._line.commands))
            ):
                return [(rule, reason) for reason in self.reasons]
            starting = next(filter(pattern.may_be_started, self._line.commands), None)
            if starting is not None:
                return [(rule, f"{quote_toml(starting.program)} {MAY_START}")]
        return []

    def writes(self, added: frozenset[str] = frozenset()) -> Iterator[Action | Finding]:
        """Yield each redirection that writes, or why it may not be; read from the root.

        `added` are the writes that the caller names besides, from where the line runs. Where
        they are all of the line's, none leaves the workspace that only does so from the root.
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
    """Return the path in normal form from the root, or nothing where it leaves the root."""
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
    is_stream = target in HARMLESS_TARGETS or target.startswith("&")
    return not is_stream and not _is_private(target)


def _may_move(command: "SimpleCommand") -> bool:
    """Whether what the line writes may be from elsewhere than where the line starts.

    Threat: `cd`, by any name and in any script, before the redirection.
    """
    if command.obstacles or command.starts != (0,):
        return True
    holds_script = len(command.readings) > 1
    return holds_script and any(">" in word.text for word in command.words)


def _are_named(targets: tuple[str, ...], named: frozenset[str]) -> bool:
    """Whether there is one directory from which the targets are all among the named paths.

    Threat: of two targets one is named and the other leaves the workspace. Read from further
    down than the line runs, every target is a longer path: one of them is not among the named.
    """
    if not named or any(map(_climbs_late, targets)):
        return False
    # From that directory down, none of the targets tells how it goes on.
    highest = min(targets, key=_climbs, default="")
    below = written_path("/".join(part for part in highest.split("/") if part != ".."))
    ends = (path for path in named if below and f"/{path}".endswith(f"/{below}"))
    starts = (f"{path.removesuffix(below)}{'x/' * _climbs(highest)}" for path in ends)
    return any(all(written_path(target, start) in named for target in targets) for start in starts)


def _climbs(target: str) -> int:
    return target.split("/").count("..")


def _climbs_late(target: str) -> bool:
    """Whether `..` stands behind a name: that may be a link, and words do not tell where to."""
    return ".." in dropwhile(lambda part: part in ("", ".", ".."), target.split("/"))


def _is_private(target: str) -> bool:
    return ".." not in target.split("/") and _PRIVATE.fullmatch(target) is not None
