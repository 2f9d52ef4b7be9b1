"""Ask Anthropic's models through the Messages API and the official SDK."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import Struct, field

from paddock.errors import ConfigError
from paddock.providers.choice import Key
from paddock.providers.client import Client, PreparedRequest, SdkProvider, Server
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.structured import (
    Issue,
    TurnBuilder,
    answer_tool,
    as_count,
    as_list,
    as_map,
    as_maps,
    as_text,
    is_closed,
    issue_name,
    joined,
    raw_text,
    readable_arguments,
)
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    Native,
    OutputSchema,
    Stop,
    ToolAnswers,
    ToolSchema,
    Usage,
    UserMessage,
)

# Blocks are stored as received: thinking and its signature are sent back unchanged. The arguments
# of a call are stored as text, because the SDK's helper silently completes cut arguments.

RAW_INPUT: Final = "raw_input"
"""Paddock's member of an assembled tool_use block: its arguments as text, or the received pieces if
one was not understood."""

_TEXT_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
_EVENTS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)


def _out_of_order(what: str) -> ProviderError:
    return ProviderError(f"anthropic sent {what}", kind=FailureKind.BROKEN)


class _Block(Struct):
    content: dict[str, Json]
    pieces: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    """Member → the pieces of its text so far; those of `RAW_INPUT` may be no text."""
    is_open: bool = True

    def extend(self, member: str, piece: Json) -> None:
        self.pieces.setdefault(member, []).append(piece)

    def close(self) -> None:
        self.is_open = False
        self.content |= {member: joined(pieces) for member, pieces in self.pieces.items()}


class MessageAssembly:
    def __init__(self) -> None:
        self._message: dict[str, Json] | None = None
        self._usage: dict[str, Json] = {}
        self._blocks: dict[int, _Block] = {}
        self._is_exact = True
        self.is_complete = False

    def feed(self, event: Mapping[str, Json]) -> str:
        kind = as_text(event.get("type"))
        if kind not in _EVENTS:
            return ""  # The API may add event types; no new type ends a message.
        if self.is_complete or (self._message is None) != (kind == "message_start"):
            raise _out_of_order(f"{kind} out of order")
        match kind:
            case "message_start":
                self._message = dict(as_map(event.get("message")))
                self._usage.update(as_map(self._message.get("usage")))
            case "content_block_start":
                return self._open(event)
            case "content_block_delta":
                return self._extend(self._block(event), as_map(event.get("delta")))
            case "content_block_stop":
                self._block(event).close()
            case "message_delta":
                if self._message is not None:
                    self._message.update(as_map(event.get("delta")))
                given = as_map(event.get("usage"))
                self._usage.update({n: count for n, count in given.items() if count is not None})
            case _:
                if any(block.is_open for block in self._blocks.values()):
                    raise _out_of_order("message_stop before the end of a block")
                self.is_complete = True
        return ""

    def message(self) -> Mapping[str, Json]:
        return {
            **(self._message or {}),
            "content": [self._blocks[index].content for index in sorted(self._blocks)],
            "usage": self._usage or None,
            "is_exact": self._is_exact,
        }

    def _block(self, event: Mapping[str, Json]) -> _Block:
        index = event.get("index")
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not block.is_open:
            raise _out_of_order(f"a part of block {quote(index)}, which is not open")
        return block

    def _open(self, event: Mapping[str, Json]) -> str:
        index = event.get("index")
        if not isinstance(index, int) or index in self._blocks:
            raise _out_of_order(f"block {quote(index)} twice")
        content = dict(as_map(event.get("content_block")))
        given = {member: as_text(content.get(member)) for member in _TEXT_DELTAS.values()}
        self._blocks[index] = _Block(
            content, {name: [text] for name, text in given.items() if text}
        )
        return given["text"] if content.get("type") == "text" else ""

    def _extend(self, block: _Block, delta: Mapping[str, Json]) -> str:
        kind = as_text(delta.get("type"))
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            block.extend(RAW_INPUT, "" if piece is None else piece)
        elif block.content.get("type") == "tool_use":
            # Threat: a call runs without the arguments in a delta of an unknown type.
            block.extend(RAW_INPUT, dict(delta))
            self._is_exact = False
        elif kind in _TEXT_DELTAS:
            member = _TEXT_DELTAS[kind]
            text = as_text(delta.get(member))
            block.extend(member, text)
            return text if kind == "text_delta" else ""
        elif kind == "citations_delta":
            cited = as_list(block.content.get("citations"))
            block.content["citations"] = [*cited, delta.get("citation")]
        else:
            self._is_exact = False
        return ""


DIALECT: Final = "anthropic"
ADDRESS: Final = "https://api.anthropic.com"
DEFAULT_MODEL: Final = "claude-opus-5-5"
# The next request reads the conversation so far from the service's cache.
_CACHED: Final[Mapping[str, Json]] = {"cache_control": {"type": "ephemeral"}}

STOPS: Final = {
    "tool_use": Stop.TOOL_USE,
    "end_turn": Stop.END_TURN,
    "stop_sequence": Stop.STOP_SEQUENCE,
    "max_tokens": Stop.MAX_TOKENS,
    "model_context_window_exceeded": Stop.CONTEXT_WINDOW,
    "refusal": Stop.REFUSAL,
    "pause_turn": Stop.PAUSE,
}
"""Every stop reason of the API; any other is `Stop.UNKNOWN`."""


def request_body(request: ModelRequest, model: str, issued: str) -> dict[str, Json]:
    """Build the body of a streaming POST /v1/messages. The API no longer accepts a temperature.

    With `issued`, the answer comes as a call to a tool of that name.
    """
    body: dict[str, Json] = {
        "model": model,
        "max_tokens": request.max_output_tokens,
        "messages": _messages(request.messages),
        "stream": True,
    }
    if request.system:
        body["system"] = request.system
    tools = [_tool(tool) for tool in request.tools]
    if request.output is not None and issued:
        tools.append(_tool(answer_tool(issued, request.output)))
    elif request.output is not None:
        schema = _native_schema(request.output)
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    if tools:
        body["tools"] = tools
    return body


def _native_schema(output: OutputSchema) -> Json:
    # Imported per request, not with this module: the SDK takes a second to load.
    from anthropic import transform_schema

    try:
        return transform_schema(dict(output.schema))
    except ValueError as error:
        raise ConfigError(
            f"the output schema {quote(output.name)} cannot be used: {quote(str(error))}",
            hint="give every part of the schema a type",
        ) from None


def _tool(tool: ToolSchema) -> dict[str, Json]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    found: list[dict[str, Json]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message)
        if not blocks:
            continue  # The API refuses an empty message, which has no content anyway.
        if role == "user" and found and found[-1]["role"] == "user":
            found[-1]["content"] += blocks
        else:
            found.append({"role": role, "content": blocks})
    return found


def _blocks(message: Message) -> list[Json]:
    if isinstance(message, UserMessage):
        return _text(message.text)
    if isinstance(message, ToolAnswers):
        return [
            {
                "type": "tool_result",
                "tool_use_id": answer.call_id,
                "content": answer.content,
                "is_error": answer.is_error,
            }
            for answer in message.answers
        ]
    if message.native is not None and message.native.dialect == DIALECT:
        return list(message.native.blocks)
    calls = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": dict(readable_arguments(call)),
        }
        for call in message.tool_calls
    ]
    return [*_text(message.text), *calls]


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


class AnthropicWire(Struct, frozen=True):
    model: str
    issue: Issue
    always: Mapping[str, Json]
    server: Server = Server()

    def connect(self, key: Key) -> Client:
        import anthropic

        # Keep the SDK from sending the conversation to a telemetry collector, too.
        make = partial(anthropic.AsyncAnthropic, open_telemetry=False)
        credential = {"x-api-key": key.reveal()}
        made = self.server.connect(make, anthropic, ADDRESS, key, credential)
        return Client(anthropic, made, made.messages)

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """Build the request's body.

        The API's structured output closes every object. If that would change the schema, request
        the answer as a call.
        """
        output = request.output
        issued = "" if output is None or is_closed(output.schema) else self.issue()
        return PreparedRequest(
            request, {**request_body(request, self.model, issued), **self.always}, issued
        )

    def assembly(self) -> MessageAssembly:
        return MessageAssembly()

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        if message.get("type") != "message" or not isinstance(message.get("content"), list):
            raise ProviderError("anthropic sent no message", kind=FailureKind.BROKEN)
        builder = TurnBuilder(prepared.request, prepared.issued)
        texts: list[str] = []
        kept: list[Json] = []
        for block in as_maps(message["content"]):
            if block.get("type") == "tool_use":
                kept.append(_kept_call(block, builder))
                continue
            if block.get("type") == "text":
                texts.append(as_text(block.get("text")))
                if not texts[-1].strip():
                    continue  # The API refuses an empty text block that is sent back.
            kept.append(dict(block))
        raw = as_text(message.get("stop_reason"))
        stop = STOPS.get(raw, Stop.UNKNOWN)
        is_exact = message.get("is_exact", True) is True
        details = as_map(message.get("stop_details"))
        why = (as_text(details.get("category")), as_text(details.get("explanation")))
        return builder.turn(
            "".join(texts),
            stop,
            _usage(message.get("usage")),
            model=as_text(message.get("model")) or self.model,
            stop_raw=raw,
            stop_reason=": ".join(filter(None, why)),
            raw_ref=as_text(message.get("id")),
            native=Native(DIALECT, tuple(kept)) if is_exact else None,
        )


def _kept_call(block: Mapping[str, Json], builder: TurnBuilder) -> Json:
    given = block.get(RAW_INPUT)
    if given is None:
        # This API sends an object; make it text, which is read as strictly as with other APIs.
        whole = block.get("input")
        given = "null" if whole is None else raw_text(whole)
    call = builder.read(as_text(block.get("id")), as_text(block.get("name")), given)
    if call is None:
        return {"type": "text", "text": raw_text(given) or "{}"}
    rest = {name: value for name, value in block.items() if name != RAW_INPUT}
    return {**rest, "id": call.id, "input": dict(readable_arguments(call))}


def _usage(given: Json) -> Usage | None:
    counts = as_map(given)
    if not counts:
        return None
    return Usage(
        as_count(counts.get("input_tokens")),
        as_count(counts.get("output_tokens")),
        as_count(counts.get("cache_read_input_tokens")),
        as_count(counts.get("cache_creation_input_tokens")),
    )


def anthropic_provider(model: str, key: Key, server: Server) -> SdkProvider:
    wanted = model or DEFAULT_MODEL
    always = {} if server.address else _CACHED
    return SdkProvider("anthropic", wanted, AnthropicWire(wanted, issue_name, always, server), key)
