"""Requests to models and their turns, independent of the provider; token accounts.

A request holds the whole conversation: user messages, the model's turns, and the results of its
calls. A turn ends for exactly one reason, `Stop`; an unknown one is `UNKNOWN`, and never a reason
to continue.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from paddock import limits
from paddock.values.calls import Json, Refusal, ToolResult


class Stop(StrEnum):
    """Why a turn ended. Every provider's reasons map onto these."""

    TOOL_USE = "tool_use"
    """The model waits for the results of its calls."""
    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    """Cut at the output limit, perhaps within a call's arguments: its calls may be incomplete."""
    CONTEXT_WINDOW = "context_window"
    """The conversation no longer fits; a retry would fail too."""
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"
    """The provider wants the same conversation again, with this turn unchanged."""
    CANCELLED = "cancelled"
    """The call was cancelled; the text is what had arrived."""
    UNKNOWN = "unknown"
    """Missing or unknown; `stop_raw` has the provider's word."""


class ToolSchema(Struct, frozen=True):
    """A tool as a model sees it: `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Json]


class OutputSchema(Struct, frozen=True):
    name: str
    """Required by providers: at most 64 letters, digits, `_` and `-`."""
    schema: Mapping[str, Json]


class ToolUse(Struct, frozen=True, omit_defaults=True):
    """One call that a model requests.

    `problem` is set exactly if the arguments could not be parsed, or the provider reported the call
    as incomplete; then `arguments` is empty, `raw` is the received text, and the call must be
    answered with the problem.
    """

    id: str
    name: str
    arguments: Mapping[str, Json]
    problem: Refusal | None = None
    raw: str = ""


class Usage(NamedTuple):
    """Tokens of one exchange or of many. `input` does not include cache reads or writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write

    def plus(self, other: "Usage") -> "Usage":
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Native(Struct, frozen=True):
    """A turn in the provider's format, to send back unchanged, or the provider refuses it."""

    dialect: str
    blocks: tuple[Json, ...]


class UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    text: str


class AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant", omit_defaults=True):
    text: str
    tool_calls: tuple[ToolUse, ...] = ()
    native: Native | None = None


class ToolAnswer(Struct, frozen=True):
    call_id: str
    tool: str
    content: str
    is_error: bool = False

    @classmethod
    def of(cls, result: ToolResult) -> "ToolAnswer":
        return cls(result.call_id, result.tool, result.content, result.refusal is not None)


class ToolAnswers(Struct, frozen=True, tag_field="role", tag="tools"):
    """The results of one turn's calls: exactly one per call id, in the order of the calls."""

    answers: tuple[ToolAnswer, ...]


Message = UserMessage | AssistantMessage | ToolAnswers


class ModelRequest(Struct, frozen=True):
    """One request: the whole conversation, and constraints on the answer.

    `output` is the schema of the final answer. `temperature`: None lets the provider decide.
    """

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSchema, ...] = ()
    output: OutputSchema | None = None
    max_output_tokens: int = limits.model_output_tokens_default
    temperature: float | None = None


class ModelTurn(Struct, frozen=True):
    """A model's answer.

    `structured` is the object requested by `output`, validated against its schema; if it is
    missing, `structured_problem` has the reason. `stop_reason` is the provider's text on a refusal
    or filter, `raw_ref` its id of the exchange, `attempts` the number of requests.
    """

    text: str
    tool_calls: tuple[ToolUse, ...]
    structured: Mapping[str, Json] | None
    stop: Stop
    usage: Usage
    model: str
    raw_ref: str = ""
    stop_raw: str = ""
    stop_reason: str = ""
    structured_problem: str = ""
    usage_is_known: bool = True
    """False if the provider reported no usage; then `usage` is a lower bound."""
    attempts: int = 1
    native: Native | None = None

    @property
    def message(self) -> AssistantMessage:
        """The turn as the next request repeats it, with an answer to each of its calls."""
        return AssistantMessage(self.text, self.tool_calls, self.native)


# A scope (session, work order, call) spends from its parent scopes too, up to the session.


class BudgetMode(StrEnum):
    ENFORCE = "enforce"
    WARN = "warn"
    OFF = "off"


class Account(Struct, frozen=True):
    name: str
    limit: int | None = None
    spent: int = 0
    reserved: int = 0

    @property
    def free(self) -> int | None:
        """The tokens that can still be reserved, at least 0; None without a limit."""
        if self.limit is None:
            return None
        return max(0, self.limit - self.spent - self.reserved)


class Shortage(NamedTuple):
    scope: str
    limit: int
    free: int
    wanted: int

    def __str__(self) -> str:
        return f"{self.scope} has {self.free} of {self.limit} tokens left, {self.wanted} are needed"
