"""Ask the client's user by elicitation, in either protocol era.

Until 2025 the server asks while the call waits. In 2026 the server sends no requests to the
client: it answers the call with the question and keeps the request in the inbox. The client
repeats the call with the answer and a sealed state, which names the kept request and is
accepted once.
"""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from paddock import errors, limits
from paddock.errors import ApprovalExpiredError, ApprovalRefusedError, ApprovalUnavailableError
from paddock.gateway.definitions import show_text, show_values
from paddock.runtime.approvals import Approval, ApprovalRequest, question_of
from paddock.runtime.inbox import Inbox
from paddock.values.calls import Cancel, Json, ToolResult

if TYPE_CHECKING:
    from paddock.apps.mcp.agents import PolicySnapshot, ServedAgent

T = TypeVar("T")
R = TypeVar("R", bound=types.Result)

KEY: Final = "approval"
"""The key of the question in a result."""
ANSWERED_BEFORE: Final = (
    "the question was already answered, or it has expired; identical calls share one question, "
    "whose answer counts for one of them"
)
ASK_AGAIN: Final = "make the call again to ask again"


def yes_or_no(about: str) -> types.ElicitRequestedSchema:
    field = {"type": "boolean", "title": "Allow this once?", "description": about, "default": False}
    return {"type": "object", "properties": {"approve": field}, "required": ["approve"]}


_SCHEMA: Final = yes_or_no("Only this call, with its target's current content.")


class ClientCall(Struct, frozen=True):
    """A call of a client, whose user can be asked while it waits."""

    session: ServerSession
    request_id: types.RequestId | None
    loop: asyncio.AbstractEventLoop
    cancel: Cancel

    def elicit(
        self, message: str, schema: types.ElicitRequestedSchema
    ) -> types.ElicitResult | None:
        return self.wait(self.session.elicit_form(message, schema, self.request_id))

    def wait(self, asking: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer, or None if none comes in time. Called in the thread of the call."""
        future = asyncio.run_coroutine_threadsafe(asking, self.loop)
        forget = self.cancel.on_cancel(future.cancel)
        try:
            return future.result(limits.approval_timeout_s)
        except (TimeoutError, CancelledError, MCPError, NoBackChannelError, ValidationError):
            return None
        finally:
            future.cancel()
            forget()


class Unasked(Struct, frozen=True):
    """The approver for a client that does not support forms."""

    def answer(self, request: ApprovalRequest) -> Approval:
        said = "this client cannot be asked"
        return Approval(False, "client", ApprovalUnavailableError.code, said)


def can_be_asked(capabilities: types.ClientCapabilities | None) -> bool:
    """Return True if the client shows forms; an empty capability means that it does."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


class WaitingAsker(Struct, frozen=True):
    call: ClientCall
    name: str
    policy: "PolicySnapshot"

    def answer(self, request: ApprovalRequest) -> Approval:
        """Return the client's answer. A failure or timeout counts as no answer.

        Threat: the policy may have changed to deny the call while the question was open.
        """
        said = self.call.elicit(question_of(request), _SCHEMA)
        if said is None:
            note = f"the client gave no answer within {limits.approval_timeout_s:g} s"
            return Approval(False, self.name, ApprovalUnavailableError.code, note)
        approval = approval_of(said, self.name)
        if approval.is_granted and not self.policy.is_current:
            note = "the agent's policy or directories changed while the client was asked"
            return Approval(False, self.name, ApprovalExpiredError.code, note)
        return approval


class ReturnedAnswer(Struct, frozen=True):
    identity: str
    digest: str
    said: types.ElicitResult

    @classmethod
    def of(cls, state: str | None, said: object) -> "ReturnedAnswer | None":
        known = _opened(state)
        if "request" not in known or not isinstance(said, types.ElicitResult):
            return None
        return cls(known["request"], known["digest"], said)


def _opened(state: str | None) -> dict[str, Any]:
    """Decode a state. It is authentic, because the SDK has verified its seal."""
    return json.loads(state) if state else {}


class ReturningAsker:
    def __init__(self, inbox: Inbox, returned: ReturnedAnswer | None, name: str) -> None:
        self.returned = returned
        self.name = name
        self._inbox = inbox
        self._asked: ApprovalRequest | None = None

    def answer(self, request: ApprovalRequest) -> Approval:
        """Return the client's answer, if it is for this request and was not used before.

        Threat: the client can forge, keep and replay answers. The state is sealed. The request
        that it names is compared with this one and removed from the inbox when it is used.
        """
        returned = self.returned
        if not request.can_wait:
            note = "a network connection cannot wait until the client repeats the call"
            return Approval(False, self.name, ApprovalUnavailableError.code, note)
        if returned is None or returned.digest != request.digest:
            self._forget_superseded()
            self._asked = request
            return Approval(False, self.name, ApprovalUnavailableError.code, "the client is asked")
        approval = approval_of(returned.said, self.name)
        if approval.code == ApprovalUnavailableError.code:
            return approval
        approval = replace(approval, request_id=returned.identity)
        if not self._inbox.settle(request, approval):
            return Approval(
                False, self.name, ApprovalExpiredError.code, ANSWERED_BEFORE, hint=ASK_AGAIN
            )
        return approval

    def _forget_superseded(self) -> None:
        """Drop the answered question: the repeated call would now do something else."""
        returned = self.returned
        if returned is None:
            return
        for parked in self._inbox.list_all():
            if (parked.id, parked.request.digest) == (returned.identity, returned.digest):
                self._inbox.forget_waiting(parked.request)

    def question(
        self, result: ToolResult, more: dict[str, Any] | None
    ) -> types.InputRequiredResult | None:
        """Return the question for the client. `more`, an answer to a server, returns with it."""
        identity = result.details.get(KEY)
        if self._asked is None or not isinstance(identity, str):
            return None
        form = types.ElicitRequestFormParams(
            message=question_of(self._asked), requested_schema=_SCHEMA
        )
        state: dict[str, Any] = {"request": identity, "digest": self._asked.digest}
        if more:
            answers = to_jsonable_python(more["input_responses"], by_alias=True)
            state |= {_STATE: more["request_state"], "answers": answers}
        return types.InputRequiredResult(
            input_requests={KEY: types.ElicitRequest(params=form)}, request_state=json.dumps(state)
        )


def approval_of(said: types.ElicitResult, name: str) -> Approval:
    """Read a form. Only an explicit yes approves; a closed form is not an answer."""
    if said.action == "cancel":
        return Approval(
            False, name, ApprovalUnavailableError.code, "the question was closed without an answer"
        )
    approves = is_yes(said)
    return Approval(approves, name, "" if approves else ApprovalRefusedError.code)


def is_yes(said: types.ElicitResult) -> bool:
    return said.action == "accept" and (said.content or {}).get("approve") is True


# Servers behind the gateway: their resources, prompts and questions, as a client sees them.
#
# A server's question to a user goes to the client whose call the server handles, prefixed with the
# server's name. The client's model is asked only after the user agrees. In 2026 the call is
# answered with the server's question, and the client repeats it with the answer.

_STATE: Final = "mcp"
_LEAVE: Final = "Your model answers once, and the server receives the answer."
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
        refused = types.ErrorData(code=types.INVALID_REQUEST, message="the user did not allow it")
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
    """Threat: a server's question imitates one of Paddock or of the client."""
    return f"The MCP server {server} asks (not Paddock):\n{show_text(message)}"


Asking = (
    types.CallToolRequestParams | types.ReadResourceRequestParams | types.GetPromptRequestParams
)
"""Requests during which the user may be asked, by Paddock or by a server."""


def more_of(version: str | None, params: Asking) -> dict[str, Any] | None:
    """Return the answers that a 2026 call carries for its server; None in the earlier era."""
    if version not in MODERN_PROTOCOL_VERSIONS:
        return None
    kept = _opened(params.request_state)
    if _STATE not in kept:
        return {}
    answers = kept.get("answers", params.input_responses)
    return {"request_state": kept[_STATE], "input_responses": answers}


def input_required(server: str, result: ToolResult) -> types.InputRequiredResult | None:
    """Return the server's question, for a client that repeats the call with the answer."""
    said = result.details.get("input_required")
    if said is None:
        return None
    wanted = types.InputRequiredResult.model_validate(said)
    for each in (wanted.input_requests or {}).values():
        if not isinstance(each, types.ElicitRequest):
            # Threat: the server uses the client's model without the user's consent.
            raise MCPError(types.INVALID_REQUEST, "the server may only ask the user for input")
        each.params.message = asks(server, each.params.message)
    state = json.dumps({_STATE: wanted.request_state})
    return wanted.model_copy(update={"request_state": state})


# --- resources and prompts ------------------------------------------------------------------
#
# A resource is `SERVER+URI`, a prompt `SERVER__NAME`, so names of two servers never collide.


def list_resources(served: "ServedAgent") -> types.ListResourcesResult:
    return _listed(
        served, types.ListResourcesRequest, types.ListResourcesResult, "resources", "uri"
    )


def list_templates(served: "ServedAgent") -> types.ListResourceTemplatesResult:
    request, result = types.ListResourceTemplatesRequest, types.ListResourceTemplatesResult
    return _listed(served, request, result, "resource_templates", "uriTemplate")


def list_prompts(served: "ServedAgent") -> types.ListPromptsResult:
    prompts = [
        {**_shown(each.said), "name": f"{name}__{each.name}"}
        for name, each in served.runtime.servers().prompts()
    ]
    return types.ListPromptsResult.model_validate({"prompts": prompts})


def call_of(params: Asking) -> tuple[str, str, dict[str, Json]]:
    """Return the server's name, the tool to call, and its arguments."""
    if isinstance(params, types.CallToolRequestParams):
        return params.name.partition("__")[0], params.name, params.arguments or {}
    if isinstance(params, types.ReadResourceRequestParams):
        server, _, uri = str(params.uri).partition("+")
        return server, "mcp_read", {"server": server, "uri": uri}
    server, _, prompt = params.name.partition("__")
    arguments: dict[str, Json] = {**(params.arguments or {})}
    return server, "mcp_prompt", {"server": server, "name": prompt, "arguments": arguments}


def answer_to(
    params: Asking, result: ToolResult
) -> types.ReadResourceResult | types.GetPromptResult:
    blocks = _blocks(result)
    if isinstance(params, types.ReadResourceRequestParams):
        texts = (each.get("resource", {"text": each.get("text", "")}) for each in blocks)
        contents = [{**each, "uri": str(params.uri)} for each in texts]
        return types.ReadResourceResult.model_validate({"contents": contents})
    messages = [{"role": each.pop("role", "user"), "content": each} for each in blocks]
    return types.GetPromptResult.model_validate({"messages": messages})


def _blocks(result: ToolResult) -> list[dict[str, Any]]:
    """Raises: MCPError: the call was refused; these results have no field for that."""
    if result.refusal is not None:
        raise MCPError(types.INVALID_PARAMS, result.content)
    return [dict(each) for each in result.details["mcp"]["content"]]


def _listed(
    served: "ServedAgent", request: type[Any], result: type[R], member: str, named: str
) -> R:
    """List one kind of item of all servers, each name prefixed with its server's name."""
    servers = served.runtime.servers()
    listed: list[dict[str, Any]] = []
    for name in servers.names:
        # A server that is missing, or differs from its review, does not hide the others.
        with suppress(errors.ToolError):
            found = servers.listed(name, request, result, member)
            listed += ({**_shown(each), named: f"{name}+{each[named]}"} for each in found)
    return result.model_validate({member: listed}, by_name=True)


def _shown(said: dict[str, Any]) -> dict[str, Any]:
    return cast(
        "dict[str, Any]", show_values({key: each for key, each in said.items() if key != "_meta"})
    )
