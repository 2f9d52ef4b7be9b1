"""The body of an error is read to a limit, packed or not; a longer answer is refused."""

import asyncio
import gzip
from collections.abc import AsyncGenerator

import httpx2
import pytest

from paddock import limits
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.transport import limit_body

MAX = limits.model_error_bytes_max
PLAIN = b"x" * 50_000
PACKED = gzip.compress(b"x" * 4 * MAX)


class Endless(httpx2.AsyncByteStream):
    """A server that says the same for ever; counts how often it did, and hears of the end."""

    def __init__(self, first: bytes, then: bytes) -> None:
        self.sent = 0
        self.is_closed = False
        self._first = first
        self._then = then

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        self.sent += len(self._first)
        yield self._first
        while self._then and self.sent < 20 * MAX:
            self.sent += len(self._then)
            yield self._then

    async def aclose(self) -> None:
        self.is_closed = True


def read(status: int, stream: Endless, **headers: str) -> bytes:
    """As an SDK reads it."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, headers=headers, stream=stream)

    async def ask() -> bytes:
        transport = httpx2.MockTransport(answer)
        hooks = {"response": [limit_body]}
        async with httpx2.AsyncClient(transport=transport, event_hooks=hooks) as client:
            request = client.build_request("POST", "http://127.0.0.1:9/v1")
            response = await client.send(request, stream=True)
            return await response.aread()

    return asyncio.run(ask())


@pytest.mark.parametrize("status", [302, 400, 503])
def test_what_is_behind_the_limit_is_not_waited_for(status):
    stream = Endless(PLAIN, PLAIN)

    assert read(status, stream) == b"x" * MAX
    assert (stream.sent <= MAX + len(PLAIN), stream.is_closed) == (True, True)


def test_it_is_the_unpacked_bytes_that_count():
    stream = Endless(PACKED, b"")

    assert read(400, stream, **{"content-encoding": "gzip"}) == b"x" * MAX
    assert stream.is_closed


def test_a_short_error_is_read_whole():
    said = b'{"error": {"message": "no"}}'

    assert read(400, Endless(said, b"")) == said
    packed = Endless(gzip.compress(said), b"")
    assert read(400, packed, **{"content-encoding": "gzip"}) == said


@pytest.mark.parametrize("status", [200, 201])
def test_an_answer_is_read_whole_also_where_it_is_longer_than_an_error(status):
    stream = Endless(PACKED, b"")

    assert read(status, stream, **{"content-encoding": "gzip"}) == b"x" * 4 * MAX


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "plain"])
def test_an_answer_beyond_its_limit_is_refused(monkeypatch, packed):
    monkeypatch.setattr(limits, "model_response_bytes_max", 3 * MAX)
    stream = Endless(PACKED, b"") if packed else Endless(PLAIN, PLAIN)
    headers = {"content-encoding": "gzip"} if packed else {}

    with pytest.raises(ProviderError) as caught:
        read(200, stream, **headers)

    assert (caught.value.kind, caught.value.is_transient) == (FailureKind.TOO_LARGE, False)
    assert (stream.sent <= 3 * MAX + len(PLAIN), stream.is_closed) == (True, True)
