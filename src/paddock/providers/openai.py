"""Ask OpenAI's models, and servers with one of OpenAI's APIs, through the official SDK.

Most self-hosted servers implement Chat Completions, with small differences: all calls have the
index 0, ids or usage are missing, the stop reason is wrong, or the answer is not streamed.
Unambiguous replies are accepted; any other ends the turn.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from paddock.errors import CallDroppedError
from paddock.providers.choice import Key
from paddock.providers.client import Client, PreparedRequest, SdkProvider, Server
from paddock.providers.failures import FailureKind, ProviderError, kind_of
from paddock.providers.structured import (
    Issue,
    TurnBuilder,
    answer_tool,
    as_count,
    as_map,
    as_maps,
    as_text,
    is_strict,
    issue_name,
    joined,
    json_text,
    raw_text,
)
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.models import (
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

Api = Literal["responses", "chat"]
ADDRESS: Final = "https://api.openai.com/v1"
DEFAULT_MODEL: Final = "gpt-6.1-terra"


def openai_provider(
    model: str, key: Key, server: Server, api: Api, issue: Issue = issue_name
) -> SdkProvider:
    wanted = model or DEFAULT_MODEL
    if api == "responses":
        return SdkProvider("openai", wanted, ResponsesWire(wanted, server), key)
    form = COMPATIBLE if server.address else OFFICIAL
    return SdkProvider("openai", wanted, ChatWire(wanted, form, issue, server), key)


def _connect(server: Server, key: Key, resource: Callable[[Any], Any]) -> Client:
    import openai

    credential = {"authorization": f"Bearer {key.reveal()}"}
    made = server.connect(openai.AsyncOpenAI, openai, ADDRESS, key, credential)
    return Client(openai, made, resource(made))


def _broken(what: str) -> ProviderError:
    return ProviderError(f"openai sent {what}", kind=FailureKind.BROKEN)


def _usage(given: Json, read: str, written: str) -> Usage | None:
    counts = as_map(given)
    if not counts:
        return None
    details = as_map(counts.get(f"{read}_details"))
    cached = as_count(details.get("cached_tokens"))
    cache_written = as_count(details.get("cache_write_tokens"))
    # These APIs count cached tokens, read and written, as part of the input.
    plain = max(0, as_count(counts.get(read)) - cached - cache_written)
    return Usage(plain, as_count(counts.get(written)), cached, cache_written)


def _described(tool: ToolSchema) -> dict[str, Json]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }


# --- Responses -----------------------------------------------------------------------

RESPONSES: Final = "openai-responses"

INCOMPLETE: Final = {
    "max_output_tokens": Stop.MAX_TOKENS,
    "content_filter": Stop.CONTENT_FILTER,
}
"""Reasons for an incomplete response; any other is `Stop.UNKNOWN`."""

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


def _response_body(request: ModelRequest, model: str) -> dict[str, Json]:
    body: dict[str, Json] = {
        "model": model,
        "input": [item for message in request.messages for item in _items(message)],
        "max_output_tokens": request.max_output_tokens,
        "store": False,
        "stream": True,
    }
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        # Strict mode would require every argument, but some of ours are optional.
        body["tools"] = [
            {"type": "function", **_described(tool), "strict": False} for tool in request.tools
        ]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output is not None:
        schema = dict(request.output.schema)
        form = {"type": "json_schema", "name": request.output.name, "schema": schema}
        body["text"] = {"format": {**form, "strict": is_strict(schema)}}
    return body


def _items(message: Message) -> list[Json]:
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": message.text}]
    if isinstance(message, ToolAnswers):
        return [
            {
                "type": "function_call_output",
                "call_id": answer.call_id,
                "output": answer.content,
            }
            for answer in message.answers
        ]
    if message.native is not None and message.native.dialect == RESPONSES:
        return list(message.native.blocks)
    said: list[Json] = [{"role": "assistant", "content": message.text}] if message.text else []
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": json_text(call),
        }
        for call in message.tool_calls
    ]
    return [*said, *calls]


class ResponseAssembly:
    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._response: Mapping[str, Json] | None = None

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def feed(self, event: Mapping[str, Json]) -> str:
        kind = as_text(event.get("type"))
        if self._response is not None:
            raise _broken(f"{quote(kind)} after the end of the response")
        if kind in {"response.output_text.delta", "response.refusal.delta"}:
            return as_text(event.get("delta")) if kind == "response.output_text.delta" else ""
        if kind == "response.output_item.done":
            index = as_count(event.get("output_index"))
            if index in self._items:
                raise _broken(f"item {index} twice")
            self._items[index] = event.get("item")
        elif kind in _LAST:
            self._response = as_map(event.get("response"))
        return ""

    def message(self) -> Mapping[str, Json]:
        response = dict(self._response or {})
        if not response.get("output"):
            response["output"] = [self._items[index] for index in sorted(self._items)]
        return response


class ResponsesWire(Struct, frozen=True):
    model: str
    server: Server = Server()

    def connect(self, key: Key) -> Client:
        return _connect(self.server, key, lambda made: made.responses)

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        return PreparedRequest(request, _response_body(request, self.model))

    def assembly(self) -> ResponseAssembly:
        return ResponseAssembly()

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        if message.get("status") == "failed":
            raise _failed(as_map(message.get("error")))
        if not isinstance(message.get("output"), list):
            raise _broken("no response")
        builder = TurnBuilder(prepared.request, prepared.issued)
        texts: list[str] = []
        refusals: list[str] = []
        kept: list[Json] = []
        for item in as_maps(message["output"]):
            if item.get("type") == "function_call":
                kept.append(_kept_item(item, builder))
                continue
            for part in as_maps(item.get("content")):
                if part.get("type") == "output_text":
                    texts.append(as_text(part.get("text")))
                elif part.get("type") == "refusal":
                    refusals.append(as_text(part.get("refusal")))
            kept.append(dict(item))
        stop, raw = _response_stop(message, bool(refusals), bool(builder.calls or builder.answers))
        return builder.turn(
            "".join(texts),
            stop,
            _usage(message.get("usage"), "input_tokens", "output_tokens"),
            model=as_text(message.get("model")) or self.model,
            stop_raw=raw,
            stop_reason=" ".join(refusals),
            raw_ref=as_text(message.get("id")),
            native=Native(RESPONSES, tuple(kept)),
        )


def _kept_item(item: Mapping[str, Json], builder: TurnBuilder) -> Json:
    given = item.get("arguments")
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    call = builder.read(call_id, as_text(item.get("name")), given, _item_problem(item))
    if call is None:
        return {"role": "assistant", "content": raw_text(given)}
    return {**item, "call_id": call.id, "arguments": json_text(call)}


def _item_problem(item: Mapping[str, Json]) -> Refusal | None:
    status = item.get("status")
    if status is None or status == "completed":
        return None
    return Refusal(
        CallDroppedError.code,
        f"the call did not run: its status is {quote(status)}",
        "make the complete call again",
    )


def _response_stop(
    message: Mapping[str, Json], is_refused: bool, has_calls: bool
) -> tuple[Stop, str]:
    status = as_text(message.get("status"))
    if status == "incomplete":
        reason = as_text(as_map(message.get("incomplete_details")).get("reason"))
        return INCOMPLETE.get(reason, Stop.UNKNOWN), f"incomplete: {reason}"
    if status != "completed":
        return Stop.UNKNOWN, status
    if is_refused:
        return Stop.REFUSAL, status
    return (Stop.TOOL_USE if has_calls else Stop.END_TURN), status


def _failed(error: Mapping[str, Json]) -> ProviderError:
    word = as_text(error.get("code"))
    said = quote(as_text(error.get("message")))
    return ProviderError(
        f"openai reports {word or 'a failure'}: {said}",
        kind=kind_of(500 if word in {"", "server_error"} else 400, word),
    )


# --- Chat Completions ----------------------------------------------------------------

CHAT: Final = "openai-chat"

STOPS: Final = {
    "stop": Stop.END_TURN,
    "length": Stop.MAX_TOKENS,
    "tool_calls": Stop.TOOL_USE,
    "function_call": Stop.TOOL_USE,
    "content_filter": Stop.CONTENT_FILTER,
}
"""Every stop reason of the API; any other is `Stop.UNKNOWN`."""


class ChatForm(Struct, frozen=True):
    limit_member: str
    answers_beside_tools: bool
    """True if a request may have both tools and a schema for the answer."""


OFFICIAL: Final = ChatForm("max_completion_tokens", answers_beside_tools=True)
COMPATIBLE: Final = ChatForm("max_tokens", answers_beside_tools=False)


def _chat_body(request: ModelRequest, model: str, form: ChatForm, issued: str) -> dict[str, Json]:
    system: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
    body: dict[str, Json] = {
        "model": model,
        "messages": [*system, *(row for message in request.messages for row in _rows(message))],
        form.limit_member: request.max_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tools = list(request.tools)
    if request.output is not None and issued:
        tools.append(answer_tool(issued, request.output))
    elif request.output is not None:
        schema = dict(request.output.schema)
        named = {"name": request.output.name, "schema": schema, "strict": is_strict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if tools:
        body["tools"] = [{"type": "function", "function": _described(tool)} for tool in tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


def _rows(message: Message) -> list[Json]:
    if isinstance(message, UserMessage):
        return [{"role": "user", "content": message.text}]
    if isinstance(message, ToolAnswers):
        return [
            {"role": "tool", "tool_call_id": answer.call_id, "content": answer.content}
            for answer in message.answers
        ]
    if message.native is not None and message.native.dialect == CHAT:
        return list(message.native.blocks)
    calls = [_chat_call(call.id, call.name, json_text(call)) for call in message.tool_calls]
    return _assistant(message.text, calls)


def _assistant(text: str, calls: list[Json]) -> list[Json]:
    if calls:
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def _chat_call(call_id: str, name: str, arguments: Json) -> Json:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


class _OpenCall(Struct):
    id: str
    name: str = ""
    pieces: list[Json] = field(default_factory=list[Json])
    """The pieces of its arguments; each should be text."""


class ChatAssembly:
    def __init__(self) -> None:
        self._reply: dict[str, Json] = {}
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: list[_OpenCall] = []
        self._open: dict[int, _OpenCall] = {}
        self._finish: Json = None
        self._has_begun = False
        self._is_counted = False

    @property
    def is_complete(self) -> bool:
        return self._finish is not None or (self._is_counted and self._has_begun)

    def feed(self, event: Mapping[str, Json]) -> str:
        for member in ("id", "model", "usage"):
            if event.get(member):
                self._reply[member] = event[member]
        choices = [c for c in as_maps(event.get("choices")) if c.get("index", 0) == 0]
        if not choices:
            self._is_counted = self._is_counted or bool(event.get("usage"))
            return ""
        self._has_begun = True
        choice = choices[0]
        delta = as_map(choice.get("delta"))
        piece = as_text(delta.get("content"))
        if self._finish is not None and (piece or delta.get("tool_calls")):
            raise _broken("more of the answer after its end")
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
        # Some servers give every call the index 0, and distinguish calls by id.
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
        calls = [_chat_call(call.id, call.name, joined(call.pieces)) for call in self._calls]
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
    server: Server = Server()

    def connect(self, key: Key) -> Client:
        return _connect(self.server, key, lambda made: made.chat.completions)

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        by_call = bool(request.tools) and not self.form.answers_beside_tools
        issued = self.issue() if request.output is not None and by_call else ""
        return PreparedRequest(request, _chat_body(request, self.model, self.form, issued), issued)

    def assembly(self) -> ChatAssembly:
        return ChatAssembly()

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        choices = as_maps(message.get("choices"))
        if not choices or not isinstance(choices[0].get("message"), Mapping):
            raise _broken("an answer without a reply")
        said = as_map(choices[0]["message"])
        builder = TurnBuilder(prepared.request, prepared.issued)
        text = as_text(said.get("content"))
        kept = [
            call
            for part in as_maps(said.get("tool_calls"))
            if (call := _kept_call(part, builder)) is not None
        ]
        # Store an answer that came as a call as text, because that call never gets a result.
        first = builder.answers[0] if builder.answers else None
        answered = json.dumps(dict(first)) if isinstance(first, Mapping) else ""
        raw = as_text(choices[0].get("finish_reason"))
        refusal = as_text(said.get("refusal"))
        stop = STOPS.get(raw, Stop.UNKNOWN)
        return builder.turn(
            text,
            Stop.REFUSAL if refusal and stop in {Stop.END_TURN, Stop.TOOL_USE} else stop,
            _usage(message.get("usage"), "prompt_tokens", "completion_tokens"),
            model=as_text(message.get("model")) or self.model,
            stop_raw=raw,
            stop_reason=refusal,
            raw_ref=as_text(message.get("id")),
            native=Native(CHAT, tuple(_assistant(text or answered, kept))),
        )


def _kept_call(part: Mapping[str, Json], builder: TurnBuilder) -> Json:
    name = as_text(as_map(part.get("function")).get("name"))
    call = builder.read(as_text(part.get("id")), name, _arguments(part))
    return None if call is None else _chat_call(call.id, call.name, json_text(call))


def _arguments(part: Mapping[str, Json]) -> Json:
    function = part.get("function")
    if function is None or isinstance(function, Mapping):
        return as_map(function).get("arguments")
    return [function]
