"""Chat Completions: the wire that most servers of one's own speak.

They differ in small ways: calls that all have number 0, ids left out, a reason
that does not fit, usage missing, no stream although one was asked for. What can
be read one way only is read; the rest ends the turn.
"""

import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from paddock.providers.client import PreparedRequest
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.reading import CallReader, Parts, finish
from paddock.providers.structured import Issue, answer_tool, is_strict
from paddock.providers.wire import as_count, as_map, as_maps, as_text, json_text
from paddock.values.calls import Json
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    Native,
    Stop,
    ToolAnswers,
    ToolSchema,
    Usage,
    UserMessage,
)


def read_usage(given: Json, read: str, written: str) -> Usage | None:
    """The tokens under the API's names for what was read and written; None where it says none."""
    counts = as_map(given)
    if not counts:
        return None
    details = as_map(counts.get(f"{read}_details"))
    cached = as_count(details.get("cached_tokens"))
    cache_written = as_count(details.get("cache_write_tokens"))
    # These APIs count what the cache gave and took within what was read.
    plain = max(0, as_count(counts.get(read)) - cached - cache_written)
    return Usage(plain, as_count(counts.get(written)), cached, cache_written)


DIALECT: Final = "openai-chat"

STOPS: Final = {
    "stop": Stop.END_TURN,
    "length": Stop.MAX_TOKENS,
    "tool_calls": Stop.TOOL_USE,
    "function_call": Stop.TOOL_USE,
    "content_filter": Stop.CONTENT_FILTER,
}
"""Every reason of the API; what is not here is `Stop.UNKNOWN`."""


class ChatForm(Struct, frozen=True):
    """Where the official service and other servers want different words."""

    limit_member: str
    answers_beside_tools: bool
    """Whether a schema for the answer and tools go together in one request."""


OFFICIAL: Final = ChatForm("max_completion_tokens", answers_beside_tools=True)
COMPATIBLE: Final = ChatForm("max_tokens", answers_beside_tools=False)


def request_body(request: ModelRequest, model: str, form: ChatForm, issued: str) -> dict[str, Json]:
    """With `issued`, the answer comes as a call to a tool of that name."""
    system: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
    body: dict[str, Json] = {
        "model": model,
        "messages": [*system, *(row for message in request.messages for row in _rows(message))],
        form.limit_member: request.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tools = [_tool(tool) for tool in request.tools]
    if request.output is not None and issued:
        tools.append(_tool(answer_tool(issued, request.output)))
    elif request.output is not None:
        schema = dict(request.output.schema)
        named = {"name": request.output.name, "schema": schema, "strict": is_strict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if tools:
        body["tools"] = tools
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _tool(tool: ToolSchema) -> dict[str, Json]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _rows(message: Message) -> list[Json]:
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": message.text}]
    if isinstance(message, ToolAnswers):
        return [
            {"role": "tool", "tool_call_id": answer.call_id, "content": answer.content}
            for answer in message.answers
        ]
    return _own(message)


def _own(message: AssistantMessage) -> list[Json]:
    if message.native is not None and message.native.dialect == DIALECT:
        return list(message.native.blocks)
    calls = [_call(call.id, call.name, json_text(call)) for call in message.tool_calls]
    return _assistant(message.text, calls)


def _assistant(text: str, calls: list[Json]) -> list[Json]:
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def _call(call_id: str, name: str, arguments: Json) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


class _OpenCall(Struct):
    id: str
    name: str = ""
    pieces: list[Json] = field(default_factory=list[Json])
    """Of its arguments; each should be text."""

    def arguments(self) -> Json:
        """Their text; what came where a piece is none, for the reader to refuse."""
        texts = [piece for piece in self.pieces if isinstance(piece, str)]
        if len(texts) == len(self.pieces):
            return "".join(texts)
        return self.pieces[0] if len(self.pieces) == 1 else list(self.pieces)


class ChatAssembly:
    def __init__(self) -> None:
        self._reply: dict[str, Json] = {}
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: list[_OpenCall] = []
        self._open: dict[int, _OpenCall] = {}
        self._finish: Json = None
        self._has_begun = False
        self._is_over = False

    def done(self) -> None:
        self._is_over = True

    @property
    def is_complete(self) -> bool:
        """Whether the reason to stop has come, or the word that nothing more will."""
        return self._finish is not None or (self._is_over and self._has_begun)

    def feed(self, event: Mapping[str, Json]) -> str:
        """The text in it. Raises: ProviderError for a part of the answer after its end."""
        for member in ("id", "model", "usage"):
            if event.get(member):
                self._reply[member] = event[member]
        choices = [c for c in as_maps(event.get("choices")) if c.get("index", 0) == 0]
        if not choices:
            return ""
        self._has_begun = True
        choice = choices[0]
        delta = as_map(choice.get("delta"))
        piece = as_text(delta.get("content"))
        if self._finish is not None and (piece or delta.get("tool_calls")):
            raise ProviderError(
                "openai sent a part of the answer after its end", kind=FailureKind.BROKEN
            )
        self._texts.append(piece)
        self._refusals.append(as_text(delta.get("refusal")))
        for part in as_maps(delta.get("tool_calls")):
            self._extend(part)
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        return piece

    def _extend(self, part: Mapping[str, Json]) -> None:
        index = as_count(part.get("index"))
        call = self._open.get(index)
        call_id = as_text(part.get("id"))
        # A server that numbers every call 0 tells them apart by their ids.
        if call is None or (call_id and call.id and call_id != call.id):
            call = _OpenCall(call_id)
            self._open[index] = call
            self._calls.append(call)
        call.id = call.id or call_id
        call.name = call.name or as_text(as_map(part.get("function")).get("name"))
        piece = _arguments(part)
        if piece is not None and piece != "":
            call.pieces.append(piece)

    def message(self) -> Mapping[str, Json]:
        calls = [_call(call.id, call.name, call.arguments()) for call in self._calls]
        message = {
            "content": "".join(self._texts),
            "refusal": "".join(self._refusals),
            "tool_calls": calls,
        }
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._reply, "choices": [choice]}


class ChatWire(Struct, frozen=True):
    model: str
    form: ChatForm
    issue: Issue

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The request's body; beside tools, some servers take no schema for the answer."""
        by_call = bool(request.tools) and not self.form.answers_beside_tools
        issued = self.issue() if request.output is not None and by_call else ""
        return PreparedRequest(
            request, request_body(request, self.model, self.form, issued), issued
        )

    def assembly(self) -> ChatAssembly:
        return ChatAssembly()

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        choices = as_maps(message.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), Mapping):
            raise ProviderError("openai sent no reply", kind=FailureKind.BROKEN)
        said = as_map(choices[0]["message"])
        reader = CallReader(prepared.request, prepared.issued)
        text = as_text(said.get("content"))
        kept = [
            call
            for part in as_maps(said.get("tool_calls"))
            if (call := _kept_call(part, reader)) is not None
        ]
        raw = as_text(choices[0].get("finish_reason"))
        refusal = as_text(said.get("refusal"))
        stop = STOPS.get(raw, Stop.UNKNOWN)
        parts = Parts(
            text=text,
            stop=Stop.REFUSAL if refusal and stop in {Stop.END_TURN, Stop.TOOL_USE} else stop,
            model=as_text(message.get("model")) or self.model,
            usage=read_usage(message.get("usage"), "prompt_tokens", "completion_tokens"),
            stop_raw=raw,
            stop_reason=refusal,
            raw_ref=as_text(message.get("id")),
            native=Native(DIALECT, tuple(_assistant(text or _answered(reader), kept))),
        )
        return finish(prepared.request, parts, reader)


def _kept_call(part: Mapping[str, Json], reader: CallReader) -> Json:
    """The call as it is sent back; None where it was the answer."""
    name = as_text(as_map(part.get("function")).get("name"))
    call = reader.read(as_text(part.get("id")), name, _arguments(part))
    return None if call is None else _call(call.id, call.name, json_text(call))


def _arguments(part: Mapping[str, Json]) -> Json:
    """The arguments in a call or in a part of one; a function that is no object is no text."""
    function = part.get("function")
    if function is None or isinstance(function, Mapping):
        return as_map(function).get("arguments")
    return [function]


def _answered(reader: CallReader) -> str:
    """The answer that came as a call, for the conversation: the call itself is not repeated."""
    first = reader.answers[0] if reader.answers else None
    return json.dumps(dict(first)) if isinstance(first, Mapping) else ""
