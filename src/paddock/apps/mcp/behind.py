"""The servers behind the gateway as a client meets them: resources, prompts, and what they ask.

What a server asks a person goes to the client whose call it is at work for, with the server's name
before it; a model of the client's is asked only after a person's yes. In 2026 nothing goes from
server to client: there a call is answered with what the server asks, and made again.
"""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from paddock import errors
from paddock.apps.mcp.asking import ClientCall, is_yes, yes_or_no
from paddock.apps.mcp.served import Served
from paddock.gateway.definitions import show_text, show_values
from paddock.runtime.prepared import Bounds
from paddock.values.calls import Json, ToolResult

_STATE: Final = "mcp"
_LEAVE: Final = "Your model answers once, and the server has what it says."
_SHOWN_CHARS_MAX: Final = 2_000


class ClientOrigin:
    """See `paddock.gateway.connection.CallOrigin`."""

    def __init__(self, call: ClientCall, more: dict[str, Any] | None) -> None:
        self._call, self.more = call, more

    def elicit(self, server: str, form: types.ElicitRequestFormParams) -> types.ElicitResult:
        if self.more is not None or not self._offers("elicitation"):
            return types.ElicitResult(action="decline")
        schema = cast("types.ElicitRequestedSchema", show_values(form.requested_schema))
        said = self._call.elicit(asks(server, form.message), schema)
        return said or types.ElicitResult(action="cancel")

    def sample(
        self, server: str, wanted: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        refused = types.ErrorData(code=types.INVALID_REQUEST, message="nobody allows it")
        if self.more is not None or not self._offers("sampling"):
            return refused
        said = json.dumps([each.model_dump(mode="json") for each in wanted.messages])
        question = f"wants to ask your model this:\n{said[:_SHOWN_CHARS_MAX]}"
        form = types.ElicitRequestFormParams(message=question, requested_schema=yes_or_no(_LEAVE))
        if not is_yes(self.elicit(server, form)):
            return refused
        asked = self._call.session.send_request(
            types.CreateMessageRequest(params=wanted),
            types.CreateMessageResult,
            metadata=ServerMessageMetadata(related_request_id=self._call.request_id),
        )
        return self._call.wait(asked) or refused

    def progress(self, done: float, total: float | None, message: str) -> None:
        report = self._call.session.report_progress(done, total, message)
        asyncio.run_coroutine_threadsafe(report, self._call.loop)

    def _offers(self, capability: str) -> bool:
        return getattr(self._call.session.client_capabilities, capability, None) is not None


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


def list_resources(params: object, bounds: Bounds, served: Served) -> types.ListResourcesResult:
    found = _listed(served, types.ListResourcesRequest, types.ListResourcesResult, "resources")
    named = [_named(name, "uri", each) for name, each in found]
    return types.ListResourcesResult.model_validate({"resources": named})


def list_templates(
    params: object, bounds: Bounds, served: Served
) -> types.ListResourceTemplatesResult:
    request, result = types.ListResourceTemplatesRequest, types.ListResourceTemplatesResult
    found = _listed(served, request, result, "resource_templates")
    named = [_named(name, "uriTemplate", each) for name, each in found]
    return result.model_validate({"resourceTemplates": named})


def list_prompts(params: object, bounds: Bounds, served: Served) -> types.ListPromptsResult:
    prompts = [
        {**_shown(each.said), "name": f"{name}__{each.name}"}
        for name, each in served.runtime.servers().prompts()
    ]
    return types.ListPromptsResult.model_validate({"prompts": prompts})


def read_resource(
    params: types.ReadResourceRequestParams, bounds: Bounds, served: Served
) -> types.ReadResourceResult:
    uri = str(params.uri)
    server, _, inner = uri.partition("+")
    result = served.runtime.call("mcp_read", {"server": server, "uri": inner}, bounds=bounds)
    contents = [_content_of(uri, each) for each in _blocks(result)]
    return types.ReadResourceResult.model_validate({"contents": contents})


def get_prompt(
    params: types.GetPromptRequestParams, bounds: Bounds, served: Served
) -> types.GetPromptResult:
    server, _, prompt = params.name.partition("__")
    arguments: dict[str, Json] = {**(params.arguments or {})}
    given: dict[str, Json] = {"server": server, "name": prompt, "arguments": arguments}
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
