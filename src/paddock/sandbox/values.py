"""Define the sandbox's data types: plans, requests, results. Pure.

A plan is compiled from a policy and enforced by a backend; approvals are bound to its digest.
`[shell]` for a chain of agents is the strictest of all their profiles.
"""

import os
from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

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
from paddock.values.calls import NEVER, NO_CONNECTIONS, Cancel, Connections
from paddock.values.decisions import HELD_WHOLE, OPERATIONS, Action, AgentChain, Held
from paddock.workspace.changes import ChangedPath

if TYPE_CHECKING:
    from paddock.network.decisions import Witness
    from paddock.sandbox.staged import HeldCommand


class GitConfig(Struct, frozen=True):
    values: tuple[tuple[str, str], ...] = ()
    ignored: str = ""
    attributes: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables; those of the plan override them."""
    is_signing: bool = False


class SandboxPlan(Struct, frozen=True):
    """All restrictions that the kernel enforces on one command.

    Host paths are real, absolute, sorted, none below another. `hidden` names exist now and may not
    be read; new names are judged when the changes are committed.
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
    """Symlinks on the way to readable places: (absolute name, target text). A backend with a
    separate root directory creates them there (`/bin` to `usr/bin`).
    """
    git_outside: GitOutside | None = None
    """A git directory outside the workspace, in which changes are judged as in `.git`."""
    caches: str = ""
    """The host directory that commands see as `~/.cache` and write directly; empty for none."""
    caches_read_only: bool = False
    downloads: tuple[str, ...] = ()
    """The user's download caches that tools may also read; among the readable places."""
    known_hosts: str = ""
    """Known_hosts entries of the ssh servers that it may connect to."""
    authorities: str = ""
    """CA certificates that programs trust, as PEM, where a rule or a credential names requests."""
    literals: tuple[str, ...] = ()
    """Networks, as `ADDRESS/BITS`, that rules name by address."""
    unix_sockets: bool = False
    """True if a command may create Unix sockets: no socket of the host is in its reach."""


class ShownFile(Struct, frozen=True):
    path: str
    mode: int
    """From the index: a file, a symlink, or a submodule (an empty directory)."""
    content: bytes
    modified_ns: int
    is_faithful: bool
    """True if git would check out exactly this; otherwise no recorded change of it may land."""


Laid = Mapping[str, ShownFile | None]
"""The files that a command sees at these paths instead of the real ones; None: no file."""


class CommandRequest(Struct, frozen=True):
    plan: SandboxPlan
    argv: tuple[str, ...]
    cwd: str
    timeout_s: float
    output_bytes_max: int
    stdin: bytes | int = b""
    """The input, or a descriptor to read it from, which is taken over."""
    env: tuple[tuple[str, str], ...] = ()
    laid: Laid = MappingProxyType({})
    script: bytes = b""
    """Read by bash before its line."""
    terminal: tuple[int, int] = (0, 0)
    """Columns and rows; with 0 rows it has no terminal."""


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
    """The peak use, sampled every 50 ms; 0 for a shorter command."""
    unreached: int = 0
    """The number of unroutable packets in a failed command's private network."""
    reason: str = ""
    left: bytes = b""
    """The shell's state, written by its script when the shell ended."""
    network: Connections = NO_CONNECTIONS

    @property
    def directory(self) -> str:
        """Return the shell's last working directory; pwd(1) wrote it with one line end."""
        return os.fsdecode(self.left.partition(b"\0")[0]).removesuffix("\n")


_NOTHING: Final = Captured(b"", b"", 0)
RUNNING: Final = CommandEnd(Ending.EXITED, 0, _NOTHING, _NOTHING, 0.0, 0)
"""The end of a command whose changes are read while it keeps running."""


class Enforcement(Enum):
    FULL = "full"
    PARTIAL = "partial"
    NONE = "none"


class Enforced(Struct, frozen=True):
    """The sandbox as described in a result: `{backend, enforcement, gaps}`."""

    backend: str
    enforcement: Enforcement
    gaps: tuple[str, ...] = ()


class ConfinementError(SandboxUnavailableError):
    """The sandbox could not be created: `step` failed with the errno `number`."""

    def __init__(self, step: str, number: int) -> None:
        super().__init__(
            f"cannot create the sandbox here: {step}: {os.strerror(number)}",
            hint="run paddock doctor for cause and remedy",
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
    """A temporary failure that says nothing about the host: to be retried."""


Progress = Callable[[float, int], None]
"""Called about once a second, in the running thread: seconds so far, bytes of output so far."""

OnOutput = Callable[[Literal["stdout", "stderr"], bytes], None]
"""Called in the running thread with new output; its time is not counted. An exception ends the
command."""


class CommandWatch(Struct, frozen=True):
    """Callbacks of one command: cancellation, output, and decisions about connections."""

    cancel: Cancel = NEVER
    on_output: OnOutput | None = None
    network: "Witness | None" = None


UNWATCHED: Final = CommandWatch()


class ShellLine(Struct, frozen=True):
    """One line for the shell. `cwd` is workspace-relative, resolved, `.` for the root.

    In a session it may be any directory that the command sees, as an absolute path.
    """

    text: str
    cwd: str
    timeout_s: int
    is_dry_run: bool = False
    stdin: bytes = b""
    env: tuple[tuple[str, str], ...] = ()
    laid: Laid = MappingProxyType({})
    """Only for a dry run: changes made on top of these files cannot land."""
    session: str = ""
    """The session whose network, /tmp and snapshot it uses."""
    preamble: str = ""
    """The session's definitions with which the line was judged; see `Snapshot.preamble`."""
    starts_anew: bool = False
    terminal: tuple[int, int] = (0, 0)
    """Columns and rows; with 0 rows it has no terminal."""


class PreparedLine(Struct, frozen=True):
    line: ShellLine
    plan: SandboxPlan
    enforced: Enforced
    interpreter: str
    digest: str
    is_open: bool = False
    is_confined: bool = False
    """It runs without an approval: changes over `confine_max` wait for one."""

    @property
    def held(self) -> Held:
        """Return the enforcement; with the host's network, all readable data can leave."""
        word = self.enforced.enforcement.value
        return "partial" if word == HELD_WHOLE and self.is_open else word


class WaitingChanges(Struct, frozen=True):
    held: "HeldCommand"
    changes: int
    why: str


class RefusedChange(Struct, frozen=True):
    path: str
    code: str
    rule: str
    """The rule with its place, or the reason where no rule of the policy refused."""
    is_aside: bool = False
    """True for what git does without, such as the sample hooks of a new repository."""


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
    """The reason why nothing was kept although policy allows it; empty for no conflict."""
    warnings: tuple[Warned, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    """Only about this command: what the sandbox ended, limited, or does not support."""
    shown_from_git: tuple[str, ...] = ()
    """Tracked files shown to the command with the index's content, which differs from disk."""
    diff: str | None = None
    discarded: int = 0
    fence: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    """The actions that policy refused to a failed command, with their rules, for the ledger."""
    network: Connections = NO_CONNECTIONS
    waiting: WaitingChanges | None = None


# Pure.
#
# Each key has the stricter value: the smaller limit, the narrower network, the common paths.

Places = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Map paths as a policy writes them to those that a plan may have, real and absolute."""


def shells_of(policy: Policy, chain: AgentChain) -> tuple[ShellSettings, ...]:
    """Return `[shell]` of every profile that applies. Raises: ConfigError for a bad chain."""
    profiles = judge_for(policy, chain).profiles()
    if not profiles:
        raise ConfigError(
            f"a chain of {len(chain)} agents has no plan for its commands",
            hint="name one agent, with its ancestors",
        )
    base = policy.settings.shell
    # The overlay that an untrusted file puts on a profile does not change its shell.
    changes = (each.profile.shell for each in profiles if not each.is_overlay)
    return tuple(base if each is None else each.over(base) for each in changes)


def strictest_shell(
    policy: Policy, chain: AgentChain, readable: Places, writable: Places
) -> ShellSettings:
    """Return the strictest settings of the chain, without what a rule gives to single commands.

    Each agent's paths are filtered first: a path left out for a parent is closed to its child.
    """
    shells = shells_of(policy, chain)
    read, write = readable(shells[0].read), writable(shells[0].write)
    for shell in shells[1:]:
        read = shared(read, readable(shell.read))
        write = shared(write, writable(shell.write))
    return replace(shell_for(policy, chain), read=read, write=write)


def line_network(policy: Policy, chain: AgentChain, line: str | None) -> Network:
    # Threat: in `npm install && curl …` the second command must not get what a rule gives to the
    # first; nor `env X=1 npm install` what a rule that asks about it gives.
    action = None if line is None else Action("shell", "run", line)
    network = shell_for(policy, chain, action).network
    return network if network != "policy" or _can_reach(policy, chain, line) else "loopback"


def _can_reach(policy: Policy, chain: AgentChain, line: str | None) -> bool:
    profiles = judge_for(policy, chain).profiles()
    if any(all(each.closes("net", act) for act in OPERATIONS["net"]) for each in profiles):
        return False
    from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few policies have its rules

    return NetworkJudge(policy, chain, line).can_reach
