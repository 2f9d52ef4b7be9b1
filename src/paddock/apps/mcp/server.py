"""Answer tools/list and tools/call, in both protocol eras."""

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field
from msgspec.structs import replace

from paddock import __version__, errors, limits
from paddock.apps.mcp import elicitation
from paddock.apps.mcp.agents import Agents, ServedAgent, settle_changes
from paddock.gateway.gateway import ASKER
from paddock.providers.failures import CancelToken
from paddock.runtime.prepared import Bounds
from paddock.runtime.question import InboxApprover
from paddock.sandbox.streams import LastLine
from paddock.text.json import json_name
from paddock.text.show import quote, show_name
from paddock.values.calls import Json, Refusal, ToolResult

# A slow call does not block others: each call runs in a thread, and the event loop runs no tool.
# A slot is released when the call has ended, not when its client disconnects.

T = TypeVar("T")

_PROGRESS_S: Final = 1.0
"""The interval of progress reports, to clients that request them."""


class Calls:
    def __init__(self, calls_max: int) -> None:
        self._places = anyio.CapacityLimiter(calls_max)

    async def run(
        self,
        work: Callable[[], T],
        cancel: CancelToken,
        session: ServerSession,
        printed: LastLine | None = None,
    ) -> T:
        """Run `work` in a thread. If the caller is cancelled, cancel `cancel` and await the thread.

        Threat: a client that cancels and calls again would leave commands running, more than the
        limit. `printed` is shown with the progress.
        """
        done: list[T] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, cancel, session, printed)
            # Not abandoned: a cancelled thread is awaited.
            done.append(await anyio.to_thread.run_sync(work, limiter=self._places))
            tasks.cancel_scope.cancel()
        return done[0]


async def _watch(cancel: CancelToken, session: ServerSession, printed: LastLine | None) -> None:
    seconds = 0
    try:
        while True:
            await anyio.sleep(_PROGRESS_S)
            seconds += 1
            line = printed.text if printed is not None else ""
            message = f"running for {seconds} s" + (f": {line}" if line else "")
            await session.report_progress(float(seconds), message=message)
    finally:
        # Also after the call is done, when it has no effect.
        cancel.cancel()


# By default the result is only text, which is written for the model: clients show an escaped
# `structuredContent` instead of it. With `paddock mcp --structured` that contains `content` and
# other short fields that the text does not contain. Host paths are never sent.

APPROVAL: Final = "approval"
"""The id of a request in the inbox."""
_TEXT_CHARS_MAX: Final = 120
_LEFT_OUT: Final = frozenset(
    {"success", "path", "to", "action", "error", "hint", "rule", "warnings"}
)
"""Repeated in `content`, or private to the host: `path` and `to` may be absolute."""


def structured(result: ToolResult) -> dict[str, Json]:
    shown: dict[str, Json] = {"status": result.status, "content": result.content}
    if result.refusal is not None:
        shown["code"] = result.refusal.code
    if APPROVAL in result.details:
        # A program cannot parse it from the text.
        shown[APPROVAL] = result.details[APPROVAL]
    for name, value in result.details.items():
        if name not in shown and name not in _LEFT_OUT and _is_short(value, result.content):
            shown[name] = value
    return shown


def call_result(result: ToolResult, *, is_structured: bool) -> types.CallToolResult:
    """A refused call is an error result, never a protocol error: the model can act on it."""
    others: Any = result.details.get("mcp", {})
    # The result's content already contains the text.
    blocks = [each for each in others.get("content", ()) if each["type"] != "text"]
    made = types.CallToolResult.model_validate({"content": blocks})
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content), *made.content],
        structured_content=structured(result) if is_structured else None,
        is_error=result.refusal is not None or bool(others.get("isError")),
    )


def _is_short(value: Json, content: str) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= _TEXT_CHARS_MAX and value not in content
    return isinstance(value, bool | int | float)


_NAME: Final = "paddock"
_NAME_CHARS_MAX: Final = 80
"""For a client's name in the ledger."""
_INSTRUCTIONS: Final = (
    "File, search and shell tools on one workspace. A policy decides every call; a refusal "
    "names its rule. Paths are relative to the workspace root."
)
_TOOLS_HINT: Final = "tools/list lists the tools"
_CLIENT_CALL_KEYS: Final = ("claudecode/toolUseId", "callId")
"""The fields in which clients send their id of the call, which their hooks get, too."""
_NO_STATE: Final = {"reason": "invalid_request_state"}
"""The SDK's error for a state that is forged, expired or from another call."""
_NOT_ANSWERED: Final = Refusal(
    errors.ApprovalExpiredError.code,
    "the answer does not count: it came after more than "
    f"{limits.approval_timeout_s:g} s, or without the state that was sent for this call",
    "make the call again without the answer to ask again",
)

Context = ServerRequestContext[Any, Any]


FindAgent = Callable[[], ServedAgent]
"""Finds the agent of a request from the transport alone, not from the request's content."""


class Handlers(Struct, frozen=True):
    find_agent: FindAgent
    calls: Calls
    is_structured: bool
    listed: dict[int, frozenset[str]] = field(default_factory=dict[int, frozenset[str]])
    """The tools that each client was shown; a client is notified when they change."""

    async def list_tools(
        self, context: Context | None, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del params
        # In a thread, because it may open the agent. It does not use the slots of calls.
        look = partial(_answered, self.find_agent, attrgetter("tools"))
        found: Mapping[str, types.Tool] | MCPError = await anyio.to_thread.run_sync(look)
        if isinstance(found, MCPError):
            raise found
        if context is not None:
            if len(self.listed) > limits.mcp_sessions_max:
                self.listed.clear()
            self.listed[id(context.session.client_params)] = frozenset(found)
        tools = found.values()
        if not self.is_structured:
            tools = [tool.model_copy(update={"output_schema": None}) for tool in tools]
        return types.ListToolsResult(tools=list(tools))

    async def call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        called = await self._call(context, params)
        if called.question is not None:
            return called.question
        await self._notify_of_changes(context.session, called.tools)
        return call_result(called.result, is_structured=self.is_structured)

    async def ask_others(self, context: Context, params: elicitation.Asking) -> HandlerResult:
        """Read a resource or a prompt of a server behind the gateway. Raises: MCPError."""
        called = await self._call(context, params)
        return called.question or elicitation.answer_to(params, called.result)

    async def _call(self, context: Context, params: elicitation.Asking) -> "Called":
        cancel, printed, loop = CancelToken(), LastLine(), asyncio.get_running_loop()
        bounds = Bounds(cancel=cancel, client_call=_client_call(context.params), on_output=printed)
        call = elicitation.ClientCall(context.session, context.request_id, loop, cancel)
        work = partial(_call_served, context, params, bounds, call)
        return await self._run(work, cancel, context.session, printed)

    async def list_others(
        self, work: Callable[[ServedAgent], T], context: Context, params: object
    ) -> T:
        """List the items of the servers behind the gateway. Raises: MCPError."""
        del params
        return await self._run(work, CancelToken(), context.session)

    async def _run(
        self,
        work: Callable[[ServedAgent], T],
        cancel: CancelToken,
        session: ServerSession,
        printed: LastLine | None = None,
    ) -> T:
        """Run `work` in a thread, under the agent's policy of that moment. Raises: MCPError."""
        found = await self.calls.run(
            partial(_answered, self.find_agent, work), cancel, session, printed
        )
        if isinstance(found, MCPError):
            raise found
        return found

    async def _notify_of_changes(self, session: ServerSession, names: frozenset[str]) -> None:
        """Notify a client whose list of tools has changed, for example by a review."""
        client = id(session.client_params)
        listed = self.listed.get(client, names)
        if listed != names:
            self.listed[client] = names
            with contextlib.suppress(NoBackChannelError):
                await session.send_tool_list_changed()

    async def refuse_unusable(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Record a call that the SDK refuses before a handler runs.

        Its arguments are not an object, or it answers a question too late or with an invalid
        state. Raises: MCPError: as `call_tool` and `call_next`.
        """
        params = ctx.params or {}
        given = cast("Json", params.get("arguments"))
        if ctx.method != "tools/call" or not isinstance(params.get("name"), str):
            return await call_next(ctx)
        if given is not None and not isinstance(given, dict):
            message = f"the arguments are {json_name(given)}, not an object"
            await self._refuse(ctx, Refusal(errors.InvalidArgumentsError.code, message))
            return await call_next(ctx)
        try:
            return await call_next(ctx)
        except MCPError as error:
            if error.data != _NO_STATE:
                raise
            refused = await self._refuse(ctx, _NOT_ANSWERED)
            if refused is None:
                raise
            return call_result(refused, is_structured=self.is_structured)

    async def _refuse(self, ctx: Context, refusal: Refusal) -> ToolResult | None:
        params = ctx.params or {}
        tool, bounds = str(params.get("name")), Bounds(client_call=_client_call(params))

        def refuse(served: ServedAgent) -> ToolResult | None:
            return served.runtime.refuse(tool, refusal, bounds) if tool in served.tools else None

        return await self._run(refuse, CancelToken(), ctx.session)


def make_server(find_agent: FindAgent, agents: Agents) -> Server[Any]:
    settings = agents.project.policy.settings.mcp
    handlers = Handlers(find_agent, Calls(settings.calls_max), agents.is_structured)
    others: dict[str, Any] = {
        "on_list_resources": partial(handlers.list_others, elicitation.list_resources),
        "on_list_resource_templates": partial(handlers.list_others, elicitation.list_templates),
        "on_read_resource": handlers.ask_others,
        "on_list_prompts": partial(handlers.list_others, elicitation.list_prompts),
        "on_get_prompt": handlers.ask_others,
    }
    server: Server[Any] = Server(
        _NAME,
        version=__version__,
        title="Paddock",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=lambda _: None,  # No argument is repeated in a header.
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        **(others if settings.servers else {}),
    )
    # The key exists only in this process: a state of an earlier process or of another server is
    # invalid. The time limit is the one of every approval.
    security = RequestStateSecurity.ephemeral(ttl=limits.approval_timeout_s)
    boundary = RequestStateBoundary(security, default_audience=_NAME)
    server.middleware = [handlers.refuse_unusable, boundary]
    return server


class Called(Struct, frozen=True):
    result: ToolResult
    question: types.InputRequiredResult | None
    tools: frozenset[str]


def _asker_for(
    context: Context, params: elicitation.Asking, call: elicitation.ClientCall, served: ServedAgent
) -> elicitation.Unasked | elicitation.WaitingAsker | elicitation.ReturningAsker:
    session = context.session
    if not elicitation.can_be_asked(session.client_capabilities):
        return elicitation.Unasked()
    client = session.client_params
    called = "" if client is None else client.client_info.name[:_NAME_CHARS_MAX]
    # The client chooses this name: it is not verified.
    name = f"client {show_name(called)}".rstrip()
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return elicitation.WaitingAsker(call, name, served.seen)
    said = (params.input_responses or {}).get(elicitation.KEY)
    returned = elicitation.ReturnedAnswer.of(params.request_state, said)
    return elicitation.ReturningAsker(served.inbox, returned, name)


def _answered(find_agent: FindAgent, work: Callable[[ServedAgent], T]) -> T | MCPError:
    """Run `work` under the current policy. Called in the call's thread, once it has a slot."""
    try:
        while True:
            served = find_agent()
            try:
                return work(served)
            except errors.UsageError:
                # In between, another call detected a changed policy and closed the runtime.
                if not served.runtime.is_closed:
                    raise
    except MCPError as error:
        return error
    except errors.PaddockError as error:
        # For example, the policy no longer loads: nothing is listed and nothing runs.
        return _not_served(error)
    except Exception as error:  # A defect is reported with an id, without a traceback.
        return _defect(error)


def _call_served(
    context: Context,
    params: elicitation.Asking,
    bounds: Bounds,
    call: elicitation.ClientCall,
    served: ServedAgent,
) -> Called:
    server, tool, arguments = elicitation.call_of(params)
    if tool not in served.tools:
        # Failed attempts are recorded, too.
        refusal = Refusal(errors.UnknownToolError.code, f"unknown tool {quote(tool)}", _TOOLS_HINT)
        served.runtime.refuse(tool, refusal)
        raise MCPError(
            code=types.INVALID_PARAMS, message=f"unknown tool {quote(tool)}; {_TOOLS_HINT}"
        )
    asker = _asker_for(context, params, call, served)
    more = elicitation.more_of(context.protocol_version, params)
    ASKER.set(elicitation.ClientOrigin(call, more))
    bounds = replace(bounds, approver=InboxApprover(asker, lambda: served.inbox))
    result, question = None, None
    if isinstance(asker, elicitation.ReturningAsker):
        result = settle_changes(served, asker, tool, arguments, bounds)
    if result is None:
        result = served.runtime.call(tool, arguments, bounds=bounds)
    if isinstance(asker, elicitation.ReturningAsker):
        question = asker.question(result, more)
    question = question or elicitation.input_required(server, result)
    return Called(result, question, frozenset(served.tools))


def _client_call(params: Mapping[str, Any] | None) -> str:
    """Return the client's id of the call, which is not verified."""
    meta = cast("object", (params or {}).get("_meta"))
    if not isinstance(meta, Mapping):
        return ""
    fields = cast("Mapping[str, object]", meta)
    named = (fields.get(key) for key in _CLIENT_CALL_KEYS)
    return next((value for value in named if isinstance(value, str)), "")


def _not_served(error: errors.PaddockError) -> MCPError:
    """Return the error for the client. Details for the operator, such as paths, go to stderr."""
    if isinstance(error, (errors.ToolError, errors.UsageError)):
        message = "; ".join(filter(None, [error.message, error.hint]))
    else:
        sys.stderr.write(f"paddock mcp: {error.render()}\n")
        message = "no call can run until the operator fixes the server; paddock doctor says more"
    return MCPError(code=types.INTERNAL_ERROR, message=f"error[{error.code}]: {message}")


def _defect(error: Exception) -> MCPError:
    """Report a defect: an id to the client, the traceback to the operator."""
    identity = os.urandom(6).hex()
    sys.stderr.write(f"paddock mcp: internal error {identity}\n")
    traceback.print_exception(error, file=sys.stderr)
    return MCPError(code=types.INTERNAL_ERROR, message=f"internal error {identity}")
