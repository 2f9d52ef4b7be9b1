"""What a tool is: name, text, schema, effects, and its two steps."""

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
    # What a tool asks for is loaded by who provides it: most calls need the workspace alone.
    from paddock.gates.results import GateResult
    from paddock.ledger.query import Ledgers
    from paddock.network.decisions import Witness
    from paddock.packages.rows import PackageRow
    from paddock.sandbox.shell import SandboxShell
    from paddock.sandbox.values import HeldLine, OnOutput, WaitingChanges
    from paddock.storage.notes import DoingEntry, DoingKind


SCHEMA_VERSION = 1  # part of every approval's digest: a changed schema voids old approvals


class Effects(Struct, frozen=True):
    """What a call may do, as clients want to know it (MCP annotations)."""

    reads_only: bool
    is_destructive: bool = False
    is_idempotent: bool = False
    is_open_world: bool = False


READS = Effects(reads_only=True, is_idempotent=True)


class Change(Struct, frozen=True, omit_defaults=True):
    """What a call did to one path, with the content's digests before and after.

    None stands for absence, and for the content of a directory. The rest is what undoing
    needs.
    """

    path: str
    kind: "DoingKind"
    before: str | None
    after: str | None
    to: str | None = None
    entry: "DoingEntry" = "file"
    entry_after: "DoingEntry | Literal['']" = ""
    """What stands there now, where that is something else."""
    mode: int | None = None
    """Permission bits of what stood there, where they do not stand there any more."""
    mode_after: int | None = None
    """Permission bits that were left, where a set of changes tells them; of a link None."""
    made: tuple[str, ...] = ()
    kept: bool = True
    """Whether what was replaced is in the history: all but what only commands write."""


class StoredEffects(Struct, frozen=True):
    """Changes that are too many for a ledger entry: the whole list is in the history."""

    digest: str
    total: int


class RefusedPath(NamedTuple):
    """A path that a command changed and that stayed as it was, by which rule or for what reason."""

    path: str
    code: str
    rule: str


class OutputKept(Struct, frozen=True):
    """Where a command's stream is kept of which more was printed than is shown."""

    stream: str
    digest: str
    kept_bytes: int
    total_bytes: int


class CommandExit(Struct, frozen=True):
    """How a command ended that a tool ran."""

    code: int  # -1 on a time-out, 128 + N for signal N
    timed_out: bool = False
    kept: tuple[OutputKept, ...] = ()
    causes: tuple[str, ...] = ()  # what the fence refused to it, where it failed


class ToolOutput(NamedTuple):
    """What a tool hands back: text for the model, fields for the host."""

    content: str
    details: Mapping[str, Json]
    changes: tuple[Change, ...] = ()
    bytes_written: int = 0
    stored: StoredEffects | None = None
    """Where `changes` are only the first of many."""
    refused: tuple[RefusedPath, ...] = ()
    exit: CommandExit | None = None
    """Of a tool that runs a command."""
    refused_more: int = 0
    """How many there were that `refused` does not name."""
    waiting: "WaitingChanges | None" = None
    """What it changed waits for a person: whoever runs it keeps that, or lets it go."""
    pending: str = ""
    """The request that keeps it."""


class Plan(Protocol):
    """A call with its targets resolved: what is judged and then carried out."""

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything the call would do; policy judges all of it."""
        ...


A = TypeVar("A")
Given = TypeVar("Given", contravariant=True)
P = TypeVar("P", bound=Plan)


class Shown(Protocol):
    """What may appear in a listing, by workspace-relative path."""

    def is_shown(self, relative: str) -> bool:
        """False for what is secret or Paddock's own state."""
        ...

    def may_view(self, relative: str) -> bool:
        """Whether the agent could view the file: else no answer shows what stands in it."""
        ...

    def allows(self, action: Action) -> bool:
        """Whether the agent could do this without being asked.

        For a target that is known only while the call runs; all others are in the plan.
        """
        ...


class Earlier(Protocol):
    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        """What stood at this very path, workspace-relative, at that version.

        None where nobody knows that it stood there, where it is not kept (any more), and
        where it is larger than `bytes_max`. Never raises: it is asked in a refusal.
        """
        ...


FULL_LIMITS = LoweredLimits()


class Payload(Struct, eq=False):
    """Bytes that go beside a call of the embedding program."""

    given: bytes = b""
    taken: bytes = b""
    env: tuple[tuple[str, str], ...] = ()


class Ports(Struct, frozen=True):
    """What a handler may touch; None is not there. `workspace` is the only way to a file."""

    workspace: Workspace
    shown: Shown
    ledgers: "Ledgers | None" = None  # to be read; a handler writes to none
    shell: "Callable[[], SandboxShell] | None" = None
    packages: "Callable[[], tuple[PackageRow, ...]] | None" = None
    """By layer and name; each looked at now. Raises: HostError, LedgerDamagedError."""
    gates: "Callable[[Sequence[str]], tuple[GateResult, ...]] | None" = None
    """Runs these, in order, on record; G4 is told from its last run. Raises: LedgerBusyError."""
    limits: LoweredLimits = FULL_LIMITS
    earlier: Earlier | None = None
    memory: "Callable[[], Workspace] | None" = None
    """What the agent remembers between its sessions. Raises: HostError."""
    cancel: Cancel = NEVER
    on_output: "OnOutput | None" = None
    agent: str = ""
    call_id: str = ""  # of the call that runs; empty before it does
    network: "Witness | None" = None  # of the connections of this call, should it open any
    payload: Payload | None = None


def shell_of(ports: Ports) -> "SandboxShell":
    """Return the shell. Raises: SandboxUnavailableError: there is none."""
    if ports.shell is None:
        raise SandboxUnavailableError(
            "this workspace was opened without a shell", hint="do it with the other tools"
        )
    return ports.shell()


class Handler(Protocol[Given, P]):
    """A tool's two steps. It keeps no state between calls."""

    def resolve(self, arguments: Given, ports: Ports) -> P:
        """Touches nothing. Raises: ToolError for a target that cannot be used as asked."""
        ...

    def run(self, plan: P, ports: Ports) -> ToolOutput:
        """Raises: ToolError where it did not happen; then nothing has changed."""
        ...


@runtime_checkable
class Pinning(Protocol):
    """A handler that can bind a plan to its target's present content."""

    def pin(self, plan: Any, ports: Ports) -> tuple[Any, str]:
        """The plan tied to what stands there now, and that content's digest. Raises: ToolError."""
        ...


@runtime_checkable
class Confining(Protocol):
    """A handler whose calls a sandbox can hold."""

    def confine(self, plan: Any, ports: Ports) -> tuple[Any, Held]:
        """The plan tied to what will hold it, and how far that does. Raises: ToolError."""
        ...


@runtime_checkable
class Staging(Protocol):
    """A handler that can do everything but let its effect stand."""

    def asks_about_effect(self, plan: Any, ports: Ports) -> bool: ...

    def stage(self, plan: Any, ports: Ports) -> "tuple[Any, HeldLine]":
        """Act, and hold the effect back; the plan that lets it stand. Raises: ToolError."""
        ...

    def release(self, plan: Any) -> None:
        """Let go of what the plan holds back, if it holds anything."""
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
    """Fields of the tool's own that an error result carries too."""
    recording: McpServer | None = None
    """Of a tool of somebody else's server: who says how the ledger keeps its arguments."""
    passed: Mapping[str, Json] | None = None
    """Of a tool that another program has: the schema that it gives itself. Nothing is bound."""

    def make_binder(self) -> "Binder[A] | PassedArguments":
        return Binder(self.arguments) if self.passed is None else PassedArguments(self.passed)


class Tool(Generic[A]):
    """A spec and a handler that belong together, with the spec's binder."""

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
    """A call that looks at one path, resolved."""

    given: A
    path: ReadPath
    actions: tuple[Action, ...]
    version: str | None = None  # what was approved; another content is not shown


def plan_read(category: str, operation: str, arguments: Any, ports: Ports) -> ReadPlan[Any]:
    """Resolve `arguments.path`. Raises: PathError."""
    path = ports.workspace.resolve_read(arguments.path)
    return ReadPlan(arguments, path, path_actions(category, operation, path))


def path_actions(category: str, operation: str, path: ReadPath | WritePath) -> tuple[Action, ...]:
    """One action for the path as asked, and one for where a link leads.

    Threat: a rule on the name of a link says nothing about its target, and a
    rule on the target says nothing about the link: both are judged.
    """
    asked, real = path.asked, path.real
    action = Action(category, operation, asked.relative)
    if real is asked or real == asked:
        return (action,)
    return (action, Action(category, operation, real.relative))


def pinned(wanted: str | None, found: str, path: WorkspacePath) -> str:
    """The version to act on: what is shown to an approver. Raises: FileChangedError.

    Threat: a caller that names a version which is to come would have a question
    about one content answered, and act on another.
    """
    if wanted in (None, found):
        return found
    raise FileChangedError(
        f"{quote(path.relative)} is not at version {quote(wanted)}: it is at {found}",
        hint="read it again, then repeat the call with the new version",
    )


def absolute(workspace: Workspace, path: WorkspacePath) -> str:
    """The path for the host: never shown to a model."""
    if path.relative == ".":
        return workspace.root
    return f"{workspace.root.rstrip('/')}/{path.relative}"


def workspace_details(
    ports: Ports, path: WorkspacePath, action: str, **own: Json
) -> dict[str, Json]:
    where = absolute(ports.workspace, path)
    return {"path": where, "action": action, **own, "success": True, "error": None}


# A handler that runs something long stops it when `ports.cancel` says so (`on_cancel` calls back
# at once), waits until nothing of it is left, and raises StoppedCallError with what was done by
# then. A call that has not begun is never handed to its handler.
_HINTS: Final = {
    LeftEffect.NONE: "it changed nothing",
    LeftEffect.PARTIAL: "part of it was done: look at what it changed before going on",
    LeftEffect.UNKNOWN: "what it did is not known: look at the target before going on",
}


class StoppedCallError(CallCancelledError):
    """A call that was stopped while it ran. `changes` is what is known of its effect."""

    def __init__(self, effect: LeftEffect, *, changes: tuple[Change, ...] = ()) -> None:
        super().__init__("the call was cancelled", hint=_HINTS[effect])
        self.effect = effect
        self.changes = changes
