"""The servers behind the gateway as a client meets them: resources, prompts, and what they ask.

What a server asks a person goes to the client whose call it is at work for, with the server's name
before it; a model of the client's is asked only after a person's yes. In 2026 nothing goes from
server to client: there a call is answered with what the server asks, and made again.
"""

import asyncio
import concurrent.futures
import json
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar, cast

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from paddock import errors, limits
from paddock.apps.mcp.served import Served
from paddock.gateway.definitions import show_text, show_values
from paddock.runtime.prepared import Bounds
from paddock.values.calls import Json, ToolResult

T = TypeVar("T")

_STATE: Final = "mcp"
_LEAVE: Final[types.ElicitRequestedSchema] = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Allow this once?", "default": False}},
    "required": ["approve"],
}
_SHOWN_CHARS_MAX: Final = 2_000


class ClientOrigin:
    """See `paddock.gateway.connection.CallOrigin`."""

    def __init__(
        self,
        session: ServerSession,
        request_id: types.RequestId | None,
        loop: asyncio.AbstractEventLoop,
        more: dict[str, Any] | None,
    ) -> None:
        self.more = more
        self._session, self._request_id, self._loop = session, request_id, loop
        self.has_progressed = False

    def elicit(self, server: str, form: types.ElicitRequestFormParams) -> types.ElicitResult:
        capabilities = self._session.client_capabilities
        if self.more is not None or capabilities is None or capabilities.elicitation is None:
            return types.ElicitResult(action="decline")
        message = asks(server, form.message)
        schema = cast("types.ElicitRequestedSchema", show_values(form.requested_schema))
        said = self._wait(self._session.elicit_form(message, schema, self._request_id))
        return said or types.ElicitResult(action="cancel")

    def sample(
        self, server: str, wanted: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        refused = types.ErrorData(code=types.INVALID_REQUEST, message="nobody allows it")
        capabilities = self._session.client_capabilities
        if self.more is not None or capabilities is None or capabilities.sampling is None:
            return refused
        said = json.dumps([each.model_dump(mode="json") for each in wanted.messages])
        question = f"wants to ask your model this:\n{said[:_SHOWN_CHARS_MAX]}"
        form = types.ElicitRequestFormParams(message=question, requested_schema=_LEAVE)
        answer = self.elicit(server, form)
        if answer.action != "accept" or (answer.content or {}).get("approve") is not True:
            return refused
        request = types.CreateMessageRequest(params=wanted)
        asking = self._session.send_request(
            request,
            types.CreateMessageResult,
            metadata=ServerMessageMetadata(related_request_id=self._request_id),
        )
        return self._wait(asking) or refused

    def progress(self, done: float, total: float | None, message: str) -> None:
        self.has_progressed = True
        report = self._session.report_progress(done, total, message)
        asyncio.run_coroutine_threadsafe(report, self._loop)

    def _wait(self, asking: Coroutine[Any, Any, T]) -> T | None:
        future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return future.result(limits.approval_timeout_s)
        except TimeoutError:
            future.cancel()
            return None
        except (MCPError, NoBackChannelError, ValidationError, concurrent.futures.CancelledError):
            return None


def asks(server: str, message: str) -> str:
    """Threat: a server's question that reads as one of ours, or of the client's own."""
    return f"The MCP server {server} asks (not Paddock):\n{show_text(message)}"


def more_of(version: str | None, params: types.CallToolRequestParams) -> dict[str, Any] | None:
    """Return what a call in the later era brings of what its server asked; None in the earlier."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        return None
    state: object = json.loads(params.request_state) if params.request_state else None
    if not isinstance(state, dict) or _STATE not in state:
        return {}
    kept = cast("dict[str, Any]", state)
    return {"request_state": kept[_STATE], "input_responses": params.input_responses}


def input_required(server: str, result: ToolResult) -> types.InputRequiredResult | None:
    """Return what a server asks before it goes on, for a client that makes the call again."""
    said = result.details.get("input_required")
    if said is None:
        return None
    wanted = types.InputRequiredResult.model_validate(said)
    for each in (wanted.input_requests or {}).values():
        if not isinstance(each, types.ElicitRequest):
            # Threat: a model asked without anybody's leave.
            raise MCPError(types.INVALID_REQUEST, "the server asks for what nobody allows")
        each.params.message = asks(server, each.params.message)
    state = json.dumps({_STATE: wanted.request_state})
    return wanted.model_copy(update={"request_state": state})


# --- resources and prompts ------------------------------------------------------------------
#
# A resource is `SERVER+URI`, a prompt `SERVER__NAME`: no two servers have one of the same name.


def list_resources(bounds: Bounds, served: Served) -> list[types.Resource]:
    found = _listed(served, types.ListResourcesRequest, types.ListResourcesResult, "resources")
    return [types.Resource.model_validate(_named(name, "uri", each)) for name, each in found]


def list_templates(bounds: Bounds, served: Served) -> list[types.ResourceTemplate]:
    request, result = types.ListResourceTemplatesRequest, types.ListResourceTemplatesResult
    found = _listed(served, request, result, "resource_templates")
    named = (_named(name, "uriTemplate", each) for name, each in found)
    return [types.ResourceTemplate.model_validate(each) for each in named]


def list_prompts(bounds: Bounds, served: Served) -> list[types.Prompt]:
    return [
        types.Prompt.model_validate({**_shown(each.said), "name": f"{name}__{each.name}"})
        for name, each in served.runtime.servers().prompts()
    ]


def read_resource(uri: str, bounds: Bounds, served: Served) -> types.ReadResourceResult:
    server, _, inner = uri.partition("+")
    result = served.runtime.call("mcp_read", {"server": server, "uri": inner}, bounds=bounds)
    contents = [_content_of(uri, each) for each in _blocks(result)]
    return types.ReadResourceResult.model_validate({"contents": contents})


def get_prompt(
    name: str, arguments: dict[str, str], bounds: Bounds, served: Served
) -> types.GetPromptResult:
    server, _, prompt = name.partition("__")
    given: dict[str, Json] = {"server": server, "name": prompt, "arguments": dict(arguments)}
    blocks = _blocks(served.runtime.call("mcp_prompt", given, bounds=bounds))
    messages = [{"role": each.pop("role", "user"), "content": each} for each in blocks]
    return types.GetPromptResult.model_validate({"messages": messages})


def _content_of(uri: str, block: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = block.get("resource", {"text": block.get("text", "")})
    return {**inner, "uri": uri}


def _blocks(result: ToolResult) -> list[dict[str, Any]]:
    """Raises: MCPError: it was refused; there is no other way to say so."""
    if result.refusal is not None:
        raise MCPError(types.INVALID_PARAMS, result.content)
    return [dict(each) for each in result.details["mcp"]["content"]]


def _listed(
    served: Served, request: type[Any], result: type[Any], member: str
) -> Iterable[tuple[str, dict[str, Any]]]:
    servers = served.runtime.servers()
    for name in servers.names:
        try:
            found = servers.listed(name, request, result, member)
        except errors.ToolError:
            # It is not there, or not as it was reviewed: the others are listed.
            continue
        yield from ((name, each) for each in found)


def _named(server: str, member: str, said: dict[str, Any]) -> dict[str, Any]:
    return {**_shown(said), member: f"{server}+{said[member]}"}


def _shown(said: dict[str, Any]) -> dict[str, Any]:
    return cast(
        "dict[str, Any]", show_values({key: each for key, each in said.items() if key != "_meta"})
    )
