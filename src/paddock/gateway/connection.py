"""One server: started when it is first needed, asked, and started again where it has ended.

Everything here runs in the gateway's loop, but for what blocks: to start and to end a process.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable
from importlib.metadata import version
from typing import Any, Final, Literal, NoReturn, Protocol, Self, cast

import anyio
import mcp_types as types
from anyio.abc import ObjectStream
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import Decoder
from pydantic import TypeAdapter, ValidationError

from paddock import limits
from paddock.errors import HostError, PaddockError, SandboxUnavailableError, ToolFailedError
from paddock.gateway.confine import ServerSandbox
from paddock.gateway.definitions import DEFINITIONS_BYTES_MAX, Definition, show_text
from paddock.sandbox.sessions.process import Process
from paddock.text.show import cut, quote

_PAGES_MAX: Final = 50
_ROUNDS_MAX: Final = 10
"""So often one call may ask for more."""
_BACK_OFF_S: Final = 0.5
_BACK_OFF_MAX_S: Final = 60.0
_WAITED_S: Final = 2.0
"""So long a call waits for a server to be started again; longer, and it is told when."""
_STEADY_S: Final = 60.0
"""A server that ended after so long is started again at once."""
_SAID_CHARS_MAX: Final = 2_000

_HINT: Final = "it may have done part of it: look before you call it again"


class CallOrigin(Protocol):
    """Who made a call, as far as a server may ask back. Each blocks, in any thread."""

    more: dict[str, Any] | None
    """Of one that can be asked by a call's result alone: what it brings of what was asked so."""

    def elicit(self, server: str, form: types.ElicitRequestFormParams) -> types.ElicitResult: ...

    def sample(
        self, server: str, wanted: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData: ...

    def progress(self, done: float, total: float | None, message: str) -> None: ...


class LiveServer(Struct, eq=False):
    client: Client
    wire: "ServerWire"
    ready: "asyncio.Future[None]"
    ends: asyncio.Event
    began_s: float
    task: "asyncio.Task[None] | None" = None
    definitions: dict[str, Definition] = {}
    is_stale: bool = True
    """Whether it has to be asked for its definitions before it is believed."""
    version: str = ""
    """What it is, and what was fetched to run it, as far as that can be told."""


class ServerConnection:
    def __init__(self, sandbox: ServerSandbox) -> None:
        self.server = sandbox.server
        self._sandbox = sandbox
        self._turn = asyncio.Lock()
        self._live: LiveServer | None = None
        self._failures = 0
        self._again_s = 0.0
        self._askers: dict[object, CallOrigin | None] = {}

    # --- its life -------------------------------------------------------------------------

    async def live(self) -> LiveServer:
        """Return it running, with what it says of itself. Raises: SandboxUnavailableError."""
        live = self._live
        if live is None or live.is_stale or live.wire.why:
            # Who leaves does not leave a server half started: the next call finds it.
            live = await asyncio.shield(asyncio.ensure_future(self._made_ready()))
        return live

    async def _made_ready(self) -> LiveServer:
        async with self._turn:
            live = self._live
            if live is not None and live.wire.why:
                await self._end(live)
                live = None
            if live is None:
                live = await self._open()
            if live.is_stale:
                await self._list(live)
            return live

    async def close(self) -> None:
        async with self._turn:
            if self._live is not None:
                await self._end(self._live)

    async def _open(self) -> LiveServer:
        wait_s = self._again_s - time.monotonic()
        if wait_s > _WAITED_S:
            raise self._unavailable(f"it ended, and is started again in {wait_s:.0f} s")
        await asyncio.sleep(max(0.0, wait_s))
        loop = asyncio.get_running_loop()
        wire = ServerWire(loop)
        try:
            await asyncio.to_thread(self._sandbox.start, wire)
        except PaddockError as error:
            wire.close()
            self._put_off(0.0)
            raise self._unavailable(error.message) from error
        client = Client(
            wire.opened(),
            read_timeout_seconds=limits.mcp_server_start_s,
            cache=None,
            client_info=types.Implementation(name="paddock", version=version("paddock")),
            elicitation_callback=self._asked_back,
            sampling_callback=self._asked_back,
            message_handler=self._heard,
        )
        live = LiveServer(client, wire, loop.create_future(), asyncio.Event(), time.monotonic())
        live.task = asyncio.create_task(_hold(live))
        try:
            async with asyncio.timeout(limits.mcp_server_start_s):
                await live.ready
        except (MCPError, ValidationError, RuntimeError, TimeoutError, ExceptionGroup) as error:
            why = wire.why or _said_by(error)
            await self._stop(live)
            self._put_off(0.0)
            raise self._unavailable(f"it does not answer as a server: {why}") from error
        except BaseException:
            await asyncio.shield(self._stop(live))
            raise
        info = client.server_info
        said = "" if info is None else f"{info.name} {info.version}"
        fetched = await asyncio.to_thread(self._sandbox.version)
        live.version = "; ".join(filter(None, (said, fetched))) or "unknown"
        self._live = live
        return live

    async def _end(self, live: LiveServer) -> None:
        self._live = None
        self._put_off(time.monotonic() - live.began_s)
        await self._stop(live)

    async def _stop(self, live: LiveServer) -> None:
        # Who hears it may wait for room that nobody makes any more.
        live.wire.why = live.wire.why or "it was ended"
        live.ends.set()
        await asyncio.to_thread(self._sandbox.end, live.wire)
        if live.task is not None:
            await asyncio.wait([live.task], timeout=5.0)
            live.task.cancel()

    def _put_off(self, lived_s: float) -> None:
        self._failures = 0 if lived_s > _STEADY_S else self._failures + 1
        wait_s = min(_BACK_OFF_MAX_S, _BACK_OFF_S * 2 ** min(self._failures - 1, 10))
        self._again_s = time.monotonic() + (wait_s if self._failures else 0.0)

    def _unavailable(self, why: str) -> SandboxUnavailableError:
        name = quote(self.server.name)
        return SandboxUnavailableError(
            f"the MCP server {name} cannot be asked: {cut(show_text(why), _SAID_CHARS_MAX)}",
            hint="nothing was done; try again later, or do it with other tools",
        )

    # --- what it says of itself -----------------------------------------------------------

    async def _list(self, live: LiveServer) -> None:
        live.is_stale = False
        found: dict[str, Definition] = {}
        try:
            for kind, request, result in _LISTS:
                if getattr(live.client.server_capabilities, f"{kind}s") is not None:
                    for each in await self.pages(live, request, result, f"{kind}s"):
                        found[f"{kind} {each['name']}"] = Definition(kind, each["name"], each)
        except (MCPError, ValidationError, RuntimeError) as error:
            live.wire.why = live.wire.why or f"it does not list what it has: {_said_by(error)}"
            raise self._unavailable(live.wire.why) from error
        live.definitions = found

    async def pages(
        self, live: LiveServer, request: type[Any], result: type[Any], member: str
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        cursor, size = None, 0
        for _ in range(_PAGES_MAX):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await live.client.session.send_request(request(params=params), result)
            for each in getattr(page, member):
                found.append(each.model_dump(by_alias=True, mode="json", exclude_none=True))
                size += len(each.model_dump_json())
            cursor = page.next_cursor
            if size > DEFINITIONS_BYTES_MAX:
                raise RuntimeError(f"more than {DEFINITIONS_BYTES_MAX} bytes of descriptions")
            if not cursor:
                return found
        raise RuntimeError("a list without end")

    async def _heard(self, message: object) -> None:
        if isinstance(
            message, types.ToolListChangedNotification | types.PromptListChangedNotification
        ) and (self._live is not None):
            self._live.is_stale = True

    # --- what it is asked -----------------------------------------------------------------

    async def ask(
        self,
        live: LiveServer,
        request: Callable[[dict[str, Any]], types.Request[Any, Any]],
        result: TypeAdapter[Any],
        asker: CallOrigin | None,
    ) -> Any:
        """Return its answer; whoever awaits may cancel. Raises: ToolFailedError.

        `request` is made with what the server asked for in between, if it did.
        """
        key, began_s = object(), time.monotonic()
        self._askers[key] = asker
        more: dict[str, Any] = {} if asker is None else asker.more or {}
        returns = asker is not None and asker.more is not None
        try:
            for _ in range(_ROUNDS_MAX):
                answer = await live.client.session.send_request(
                    request(more),
                    result,
                    request_read_timeout_seconds=limits.mcp_server_call_s,
                    progress_callback=None if asker is None else _progress_of(asker),
                )
                if returns or not isinstance(answer, types.InputRequiredResult):
                    return answer
                more = {
                    "request_state": answer.request_state,
                    "input_responses": await self._inputs(answer, asker),
                }
            raise self._failed("it asks again and again")
        except MCPError as error:
            if error.code == types.REQUEST_TIMEOUT and live.wire.heard_s < began_s:
                live.wire.why = live.wire.why or "it hung"
            raise self._failed(live.wire.why or _said_by(error)) from error
        except (ValidationError, RuntimeError) as error:
            raise self._failed(live.wire.why or _said_by(error)) from error
        finally:
            del self._askers[key]

    async def _inputs(
        self, answer: types.InputRequiredResult, asker: CallOrigin | None
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, wanted in (answer.input_requests or {}).items():
            said = await self._ask_back(asker, wanted.params)
            if isinstance(said, types.ErrorData):
                raise self._failed(f"it asked for what it did not get: {said.message}")
            found[name] = said
        return found

    def _failed(self, why: str) -> ToolFailedError:
        name = quote(self.server.name)
        said = cut(show_text(why), _SAID_CHARS_MAX)
        return ToolFailedError(f"the MCP server {name} failed: {said}", hint=_HINT)

    # --- what it asks back ----------------------------------------------------------------

    async def _asked_back(self, context: ClientRequestContext, params: Any) -> Any:
        """Ask whoever is behind every call that runs.

        Threat: a question for one person would be put to another, who has the same server.
        """
        del context
        askers = set(self._askers.values())
        return await self._ask_back(askers.pop() if len(askers) == 1 else None, params)

    async def _ask_back(self, asker: CallOrigin | None, params: object) -> Any:
        if asker is not None and isinstance(params, types.ElicitRequestFormParams):
            return await asyncio.to_thread(asker.elicit, self.server.name, params)
        if asker is not None and isinstance(params, types.CreateMessageRequestParams):
            return await asyncio.to_thread(asker.sample, self.server.name, params)
        if isinstance(params, types.ElicitRequestFormParams | types.ElicitRequestURLParams):
            return types.ElicitResult(action="decline")
        return types.ErrorData(code=types.INVALID_REQUEST, message="nobody can be asked")


async def _hold(live: LiveServer) -> None:
    """Enter and leave the SDK's client in one task, as its cancel scopes want it."""
    try:
        async with live.client:
            if not live.ready.done():
                live.ready.set_result(None)
            await live.ends.wait()
    except (MCPError, ValidationError, RuntimeError, OSError, ExceptionGroup) as error:
        if not live.ready.done():
            live.ready.set_exception(error)


_LISTS: Final = (
    ("tool", types.ListToolsRequest, types.ListToolsResult),
    ("prompt", types.ListPromptsRequest, types.ListPromptsResult),
)


def _progress_of(asker: CallOrigin) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        asker.progress(progress, total, show_text(message or "")[:_SAID_CHARS_MAX])

    return report


def _said_by(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _said_by(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, MCPError):
        return error.message
    if isinstance(error, RuntimeError):
        return str(error)
    return "its answer is none" if isinstance(error, ValidationError) else type(error).__name__


# A server's process as the SDK's pair of streams: each line a message, and a limit to each thing.
#
# Lines are heard in the thread of the server's own command, which waits where the loop does not
# keep up. What no server may say ends the server: an answer to nothing that was asked, a message
# over the limit, questions without end.
#
# Threat: a server is anybody's program. What it sends is endless, malformed, or for somebody else.

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
            self.close()

    def close(self) -> None:
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
