"""Server-sent events (WHATWG HTML, section 9.2), from bytes.

The SDKs' own readers turn events into types that drop what they do not know and
hide where a stream ended; a turn must be kept as it came, and a cut must be seen.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Final, NamedTuple, cast

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.pattern import lazy_pattern
from paddock.providers.failures import FailureKind, ProviderError
from paddock.text.json import parse_object
from paddock.values.calls import Json, Refusal
from paddock.values.models import ToolUse

# Not str.splitlines: JSON may hold U+2028 and others that end no line here.
_LINE_END: Final = lazy_pattern(rb"\r\n|\n|\r(?!\Z)")


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
        """Those that `chunk` completes. Raises: UnicodeDecodeError where a line is not UTF-8."""
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
    """Raises: ProviderError where it is not UTF-8, or over `limits.model_response_bytes_max`."""
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
    """Asking again would bring the same. Raises: ProviderError."""
    if total > limits.model_response_bytes_max:
        raise ProviderError(
            f"{provider} sent more than {limits.model_response_bytes_max} bytes",
            kind=FailureKind.TOO_LARGE,
        )


def read_object(text: str, subject: str = "the arguments are") -> Mapping[str, Json] | Refusal:
    """The one JSON object that `text` is, or why it is none; see `parse_object`."""
    try:
        return parse_object(text, subject)
    except InvalidArgumentsError as error:
        place = f" ({error.where})" if error.where else ""
        return Refusal(error.code, f"{error.message}{place}", error.hint)


def whole_characters(message: Mapping[str, Json]) -> Mapping[str, Json]:
    """The message with no half of a surrogate pair in it.

    Halves that came in two pieces are joined; a lone one becomes U+FFFD, for no wire
    carries it back and the conversation would end there.
    """
    text = json.dumps(message, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return as_map(json.loads(mended))
    return message


def as_map(value: Json) -> Mapping[str, Json]:
    return cast("Mapping[str, Json]", value) if isinstance(value, Mapping) else {}


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def as_maps(value: Json) -> list[Mapping[str, Json]]:
    """The objects of a list; what is no object counts as an empty one."""
    return [as_map(item) for item in as_list(value)]


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else 0


def json_text(call: ToolUse) -> str:
    """A call's arguments as JSON text: as it came, or wrapped where it could not be read.

    Some servers parse the arguments of earlier calls, and fail where they are none.
    """
    if call.problem is not None:
        return json.dumps({"INVALID_JSON": call.raw})
    return call.raw if call.raw.strip() else json.dumps(dict(call.arguments))
