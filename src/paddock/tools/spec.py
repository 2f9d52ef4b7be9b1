"""The declaration of a tool (name, text, schema, effects) and the protocols of its handler."""

from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

from msgspec import Struct, field

from paddock.errors import CallCancelledError, FileChangedError, SandboxUnavailableError
from paddock.policy.settings import LoweredLimits, McpServer
from paddock.text.show import quote
from paddock.tools.arguments import Binder, PassedArguments
from paddock.values.calls import NEVER, Cancel, Json, LeftEffect
from paddock.values.decisions import Action, Held
from paddock.workspace import ReadPath, Workspace, WorkspacePath, WritePath

if TYPE_CHECKING:
    # The provider of a port loads these modules; most calls need only the workspace.
    from paddock.gates.results import GateResult
    from paddock.ledger.query import Ledgers
    from paddock.network.decisions import Witness
    from paddock.packages.rows import PackageRow
    from paddock.sandbox.shell import SandboxShell
    from paddock.sandbox.staged import HeldCommand
    from paddock.sandbox.values import OnOutput, WaitingChanges
    from paddock.storage.notes import DoingEntry, DoingKind

SCHEMA_VERSION = 1  # part of every approval's digest: a changed schema voids old approvals


class Effects(Struct, frozen=True):
    """A call's possible effects, for clients (MCP annotations)."""

    reads_only: bool
    is_destructive: bool = False
    is_idempotent: bool = False
    is_open_world: bool = False


READS = Effects(reads_only=True, is_idempotent=True)


class Change(Struct, frozen=True, omit_defaults=True):
    """The change to one path, with the content's digests before and after.

    A digest is None for an absent file and for a directory. Undo needs the other fields.
    """

    path: str
    kind: "DoingKind"
    before: str | None
    after: str | None
    to: str | None = None
    entry: "DoingEntry" = "file"
    entry_after: "DoingEntry | Literal['']" = ""
    """The type of the new entry, if it differs."""
    mode: int | None = None
    """Permission bits of the old entry, if they changed."""
    mode_after: int | None = None
    """Permission bits of the new entry, if a set of changes reports them; None for a symlink."""
    made: tuple[str, ...] = ()
    kept: bool = True
    """True if the history has the replaced content; paths that only commands write lack it."""


class StoredEffects(Struct, frozen=True):
    """A list of changes that is too long for a ledger entry; the history has all of it."""

    digest: str
    total: int


class RefusedPath(NamedTuple):
    """A command's change that was not applied, with the rule or reason."""

    path: str
    code: str
    rule: str


class OutputKept(Struct, frozen=True):
    """The stored output of a command whose stream was too long to show."""

    stream: str
    digest: str
    kept_bytes: int
    total_bytes: int


class CommandExit(Struct, frozen=True):
    code: int  # -1 on timeout, 128 + N for signal N
    timed_out: bool = False
    kept: tuple[OutputKept, ...] = ()
    causes: tuple[str, ...] = ()  # for a failed command: what the fence refused


class ToolOutput(NamedTuple):
    """The result of a tool: text for the model, fields for the host."""

    content: str
    details: Mapping[str, Json]
    changes: tuple[Change, ...] = ()
    bytes_written: int = 0
    stored: StoredEffects | None = None
    """Set if `changes` holds only the first of many."""
    refused: tuple[RefusedPath, ...] = ()
    exit: CommandExit | None = None
    """Set if the tool ran a command."""
    refused_more: int = 0
    """Number of refused paths that `refused` leaves out."""
    waiting: "WaitingChanges | None" = None
    """Changes that wait for a person: the caller stores or discards them."""
    pending: str = ""
    """The request that holds the waiting changes."""


class Plan(Protocol):
    """A call with its targets resolved: first judged, then carried out."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything the call would do; policy judges all of it."""
        ...


A = TypeVar("A")
Given = TypeVar("Given", contravariant=True)
P = TypeVar("P", bound=Plan)


class Shown(Protocol):
    """The agent's view of the workspace, by relative path."""

    def is_shown(self, relative: str) -> bool:
        """Return False for secrets and Paddock's state."""
        ...

    def may_view(self, relative: str) -> bool:
        """Return True if the agent may view the file; otherwise no answer shows its content."""
        ...

    def allows(self, action: Action) -> bool:
        """Return True if the agent may do this without approval.

        For targets that are known only while the call runs; the plan has all others.
        """
        ...


class Earlier(Protocol):
    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        """Return the content that this workspace-relative path had at that version.

        None if this is not known, the content is not kept, or it is larger than `bytes_max`.
        Never raises: refusals call it.
        """
        ...


FULL_LIMITS = LoweredLimits()


class Payload(Struct, eq=False):
    """Bytes that the embedding program passes beside a call."""

    given: bytes = b""
    taken: bytes = b""
    env: tuple[tuple[str, str], ...] = ()


class Ports(Struct, frozen=True):
    """The ports of a handler; None if unavailable. `workspace` is the only way to a file."""

    workspace: Workspace
    shown: Shown
    ledgers: "Ledgers | None" = None  # read-only
    shell: "Callable[[], SandboxShell] | None" = None
    packages: "Callable[[], tuple[PackageRow, ...]] | None" = None
    """By layer and name, each checked now. Raises: HostError, LedgerDamagedError."""
    gates: "Callable[[Sequence[str]], tuple[GateResult, ...]] | None" = None
    """Runs these gates in order and records them; G4 reports its last run.

    Raises: LedgerBusyError.
    """
    limits: LoweredLimits = FULL_LIMITS
    earlier: Earlier | None = None
    memory: "Callable[[], Workspace] | None" = None
    """The memory that an agent keeps between sessions. Raises: HostError."""
    cancel: Cancel = NEVER
    on_output: "OnOutput | None" = None
    agent: str = ""
    call_id: str = ""  # empty until the call runs
    network: "Witness | None" = None  # records the connections of this call
    payload: Payload | None = None


def shell_of(ports: Ports) -> "SandboxShell":
    """Return the shell. Raises: SandboxUnavailableError."""
    if ports.shell is None:
        raise SandboxUnavailableError(
            "this workspace was opened without a shell", hint="use the other tools"
        )
    return ports.shell()


class Handler(Protocol[Given, P]):
    """The two steps of a tool: resolve and run. It keeps no state between calls."""

    def resolve(self, arguments: Given, ports: Ports) -> P:
        """Plan the call, changing nothing. Raises: ToolError: the target is not usable."""
        ...

    def run(self, plan: P, ports: Ports) -> ToolOutput:
        """Carry out the plan. Raises: ToolError: it failed, and nothing has changed."""
        ...


@runtime_checkable
class Pinning(Protocol):
    """A handler that can bind a plan to its target's present content."""

    def pin(self, plan: Any, ports: Ports) -> tuple[Any, str]:
        """Return the plan bound to the present content, and its digest. Raises: ToolError."""
        ...


@runtime_checkable
class Confining(Protocol):
    """A handler whose calls can run in a sandbox."""

    def confine(self, plan: Any, ports: Ports) -> tuple[Any, Held]:
        """Return the plan bound to its sandbox, and how much that confines. Raises: ToolError."""
        ...


@runtime_checkable
class Staging(Protocol):
    """A handler that can run a call and hold back its effect."""

    def asks_about_effect(self, plan: Any, ports: Ports) -> bool: ...

    def stage(self, plan: Any, ports: Ports) -> "tuple[Any, HeldCommand]":
        """Run, hold the effect back, and return the plan that commits it. Raises: ToolError."""
        ...

    def release(self, plan: Any) -> None:
        """Discard what the plan holds back, if anything."""
        ...


class ToolSpec(Struct, Generic[A], frozen=True):
    """A tool's declaration; its schema is that of its argument type."""

    name: str
    title: str
    description: str
    toolset: str
    arguments: type[A]
    effects: Effects
    output_schema: Mapping[str, Json] = field(default_factory=dict[str, Json])
    failure_details: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Tool-specific fields that error results carry too."""
    recording: McpServer | None = None
    """Settings of the tool's MCP server: they say how the ledger keeps its arguments."""
    passed: Mapping[str, Json] | None = None
    """Schema of another program's tool. Its arguments are not checked."""

    def make_binder(self) -> "Binder[A] | PassedArguments":
        return Binder(self.arguments) if self.passed is None else PassedArguments(self.passed)


class Tool(Generic[A]):
    def __init__(self, spec: ToolSpec[A], handler: Handler[A, Any]) -> None:
        self.spec = spec
        self.handler = handler
        self.binder = spec.make_binder()
        self.reads_only = spec.effects.reads_only

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def toolset(self) -> str:
        return self.spec.toolset


class GivenPlan(Struct, Generic[A], frozen=True):
    given: A
    actions: tuple[Action, ...]


class ReadPlan(Struct, Generic[A], frozen=True):
    """A resolved call that reads one path."""

    given: A
    path: ReadPath
    actions: tuple[Action, ...]
    version: str | None = None  # the approved version; no other content is shown


def plan_read(category: str, operation: str, arguments: Any, ports: Ports) -> ReadPlan[Any]:
    """Resolve `arguments.path`. Raises: PathError."""
    path = ports.workspace.resolve_read(arguments.path)
    return ReadPlan(arguments, path, path_actions(category, operation, path))


def path_actions(category: str, operation: str, path: ReadPath | WritePath) -> tuple[Action, ...]:
    """Return an action for the path as asked, and one for the target of a symlink.

    Threat: a rule on a symlink's name does not cover its target, and a rule on
    the target does not cover the symlink: both are judged.
    """
    asked, real = path.asked, path.real
    action = Action(category, operation, asked.relative)
    if real is asked or real == asked:
        return (action,)
    return (action, Action(category, operation, real.relative))


def pinned(wanted: str | None, found: str, path: WorkspacePath) -> str:
    """Return the version to act on, which the approver is shown. Raises: FileChangedError.

    Threat: a caller that names a future version would get one content approved
    and act on another.
    """
    if wanted in (None, found):
        return found
    raise FileChangedError(
        f"{quote(path.relative)} is not at version {quote(wanted)}: it is at {found}",
        hint="read it again, then repeat the call with the new version",
    )


def absolute(workspace: Workspace, path: WorkspacePath) -> str:
    """Return the path for the host; never shown to a model."""
    if path.relative == ".":
        return workspace.root
    return f"{workspace.root.rstrip('/')}/{path.relative}"


def workspace_details(
    ports: Ports, path: WorkspacePath, action: str, **own: Json
) -> dict[str, Json]:
    where = absolute(ports.workspace, path)
    return {"path": where, "action": action, **own, "success": True, "error": None}


# A handler of a long call stops it when `ports.cancel` is set (`on_cancel` calls back at once),
# waits until nothing of it runs, and raises StoppedCallError with the effect so far. A call that
# was cancelled before it began never reaches its handler.
_HINTS: Final = {
    LeftEffect.NONE: "it changed nothing",
    LeftEffect.PARTIAL: "part of it was done: check what it changed before you continue",
    LeftEffect.UNKNOWN: "its effect is not known: check the target before you continue",
}


class StoppedCallError(CallCancelledError):
    """A call was stopped while it ran. `changes` are the known ones."""

    def __init__(self, effect: LeftEffect, *, changes: tuple[Change, ...] = ()) -> None:
        super().__init__("the call was cancelled", hint=_HINTS[effect])
        self.effect = effect
        self.changes = changes
