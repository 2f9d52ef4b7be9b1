"""Serve one client over this process's standard streams.

A descriptor is read or written only when it is ready, so that signals are handled even while the
client neither sends nor reads.
"""

import contextlib
import fcntl
import json
import math
import os
import select
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, TextIO, cast

import anyio
import anyio.lowlevel
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import from_json

from paddock import limits
from paddock.apps.mcp.agents import Agents
from paddock.apps.mcp.server import make_server
from paddock.errors import HostError
from paddock.text.json import find_twice, has_half_character, json_name
from paddock.text.show import quote
from paddock.values.calls import Json

# Every invalid line is reported, to the client if it may wait for an answer, else on stderr.

_SPACE: Final = b" \t\r"
_WANTED: Final = {
    "jsonrpc": '"2.0"',
    "id": "a string or an integer",
    "method": "a string",
    "params": "an object",
    "result": "an object",
    "error": "an object with a code and a message",
}


class Unusable(Struct, frozen=True):
    """A line that is not a valid message. Without an `answer` it is reported on stderr."""

    why: str
    answer: types.JSONRPCError | None = None
    ends: types.JSONRPCError | None = None
    """An error for our own request, which waits for the answer that this line should be."""


class Messages:
    def __init__(self, line_bytes_max: int) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = bytearray()
        self._is_read_past = False

    def feed(self, piece: bytes) -> Iterator[types.JSONRPCMessage | Unusable]:
        """Yield the messages that this piece completes. A line over the limit is not buffered."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield from self._add(end)
            yield from self.end()
        yield from self._add(rest)

    def end(self) -> Iterator[types.JSONRPCMessage | Unusable]:
        """Yield the buffered line as a message; also the last one, which may lack its newline."""
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
        # Threat: a line without an end would fill the memory.
        self._held.clear()
        self._is_read_past = True
        yield refused(f"message too large: over {self._line_bytes_max} bytes")


def parse_line(line: bytes) -> types.JSONRPCMessage | Unusable | None:
    """Return the message of a line, or what is wrong with it; None for a blank line."""
    if not line.strip(_SPACE):
        return None
    value = _read(line)
    if isinstance(value, Unusable):
        return value
    if isinstance(value, dict):
        return _message(cast("dict[str, Json]", value))
    if isinstance(value, list):
        return refused("batches are not supported: send one message per line")
    return refused(f"a message must be an object, not {json_name(value)}")


def read_content(content: bytes) -> Json | types.JSONRPCError:
    """Return the JSON value of a request, or an error for invalid JSON or a duplicate name.

    A value that is not a message is left to the SDK.

    Threat: the SDK's parser may accept a byte order mark, UTF-16, half of a surrogate pair and
    deeper nesting. Input that is not parsed here could hide a duplicate name.
    """
    value = _read(content)
    if isinstance(value, Unusable):
        return value.answer or _error(value.why, None)
    return value


def request_id_of(value: Json) -> types.RequestId | None:
    if not isinstance(value, dict) or "method" not in value:
        return None
    return _id(cast("dict[str, Json]", value))


def still_runs(request_id: types.RequestId) -> types.JSONRPCError:
    return _error(f"a request with the id {quote(request_id)} is still running", request_id)


def _read(content: bytes) -> Json | Unusable:
    """Return the JSON value; of an object with a duplicate name, what is wrong with it."""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        return refused(f"not UTF-8 at byte {error.start}", code=types.PARSE_ERROR)
    try:
        value: Json = from_json(text)
    except ValueError as error:
        return _unread(text, str(error))
    twice = find_twice(text) if isinstance(value, dict) else None
    if twice is None:
        return cast("Json", value)
    # Threat: one parser uses the first of two values, and another the last.
    why = f"{quote(twice.name)} is given twice: give every name once"
    # With two ids the right one to answer is unknown.
    has_two_ids = twice == ("id", True)
    return refused(why) if has_two_ids else _unusable(cast("dict[str, Json]", value), why)


def refused(
    why: str, request_id: types.RequestId | None = None, *, code: int = types.INVALID_REQUEST
) -> Unusable:
    return Unusable(why, _error(why, request_id, code))


def _error(
    why: str, request_id: types.RequestId | None, code: int = types.INVALID_REQUEST
) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=why)
    )


def _message(value: dict[str, Json]) -> types.JSONRPCMessage | Unusable:
    has_result = value.get("result") is not None
    has_error = value.get("error") is not None
    if "method" in value:
        # Threat: the SDK treats a request with an invalid id as a notification, without an answer.
        model = types.JSONRPCRequest if "id" in value else types.JSONRPCNotification
    elif has_result and has_error:
        return _unusable(value, "an answer must have 'result' or 'error', not both")
    elif "result" in value or "error" in value:
        model = types.JSONRPCError if has_error else types.JSONRPCResponse
    else:
        return _unusable(value, "'method', 'result' and 'error' are all missing")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        name = str(error.errors(include_input=False)[0]["loc"][0])
        given = f"not {quote(json.dumps(value[name]))}" if name in value else "but is missing"
        return _unusable(value, f"{name!r} must be {_WANTED[name]}, {given}")


def _unread(text: str, why: str) -> Unusable:
    """Try a second parser on text that the SDK's rejects: if it is JSON, its id is answered."""
    try:
        value: Json = json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return refused(f"not valid JSON: {why}", code=types.PARSE_ERROR)
    if "escape" in why:
        why = f"half of a surrogate pair, {why}"
    why = f"the message cannot be read: {why}"
    if isinstance(value, dict):
        return _unusable(cast("dict[str, Json]", value), why)
    return refused(why)


def _integer(digits: str) -> int | None:
    try:
        return int(digits)
    except ValueError:
        return None


def _unusable(value: dict[str, Json], why: str) -> Unusable:
    request_id = _id(value)
    if "method" in value:
        return refused(why, request_id) if "id" in value else Unusable(f"notification: {why}")
    if request_id is None:
        return refused(why)
    # The client and Paddock number their requests separately: an error sent for an invalid answer
    # would carry the id of an unrelated request.
    is_answer = "result" in value or "error" in value
    ends = _error(why, request_id)
    return Unusable(f"answer: {why}", None if is_answer else ends, ends)


def _id(value: dict[str, Json]) -> types.RequestId | None:
    found = value.get("id")
    if isinstance(found, str):
        return None if has_half_character(found) else found
    return found if isinstance(found, int) and not isinstance(found, bool) else None


_PIECE_BYTES: Final = 65_536
_LAST_S: Final = 0.5
"""Time for the last requests to finish after the input ends; then they are cancelled."""
_STANDARD_ERROR: Final = 2


def serve_stdio(agents: Agents, agent: str | None, streams: tuple[TextIO, TextIO]) -> None:
    """Serve until the client closes our input, or until SIGTERM or SIGINT.

    Running calls are cancelled and awaited. At a signal, unread answers are discarded. An invalid
    line is answered with an error, and serving continues. The process's standard streams, if
    given, are replaced permanently. Raises: UsageError; ConfigError; HostError: the streams cannot
    be used.
    """
    try:
        # Report an agent that cannot be served at startup, not at each request.
        agents.get(agent)
        server = make_server(partial(agents.get, agent), agents)
        anyio.run(partial(_serve, server, streams))
    except ExceptionGroup as group:
        _, rest = group.split(OSError)
        if rest is not None:
            raise
        if not group.subgroup(ConnectionError):
            raise HostError("the standard streams cannot be used") from group
    finally:
        agents.close()


async def _serve(server: Server[object], streams: tuple[TextIO, TextIO]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_at_signal, tasks.cancel_scope)
        await Connection(_open_wire(*streams)).serve(server)
        tasks.cancel_scope.cancel()


async def _stop_at_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        async for _ in received:
            scope.cancel()
            return


class StdioWire(Struct, frozen=True):
    """Two descriptors. They stay blocking, because other processes may share them."""

    incoming: int
    outgoing: int

    async def read(self) -> bytes:
        """Return the next piece, empty at the end or if the client has disconnected."""
        await _wait(anyio.wait_readable, self.incoming)
        try:
            return os.read(self.incoming, _PIECE_BYTES)
        except ConnectionError:
            return b""

    async def write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            await _wait(anyio.wait_writable, self.outgoing)
            # A pipe that is ready accepts PIPE_BUF bytes without blocking (pipe(7)).
            rest = rest[os.write(self.outgoing, rest[: select.PIPE_BUF]) :]


async def _wait(is_ready: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await is_ready(descriptor)
    except PermissionError:
        # EPERM of epoll_ctl(2): a regular file cannot be polled, and is always ready.
        await anyio.lowlevel.checkpoint()


def _open_wire(stdin: TextIO, stdout: TextIO) -> StdioWire:
    incoming, outgoing = stdin.fileno(), stdout.fileno()
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return StdioWire(_make_private(incoming, nothing), _make_private(outgoing, _STANDARD_ERROR))
    finally:
        os.close(nothing)


def _make_private(descriptor: int, instead: int) -> int:
    """Move a standard stream to a private descriptor, and put `instead` in its place.

    Text that a library or a command prints by mistake then goes to stderr, not into the protocol.
    The stream is never restored, because buffers may be flushed when the process ends.
    """
    if descriptor > _STANDARD_ERROR:
        return descriptor
    private = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    os.dup2(instead, descriptor)
    return private


class Connection:
    def __init__(self, wire: StdioWire) -> None:
        self._wire = wire
        self._turn = anyio.Lock()
        self._in_flight: set[types.RequestId] = set()
        self._has_one_less = anyio.Event()

    async def serve(self, server: Server[object]) -> None:
        onward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
        # Unbounded, because the SDK drops answers that still wait here at the end. The number of
        # requests whose answers the client does not read bounds the buffer.
        outgoing, answers = anyio.create_memory_object_stream[SessionMessage](math.inf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, onward)
            tasks.start_soon(self._write, answers)
            changes = NotificationOptions(tools_changed=True)
            options = server.create_initialization_options(changes)
            await server.run(incoming, outgoing, options)

    async def _read(self, onward: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with onward:
            messages = Messages(limits.mcp_body_bytes_max)
            while piece := await self._wire.read():
                for found in messages.feed(piece):
                    await self._hand_on(found, onward)
            for found in messages.end():
                await self._hand_on(found, onward)
            with anyio.move_on_after(_LAST_S):
                while self._in_flight:
                    await self._has_one_less.wait()

    async def _write(self, answers: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with answers:
            async for answer in answers:
                message = answer.message
                if (
                    isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
                    and message.id is not None
                ):
                    await self._forget(coerce_request_id(message.id))
                await self._send(message)

    async def _hand_on(
        self,
        found: types.JSONRPCMessage | Unusable,
        onward: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        if isinstance(found, types.JSONRPCRequest):
            # Threat: the SDK stores requests by this key. With two of the same key a cancellation
            # of the first would cancel the second, and the first could not be stopped.
            key = coerce_request_id(found.id)
            if key not in self._in_flight:
                self._in_flight.add(key)
                forget = partial(self._forget, key)
                metadata = ServerMessageMetadata(on_request_unanswered=forget)
                await onward.send(SessionMessage(found, metadata))
                return
            await self._send(still_runs(found.id))
            return
        if not isinstance(found, Unusable):
            await onward.send(SessionMessage(found))
            return
        if found.ends is not None:
            await onward.send(SessionMessage(found.ends))
        if found.answer is not None:
            await self._send(found.answer)
        else:
            _say(f"a message was ignored, {found.why}")

    async def _send(self, message: types.JSONRPCMessage) -> None:
        line = message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        async with self._turn:
            await self._wire.write(line.encode())

    async def _forget(self, key: types.RequestId) -> None:
        self._in_flight.discard(key)
        self._has_one_less.set()
        self._has_one_less = anyio.Event()


def _say(text: str) -> None:
    """Write to stderr without blocking: the client may not read it."""
    _, ready, _ = select.select([], [_STANDARD_ERROR], [], 0)
    if ready:
        # There is no other place to report to.
        with contextlib.suppress(OSError):
            os.write(_STANDARD_ERROR, f"paddock mcp: {text}\n".encode())
