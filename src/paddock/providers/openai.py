"""OpenAI's models, and any server that speaks one of OpenAI's APIs, by the official SDK."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from paddock import limits
from paddock.errors import CallDroppedError
from paddock.providers.client import Client, OwnHeaders, PreparedRequest, SdkErrors, SdkProvider
from paddock.providers.failures import FailureKind, ProviderError, kind_of, no_address
from paddock.providers.keys import Key
from paddock.providers.openai_chat import COMPATIBLE, OFFICIAL, ChatWire, read_usage
from paddock.providers.reading import CallReader, Parts, finish, raw_text
from paddock.providers.structured import Issue, is_strict, issue_name
from paddock.providers.wire import as_count, as_map, as_maps, as_text, json_text
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    Native,
    Stop,
    ToolAnswers,
    ToolSchema,
    UserMessage,
)

if TYPE_CHECKING:
    import httpx2


DIALECT: Final = "openai-responses"

INCOMPLETE: Final = {
    "max_output_tokens": Stop.MAX_TOKENS,
    "content_filter": Stop.CONTENT_FILTER,
}
"""Why a response is incomplete; what is not here is `Stop.UNKNOWN`."""

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


def request_body(request: ModelRequest, model: str) -> dict[str, Json]:
    """The body of POST /responses, streaming. Nothing of it is kept on the server."""
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
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.output is not None:
        schema = dict(request.output.schema)
        form = {"type": "json_schema", "name": request.output.name, "schema": schema}
        body["text"] = {"format": {**form, "strict": is_strict(schema)}}
    return body


def _tool(tool: ToolSchema) -> dict[str, Json]:
    # Strict would want every argument required; ours may be left out.
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


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
    return _own(message)


def _own(message: AssistantMessage) -> list[Json]:
    if message.native is not None and message.native.dialect == DIALECT:
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
    """The last event holds the whole response; items are kept in case it comes without."""

    def __init__(self) -> None:
        self._items: dict[int, Json] = {}
        self._response: Mapping[str, Json] | None = None

    def done(self) -> None:
        """Not a word of this API: its last event says that it is the last."""

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def feed(self, event: Mapping[str, Json]) -> str:
        """The text in it. Raises: ProviderError for an event after the last, or an item twice."""
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


def _broken(what: str) -> ProviderError:
    return ProviderError(f"openai sent {what}", kind=FailureKind.BROKEN)


class ResponsesWire(Struct, frozen=True):
    model: str

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The request's body. Structured output is native: no name is issued."""
        return PreparedRequest(request, request_body(request, self.model))

    def assembly(self) -> ResponseAssembly:
        return ResponseAssembly()

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        if message.get("status") == "failed":
            raise _failed(as_map(message.get("error")))
        if not isinstance(message.get("output"), list):
            raise _broken("no response")
        reader = CallReader(prepared.request, prepared.issued)
        texts: list[str] = []
        refusals: list[str] = []
        kept: list[Json] = []
        for item in as_maps(message["output"]):
            if item.get("type") == "function_call":
                kept.append(_kept_call(item, reader))
                continue
            for part in as_maps(item.get("content")):
                if part.get("type") == "output_text":
                    texts.append(as_text(part.get("text")))
                elif part.get("type") == "refusal":
                    refusals.append(as_text(part.get("refusal")))
            kept.append(dict(item))
        stop, raw = _stop(message, bool(refusals), bool(reader.calls or reader.answers))
        parts = Parts(
            text="".join(texts),
            stop=stop,
            model=as_text(message.get("model")) or self.model,
            usage=read_usage(message.get("usage"), "input_tokens", "output_tokens"),
            stop_raw=raw,
            stop_reason=" ".join(refusals),
            raw_ref=as_text(message.get("id")),
            native=Native(DIALECT, tuple(kept)),
        )
        return finish(prepared.request, parts, reader)


def _kept_call(item: Mapping[str, Json], reader: CallReader) -> Json:
    """The item as it is sent back; a call that was the answer goes back as its text."""
    given = item.get("arguments")
    call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
    call = reader.read(call_id, as_text(item.get("name")), given, _item_problem(item))
    if call is None:
        return {"role": "assistant", "content": raw_text(given)}
    return {**item, "call_id": call.id, "arguments": json_text(call)}


def _item_problem(item: Mapping[str, Json]) -> Refusal | None:
    """Why a call is not whole though its response is: an item has a status of its own."""
    status = item.get("status")
    if status is None or status == "completed":
        return None
    return Refusal(
        CallDroppedError.code,
        f"it was not run: the status of the call is {quote(status)}",
        "make the call again, whole",
    )


def _stop(message: Mapping[str, Json], is_refused: bool, has_calls: bool) -> tuple[Stop, str]:
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


Api = Literal["responses", "chat"]
ADDRESS: Final = "https://api.openai.com/v1"
DEFAULT_MODEL: Final = "gpt-6.1-terra"


class _Server(Struct, frozen=True):
    base_url: str
    transport: "httpx2.AsyncBaseTransport | None"
    takes_ambient: bool

    def connect(self, key: Key, api: Api) -> Client:
        import httpx2
        import openai

        from paddock.providers.error_bodies import cut_error

        errors = SdkErrors(
            status=openai.APIStatusError,
            timeout=openai.APITimeoutError,
            connection=openai.APIConnectionError,
            base=openai.OpenAIError,
            transport=httpx2.HTTPError,
        )
        # Threat: a server that answers with another address would be sent there the whole
        # conversation again.
        credential = {"authorization": f"Bearer {key.reveal()}"}
        own = () if self.takes_ambient else (OwnHeaders(credential),)
        http = openai.DefaultAsyncHttpxClient(
            transport=self.transport,
            follow_redirects=False,
            event_hooks={"request": [*own], "response": [cut_error]},
        )
        try:
            sdk = openai.AsyncOpenAI(
                api_key=key.reveal(),
                base_url=self.base_url,
                timeout=openai.Timeout(limits.model_silence_timeout_s, connect=10.0),
                # The gateway retries, within a budget.
                max_retries=0,
                http_client=http,
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise no_address(self.base_url, error, "http://127.0.0.1:11434/v1") from None
        return Client(sdk, sdk.responses if api == "responses" else sdk.chat.completions, errors)


class _Responses(ResponsesWire, frozen=True):
    server: _Server

    def connect(self, key: Key) -> Client:
        return self.server.connect(key, "responses")


class _Chat(ChatWire, frozen=True):
    server: _Server

    def connect(self, key: Key) -> Client:
        return self.server.connect(key, "chat")


def openai_provider(
    model: str,
    key: Key,
    *,
    api: Api,
    base_url: str = "",
    issue: Issue = issue_name,
    transport: "httpx2.AsyncBaseTransport | None" = None,
    takes_ambient: bool = False,
) -> SdkProvider:
    """`base_url` names a server of one's own.

    `takes_ambient` sends there too what the SDK finds in the environment besides the key.
    """
    wanted = model or DEFAULT_MODEL
    server = _Server(base_url or ADDRESS, transport, takes_ambient)
    if api == "responses":
        return SdkProvider("openai", wanted, _Responses(wanted, server), key)
    form = COMPATIBLE if base_url else OFFICIAL
    return SdkProvider("openai", wanted, _Chat(wanted, form, issue, server), key)
