"""Acceptance commands, run by the shell of the plane."""

from typing import Final

from paddock import limits
from paddock.assembly.admin import ADMIN_AGENT, ADMIN_PROFILE
from paddock.assembly.project import Project
from paddock.assembly.shell import LazyShell, ShellGround
from paddock.packages.manifest import Acceptance
from paddock.packages.transaction import AcceptanceResult
from paddock.sandbox.values import Ending, ShellLine, ShellOutcome, Stream
from paddock.storage.history import History
from paddock.values.calls import NEVER
from paddock.values.decisions import Agent
from paddock.workspace import Workspace

ACCEPTANCE_AGENT: Final = "acceptance"
"""Whose commands these are: one that may read what the plane's policy shows to anybody."""


class ShellAcceptance:
    """See `AcceptanceRunner`. Nothing of the sandbox is loaded before a command comes."""

    def __init__(self, project: Project, workspace: Workspace, history: History) -> None:
        chain = (Agent(ACCEPTANCE_AGENT, ADMIN_PROFILE),)
        self._shell = LazyShell(
            ShellGround(project, ADMIN_AGENT, chain, project.policy, workspace, history)
        )

    def run(self, acceptance: Acceptance) -> AcceptanceResult:
        """Run one command in a stage, and throw away what it changed.

        Raises: SandboxUnavailableError: without a stage its changes could not be thrown away.
        """
        line = ShellLine(acceptance.command, ".", acceptance.timeout_s, is_dry_run=True)
        outcome = self._shell.run(self._shell.prepare(line), NEVER)
        return AcceptanceResult(
            command=acceptance.command,
            passed=outcome.ending is Ending.EXITED and outcome.exit_code == 0,
            exit_code=outcome.exit_code,
            output=_output_of(outcome),
            duration_s=outcome.duration_s,
        )

    def close(self) -> None:
        self._shell.close()


def _output_of(outcome: ShellOutcome) -> str:
    streams = (outcome.stderr, outcome.stdout)
    said = next((end for stream in streams if (end := _end_of(stream))), "")
    if outcome.ending is Ending.EXITED:
        return said
    return f"{outcome.ending.value}: {said}" if said else outcome.ending.value


def _end_of(stream: Stream) -> str:
    """The end of what a stream has, which says how it came out; what is missing is counted."""
    said = stream.text.strip()
    missing = len(said) - limits.acceptance_output_chars_max
    if missing <= 0:
        return said
    least = "at least " if stream.kept is not None else ""
    return f"[{least}{missing} characters before this are not shown] {said[missing:]}"
