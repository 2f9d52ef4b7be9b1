"""A provider behind an SDK: one request, one stream, one turn, whatever the wire."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.gateway import cancelled_turn
from paddock.providers.keys import Key
from paddock.providers.loop import Exchange, LoopThread
from paddock.providers.ports import TextSink
from paddock.providers.sdk import SdkErrors, converted, error_of
from paddock.providers.sse import SseEvent, read_events, require_size
from paddock.providers.structured import require_schema
from paddock.providers.wire_json import whole_characters
from paddock.text.show import quote
from paddock.values.calls import Cancel, Json
from paddock.values.models import ModelRequest, ModelTurn


class ApiResponse(Protocol):
    """What is used of both SDKs' streaming responses."""

    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        ...

    def iter_bytes(self) -> AsyncIterator[bytes]:
        """The body as it arrives."""
        ...


class Client:
    """An SDK's client with its key; of its API the one call that is used."""

    def __init__(self, sdk: Any, resource: Any, errors: SdkErrors) -> None:
        self.errors = errors
        self._sdk = sdk
        self._resource = resource

    @asynccontextmanager
    async def send(self, body: Mapping[str, Json]) -> AsyncGenerator[ApiResponse]:
        """POST `body`; the response's body is not read yet."""
        async with self._resource.with_streaming_response.create(**body) as response:
            yield response

    async def close(self) -> None:
        await self._sdk.close()


class Assembly(Protocol):
    """A stream's events put together to the message that they are parts of."""

    def feed(self, event: Mapping[str, Json]) -> str:
        """Take one event; the piece of text in it, or "".

        Raises: ProviderError, BROKEN, where it cannot come here.
        """
        ...

    def done(self) -> None:
        """The server has said that nothing more will come."""
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the last event has come: all before it is a part of something cut."""
        ...

    def message(self) -> Mapping[str, Json]:
        """The whole message, as the server sends it when it does not stream."""
        ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request in the wire's words, and the tool name issued for its answer, if any."""

    request: ModelRequest
    body: Mapping[str, Json]
    issued: str = ""


class Wire(Protocol):
    """How one API writes requests and replies. Holds no connection and no state."""

    def prepare(self, request: ModelRequest) -> Prepared: ...

    def assembly(self) -> Assembly:
        """For one reply."""
        ...

    def read(self, message: Mapping[str, Json], prepared: Prepared) -> ModelTurn:
        """The turn that a whole message is.

        Raises: ProviderError where the message is an error, or none at all.
        """
        ...

    def connect(self, key: Key) -> Client:
        """Load the SDK and make its client.

        Raises: ConfigError where it is not installed, or base_url is no address.
        """
        ...


class SdkProvider:
    """Asks one model through one wire. Its exchanges share connections."""

    def __init__(self, name: str, model: str, wire: Wire, key: Key) -> None:
        self.name = name
        self.model = model
        self._wire = wire
        self._key = key
        self._loop = LoopThread(f"paddock-{name}")
        self._client: Client | None = None

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        """The model's turn; cancelled, its connection is closed at once.

        Raises: ProviderError; ConfigError where the SDK is missing or the output schema is none.
        """
        if request.output is not None:
            require_schema(request.output)
        prepared = self._wire.prepare(request)
        exchange = Exchange(on_text, cancel)
        message = exchange.wait(self._loop, self._ask(prepared, exchange))
        if message is None:
            return cancelled_turn(self.model, text=exchange.text)
        turn = self._wire.read(whole_characters(message), prepared)
        if on_text is not None and turn.text and not exchange.text:
            on_text.text(turn.text)
        return turn

    def close(self) -> None:
        """Stop what runs and close the connections. Twice is harmless."""
        self._loop.close(self._disconnect)

    async def _disconnect(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _ask(self, prepared: Prepared, exchange: Exchange) -> Mapping[str, Json]:
        # On the loop, so that two first requests do not make two clients.
        if self._client is None:
            self._client = self._wire.connect(self._key)
        with converted(self._client.errors, self._key, self.name):
            async with self._client.send(prepared.body) as response:
                kind = response.headers.get("content-type", "")
                if kind.startswith("text/event-stream"):
                    return await self._stream(response, exchange)
                # A server that does not stream answers whole.
                return await self._whole(response, exchange)

    async def _stream(self, response: ApiResponse, exchange: Exchange) -> Mapping[str, Json]:
        assembly = self._wire.assembly()
        events = read_events(response.iter_bytes(), self.name)
        try:
            async for event in events:
                if event.data == "[DONE]":
                    assembly.done()
                elif event.name != "ping":
                    exchange.piece(assembly.feed(self._data(event)))
        finally:
            await events.aclose()
        if not assembly.is_complete:
            raise ProviderError(
                f"{self.name} ended its answer in the middle", kind=FailureKind.BROKEN
            )
        return assembly.message()

    def _data(self, event: SseEvent) -> Mapping[str, Json]:
        """An event's object. Raises: ProviderError where it reports an error."""
        data = _object(event.data, self.name)
        if event.name == "error" or data.get("type") == "error" or data.get("error"):
            raise error_of(data, self._key, self.name)
        return data

    async def _whole(self, response: ApiResponse, exchange: Exchange) -> Mapping[str, Json]:
        chunks: list[bytes] = []
        total = 0
        async for chunk in response.iter_bytes():
            total += len(chunk)
            require_size(total, self.name)
            chunks.append(chunk)
        message = _object(b"".join(chunks).decode("utf-8", "replace"), self.name)
        if message.get("error"):
            raise error_of(message, self._key, self.name)
        return message


def _object(text: str, provider: str) -> Mapping[str, Json]:
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProviderError(
            f"{provider} sent something that is no answer: {quote(text)}", kind=FailureKind.BROKEN
        )
    return cast("dict[str, Any]", value)
