"""One server's connection: start it on first use, send requests, restart it after it ended.

Everything here runs in the gateway's event loop, except starting and ending a process.
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
"""Limit of input requests during one call."""
_BACK_OFF_S: Final = 0.5
_BACK_OFF_MAX_S: Final = 60.0
_WAITED_S: Final = 2.0
"""The longest wait of a call for a restart; beyond it the call fails and reports the time."""
_STEADY_S: Final = 60.0
"""A server that ran longer than this is restarted at once."""
_SAID_CHARS_MAX: Final = 2_000

_HINT: Final = "it may have done part of it: check before you call it again"


class CallOrigin(Protocol):
    """The caller, for requests that a server sends back. Each method blocks, in any thread."""

    more: dict[str, Any] | None
    """If the caller can only be asked by a call's result: its answers to an earlier request."""

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
    """Its definitions must be listed again before the next use."""
    version: str = ""
    """Its name, version and the packages fetched to run it, as far as they are known."""


class ServerConnection:
    def __init__(self, sandbox: ServerSandbox) -> None:
        self.server = sandbox.server
        self._sandbox = sandbox
        self._turn = asyncio.Lock()
        self._live: LiveServer | None = None
        self._failures = 0
        self._restart_s = 0.0
        self._callers: dict[object, CallOrigin | None] = {}

    # --- start and end --------------------------------------------------------------------

    async def live(self) -> LiveServer:
        """Return it running, with current definitions. Raises: SandboxUnavailableError."""
        live = self._live
        if live is None or live.is_stale or live.wire.why:
            # A cancelled caller must not leave a server half started: the next call uses it.
            live = await asyncio.shield(asyncio.ensure_future(self._make_ready()))
        return live

    async def _make_ready(self) -> LiveServer:
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
        wait_s = self._restart_s - time.monotonic()
        if wait_s > _WAITED_S:
            raise self._unavailable(f"it ended, and is restarted in {wait_s:.0f} s")
        await asyncio.sleep(max(0.0, wait_s))
        loop = asyncio.get_running_loop()
        wire = ServerWire(loop)
        try:
            await asyncio.to_thread(self._sandbox.start, wire)
        except PaddockError as error:
            wire.close()
            self._delay_restart(0.0)
            raise self._unavailable(error.message) from error
        client = Client(
            wire.opened(),
            read_timeout_seconds=limits.mcp_server_start_s,
            cache=None,
            client_info=types.Implementation(name="paddock", version=version("paddock")),
            elicitation_callback=self._on_server_request,
            sampling_callback=self._on_server_request,
            message_handler=self._on_message,
        )
        live = LiveServer(client, wire, loop.create_future(), asyncio.Event(), time.monotonic())
        live.task = asyncio.create_task(_hold(live))
        try:
            async with asyncio.timeout(limits.mcp_server_start_s):
                await live.ready
        except (MCPError, ValidationError, RuntimeError, TimeoutError, ExceptionGroup) as error:
            why = wire.why or _describe(error)
            await self._stop(live)
            self._delay_restart(0.0)
            why = "; ".join(filter(None, (why, self._sandbox.explain_end())))
            raise self._unavailable(f"it does not answer as an MCP server: {why}") from error
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
        self._delay_restart(time.monotonic() - live.began_s)
        await self._stop(live)

    async def _stop(self, live: LiveServer) -> None:
        # `hear` may wait for room in the queue, which is no longer read: `why` ends its wait.
        live.wire.why = live.wire.why or "it was ended"
        live.ends.set()
        await asyncio.to_thread(self._sandbox.end, live.wire)
        if live.task is not None:
            await asyncio.wait([live.task], timeout=5.0)
            live.task.cancel()

    def _delay_restart(self, lived_s: float) -> None:
        self._failures = 0 if lived_s > _STEADY_S else self._failures + 1
        wait_s = min(_BACK_OFF_MAX_S, _BACK_OFF_S * 2 ** min(self._failures - 1, 10))
        self._restart_s = time.monotonic() + (wait_s if self._failures else 0.0)

    def _unavailable(self, why: str) -> SandboxUnavailableError:
        name = quote(self.server.name)
        return SandboxUnavailableError(
            f"the MCP server {name} is not available: {cut(show_text(why), _SAID_CHARS_MAX)}",
            hint="nothing was done; try again later, or use other tools",
        )

    # --- definitions ----------------------------------------------------------------------

    async def _list(self, live: LiveServer) -> None:
        live.is_stale = False
        found: dict[str, Definition] = {}
        try:
            for kind, request, result in _LISTS:
                if getattr(live.client.server_capabilities, f"{kind}s") is not None:
                    for each in await self.pages(live, request, result, f"{kind}s"):
                        found[f"{kind} {each['name']}"] = Definition(kind, each["name"], each)
        except (MCPError, ValidationError, RuntimeError) as error:
            live.wire.why = live.wire.why or f"it does not list its tools: {_describe(error)}"
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
        raise RuntimeError("the list is endless")

    async def _on_message(self, message: object) -> None:
        if isinstance(
            message, types.ToolListChangedNotification | types.PromptListChangedNotification
        ) and (self._live is not None):
            self._live.is_stale = True

    # --- requests to it -------------------------------------------------------------------

    async def ask(
        self,
        live: LiveServer,
        request: Callable[[dict[str, Any]], types.Request[Any, Any]],
        result: TypeAdapter[Any],
        caller: CallOrigin | None,
    ) -> Any:
        """Return its answer; the caller may cancel. Raises: ToolFailedError.

        `request` gets the input that the server asked for in an earlier answer, if any.
        """
        key, began_s = object(), time.monotonic()
        self._callers[key] = caller
        more: dict[str, Any] = {} if caller is None else caller.more or {}
        returns = caller is not None and caller.more is not None
        try:
            for _ in range(_ROUNDS_MAX):
                answer = await live.client.session.send_request(
                    request(more),
                    result,
                    request_read_timeout_seconds=limits.mcp_server_call_s,
                    progress_callback=None if caller is None else _progress_of(caller),
                )
                if returns or not isinstance(answer, types.InputRequiredResult):
                    return answer
                more = {
                    "request_state": answer.request_state,
                    "input_responses": await self._inputs(answer, caller),
                }
            raise self._failed("it asks for input too many times")
        except MCPError as error:
            if error.code == types.REQUEST_TIMEOUT and live.wire.heard_s < began_s:
                live.wire.why = live.wire.why or "it hung"
            raise self._failed(live.wire.why or _describe(error)) from error
        except (ValidationError, RuntimeError) as error:
            raise self._failed(live.wire.why or _describe(error)) from error
        finally:
            del self._callers[key]

    async def _inputs(
        self, answer: types.InputRequiredResult, caller: CallOrigin | None
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, wanted in (answer.input_requests or {}).items():
            said = await self._ask_back(caller, wanted.params)
            if isinstance(said, types.ErrorData):
                raise self._failed(f"it asked for input that it did not get: {said.message}")
            found[name] = said
        return found

    def _failed(self, why: str) -> ToolFailedError:
        name = quote(self.server.name)
        said = cut(show_text(why), _SAID_CHARS_MAX)
        return ToolFailedError(f"the MCP server {name} failed: {said}", hint=_HINT)

    # --- requests from it -----------------------------------------------------------------

    async def _on_server_request(self, context: ClientRequestContext, params: Any) -> Any:
        """Ask the caller, if all running calls have the same one.

        Threat: a question for one person would reach another person who uses the same server.
        """
        del context
        callers = set(self._callers.values())
        return await self._ask_back(callers.pop() if len(callers) == 1 else None, params)

    async def _ask_back(self, caller: CallOrigin | None, params: object) -> Any:
        if caller is not None and isinstance(params, types.ElicitRequestFormParams):
            return await asyncio.to_thread(caller.elicit, self.server.name, params)
        if caller is not None and isinstance(params, types.CreateMessageRequestParams):
            return await asyncio.to_thread(caller.sample, self.server.name, params)
        if isinstance(params, types.ElicitRequestFormParams | types.ElicitRequestURLParams):
            return types.ElicitResult(action="decline")
        return types.ErrorData(code=types.INVALID_REQUEST, message="no user can be asked")


async def _hold(live: LiveServer) -> None:
    """Enter and leave the SDK's client in one task, as its cancel scopes require."""
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


def _progress_of(caller: CallOrigin) -> ProgressFnT:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        caller.progress(progress, total, show_text(message or "")[:_SAID_CHARS_MAX])

    return report


def _describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return _describe(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, MCPError):
        return error.message
    if isinstance(error, RuntimeError):
        return str(error)
    return "invalid answer" if isinstance(error, ValidationError) else type(error).__name__


# A server's process as the SDK's pair of streams: each line is a message, and all is limited.
#
# Lines arrive in the thread of the server's command, which waits if the loop does not keep up. A
# server is ended for an answer without a request, a message over the limit, or endless requests.
#
# Threat: a server is untrusted. Its output may be endless, malformed, or meant for another request.

MESSAGE_BYTES_MAX: Final = 8_000_000
_UNREAD_MAX: Final = 64
"""Limit of messages that the loop has not read yet: then the server waits."""
_NOTICES_MAX: Final = 200
"""Notifications in one second; more are dropped."""
_DROPPED_MAX: Final = 20_000
_JUNK_MAX: Final = 1_000
"""Limit of lines that are not messages, such as a greeting on the wrong stream."""
_REQUESTS_MAX: Final = 16
"""Limit of the server's unanswered requests."""
_STDERR_BYTES_MAX: Final = 500
"""The tail of stderr to report when it ends."""
_SEND_S: Final = 10.0
_SEND_STEP_S: Final = 0.01


class _Head(Struct):
    """The fields that identify the kind of a message; the SDK parses the rest."""

    id: str | int | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    result: Raw | UnsetType = UNSET


_HEADS: Final = Decoder(_Head)


class _EndedError(HostError):
    """A server is ended because of its output."""


class ServerWire(ObjectStream[Any]):
    """The streams of one process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._put, self._got = anyio.create_memory_object_stream[SessionMessage | Exception](
            float("inf")
        )
        self._room = threading.Semaphore(_UNREAD_MAX)
        self._turn = asyncio.Lock()
        self._partial_line = bytearray()
        self._waiting: set[str | int] = set()
        """Ids of Paddock's unanswered requests."""
        self._server_requests: set[str | int] = set()
        self._second, self._notices, self._dropped, self._junk = 0.0, 0, 0, 0
        self._stderr_tail = b""
        self.process: Process | None = None
        self.heard_s = 0.0
        """Time of its last message."""
        self.why = ""
        """Why it was ended, or has ended; empty while it runs."""

    # --- output, in the thread of the server's command ----------------------------------

    def hear(self, name: Literal["stdout", "stderr"], chunk: bytes) -> None:
        """Handle a chunk of output. Raises: HostError: then the server is ended."""
        if name == "stderr":
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_BYTES_MAX:]
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._partial_line += line
            self._take(bytes(self._partial_line))
            self._partial_line.clear()
        self._partial_line += rest
        if len(self._partial_line) > MESSAGE_BYTES_MAX:
            self._end(f"it sent a message of more than {MESSAGE_BYTES_MAX} bytes")

    def ended(self) -> None:
        """Close the stream: the process has ended."""
        said = self._stderr_tail.decode("utf-8", "replace").strip()
        self.why = self.why or f"it has ended{f' with the error output: {said}' if said else ''}"
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
                self._end("it sends too many lines that are not messages")
            return
        self.heard_s = time.monotonic()
        if message is None:
            return
        while not self._room.acquire(timeout=1.0):
            if self.why:
                self._end(self.why)
        self._in_loop(self._post, SessionMessage(message))

    def _in_loop(self, act: Callable[..., None], *given: object) -> None:
        # If the gateway is closed, the loop and its readers are gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act, *given)

    def _post(self, message: SessionMessage) -> None:
        try:
            self._put.send_nowait(message)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._room.release()

    def _model_of(self, head: _Head) -> type[Any] | None:
        """Return the type of a message; None to drop it."""
        if head.method is UNSET:
            if head.id is UNSET or head.id is None or head.id not in self._waiting:
                # Threat: an answer before the request, a second one, or to another request.
                self._end("it sent an answer without a request")
            self._waiting.discard(head.id)
            return types.JSONRPCError if head.result is UNSET else types.JSONRPCResponse
        if head.id is UNSET:
            return types.JSONRPCNotification if self._has_room() else None
        is_full = len(self._server_requests) >= _REQUESTS_MAX
        if head.id is None or head.id in self._server_requests or is_full:
            self._end("it sends too many requests at once, or reuses an id")
        self._server_requests.add(head.id)
        return types.JSONRPCRequest

    def _has_room(self) -> bool:
        now = time.monotonic()
        if now - self._second > 1.0:
            self._second, self._notices = now, 0
        self._notices += 1
        self._dropped += self._notices > _NOTICES_MAX
        if self._dropped > _DROPPED_MAX:
            self._end("it sends too many notifications")
        return self._notices <= _NOTICES_MAX

    def _end(self, why: str) -> NoReturn:
        self.why = self.why or why
        raise _EndedError(why)

    # --- the SDK's side, in the loop ------------------------------------------------------

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Self, Self]]:
        """Act as the SDK's transport."""
        try:
            yield self, self
        finally:
            self.close()

    def close(self) -> None:
        self._got.close()
        self._put.close()

    async def aclose(self) -> None:
        """Do nothing: each direction ends with the process."""

    send_eof = aclose

    async def receive(self) -> SessionMessage | Exception:
        message = await self._got.receive()
        self._room.release()
        return message

    async def send(self, item: SessionMessage) -> None:
        """Raises: anyio.BrokenResourceError: the server has ended, or does not read."""
        sent = item.message
        if isinstance(sent, types.JSONRPCRequest):
            self._waiting.add(sent.id)
        elif isinstance(sent, types.JSONRPCResponse | types.JSONRPCError) and sent.id is not None:
            self._server_requests.discard(sent.id)
        line = sent.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
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
                self.why = "it does not read its input"
            await asyncio.sleep(_SEND_STEP_S)
        raise anyio.BrokenResourceError
