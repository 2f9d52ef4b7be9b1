"""What is asked of a model and what comes back, in no provider's words.

A request holds the whole conversation: user messages, the model's own turns, and
the results of its calls. A turn ends for exactly one reason, and `Stop` names it;
what a provider says that nobody knows is `UNKNOWN`, never a reason to go on.
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
    """Cut at the output limit, perhaps inside a call's arguments: no call of it is whole."""
    CONTEXT_WINDOW = "context_window"
    """The conversation no longer fits: asking again would end the same way."""
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"
    """The provider wants the same conversation again, this turn included, unchanged."""
    CANCELLED = "cancelled"
    """We were told to stop; the text is what had arrived."""
    UNKNOWN = "unknown"
    """Missing, or a word that we do not know: `stop_raw` holds it."""


class ToolSchema(Struct, frozen=True):
    """A tool as a model sees it: `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Json]


class OutputSchema(Struct, frozen=True):
    name: str
    """Letters, digits, `_` and `-`, 64 at most: providers want one."""
    schema: Mapping[str, Json]


class ToolUse(Struct, frozen=True, omit_defaults=True):
    """One call that a model asks for.

    `problem` is set exactly when the arguments could not be read, or the call came with
    the word that it is not whole; then `arguments` is empty, `raw` is what came, and the
    call must be answered with the problem.
    """

    id: str
    name: str
    arguments: Mapping[str, Json]
    problem: Refusal | None = None
    raw: str = ""


class Usage(NamedTuple):
    """Tokens of one exchange or of many. `input` does not count what a cache gave or took."""

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
    """A turn in the provider's own words, to be sent back unchanged: refused when altered."""

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
    """The results of one turn's calls: exactly one for each call id, in the calls' order."""

    answers: tuple[ToolAnswer, ...]


Message = UserMessage | AssistantMessage | ToolAnswers


class ModelRequest(Struct, frozen=True):
    """One request: the whole conversation, and what the answer may be.

    `output` is the object that its last word must be. `temperature`: None where the provider
    decides.
    """

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSchema, ...] = ()
    output: OutputSchema | None = None
    max_output_tokens: int = limits.model_output_tokens_default
    temperature: float | None = None


class ModelTurn(Struct, frozen=True):
    """What came back.

    `structured` is the object that `output` asked for, checked against its schema;
    where there is none although it was asked for, `structured_problem` says why.
    `stop_reason` is what the provider said about a refusal or a filter. `raw_ref`
    is the provider's name for the exchange, `attempts` how often it was asked.
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
    """False where the provider gave no usage: then it is a lower bound."""
    attempts: int = 1
    native: Native | None = None

    @property
    def message(self) -> AssistantMessage:
        """The turn as the next request repeats it; each of its calls needs an answer there."""
        return AssistantMessage(self.text, self.tool_calls, self.native)


# A scope (session, work order, call) draws on the one that holds it, up to the session.


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
        """What may still be reserved, never below 0; None where there is no limit."""
        if self.limit is None:
            return None
        return max(0, self.limit - self.spent - self.reserved)


class Shortage(NamedTuple):
    scope: str
    limit: int
    free: int
    wanted: int

    def __str__(self) -> str:
        return f"{self.scope} has {self.free} of {self.limit} tokens left, {self.wanted} are wanted"
