"""What is asked of a shell, and what came of it: the nouns between the tools and the sandbox."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from paddock.sandbox.values import Ending, Enforced, SandboxPlan
from paddock.values.calls import Json
from paddock.values.decisions import HELD_WHOLE, Held
from paddock.workspace.changes import ChangedPath

Progress = Callable[[float, int], None]
"""Called about once a second while a command runs, in the thread that runs it: seconds so far,
bytes of output so far."""

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Called in the thread that runs a command, with what it prints as it comes.

The command waits while it is not read, as it would for any pipe. What is raised ends it.
"""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One line for the shell. `cwd` is workspace-relative, resolved, `.` for the root."""

    text: str
    cwd: str
    timeout_s: int
    is_dry_run: bool = False
    """Run it, show what it would change, change nothing: outside of its layers it only reads."""
    stdin: str = ""
    env: tuple[tuple[str, str], ...] = ()
    """Variables besides those of the plan, by name."""


@dataclass(frozen=True, slots=True)
class PreparedLine:
    """A line that may run, with all that it is held to."""

    line: CommandLine
    plan: SandboxPlan
    enforced: Enforced
    """Which backend will carry it out, and how far that holds."""
    interpreter: str
    digest: str
    """Of the plan: what an approval is bound to, besides the call's own arguments."""
    is_open: bool = False
    """It has the host's network, and no rule of policy names it."""
    is_confined: bool = False
    """Nobody was asked about it: of what it changes, more than `confine_max` waits."""

    @property
    def held(self) -> Held:
        """How far it is held; the host's network is a way out for whatever it can read."""
        word = self.enforced.enforcement.value
        return "partial" if word == HELD_WHOLE and self.is_open else word


class HeldLine(Protocol):
    """A line that has run, and whose changes wait for an answer. To be closed."""

    @property
    def digest(self) -> str:
        """Of its plan, of how it ended, and of everything that would be kept."""
        ...

    @property
    def diff(self) -> str:
        """What would be kept, after how the line ended, if not well, and what is refused of it."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What policy warns of, of what would be kept."""
        ...

    def commit(self) -> "ShellOutcome":
        """Keep just this, what policy asks about with it.

        Raises: StorageFullError, HostError, IntegrityError.
        """
        ...

    def park(self, name: str) -> Json:
        """What `commit` would keep and what it would report as refused, as data that outlives this.

        Contents go to the history, where they are pinned under `name`.

        Raises: ApprovalUnavailableError: there is nothing, or too much.
            StorageFullError, HostError.
        """
        ...

    def close(self) -> None:
        """Let it go: the workspace stays as it is. A second time does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class WaitingChanges:
    """What a line changed, held back for a person: nothing of it stands. To be closed."""

    held: HeldLine
    changes: int
    why: str


@dataclass(frozen=True, slots=True)
class RefusedChange:
    """One path that a command changed and that stays as it was."""

    path: str
    code: str
    rule: str
    """The rule with its place; where no rule of the policy refused, the reason."""


@dataclass(frozen=True, slots=True)
class KeptOutput:
    """Where a stream is kept of which more was printed than is shown."""

    digest: str
    """In the history."""
    kept_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream as a model may see it."""

    text: str
    kept: KeptOutput | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """One warning, and the pattern of policy behind it."""

    text: str
    pattern: str


@dataclass(frozen=True, slots=True)
class ShellOutcome:
    """What one command came to."""

    shell: str
    """`bash` or `sh`: what read the line."""
    ending: Ending
    exit_code: int
    stdout: Stream
    stderr: Stream
    duration_s: float
    enforced: Enforced
    is_staged: bool = True
    """Whether its changes were held back and judged; else it worked on the workspace itself."""
    changed: tuple[ChangedPath, ...] = ()
    """What the workspace has from it now, by path."""
    bytes_written: int = 0
    refused: tuple[RefusedChange, ...] = ()
    conflict: str = ""
    """Why nothing of it was kept although policy allows it; empty where that is not so."""
    warnings: tuple[Warned, ...] = ()
    notes: tuple[str, ...] = ()
    shown_from_git: tuple[str, ...] = ()
    """Tracked files that the command saw as the index has them: their working copies differ."""
    diff: str | None = None
    """Of a dry run: what it would have changed."""
    discarded: int = 0
    """How many changes were thrown away, as the plan has it: `commit = "none"`."""
    fence: tuple[str, ...] = ()
    """What the end of `stderr` says of a failure that policy caused."""
    waiting: WaitingChanges | None = None
