"""Serving one client over this process's standard streams.

The descriptors are waited for and never read or written before they are ready: a signal
is heard also while the client sends nothing and reads nothing.
"""

import contextlib
import fcntl
import math
import os
import select
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final, Protocol, TextIO

import anyio
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from paddock import limits
from paddock.apps.mcp.lines import Messages, Unusable, still_runs
from paddock.apps.mcp.served import Agents, Served
from paddock.apps.mcp.server import make_server
from paddock.errors import HostError

_PIECE_BYTES: Final = 65_536
_LAST_S: Final = 0.5
"""So long the last requests may take that came in before the end; then they are told to stop."""
_STANDARD_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class OneAgent:
    """Every request is for the agent that the server was started for."""

    agents: Agents
    name: str | None

    def served(self) -> Served:
        return self.agents.get(self.name)


def serve_stdio(agents: Agents, agent: str | None, streams: tuple[TextIO, TextIO]) -> None:
    """Serve until the client closes our input, or until SIGTERM or SIGINT.

    Calls that still run are told to stop, and waited for. At a signal, what the client has
    not read by then is given up. A line that is no message is answered with an error, and
    ends nothing. The process's own streams, if they are given, are taken for good.

    Raises: UsageError; ConfigError; HostError: the streams cannot be used.
    """
    try:
        # What cannot be served is said to whoever starts it, and not to each request.
        agents.get(agent)
        calls_max = agents.project.policy.settings.mcp.calls_max
        door = OneAgent(agents, agent)
        server = make_server(door, calls_max, is_structured=agents.is_structured)
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


class Wire(Protocol):
    """Where bytes come from and go to; both ways can be cancelled at any time."""

    async def read(self) -> bytes:
        """The next piece; empty at the end. Raises: OSError."""
        ...

    async def write(self, content: bytes) -> None:
        """All of it, as fast as the client reads. Raises: OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Descriptors:
    """A wire of two descriptors. They stay blocking, for other processes may hold them too."""

    incoming: int
    outgoing: int

    async def read(self) -> bytes:
        """See `Wire`. A client that has gone is one that sends nothing more."""
        await _wait(anyio.wait_readable, self.incoming)
        try:
            return os.read(self.incoming, _PIECE_BYTES)
        except ConnectionError:
            return b""

    async def write(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            await _wait(anyio.wait_writable, self.outgoing)
            # A pipe that is ready takes so much without waiting (pipe(7)), and maybe not more.
            rest = rest[os.write(self.outgoing, rest[: select.PIPE_BUF]) :]


@dataclass(frozen=True, slots=True)
class Texts:
    """A wire of two streams that have no descriptor."""

    incoming: anyio.AsyncFile[str] | anyio.AsyncFile[bytes]
    outgoing: anyio.AsyncFile[str]

    async def read(self) -> bytes:
        line = await self.incoming.readline()
        return line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")

    async def write(self, content: bytes) -> None:
        await self.outgoing.write(content.decode())
        await self.outgoing.flush()


async def _wait(is_ready: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    try:
        await is_ready(descriptor)
    except PermissionError:
        # EPERM of epoll_ctl(2): a regular file cannot be waited for, and is always ready.
        await anyio.lowlevel.checkpoint()


def _open_wire(stdin: TextIO, stdout: TextIO) -> Wire:
    try:
        incoming, outgoing = stdin.fileno(), stdout.fileno()
    except OSError:  # UnsupportedOperation is one: there is no descriptor.
        # What is no UTF-8 is ours to answer, and no end of the stream.
        raw: BinaryIO | None = getattr(stdin, "buffer", None)
        source = anyio.wrap_file(stdin) if raw is None else anyio.wrap_file(raw)
        return Texts(source, anyio.wrap_file(stdout))
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return Descriptors(_take(incoming, nothing), _take(outgoing, _STANDARD_ERROR))
    finally:
        os.close(nothing)


def _take(descriptor: int, instead: int) -> int:
    """The stream as a descriptor that nobody else knows, if it is one of the process's own.

    What a library or a command prints by mistake goes to stderr then, and not into the
    protocol, also what is still in a buffer when the process ends: nothing is put back.
    """
    if descriptor > _STANDARD_ERROR:
        return descriptor
    private = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _STANDARD_ERROR + 1)
    os.dup2(instead, descriptor)
    return private


class Connection:
    """One client's messages, between a wire and the SDK."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._turn = anyio.Lock()
        self._in_flight: set[RequestId] = set()
        self._has_one_less = anyio.Event()

    async def serve(self, server: Server[object]) -> None:
        """Until the end of what comes in; then all that there is to say is written."""
        onward, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
        # The SDK drops an answer that still waits here at the end: none has to wait.
        # What is held is no more than the requests whose answers the client does not read.
        outgoing, answers = anyio.create_memory_object_stream[SessionMessage](math.inf)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, onward)
            tasks.start_soon(self._write, answers)
            await server.run(incoming, outgoing, server.create_initialization_options())

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
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    await self._forget(coerce_request_id(message.id))
                await self._send(message)

    async def _hand_on(
        self,
        found: JSONRPCMessage | Unusable,
        onward: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        if isinstance(found, JSONRPCRequest):
            # Threat: the SDK keeps requests by this key. Of two with the same one it would
            # cancel the second where the first is meant, and the first could not be stopped.
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
            _say(f"a message was not used, {found.why}")

    async def _send(self, message: JSONRPCMessage) -> None:
        line = message.model_dump_json(by_alias=True, exclude_unset=True) + "\n"
        async with self._turn:
            await self._wire.write(line.encode())

    async def _forget(self, key: RequestId) -> None:
        self._in_flight.discard(key)
        self._has_one_less.set()
        self._has_one_less = anyio.Event()


def _say(text: str) -> None:
    """On stderr, if it is taken at once: the client need not read that, and we must not wait."""
    _, ready, _ = select.select([], [_STANDARD_ERROR], [], 0)
    if ready:
        # Where it cannot be written, nobody is told.
        with contextlib.suppress(OSError):
            os.write(_STANDARD_ERROR, f"paddock mcp: {text}\n".encode())
