"""The nouns of the sandbox: what a command may do, how it is asked for, how it ended. Pure.

A plan is compiled from a policy and carried out by a backend; approvals bind to its digest.

`[shell]` for a chain of agents is the strictest of all their profiles.
"""

import os
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, SandboxUnavailableError
from paddock.policy.decide import judge_for, shell_for
from paddock.policy.engine import Policy
from paddock.policy.settings import (
    Commit,
    EnforcementMode,
    Git,
    Network,
    ShellLimits,
    ShellSettings,
)
from paddock.sandbox.host.host_facts import GitOutside, shared
from paddock.values.calls import NEVER, NO_CONNECTIONS, Cancel, Connections, Json
from paddock.values.decisions import HELD_WHOLE, OPERATIONS, Action, AgentChain, Held
from paddock.workspace.changes import ChangedPath

if TYPE_CHECKING:
    from paddock.network.decisions import Witness


class GitConfig(Struct, frozen=True):
    values: tuple[tuple[str, str], ...] = ()
    ignored: str = ""
    attributes: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    """Of the environment; the plan's own stand over them."""
    is_signing: bool = False


class SandboxPlan(Struct, frozen=True):
    """All that the kernel has to hold one command to.

    Paths of the host are real, absolute, sorted, none below another. `hidden` names stand there now
    and may not be read; what does not exist yet is judged when the changes are committed.
    """

    workspace: str
    readable: tuple[str, ...]
    writable: tuple[str, ...]
    hidden: tuple[str, ...]
    network: Network
    git: Git
    commit: Commit
    enforcement: EnforcementMode
    limits: ShellLimits
    environment: tuple[tuple[str, str], ...]
    """By name. HOME and TMPDIR are private directories of the sandbox."""
    policy_digest: str
    git_config: GitConfig = GitConfig()
    links: tuple[tuple[str, str], ...] = ()
    """Links by which readable places are reached: (absolute name, its text). A backend with a
    root of its own makes them there (`/bin` to `usr/bin`).
    """
    git_outside: GitOutside | None = None
    """A git directory outside of the workspace, in which changes are judged as in `.git`."""
    caches: str = ""
    """Of the host: what commands see as `~/.cache` and write directly; empty for nothing."""
    caches_read_only: bool = False
    downloads: tuple[str, ...] = ()
    """What of the user's own downloads tools read besides; among the readable places."""
    known_hosts: str = ""
    """Of servers that it may connect to by ssh: their keys, as ssh keeps them."""
    authorities: str = ""
    """Certificates that programs believe, as PEM, where a rule or a credential names requests."""
    literals: tuple[str, ...] = ()
    """Networks, as `ADDRESS/BITS`, whose addresses rules name by number."""
    unix_sockets: bool = False
    """Whether a command has sockets with a path: nothing of the host's is in its reach."""


class ShownFile(Struct, frozen=True):
    path: str
    mode: int
    """Of a file, a link or a submodule (an empty directory), as the index has it."""
    content: bytes
    modified_ns: int
    is_faithful: bool
    """Whether git would check out just this: no change that a command records of another lands."""


class LaidFile(Struct, frozen=True):
    content: bytes
    mode: int


Laid = Mapping[str, LaidFile | None]
"""What a command finds at these paths instead of what is there; None: nothing."""


class CommandRequest(Struct, frozen=True):
    plan: SandboxPlan
    argv: tuple[str, ...]
    cwd: str
    timeout_s: float
    output_bytes_max: int
    stdin: bytes | int = b""
    """What it reads, or a descriptor to read from, which is taken over."""
    env: tuple[tuple[str, str], ...] = ()
    laid: Laid = MappingProxyType({})
    script: bytes = b""
    """For bash to read before its line."""
    terminal: tuple[int, int] = (0, 0)
    """Columns and rows; without rows it has none."""


class Captured(Struct, frozen=True):
    head: bytes
    tail: bytes
    total_bytes: int

    @property
    def missing_bytes(self) -> int:
        return self.total_bytes - len(self.head) - len(self.tail)


class Ending(Enum):
    EXITED = "exited"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    MEMORY = "out of memory"
    FAILED = "not started"


class CommandEnd(Struct, frozen=True):
    ending: Ending
    exit_code: int
    stdout: Captured
    stderr: Captured
    duration_s: float
    survivors: int
    memory_kb: int = 0
    """The most that was seen in use, looking every 50 ms; 0 for a command that was quicker."""
    unreached: int = 0
    """Of one that failed: how often its own network had no way to where it wanted."""
    reason: str = ""
    left: bytes = b""
    """What the script of its shell left behind when that shell ended."""
    network: Connections = NO_CONNECTIONS

    @property
    def directory(self) -> str:
        """Return where its shell ended, as pwd(1) wrote it: with one line end behind it."""
        return os.fsdecode(self.left.partition(b"\0")[0]).removesuffix("\n")


_NOTHING: Final = Captured(b"", b"", 0)
RUNNING: Final = CommandEnd(Ending.EXITED, 0, _NOTHING, _NOTHING, 0.0, 0)
"""Of a command whose changes are taken while it goes on."""


class Enforcement(Enum):
    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


class Enforced(Struct, frozen=True):
    """What a result says about the sandbox: `{backend, enforcement, gaps}`."""

    backend: str
    enforcement: Enforcement
    gaps: tuple[str, ...] = ()


class ConfinementError(SandboxUnavailableError):
    """The sandbox could not be made: `step` and the errno `number` say where it stopped."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(
            f"the sandbox cannot be made here: {step}: {os.strerror(number)}",
            hint="paddock doctor says why, and what to do",
        )
        self.step = step
        self.number = number


class BackendVerdict(Struct, frozen=True):
    backend: str
    enforcement: Enforcement
    gaps: tuple[str, ...] = ()
    cause: str = ""
    remedy: str = ""
    is_passing: bool = False
    """It failed for the moment, which says nothing about the host: to be tried again."""


Progress = Callable[[float, int], None]
"""Called about once a second, in the running thread: seconds so far, bytes of output so far."""

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Called in the running thread with what is printed; the command waits. What is raised ends it."""


class CommandWatch(Struct, frozen=True):
    """Who stops a command, hears it, and answers for its connections."""

    cancel: Cancel = NEVER
    on_output: OnOutput | None = None
    network: "Witness | None" = None


UNWATCHED: Final = CommandWatch()


class ShellLine(Struct, frozen=True):
    """One line for the shell. `cwd` is workspace-relative, resolved, `.` for the root.

    In a session it may be any directory that the command sees: then it is absolute.
    """

    text: str
    cwd: str
    timeout_s: int
    is_dry_run: bool = False
    stdin: bytes = b""
    env: tuple[tuple[str, str], ...] = ()
    laid: Laid = MappingProxyType({})
    """Of a dry run alone: what lands is what was changed of the workspace as it is."""
    session: str = ""
    """The session that it belongs to; its network, /tmp and snapshot."""
    preamble: str = ""
    """What the line was judged behind, of that session; see `Snapshot.preamble`."""
    starts_anew: bool = False
    terminal: tuple[int, int] = (0, 0)
    """Columns and rows; without rows it has none."""


class PreparedLine(Struct, frozen=True):
    line: ShellLine
    plan: SandboxPlan
    enforced: Enforced
    interpreter: str
    digest: str
    is_open: bool = False
    is_confined: bool = False
    """Nobody was asked about it: of what it changes, more than `confine_max` waits."""

    @property
    def held(self) -> Held:
        """Return how far it is held; the host's network is a way out for all that it can read."""
        word = self.enforced.enforcement.value
        return "partial" if word == HELD_WHOLE and self.is_open else word


class HeldLine(Protocol):
    """A line that has run, and whose changes wait for an answer. To be closed."""

    digest: str
    """Of its plan, how it ended, and everything that would be kept."""
    diff: str
    """What would be kept, after how the line ended, if not well, and what is refused."""
    warnings: tuple[str, ...]

    def commit(self) -> "ShellOutcome":
        """Keep just this, and what policy asks about. Raises: as `commit_settled`."""
        ...

    def park(self, name: str) -> Json:
        """Return what `commit` would keep and refuse as data; contents are pinned under `name`.

        Raises: ApprovalUnavailableError: nothing, or too much; StorageFullError, HostError.
        """
        ...

    def close(self) -> None: ...


class WaitingChanges(Struct, frozen=True):
    held: HeldLine
    changes: int
    why: str


class RefusedChange(Struct, frozen=True):
    path: str
    code: str
    rule: str
    """The rule with its place; where no rule of the policy refused, the reason."""


class KeptOutput(Struct, frozen=True):
    digest: str
    kept_bytes: int
    total_bytes: int


class Stream(Struct, frozen=True):
    text: str
    kept: KeptOutput | None = None


class Warned(Struct, frozen=True):
    text: str
    pattern: str


class ShellOutcome(Struct, frozen=True):
    shell: str
    ending: Ending
    exit_code: int
    stdout: Stream
    stderr: Stream
    duration_s: float
    enforced: Enforced
    is_staged: bool = True
    changed: tuple[ChangedPath, ...] = ()
    bytes_written: int = 0
    refused: tuple[RefusedChange, ...] = ()
    conflict: str = ""
    """Why nothing of it was kept although policy allows it; empty where that is not so."""
    warnings: tuple[Warned, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    """Of this command alone: what a sandbox ended or limited of it, or does not let it do."""
    shown_from_git: tuple[str, ...] = ()
    """Tracked files that the command saw as the index has them: their working copies differ."""
    diff: str | None = None
    discarded: int = 0
    fence: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """What the fence refused to a command that failed, each with its rule: for the record."""
    network: Connections = NO_CONNECTIONS
    waiting: WaitingChanges | None = None


# Pure.
#
# Each key is the stricter: the smaller limit, the narrower network, what both may read.

Places = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Paths as a policy writes them → those that a plan may have, real and absolute."""


def shells_of(policy: Policy, chain: AgentChain) -> tuple[ShellSettings, ...]:
    """Return `[shell]` of every profile that has a say. Raises: ConfigError for a bad chain."""
    profiles = judge_for(policy, chain).profiles()
    if not profiles:
        raise ConfigError(
            f"a chain of {len(chain)} agents has no plan for its commands",
            hint="name one agent, with its ancestors",
        )
    base = policy.settings.shell
    # What an untrusted file lays over a profile says nothing of its shell.
    changes = (each.profile.shell for each in profiles if not each.is_overlay)
    return tuple(base if each is None else each.over(base) for each in changes)


def strictest_shell(
    policy: Policy, chain: AgentChain, readable: Places, writable: Places
) -> ShellSettings:
    """Return the strictest of all, but for what a rule gives to a single command.

    Each agent's paths are sifted first: what is left out for a parent lets none in for its child.
    """
    shells = shells_of(policy, chain)
    read, write = readable(shells[0].read), writable(shells[0].write)
    for shell in shells[1:]:
        read = shared(read, readable(shell.read))
        write = shared(write, writable(shell.write))
    return replace(shell_for(policy, chain), read=read, write=write)


def line_network(policy: Policy, chain: AgentChain, line: str | None) -> Network:
    # Threat: in `npm install && curl …` the second must not get what a rule gives to the first; nor
    # `env X=1 npm install` what a rule that asks about it gives.
    action = None if line is None else Action("shell", "run", line)
    network = shell_for(policy, chain, action).network
    return network if network != "policy" or _can_reach(policy, chain, line) else "loopback"


def _can_reach(policy: Policy, chain: AgentChain, line: str | None) -> bool:
    profiles = judge_for(policy, chain).profiles()
    if any(all(each.closes("net", act) for act in OPERATIONS["net"]) for each in profiles):
        return False
    from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few policies have its rules

    return NetworkJudge(policy, chain, line).can_reach
