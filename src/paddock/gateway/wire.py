"""A server's process as the SDK's pair of streams: each line a message, and a limit to each thing.

Lines are heard in the thread of the server's own command, which waits where the loop does not keep
up. What no server may say ends the server: an answer to nothing that was asked, a message over the
limit, questions without end.

Threat: a server is anybody's program. What it sends is endless, malformed, or for somebody else.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, Literal, NoReturn, Self

import anyio
import mcp_types as types
from anyio.abc import ObjectStream
from mcp.shared.message import SessionMessage
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import Decoder
from pydantic import ValidationError

from paddock.errors import HostError
from paddock.sandbox.sessions.process import Process

MESSAGE_BYTES_MAX: Final = 8_000_000
_UNREAD_MAX: Final = 64
"""Messages that the loop has not taken yet: then the server waits."""
_NOTICES_MAX: Final = 200
"""Notifications in one second; more are dropped."""
_DROPPED_MAX: Final = 20_000
_JUNK_MAX: Final = 1_000
"""Lines that are no message: a greeting on the wrong stream is forgiven."""
_ASKED_MAX: Final = 16
"""Questions of the server that nobody has answered yet."""
_COMPLAINT_BYTES_MAX: Final = 500
"""Of what it says on stderr the last, for whoever wonders why it ended."""
_SEND_S: Final = 10.0
_SEND_STEP_S: Final = 0.01


class _Head(Struct):
    """What tells messages apart; the rest is the SDK's to read."""

    id: str | int | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET


_HEADS: Final = Decoder(_Head)


class _EndedError(HostError):
    """A server that is ended for what it said."""


class ServerWire(ObjectStream[Any]):
    """Made for one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._put, self._got = anyio.create_memory_object_stream[SessionMessage | Exception](
            float("inf")
        )
        self._room = threading.Semaphore(_UNREAD_MAX)
        self._turn = asyncio.Lock()
        self._held = bytearray()
        self._waiting: set[str | int] = set()
        """Ids of our requests without an answer."""
        self._asked: set[str | int] = set()
        self._second, self._notices, self._dropped, self._junk = 0.0, 0, 0, 0
        self._complained = b""
        self.process: Process | None = None
        self.heard_s = 0.0
        """When it last sent a message."""
        self.why = ""
        """Why it was ended, or has ended; empty while it goes on."""

    # --- heard, in the thread of the server's command -----------------------------------

    def hear(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        """Raises: HostError: then the server is ended."""
        if name == "stderr":
            self._complained = (self._complained + chunk)[-_COMPLAINT_BYTES_MAX:]
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._held += line
            self._take(bytes(self._held))
            self._held.clear()
        self._held += rest
        if len(self._held) > MESSAGE_BYTES_MAX:
            self._end(f"it sent a message of more than {MESSAGE_BYTES_MAX} bytes")

    def ended(self) -> None:
        """Say that the process is gone."""
        said = self._complained.decode("utf-8", "replace").strip()
        self.why = self.why or f"it has ended{f', having said: {said}' if said else ''}"
        self._in_loop(self._put.close)

    def _take(self, line: bytes) -> None:
        if len(line) > MESSAGE_BYTES_MAX:
            self._end(f"it sent a message of more than {MESSAGE_BYTES_MAX} bytes")
        try:
            head = _HEADS.decode(line)
            model = self._model_of(head)
            message = None if model is None else model.model_validate_json(line, by_name=False)
        except (DecodeError, ValidationError, RecursionError):
            self._junk += bool(line.strip())
            if self._junk > _JUNK_MAX:
                self._end("it sends lines that are no messages")
            return
        self.heard_s = time.monotonic()
        if message is None:
            return
        while not self._room.acquire(timeout=1.0):
            if self.why:
                self._end(self.why)
        self._in_loop(self._post, SessionMessage(message))

    def _in_loop(self, act: Callable[..., None], *given: object) -> None:
        # With the gateway the loop is gone, and who would hear it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act, *given)

    def _post(self, message: SessionMessage) -> None:
        try:
            self._put.send_nowait(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._room.release()

    def _model_of(self, head: _Head) -> type[Any] | None:
        """Return what to read a message as; None for one to drop."""
        if head.method is UNSET:
            if head.id is UNSET or head.id is None or head.id not in self._waiting:
                # Threat: an answer before the question, a second one, or to another's question.
                self._end("it answered what it was not asked")
            self._waiting.discard(head.id)
            return types.JSONRPCError if head.result is UNSET else types.JSONRPCResponse
        if head.id is UNSET:
            return types.JSONRPCNotification if self._has_room() else None
        if head.id is None or head.id in self._asked or len(self._asked) >= _ASKED_MAX:
            self._end("it asks too much at once, or twice under one id")
        self._asked.add(head.id)
        return types.JSONRPCRequest

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._second > 1.0:
            self._second, self._notices = now, 0
        self._notices += 1
        self._dropped += self._notices > _NOTICES_MAX
        if self._dropped > _DROPPED_MAX:
            self._end("it sends notifications without end")
        return self._notices <= _NOTICES_MAX

    def _end(self, why: str) -> NoReturn:
        self.why = self.why or why
        raise _EndedError(why)

    # --- the SDK's side, in the loop ------------------------------------------------------

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Self, Self]]:
        """Serve as the SDK's transport, which reads and writes here."""
        try:
            yield self, self
        finally:
            self._got.close()
            self._put.close()

    async def aclose(self) -> None:
        """Each direction ends with the process."""

    send_eof = aclose

    async def receive(self) -> SessionMessage | Exception:
        message = await self._got.receive()
        self._room.release()
        return message

    async def send(self, item: SessionMessage) -> None:
        """Raises: anyio.BrokenResourceError: the server has ended, or does not read."""
        said = item.message
        if isinstance(said, types.JSONRPCRequest):
            self._waiting.add(said.id)
        elif isinstance(said, types.JSONRPCResponse | types.JSONRPCError) and said.id is not None:
            self._asked.discard(said.id)
        line = said.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._turn:
            await self._write(line)

    async def _write(self, line: bytes) -> None:
        process = self.process
        until_s = time.monotonic() + _SEND_S
        while process is not None and not self.why:
            line = line[process.offer(line) :]
            if not line:
                return
            if time.monotonic() > until_s:
                self.why = "it does not read what it is sent"
            await asyncio.sleep(_SEND_STEP_S)
        raise anyio.BrokenResourceError
