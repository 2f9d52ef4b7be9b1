"""A command line in a decision: its simple commands, what is unknown, its writes.

The strictest simple command decides. What cannot be parsed, or is known only at
run time, is at least asked about, as if a rule said so, unless a rule that
allows any command stands behind every command of the line. Redirections are
writes, judged as `tool:file:create` besides.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from paddock.policy.places import BUILT_IN
from paddock.policy.problems import quote
from paddock.policy.profiles import CompiledProfile, Finding, Verdict
from paddock.values.actions import Action
from paddock.values.decisions import Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.commands import SimpleCommand

HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
PRIVATE_DIRECTORY: Final = "/tmp"  # noqa: S108 - named, never opened
"""A sandboxed command has one of its own. A door without a sandbox holds its own boundary."""


@lru_cache(maxsize=64)
def judge_line(action: Action) -> "LineJudge":
    """Return the parsed line of an action, from a small cache: one decision asks often."""
    return LineJudge(action)


class LineJudge:
    """One command line, parsed, ready for any number of profiles."""

    __slots__ = ("_action", "_targets", "commands", "reasons", "refusal")

    def __init__(self, action: Action) -> None:
        # The command parser is loaded only when a command is judged.
        from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

        line = parse_line(action.target)
        self._action = action
        self.reasons = tuple(dict.fromkeys((*line.runtime_only, *line.problems)))
        commands: tuple[SimpleCommand | None, ...] = line.commands
        if line.problems or not commands:
            # What was not understood is judged too: only a rule for any command matches it.
            # So is a line that starts nothing: redirections, assignments, a comment.
            commands = (*commands, None)
        self.commands = commands
        self._targets = line.writes
        self.refusal = ""
        if not action.target.strip():
            self.refusal = f"{quote(action.target)} holds no command"

    def verdicts(self, profile: CompiledProfile) -> tuple[Verdict, ...]:
        """Return what a profile says to each simple command, in their order."""
        return tuple(profile.judge_command(self._action, command) for command in self.commands)

    def findings(self, profile: CompiledProfile) -> Iterator[Finding]:
        """Yield every say of one profile."""
        verdicts = self.verdicts(profile)
        for verdict in verdicts:
            yield verdict.finding
            for rule in verdict.matched:
                if rule.shown is not verdict.finding.rule:
                    yield Finding(rule.outcome, rule.shown, rule.reason, 3)
        if all(verdict.allows_any_command for verdict in verdicts):
            return
        for reason in self.reasons:
            asked = RuleMatch(Outcome.ASK, reason, BUILT_IN, BUILT_IN, 0, reason)
            yield Finding(Outcome.ASK, asked, reason, 0)

    def writes(self) -> Iterator[Action | Finding]:
        """Yield each redirection that writes, or why it may not be."""
        for target in self._targets:
            if target in HARMLESS_TARGETS or target.startswith("&"):
                continue
            path = written_path(target)
            if path:
                yield Action("file", "create", path)
            elif not _is_private(target):
                reason = f"the redirection to {quote(target)} leaves the workspace"
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


def _is_private(target: str) -> bool:
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return (
        target.startswith("/")
        and len(parts) > 1
        and ".." not in parts
        and parts[0] == PRIVATE_DIRECTORY[1:]
    )
