"""Tool calls and their results: `content` for the model, `details` for the host."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from paddock.errors import TOOL_ERRORS, ToolError

Json = Any
"""A JSON value as `json.loads` returns it. The only `Any` at an interface."""


class ToolCall(Struct, frozen=True):
    """A call that a model requests. It does not identify the caller."""

    id: str
    tool: str
    arguments: Mapping[str, Json]


class Refusal(Struct, frozen=True):
    """The reason why a call failed: stable code, text, and what to do next."""

    code: str
    error: str
    hint: str = ""
    rule: Mapping[str, Json] | None = None
    """For a refusal by policy: `text`, `file`, `line`."""

    def as_text(self) -> str:
        said = f"error[{self.code}]: {self.error}"
        return f"{said}\nhint: {self.hint}" if self.hint else said


class ToolResult(NamedTuple):
    """The result of a call.

    `content` is text for the model: workspace-relative paths, no traceback.
    `details` are the tool's own fields for the host. `refusal` is None exactly
    when `status` is `ok`.
    """

    call_id: str
    tool: str
    content: str
    details: Mapping[str, Json] = MappingProxyType({})
    refusal: Refusal | None = None

    @property
    def status(self) -> str:
        """`ok` or `error`."""
        return "ok" if self.refusal is None else "error"

    def as_json(self) -> dict[str, Json]:
        """Return the result object of every interface: `status`, `content`, then the details."""
        own = {"status": self.status, "content": self.content}
        # Repeated after the details, because an embedding program's tool may use these names too.
        shown: dict[str, Json] = {**own, **self.details, **own}
        if self.refusal is not None:
            shown["code"] = self.refusal.code
            shown["error"] = self.refusal.error
            shown["hint"] = self.refusal.hint
            if self.refusal.rule is not None:
                shown["rule"] = dict(self.refusal.rule)
        return shown

    def unwrap(self) -> "ToolResult":
        """Return this result, or raise its refusal as an exception.

        Raises: the class of `paddock.errors.TOOL_ERRORS` for the refusal's code.
        """
        if self.refusal is None:
            return self
        raise TOOL_ERRORS.get(self.refusal.code, ToolError)(
            self.refusal.error, where=self.tool, hint=self.refusal.hint
        )


class Cancel(Protocol):
    """A cancellation token. Many calls, in many threads, may share one."""

    @property
    def is_cancelled(self) -> bool:
        """True to stop; once True it stays True."""
        ...

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` on cancellation, in the cancelling thread; return its unregistering.

        A token that is already cancelled calls it now.
        """
        ...


class _Never:
    @property
    def is_cancelled(self) -> bool:
        return False

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        del callback
        return _nothing


def _nothing() -> None:
    return None


NEVER: Final[Cancel] = _Never()


class LeftEffect(StrEnum):
    NONE = "none"
    PARTIAL = "partial"
    """Some changes remain; the known ones are in the effects."""
    UNKNOWN = "unknown"


class OpenedConnection(Struct, frozen=True):
    """A connection that is about to be opened for a command."""

    host: str
    port: int
    address: str
    """`via proxy` if the host's proxy resolves it."""
    server_name: str
    """The name in the client's first bytes; empty if they have none, or are not known yet."""
    rule: str


class ClosedConnection(Struct, frozen=True):
    opened: OpenedConnection
    server_name: str
    sent_bytes: int
    received_bytes: int
    duration_s: float
    ending: str


SHOW_NETWORK: Final = "paddock network show"


class RefusedConnection(Struct, frozen=True):
    host: str
    port: int
    """0 for a name that was resolved, and for which policy allows no port."""
    why: str
    remedy: str = SHOW_NETWORK
    """How a person can change it; empty: policy allowed it, and the network failed."""
    count: int = 1


class Connections(Struct, frozen=True):
    """A summary of a command's connections; refusals beyond the first fifty are only counted."""

    opened: int = 0
    refused: tuple[RefusedConnection, ...] = ()
    more_refused: int = 0


NO_CONNECTIONS: Final = Connections()
NO_RULE: Final = "no rule allows it"
"""The reason for refusing a connection that one new rule could allow."""
