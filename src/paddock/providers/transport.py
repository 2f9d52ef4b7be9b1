"""Filter headers and limit sizes between an SDK and the network; record and play cassettes.

Import this only with an SDK: httpx is slow to load.

A cassette stores real HTTP exchanges in a file, to be played without a network through the same SDK
and adapter. It is JSON Lines, one exchange a line:
`{"request": {"method", "path", "body"}, "response": {"status", "headers", "body"}}`.
Headers of requests are not stored, and only a few of responses. The key is removed from every text.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import httpx2
from msgspec import Struct, ValidationError, convert, to_builtins

from paddock import limits
from paddock.errors import ConfigError
from paddock.providers.choice import Key
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.gateway import Provider, TextSink
from paddock.text.json import BrokenJsonError, read_json
from paddock.values.calls import Cancel
from paddock.values.models import ModelRequest, ModelTurn

# Threat: the SDKs add headers from the environment to each request: `ANTHROPIC_CUSTOM_HEADERS`,
# `OPENAI_CUSTOM_HEADERS`, an organization, a project. They may contain gateway tokens for the
# default address or the environment's, but a plane's configuration can name another address.

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
    credential: Mapping[str, str]

    async def __call__(self, request: httpx2.Request) -> None:
        for name in list(request.headers):
            if name not in _PLAIN and not name.startswith(_OF_THE_SDK):
                del request.headers[name]
        request.headers.update(self.credential)


async def limit_body(response: httpx2.Response) -> None:
    """Response hook of httpx: cut an error's body at its limit; refuse an answer over its limit.

    Threat: the SDKs read all of an error before they raise it, and keep all of an answer. A
    server, or an attacker in its place, fills the memory, with few bytes if compressed.
    """
    whole = httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=response.stream,
        request=response.request,
    )
    response.headers.pop("content-encoding", None)
    response.stream = _Stream(whole, _limited(whole))


async def _limited(response: httpx2.Response) -> AsyncGenerator[bytes]:
    is_answer = response.is_success
    most = limits.model_response_bytes_max if is_answer else limits.model_error_bytes_max
    left = most
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            left -= len(chunk)
            if left < 0 and is_answer:
                # A retry would get the same answer.
                raise ProviderError(
                    f"the server sent more than {most} bytes", kind=FailureKind.TOO_LARGE
                )
            yield chunk[: left + len(chunk)]
            if left <= 0 and not is_answer:
                return


class _Stream(httpx2.AsyncByteStream):
    """The body of `response`, read through `chunks`."""

    def __init__(self, response: httpx2.Response, chunks: AsyncGenerator[bytes]) -> None:
        self._response = response
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        # Always the same iterator: an SDK that has read enough drains the rest later, to reuse the
        # connection.
        return self._chunks

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()


KEPT_HEADERS: Final = frozenset(
    {"content-type", "date", "retry-after", "retry-after-ms", "x-should-retry"}
)


class _Asked(Struct, frozen=True):
    method: str
    path: str
    body: Any = None


class _Answer(Struct, frozen=True):
    status: int
    headers: dict[str, str] = {}
    body: str = ""


class TapedExchange(Struct, frozen=True):
    request: _Asked
    response: _Answer


def parse_cassette(content: str, file: str) -> tuple[TapedExchange, ...]:
    found: list[TapedExchange] = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(convert(read_json(line), TapedExchange))
        except (BrokenJsonError, ValidationError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"the cassette does not load: {error}",
                where=f"{file}, line {number}",
                hint="record it again",
            ) from None
    return tuple(found)


class Taped:
    """A provider whose exchanges go through a cassette; `at_end` is called when it is closed.

    For a played cassette the name begins with `played`, so that no ledger claims a model was asked.
    """

    def __init__(
        self, inner: Provider, name: str, at_end: Callable[[], object] = lambda: None
    ) -> None:
        self._inner = inner
        self._at_end = at_end
        self.name = name
        self.model = inner.model

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        return self._inner.route(request, on_text=on_text, cancel=cancel)

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._at_end()


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Records every exchange with the network after its last byte.

    An interrupted exchange is not recorded, because it is incomplete.
    """

    def __init__(self, key: Key, write: Callable[[str], None]) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._key = key
        self._write = write

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        body = _Stream(response, self._heard(request, response))
        headers = [pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, stream=body)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _heard(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> AsyncGenerator[bytes]:
        heard: list[bytes] = []
        async for chunk in response.aiter_bytes():
            heard.append(chunk)
            yield chunk
        kept = {
            name: self._key.scrub(value)
            for name, value in response.headers.items()
            if name.lower() in KEPT_HEADERS
        }
        asked = json.loads(self._key.scrub(request.content.decode("utf-8")))
        said = self._key.scrub(b"".join(heard).decode("utf-8", "replace"))
        exchange = TapedExchange(
            _Asked(request.method, request.url.path, asked),
            _Answer(response.status_code, kept, said),
        )
        self._write(json.dumps(to_builtins(exchange), ensure_ascii=False) + "\n")


class PlayingTransport(httpx2.AsyncBaseTransport):
    """Plays a cassette instead of the network: each request gets its recorded response.

    The order of requests does not matter; each exchange is played once. A request that is not on
    the cassette is an error, and so is an exchange that is left over.
    """

    def __init__(self, exchanges: tuple[TapedExchange, ...]) -> None:
        self._left = list(exchanges)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises: ProviderError, SCRIPT: the cassette has no such request."""
        wanted = _Asked(request.method, request.url.path, json.loads(request.content))
        found = next((each for each in self._left if each.request == wanted), None)
        if found is not None:
            self._left.remove(found)
            said = found.response
            return httpx2.Response(
                said.status, headers=said.headers, content=said.body.encode("utf-8")
            )
        raise ProviderError(
            f"the cassette has no answer for this {request.method} of {request.url.path}",
            kind=FailureKind.SCRIPT,
            hint="record it again: the request differs from the recorded one",
        )

    def require_met(self) -> None:
        """Do nothing: only recorded requests are answered."""

    def require_finished(self) -> None:
        if self._left:
            count = len(self._left)
            raise ConfigError(
                f"{count} exchange{'s' if count > 1 else ''} of the cassette left over",
                hint="record it again, or find out why they were not requested",
            )
