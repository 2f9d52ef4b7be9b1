"""The Messages API: requests as it wants them, messages as turns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paddock.errors import ConfigError
from paddock.providers.answer_tool import Issue, answer_tool, is_closed
from paddock.providers.anthropic_stream import RAW_INPUT, MessageAssembly
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.reading import CallReader, Parts, finish, raw_text, readable_arguments
from paddock.providers.sdk_provider import Prepared
from paddock.providers.wire_json import as_count, as_map, as_maps, as_text
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

DIALECT: Final = "anthropic"

STOPS: Final = {
    "tool_use": Stop.TOOL_USE,
    "end_turn": Stop.END_TURN,
    "stop_sequence": Stop.STOP_SEQUENCE,
    "max_tokens": Stop.MAX_TOKENS,
    "model_context_window_exceeded": Stop.CONTEXT_WINDOW,
    "refusal": Stop.REFUSAL,
    "pause_turn": Stop.PAUSE,
}
"""Every reason of the API; what is not here is `Stop.UNKNOWN`."""


def request_body(request: ModelRequest, model: str, issued: str) -> dict[str, Json]:
    """The body of POST /v1/messages, streaming. The API takes no temperature any more.

    With `issued`, the answer comes as a call to a tool of that name.

    Raises: ConfigError for an output schema that the API's form cannot hold.
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
    """The schema in the API's subset: closed objects, and no keyword that it refuses."""
    # With the request, and not with this module: the SDK takes a second to load.
    from anthropic import transform_schema

    try:
        return transform_schema(dict(output.schema))
    except ValueError as error:
        raise ConfigError(
            f"the output schema {quote(output.name)} cannot be used: {quote(str(error))}",
            hint="give every part of it a type",
        ) from None


def _tool(tool: ToolSchema) -> dict[str, Json]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": dict(tool.parameters),
    }


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    """Roles take turns on this wire: what the user's side says in a row is one message."""
    found: list[dict[str, Json]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message)
        if not blocks:
            continue  # An empty message is refused, and says nothing.
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
        _call_block(call.id, call.name, readable_arguments(call)) for call in message.tool_calls
    ]
    return [*_text(message.text), *calls]


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _call_block(call_id: str, name: str, arguments: Mapping[str, Json]) -> dict[str, Json]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": dict(arguments)}


@dataclass(frozen=True, slots=True)
class AnthropicWire:
    """The API's words; the client is made by `paddock.providers.anthropic`."""

    model: str
    issue: Issue
    always: Mapping[str, Json]
    """Members of every request's body."""

    def prepare(self, request: ModelRequest) -> Prepared:
        """The request's body.

        Structured output is native, which closes every object; where that would change
        what the schema allows, the answer comes as a call.
        """
        output = request.output
        issued = "" if output is None or is_closed(output.schema) else self.issue()
        return Prepared(
            request, {**request_body(request, self.model, issued), **self.always}, issued
        )

    def assembly(self) -> MessageAssembly:
        return MessageAssembly()

    def read(self, message: Mapping[str, Json], prepared: Prepared) -> ModelTurn:
        """The turn. Raises: ProviderError where this is no message."""
        if message.get("type") != "message" or not isinstance(message.get("content"), list):
            raise ProviderError("anthropic sent no message", kind=FailureKind.BROKEN)
        reader = CallReader(prepared.request, prepared.issued)
        texts: list[str] = []
        kept: list[Json] = []
        for block in as_maps(message["content"]):
            if block.get("type") == "tool_use":
                kept.append(_kept_call(block, reader))
                continue
            if block.get("type") == "text":
                texts.append(as_text(block.get("text")))
                if not texts[-1].strip():
                    continue  # Sent back, an empty text block is refused.
            kept.append(dict(block))
        raw = as_text(message.get("stop_reason"))
        stop = STOPS.get(raw, Stop.UNKNOWN)
        is_exact = message.get("is_exact", True) is True
        parts = Parts(
            text="".join(texts),
            stop=stop,
            model=as_text(message.get("model")) or self.model,
            usage=_usage(message.get("usage")),
            stop_raw=raw,
            stop_reason=_reason(as_map(message.get("stop_details"))),
            raw_ref=as_text(message.get("id")),
            native=Native(DIALECT, tuple(kept)) if is_exact else None,
        )
        return finish(prepared.request, parts, reader)


def _kept_call(block: Mapping[str, Json], reader: CallReader) -> Json:
    """The block as it is sent back; a call that was the answer goes back as its text."""
    given = block.get(RAW_INPUT)
    if given is None:
        # On this wire an object is what is expected; as text it is read like any other.
        whole = block.get("input")
        given = "null" if whole is None else raw_text(whole)
    call = reader.read(as_text(block.get("id")), as_text(block.get("name")), given)
    if call is None:
        return {"type": "text", "text": raw_text(given) or "{}"}
    rest = {name: value for name, value in block.items() if name != RAW_INPUT}
    return {**rest, "id": call.id, "input": dict(readable_arguments(call))}


def _reason(details: Mapping[str, Json]) -> str:
    parts = (as_text(details.get("category")), as_text(details.get("explanation")))
    return ": ".join(part for part in parts if part)


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
