"""Send a request through an SDK, and read its stream, for any wire (HTTP API)."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from queue import SimpleQueue
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, PaddockError
from paddock.providers.choice import Key
from paddock.providers.failures import HINTS, FailureKind, ProviderError, kind_of
from paddock.providers.gateway import TextSink, cancelled_turn
from paddock.providers.structured import as_map, as_text, require_schema, whole_characters
from paddock.text.show import quote
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.models import ModelRequest, ModelTurn

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_END_S: Final = 10.0  # for the cleanup of a loop that is closed


class LoopThread:
    """An event loop in its own thread, started by the first work; unusable after a fork."""

    def __init__(self, name: str, closed: Callable[[], PaddockError]) -> None:
        self._name, self._closed = name, closed
        self._lock = threading.Lock()
        self._is_closed = False
        self._owner = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Raises: the error that `closed` creates, if the thread was closed or forked."""
        with self._lock:
            if self._is_closed or (self._loop is not None and self._owner != os.getpid()):
                work.close()
                raise self._closed()
            if self._loop is None:
                self._loop, self._owner = asyncio.new_event_loop(), os.getpid()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the cleanup for at most `_END_S`, and stop. Calling it twice is harmless."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None or self._owner != os.getpid():
            return

        async def wind_up() -> None:
            await last()
            await loop.shutdown_asyncgens()

        wait([asyncio.run_coroutine_threadsafe(wind_up(), loop)], _END_S)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


@contextmanager
def converted(sdk: Any, key: Key, provider: str) -> Generator[None]:
    """Convert the SDK's errors, and those of its HTTP client, into a ProviderError without the key.

    An interrupted stream may raise the HTTP client's error.
    """
    import httpx2

    try:
        yield
    except sdk.APIStatusError as error:
        # An error in the middle of a stream has the status of the stream.
        status = error.status_code if error.status_code >= 300 else 0
        headers = error.response.headers
        raise failure_of(key, provider, error.body, str(error), status, headers) from None
    except sdk.APITimeoutError:
        raise ProviderError(
            f"{provider} did not answer in time", kind=FailureKind.TIMEOUT
        ) from None
    except (sdk.APIConnectionError, httpx2.HTTPError) as error:
        root = _root_of(error)
        if isinstance(root, ProviderError):  # a cassette in the network's place
            raise root from None
        why = key.scrub(str(root) or type(root).__name__)
        raise ProviderError(
            f"the connection to {provider} failed: {quote(why)}",
            kind=FailureKind.CONNECTION,
            hint=HINTS[FailureKind.CONNECTION],
        ) from None
    except sdk.APIError as error:
        raise failure_of(key, provider, error.body, str(error)) from None
    except UnicodeEncodeError:
        raise ProviderError(
            "the conversation contains half of a surrogate pair, which cannot be sent",
            kind=FailureKind.REQUEST,
            hint="it may come from a file name or a paste that is not UTF-8",
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_answer(provider, f"{type(error).__name__}: {error}") from None


def _root_of(error: BaseException) -> BaseException:
    """Return the innermost cause, because the SDK's text is only "Connection error."."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return error


def failure_of(
    key: Key,
    provider: str,
    body: Json,
    text: str = "",
    status: int = 0,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> ProviderError:
    said = as_map(as_map(body).get("error")) or as_map(body)
    words = (as_text(said.get("code")), as_text(said.get("type")))
    # Without a status or a known word, in the middle of an answer: a server error.
    kind = kind_of(status or 500, *words)
    how = f"answers {status}" if status else f"reports {next(filter(None, words), 'an error')}"
    message = as_text(said.get("message")) or text or "no reason given"
    return ProviderError(
        f"{provider} {how}: {quote(key.scrub(message))}",
        kind=kind,
        hint=HINTS.get(kind, ""),
        status=status,
        retry_after_s=_retry_after(headers),
        may_retry={"true": True, "false": False}.get(headers.get("x-should-retry", "")),
    )


def _no_answer(provider: str, what: str) -> ProviderError:
    return ProviderError(
        f"{provider} sent an invalid answer: {quote(what)}", kind=FailureKind.BROKEN
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
        # Use the server's clock if it sends the time: ours may be wrong.
        now = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return None
    until, now = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (until, now))
    return max(0.0, (until - now).total_seconds())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


class Server(Struct, frozen=True):
    """The server of a wire: the vendor's, or a custom address.

    `takes_ambient`: also send the headers that the SDK reads from the environment.
    """

    address: str = ""
    transport: "httpx2.AsyncBaseTransport | None" = None
    takes_ambient: bool = False

    def connect(
        self,
        make: Callable[..., Any],
        sdk: Any,
        usual: str,
        key: Key,
        credential: Mapping[str, str],
    ) -> Any:
        """Raises: ConfigError: invalid address."""
        import httpx2

        from paddock.providers.transport import OwnHeaders, limit_body

        own = () if self.takes_ambient else (OwnHeaders(credential),)
        # Threat: a server redirects to another address, which would get the whole conversation.
        http = sdk.DefaultAsyncHttpxClient(
            transport=self.transport,
            follow_redirects=False,
            event_hooks={"request": [*own], "response": [limit_body]},
        )
        try:
            return make(
                api_key=key.reveal(),
                base_url=self.address or usual,
                timeout=sdk.Timeout(limits.model_silence_timeout_s, connect=10.0),
                # The gateway retries within a budget; the SDK waits as long as the server asks.
                max_retries=0,
                http_client=http,
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"base_url {quote(self.address)} is not a valid address: {error}",
                hint="use a complete URL, such as http://127.0.0.1:8080",
            ) from None


class Client(Struct, frozen=True):
    sdk: Any
    made: Any
    resource: Any


class Assembly(Protocol):
    def feed(self, event: Mapping[str, Json]) -> str: ...

    @property
    def is_complete(self) -> bool: ...

    def message(self) -> Mapping[str, Json]: ...


class PreparedRequest(Struct, frozen=True):
    request: ModelRequest
    body: Mapping[str, Json]
    issued: str = ""  # the tool whose call is the answer, if any


class Wire(Protocol):
    def prepare(self, request: ModelRequest) -> PreparedRequest: ...

    def assembly(self) -> Assembly: ...

    def read(self, message: Mapping[str, Json], prepared: PreparedRequest) -> ModelTurn:
        """Raises: ProviderError: the message is an error, or invalid."""
        ...

    def connect(self, key: Key) -> Client:
        """Raises: ConfigError: the SDK is not installed, or base_url is not an address."""
        ...


class SdkProvider:
    """Runs each exchange on an event loop, where a cancellation closes its connection at once.

    A thread that is blocked in a read cannot be interrupted; the caller's thread only waits for
    text.
    """

    def __init__(self, name: str, model: str, wire: Wire, key: Key) -> None:
        self.name = name
        self.model = model
        self._wire = wire
        self._key = key
        said = "the provider was closed"
        closed = partial(ProviderError, said, kind=FailureKind.REQUEST)
        self._loop = LoopThread(f"paddock-{name}", closed)
        self._client: Client | None = None

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        if request.output is not None:
            require_schema(request.output)
        prepared = self._wire.prepare(request)
        arrived: SimpleQueue[str | None] = SimpleQueue()
        wake = partial(arrived.put, None)
        asked = self._loop.submit(self._ask(prepared, arrived.put))
        asked.add_done_callback(lambda _: wake())
        stop = cancel or NEVER
        forget = stop.on_cancel(wake)
        seen = ""
        try:
            while not (asked.done() and arrived.empty()):
                piece = arrived.get()
                if piece:
                    seen += piece
                    if on_text is not None:
                        on_text.text(piece)
                elif stop.is_cancelled:
                    return cancelled_turn(self.model, text=seen)
            message = asked.result()
        except CancelledError:
            said = "the provider was closed during the request"
            raise ProviderError(said, kind=FailureKind.REQUEST) from None
        finally:
            asked.cancel()
            forget()
        turn = self._wire.read(whole_characters(message), prepared)
        if on_text is not None and turn.text and not seen:
            on_text.text(turn.text)
        return turn

    def close(self) -> None:
        self._loop.close(self._disconnect)

    async def _disconnect(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._client is not None:
            await self._client.made.close()

    async def _ask(
        self, prepared: PreparedRequest, say: Callable[[str], None]
    ) -> Mapping[str, Json]:
        # On the loop, so that two first requests do not create two clients.
        if self._client is None:
            self._client = self._wire.connect(self._key)
        create = self._client.resource.with_streaming_response.create
        try:
            async with asyncio.timeout(limits.model_timeout_s):
                with converted(self._client.sdk, self._key, self.name):
                    async with create(**prepared.body) as response:
                        kind = response.headers.get("content-type", "")
                        if kind.startswith("text/event-stream"):
                            return await self._stream(await response.parse(), say)
                        # A server without streaming sends the whole answer.
                        return self._members(await response.json())
        except TimeoutError:
            said = f"the model took longer than {limits.model_timeout_s:g} seconds"
            raise ProviderError(said, kind=FailureKind.TIMEOUT) from None

    async def _stream(
        self, events: AsyncIterator[Any], say: Callable[[str], None]
    ) -> Mapping[str, Json]:
        assembly = self._wire.assembly()
        async for event in events:
            # As plain members: a turn is sent back unchanged, with unknown members.
            written = getattr(event, "to_dict", None)
            said = event if written is None else written(warnings=False)
            say(assembly.feed(self._members(said)))
        if not assembly.is_complete:
            raise ProviderError(
                f"{self.name} ended its answer in the middle", kind=FailureKind.BROKEN
            )
        return assembly.message()

    def _members(self, said: Json) -> Mapping[str, Json]:
        if not isinstance(said, dict):
            raise _no_answer(self.name, self._key.scrub(str(said)))
        members = as_map(said)
        if members.get("type") == "error" or members.get("error"):
            raise failure_of(self._key, self.name, members)
        return members
