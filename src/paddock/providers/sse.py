"""Server-sent events (WHATWG HTML, section 9.2), from bytes.

The SDKs' own readers turn events into types that drop what they do not know and
hide where a stream ended; a turn must be kept as it came, and a cut must be seen.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple

from paddock import limits
from paddock.providers.failures import FailureKind, ProviderError

# Not str.splitlines: JSON may hold U+2028 and others that end no line here.
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")


class SseEvent(NamedTuple):
    """One event. `name` is empty where the server gives none."""

    name: str
    data: str


class SseReader:
    """Events out of chunks, wherever these are cut. An event without its blank line is none."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._name = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that `chunk` completes.

        Raises: UnicodeDecodeError where a line is not UTF-8.
        """
        had_return = self._rest.endswith(b"\r")
        self._rest += chunk
        found: list[SseEvent] = []
        # A long line is not searched again with every chunk of it.
        if not had_return and b"\n" not in chunk and b"\r" not in chunk:
            return found
        start = 0
        for end in _LINE_END.finditer(self._rest):
            event = self._line(self._rest[start : end.start()].decode("utf-8"))
            start = end.end()
            if event is not None:
                found.append(event)
        del self._rest[:start]
        return found

    def _line(self, line: str) -> SseEvent | None:
        if not line:
            event = SseEvent(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        return None


async def read_events(chunks: AsyncIterator[bytes], provider: str) -> AsyncGenerator[SseEvent]:
    """Every event of a response's body.

    Raises: ProviderError where it is not UTF-8, or over `limits.model_response_bytes_max`.
    """
    reader = SseReader()
    total = 0
    async for chunk in chunks:
        total += len(chunk)
        require_size(total, provider)
        try:
            events = reader.feed(chunk)
        except UnicodeDecodeError:
            raise ProviderError(
                f"{provider} sent a stream that is not UTF-8", kind=FailureKind.BROKEN
            ) from None
        for event in events:
            yield event


def require_size(total: int, provider: str) -> None:
    """Refuse an answer beyond the limit; asking again would bring the same.

    Raises: ProviderError.
    """
    if total > limits.model_response_bytes_max:
        raise ProviderError(
            f"{provider} sent more than {limits.model_response_bytes_max} bytes",
            kind=FailureKind.TOO_LARGE,
        )
