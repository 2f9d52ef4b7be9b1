"""Real exchanges kept in a file, and played again without a network.

What is kept is the wire itself, so that playing goes through the same SDK and the
same adapter as the real thing. A cassette is JSON Lines: one exchange a line,
`{"request": {"method", "path", "body"}, "response": {"status", "headers", "body"}}`.

No header of a request is kept, and of a response only the few that mean something
here; the key is scrubbed from every text as well, in case it was repeated.
"""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

import httpx2
from msgspec import Struct, ValidationError, convert, to_builtins

from paddock.errors import ConfigError
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.keys import Key
from paddock.providers.ports import Provider, TextSink
from paddock.text.json import BrokenJsonError, read_json
from paddock.values.calls import Cancel
from paddock.values.models import ModelRequest, ModelTurn

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


class Recorded(Struct, frozen=True):
    """One exchange. Bodies are text; a request's is one JSON value."""

    request: _Asked
    response: _Answer


def parse_cassette(content: str, file: str) -> tuple[Recorded, ...]:
    """Raises: ConfigError with file and line."""
    found: list[Recorded] = []
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(convert(read_json(line), Recorded))
        except (BrokenJsonError, ValidationError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"the cassette does not load: {error}",
                where=f"{file}, line {number}",
                hint="record it again",
            ) from None
    return tuple(found)


class Taped:
    """A provider whose exchanges go through a cassette; `at_end` is called when it is closed.

    Its name says `played` where no model was asked: no ledger claims one.
    """

    def __init__(self, inner: Provider, name: str, at_end: Callable[[], None]) -> None:
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
    """The network, with every exchange written down when its last byte has come.

    An exchange that is cut or stopped is not kept: it was not whole.
    """

    def __init__(self, key: Key, write: Callable[[str], None]) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._key = key
        self._write = write

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        body = _Listening(response, self._key, request, self._write)
        headers = [pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"]
        return httpx2.Response(response.status_code, headers=headers, stream=body)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Listening(httpx2.AsyncByteStream):
    def __init__(
        self,
        response: httpx2.Response,
        key: Key,
        request: httpx2.Request,
        write: Callable[[str], None],
    ) -> None:
        self._response = response
        self._key = key
        self._request = request
        self._write = write

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        """The bytes as they come; decoded, so that the cassette can be read."""
        heard: list[bytes] = []
        async for chunk in self._response.aiter_bytes():
            heard.append(chunk)
            yield chunk
        self._write(self._line(b"".join(heard)))

    async def aclose(self) -> None:
        await self._response.aclose()

    def _line(self, answer: bytes) -> str:
        kept = {
            name: self._key.scrub(value)
            for name, value in self._response.headers.items()
            if name.lower() in KEPT_HEADERS
        }
        request = self._request
        asked = json.loads(self._key.scrub(request.content.decode("utf-8")))
        said = self._key.scrub(answer.decode("utf-8", "replace"))
        exchange = Recorded(
            _Asked(request.method, request.url.path, asked),
            _Answer(self._response.status_code, kept, said),
        )
        return json.dumps(to_builtins(exchange), ensure_ascii=False) + "\n"


class PlayingTransport(httpx2.AsyncBaseTransport):
    """A cassette in the network's place: each request gets what it got when recorded.

    Requests may come in another order; each exchange is played once. One that is
    not on the cassette is an error, and so is one that is left over.
    """

    def __init__(self, exchanges: tuple[Recorded, ...]) -> None:
        self._left = list(exchanges)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises: ProviderError, SCRIPT, where there is none for this request."""
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
            hint="record it again: the request is not the one that was recorded",
        )

    def require_met(self) -> None:
        """Nothing: a request is only answered with what it got when recorded."""

    def require_finished(self) -> None:
        """Raises: ConfigError where exchanges are left over."""
        if self._left:
            count = len(self._left)
            raise ConfigError(
                f"{count} exchange{'s' if count > 1 else ''} of the cassette left over",
                hint="record it again, or find out why they were not asked for",
            )
