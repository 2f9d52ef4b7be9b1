"""A tool call and its result: `content` for the model, `details` for the host."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from paddock.errors import TOOL_ERRORS, ToolError

Json = Any
"""A JSON value as `json.loads` gives it. The one place where `Any` crosses a door."""


class ToolCall(Struct, frozen=True):
    """What a model asks for. Nothing in it says who is asking."""

    id: str
    tool: str
    arguments: Mapping[str, Json]


class Refusal(Struct, frozen=True):
    """Why a call did not do what it was asked: stable code, text, what to do next."""

    code: str
    error: str
    hint: str = ""
    rule: Mapping[str, Json] | None = None
    """Of a refusal by policy: `text`, `file`, `line`."""

    def as_text(self) -> str:
        said = f"error[{self.code}]: {self.error}"
        return f"{said}\nhint: {self.hint}" if self.hint else said


class ToolResult(NamedTuple):
    """What a call came to.

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
        """The result object of every door: `status`, `content`, then the tool's own fields."""
        own = {"status": self.status, "content": self.content}
        # Again behind the details: a tool of the embedding program may use these names too.
        shown: dict[str, Json] = {**own, **self.details, **own}
        if self.refusal is not None:
            shown["code"] = self.refusal.code
            shown["error"] = self.refusal.error
            shown["hint"] = self.refusal.hint
            if self.refusal.rule is not None:
                shown["rule"] = dict(self.refusal.rule)
        return shown

    def unwrap(self) -> "ToolResult":
        """This result, or the exception that its refusal stands for.

        Raises: the class of `paddock.errors.TOOL_ERRORS` for the refusal's code.
        """
        if self.refusal is None:
            return self
        raise TOOL_ERRORS.get(self.refusal.code, ToolError)(
            self.refusal.error, where=self.tool, hint=self.refusal.hint
        )


class Cancel(Protocol):
    """Says when to stop. One token may be given to many calls, in many threads."""

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop; once true it stays true."""
        ...

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` at once when cancelled, in the cancelling thread; returns the undoing.

        A token that is cancelled already calls it now.
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
    """Some of it: what is known stands in the effects."""
    UNKNOWN = "unknown"


class OpenedConnection(Struct, frozen=True):
    """A way out that is about to be opened for a command."""

    host: str
    port: int
    address: str
    """`via proxy` where a proxy of the host finds it."""
    server_name: str
    """What the client's first words name; empty where they name nothing, or are not known yet."""
    rule: str


class ClosedConnection(Struct, frozen=True):
    opened: OpenedConnection
    server_name: str
    sent_bytes: int
    received_bytes: int
    duration_s: float
    ending: str


class RefusedConnection(Struct, frozen=True):
    host: str
    port: int
    """0: the name was asked for, and has no port that policy lets through."""
    why: str
    count: int = 1


class Connections(Struct, frozen=True):
    """What a command's connections came to; refusals beyond the first fifty are counted."""

    opened: int = 0
    refused: tuple[RefusedConnection, ...] = ()
    more_refused: int = 0


NO_CONNECTIONS: Final = Connections()
NO_RULE: Final = "no rule allows it"
"""Why a connection is refused that a person can allow by one rule."""
