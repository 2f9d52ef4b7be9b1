"""What comes in on a stream, a message a line: from bytes to messages. Pure.

Every line is a message or has a reason why it is none, and somebody who hears of it: a
client that gets no answer waits for one.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError
from pydantic_core import from_json

from paddock.text.json import find_twice, json_name
from paddock.text.show import quote
from paddock.values.calls import Json

_SPACE: Final = b" \t\r"
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_WANTED: Final = {
    "jsonrpc": '"2.0"',
    "id": "a string or an integer",
    "method": "a string",
    "params": "an object",
    "result": "an object",
    "error": "an object with a code and a message",
}


@dataclass(frozen=True, slots=True)
class Unusable:
    """A line that is no message; where nobody is answered, stderr is told."""

    why: str
    answer: JSONRPCError | None = None
    """For the client."""
    ends: JSONRPCError | None = None
    """For our own request that waits for what this line should have been."""


class Messages:
    """The messages in a stream of bytes that comes in pieces."""

    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = bytearray()
        self._is_read_past = False

    def feed(self, piece: bytes) -> Iterator[JSONRPCMessage | Unusable]:
        """What is whole with this piece. A line over the limit is never held whole."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield from self._add(end)
            yield from self.end()
        yield from self._add(rest)

    def end(self) -> Iterator[JSONRPCMessage | Unusable]:
        """What the line is that ends here; also the last one, which may lack its line end."""
        line = bytes(self._held)
        self._held.clear()
        self._is_read_past = False
        message = parse_line(line)
        if message is not None:
            yield message

    def _add(self, part: bytes) -> Iterator[Unusable]:
        if self._is_read_past:
            return
        if len(self._held) + len(part) <= self._line_bytes_max:
            self._held += part
            return
        # Threat: a line without an end would take all the memory there is.
        self._held.clear()
        self._is_read_past = True
        yield refused(f"message too large: over {self._line_bytes_max} bytes")


def parse_line(line: bytes) -> JSONRPCMessage | Unusable | None:
    """The message that a line is, or what is wrong with it; None for a blank one."""
    if not line.strip(_SPACE):
        return None
    value = _read(line)
    if isinstance(value, Unusable):
        return value
    if isinstance(value, dict):
        members = cast("dict[str, Json]", value)
        return _refused_if_twice(line.decode(), members) or _message(members)
    if isinstance(value, list):
        return refused("batches are not served: send one message a line")
    return refused(f"a message is an object, and this is {json_name(value)}")


def read_content(content: bytes) -> Json | JSONRPCError:
    """The value of a request's content; the answer to what is none, or gives a name twice.

    A value that is no message is left to whoever reads it next.

    Threat: who reads it next may take a byte order mark, UTF-16 or half of a surrogate pair,
    and deeper nesting. In what is not read here, a name could be given twice.
    """
    value = _read(content)
    found = value if isinstance(value, Unusable) else None
    if isinstance(value, dict):
        found = _refused_if_twice(content.decode(), cast("dict[str, Json]", value))
    if found is not None:
        return found.answer or _error(found.why, None)
    return cast("Json", value)


def request_id_of(value: Json) -> RequestId | None:
    """The id by which a request is answered; None of what is none."""
    if not isinstance(value, dict) or "method" not in value:
        return None
    return _id(cast("dict[str, Json]", value))


def still_runs(request_id: RequestId) -> JSONRPCError:
    return _error(f"a request with the id {quote(request_id)} is still running", request_id)


def _read(content: bytes) -> Json | Unusable:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return refused(f"not UTF-8 at byte {error.start}", code=PARSE_ERROR)
    try:
        value: Json = from_json(text)
    except ValueError as error:
        return _unread(text, str(error))
    return value


def _refused_if_twice(text: str, value: dict[str, Json]) -> Unusable | None:
    """What becomes of a message in which a name is given twice; None of any other.

    Threat: of two values one reader judges the first, and another acts on the last.
    """
    twice = find_twice(text)
    if twice is None:
        return None
    why = f"{quote(twice.name)} is given twice: give every name once"
    # Of two ids nobody knows which one waits for an answer.
    has_two_ids = twice == ("id", True)
    return refused(why) if has_two_ids else _unusable(value, why)


def refused(
    why: str, request_id: RequestId | None = None, *, code: int = INVALID_REQUEST
) -> Unusable:
    """A line that its client hears of."""
    return Unusable(why, _error(why, request_id, code))


def _error(why: str, request_id: RequestId | None, code: int = INVALID_REQUEST) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=why))


def _message(value: dict[str, Json]) -> JSONRPCMessage | Unusable:
    has_result = value.get("result") is not None
    has_error = value.get("error") is not None
    if "method" in value:
        # Threat: to the SDK a request whose id is none is a notification, and is not answered.
        model = JSONRPCRequest if "id" in value else JSONRPCNotification
    elif has_result and has_error:
        return _unusable(value, "an answer has either 'result' or 'error'")
    elif "result" in value or "error" in value:
        model = JSONRPCError if has_error else JSONRPCResponse
    else:
        return _unusable(value, "there is no 'method', no 'result' and no 'error'")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0])
        given = f"not {quote(json.dumps(value[name]))}" if name in value else "and is missing"
        return _unusable(value, f"{name!r} has to be {_WANTED[name]}, {given}")


def _unread(text: str, why: str) -> Unusable:
    """What the SDK's reader does not read may be JSON still: then it has an id to answer."""
    try:
        value: Json = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return refused(f"no JSON that can be read: {why}", code=PARSE_ERROR)
    if "escape" in why:
        why = f"half of a surrogate pair, {why}"
    why = f"the message cannot be read: {why}"
    if isinstance(value, dict):
        return _unusable(cast("dict[str, Json]", value), why)
    return refused(why)


def _integer(digits: str) -> int | None:
    """None where there are more digits than Python converts."""
    try:
        return int(digits)
    except ValueError:
        return None


def _unusable(value: dict[str, Json], why: str) -> Unusable:
    """Who hears of an object that is no message, by what it should have been."""
    request_id = _id(value)
    if "method" in value:
        return refused(why, request_id) if "id" in value else Unusable(f"notification: {why}")
    if request_id is None:
        return refused(why)
    # The ids of our requests and of the client's are not the same ones: where this is an
    # answer, an error with its id would be one for another request.
    is_answer = "result" in value or "error" in value
    ends = _error(why, request_id)
    return Unusable(f"answer: {why}", None if is_answer else ends, ends)


def _id(value: dict[str, Json]) -> RequestId | None:
    """The id, if it can be sent back."""
    found = value.get("id")
    if isinstance(found, str):
        return None if _HALF_PAIR.search(found) else found
    return found if isinstance(found, int) and not isinstance(found, bool) else None
