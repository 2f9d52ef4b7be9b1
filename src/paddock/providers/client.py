"""A provider behind an SDK: one request, one stream, one turn, whatever the wire."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from msgspec import Struct

from paddock import limits
from paddock.providers.failures import HINTS, FailureKind, ProviderError, kind_of
from paddock.providers.gateway import cancelled_turn
from paddock.providers.keys import Key
from paddock.providers.ports import TextSink
from paddock.providers.structured import require_schema
from paddock.providers.wire import (
    SseEvent,
    as_map,
    as_text,
    read_events,
    require_size,
    whole_characters,
)
from paddock.text.show import quote
from paddock.values.calls import Cancel, Json
from paddock.values.models import ModelRequest, ModelTurn

if TYPE_CHECKING:
    import httpx2


# A thread that blocks in a read cannot be interrupted: closing its socket from
# another thread does not wake it. So exchanges run on an event loop in a thread of
# its own, where stopping one closes its connection at once, and the caller's
# thread only waits for pieces of text and for the end.

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, started with the first exchange."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Raises: ProviderError where the loop is closed."""
        with self._lock:
            if self._is_closed:
                work.close()
                raise ProviderError("the provider was closed", kind=FailureKind.REQUEST)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        """Stop everything, run `last` on the loop, and end the thread. Twice is harmless."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if not is_first or loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_wind_up(last), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _wind_up(last: Callable[[], Coroutine[object, object, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
    await asyncio.get_running_loop().shutdown_asyncgens()


class Exchange:
    """One exchange: pieces of text come through it to the thread that waits."""

    def __init__(self, on_text: TextSink | None, cancel: Cancel | None) -> None:
        self._on_text = on_text
        self._cancel = cancel
        # None wakes the waiting thread to look around.
        self._arrived: SimpleQueue[str | None] = SimpleQueue()
        self._seen: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._seen)

    def piece(self, text: str) -> None:
        if text:
            self._arrived.put(text)

    def wait(self, loop: LoopThread, work: Coroutine[object, object, T]) -> T | None:
        """None where cancelled. Raises: what `work` or the sink raises; then `work` is stopped."""
        try:
            future = loop.submit(_in_time(work))
        except ProviderError:
            work.close()
            raise
        future.add_done_callback(self._wake_done)
        forget = None if self._cancel is None else self._cancel.on_cancel(self._wake)
        try:
            while True:
                piece = self._arrived.get()
                if piece is not None:
                    self._seen.append(piece)
                    if self._on_text is not None:
                        self._on_text.text(piece)
                elif self._cancel is not None and self._cancel.is_cancelled:
                    return None
                elif future.done():
                    return _result(future)
        finally:
            future.cancel()
            if forget is not None:
                forget()

    def _wake(self) -> None:
        self._arrived.put(None)

    def _wake_done(self, future: "Future[T]") -> None:
        self._wake()


async def _in_time(work: Coroutine[object, object, T]) -> T:
    try:
        async with asyncio.timeout(limits.model_timeout_s):
            return await work
    except TimeoutError:
        raise ProviderError(
            f"the model took longer than {limits.model_timeout_s:g} seconds",
            kind=FailureKind.TIMEOUT,
        ) from None


def _result(future: "Future[T]") -> T:
    if future.cancelled():
        raise ProviderError("the provider was closed meanwhile", kind=FailureKind.REQUEST)
    return future.result()


class SdkErrors(Struct, frozen=True):
    """An SDK's exception classes by what they mean. `transport` is the HTTP client's own."""

    status: type[Exception]
    timeout: type[Exception]
    connection: type[Exception]
    base: type[Exception]
    transport: type[Exception]


@contextmanager
def converted(errors: SdkErrors, key: Key, provider: str) -> Generator[None]:
    """Turn whatever the SDK raises into a ProviderError, without the key in it.

    A stream that is cut may surface as the HTTP client's own error.
    """
    try:
        yield
    except errors.status as error:
        raise _of_status(cast("Any", error), key, provider) from None
    except errors.timeout:
        raise ProviderError(
            f"{provider} did not answer in time", kind=FailureKind.TIMEOUT
        ) from None
    except (errors.connection, errors.transport) as error:
        root = _root_of(error)
        if isinstance(root, ProviderError):  # a cassette in the network's place
            raise root from None
        why = key.scrub(str(root) or type(root).__name__)
        raise ProviderError(
            f"the connection to {provider} failed: {quote(why)}",
            kind=FailureKind.CONNECTION,
            hint=HINTS[FailureKind.CONNECTION],
        ) from None
    except UnicodeEncodeError:
        raise ProviderError(
            "the conversation holds half of a surrogate pair, which no wire can carry",
            kind=FailureKind.REQUEST,
            hint="it may come from a file name or a paste that is not UTF-8",
        ) from None
    except errors.base as error:
        raise _of_body(as_map(getattr(error, "body", None)), str(error), key, provider) from None


def _root_of(error: BaseException) -> BaseException:
    """The innermost cause: the SDK's own text is only "Connection error."."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def error_of(body: Mapping[str, Json], key: Key, provider: str) -> ProviderError:
    """The error that an event in the middle of a stream reports."""
    return _of_body(body, "", key, provider)


def _of_body(body: Mapping[str, Json], text: str, key: Key, provider: str) -> ProviderError:
    reported = _reported(body)
    # An error without a word we know, in the middle of an answer: the server's fault.
    kind = kind_of(500, *reported.words)
    what = next(filter(None, reported.words), "an error")
    said = reported.message or text or "no reason given"
    return ProviderError(
        f"{provider} reports {what}: {quote(key.scrub(said))}",
        kind=kind,
        hint=HINTS.get(kind, ""),
    )


class _Reported(NamedTuple):
    words: tuple[str, str]
    message: str


def _reported(body: Mapping[str, Json]) -> _Reported:
    inner = as_map(body.get("error")) or body
    words = (as_text(inner.get("code")), as_text(inner.get("type")))
    return _Reported(words, as_text(inner.get("message")))


def _of_status(error: Any, key: Key, provider: str) -> ProviderError:
    status = int(error.status_code)
    headers = cast("Mapping[str, str]", error.response.headers)
    reported = _reported(as_map(error.body))
    kind = kind_of(status, *reported.words)
    return ProviderError(
        f"{provider} answers {status}: {quote(key.scrub(reported.message or str(error)))}",
        kind=kind,
        hint=HINTS.get(kind, ""),
        status=status,
        retry_after_s=_retry_after(headers),
        may_retry={"true": True, "false": False}.get(headers.get("x-should-retry", "")),
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        until = parsedate_to_datetime(value)
        # The server's own clock, where it shows it: ours may be wrong.
        now = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, (_aware(until) - _aware(now)).total_seconds())


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


class ApiResponse(Protocol):
    @property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name."""
        ...

    def iter_bytes(self) -> AsyncIterator[bytes]: ...


class Client:
    def __init__(self, sdk: Any, resource: Any, errors: SdkErrors) -> None:
        self.errors = errors
        self._sdk = sdk
        self._resource = resource

    @asynccontextmanager
    async def send(self, body: Mapping[str, Json]) -> AsyncGenerator[ApiResponse]:
        async with self._resource.with_streaming_response.create(**body) as response:
            yield response

    async def close(self) -> None:
        await self._sdk.close()


class Assembly(Protocol):
    """A stream's events put together to the message that they are parts of."""

    def feed(self, event: Mapping[str, Json]) -> str:
        """The text in it, or "". Raises: ProviderError, BROKEN, where it cannot come here."""
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


class PreparedRequest(Struct, frozen=True):
    """A request in the wire's words, and the tool name issued for its answer, if any."""

    request: ModelRequest
    body: Mapping[str, Json]
    issued: str = ""


class Wire(Protocol):
    """How one API writes requests and replies. Holds no connection and no state."""

    def prepare(self, request: ModelRequest) -> PreparedRequest: ...

    def assembly(self) -> Assembly:
        """For one reply."""
        ...

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        """Raises: ProviderError where the message is an error, or none at all."""
        ...

    def connect(self, key: Key) -> Client:
        """Raises: ConfigError where the SDK is not installed, or base_url is no address."""
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
        """Cancelled, its connection is closed at once. Raises: ProviderError; ConfigError."""
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

    async def _ask(self, prepared: PreparedRequest, exchange: Exchange) -> Mapping[str, Json]:
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


# Threat: the SDKs put into each request what they find in the environment of the process:
# the headers of `ANTHROPIC_CUSTOM_HEADERS` and `OPENAI_CUSTOM_HEADERS`, an organization, a
# project. People keep tokens of gateways there. They are meant for the usual address, or for
# the one that the same environment names, and a plane's configuration can name another.

_PLAIN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
_OF_THE_SDK: Final = "x-stainless-"


class OwnHeaders(Struct, frozen=True):
    """A request hook of httpx; `credential` are the headers that carry the key."""

    credential: Mapping[str, str]

    async def __call__(self, request: "httpx2.Request") -> None:
        for name in list(request.headers):
            if name not in _PLAIN and not name.startswith(_OF_THE_SDK):
                del request.headers[name]
        request.headers.update(self.credential)
