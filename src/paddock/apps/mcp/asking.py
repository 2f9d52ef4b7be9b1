"""Asking a client's person: an elicitation, in the way of either protocol era.

Until 2025 the server asks while the call waits. In 2026 nothing goes from server to
client: the call is answered with the question, kept in the inbox, and the client makes
it again with the answer and a state that was sealed for it. The state names the kept
request; of any number of times that it comes back, one counts.
"""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import mcp_types as types
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError, NoBackChannelError
from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from paddock import limits
from paddock.errors import ApprovalExpiredError, ApprovalRefusedError, ApprovalUnavailableError
from paddock.runtime.approvals import Approval, ApprovalRequest, question_of
from paddock.runtime.inbox import Inbox
from paddock.text.show import show_name
from paddock.values.calls import Cancel, ToolResult

if TYPE_CHECKING:
    from paddock.apps.mcp.served import SeenGovernance

T = TypeVar("T")

KEY: Final = "approval"
"""Of the one question in a result that asks."""
ANSWERED_BEFORE: Final = (
    "the question was answered before, or its time is over; for calls that are the same it is "
    "one question, and an answer to it is for one of them"
)
ASK_ANEW: Final = "make the call again, and it is asked about anew"
_NAME_CHARS_MAX: Final = 80


def yes_or_no(about: str) -> types.ElicitRequestedSchema:
    field = {"type": "boolean", "title": "Allow this once?", "description": about, "default": False}
    return {"type": "object", "properties": {"approve": field}, "required": ["approve"]}


_SCHEMA: Final = yes_or_no("Only this very call, with what stands at its target now.")


class ClientCall(Struct, frozen=True):
    """A call of a client, whose person can be asked while it waits."""

    session: ServerSession
    request_id: types.RequestId | None
    loop: asyncio.AbstractEventLoop
    cancel: Cancel

    def elicit(
        self, message: str, schema: types.ElicitRequestedSchema
    ) -> types.ElicitResult | None:
        return self.wait(self.session.elicit_form(message, schema, self.request_id))

    def wait(self, asking: Coroutine[Any, Any, T]) -> T | None:
        """Return the answer, None where none comes in time. Called in the thread of the call."""
        future = asyncio.run_coroutine_threadsafe(asking, self.loop)

        def stop() -> None:
            future.cancel()

        forget = self.cancel.on_cancel(stop)
        try:
            return future.result(limits.approval_timeout_s)
        except (TimeoutError, CancelledError, MCPError, NoBackChannelError, ValidationError):
            return None
        finally:
            stop()
            forget()


class Unasked(Struct, frozen=True):
    """A client that shows no forms."""

    def answer(self, request: ApprovalRequest) -> Approval:
        said = "this client cannot be asked"
        return Approval(False, "client", ApprovalUnavailableError.code, said)


def can_be_asked(capabilities: types.ClientCapabilities | None) -> bool:
    """Whether the client shows forms: an empty capability means that it does."""
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def client_name(name: str) -> str:
    """Who answers, for the ledger: what the client calls itself, which is a claim."""
    return f"client {show_name(name[:_NAME_CHARS_MAX])}".rstrip()


class WaitingAsker(Struct, frozen=True):
    call: ClientCall
    name: str
    policy: "SeenGovernance"

    def answer(self, request: ApprovalRequest) -> Approval:
        """The client's answer within the time limit; a failure on the way is none.

        Threat: while the question was open, somebody may have forbidden what it is about.
        """
        said = self.call.elicit(question_of(request), _SCHEMA)
        if said is None:
            note = f"the client gave no answer within {limits.approval_timeout_s:g} s"
            return Approval(False, self.name, ApprovalUnavailableError.code, note)
        approval = approval_of(said, self.name)
        if approval.is_granted and not self.policy.governs:
            note = "what governs the agent changed while it was asked"
            return Approval(False, self.name, ApprovalExpiredError.code, note)
        return approval


class Returned(Struct, frozen=True):
    identity: str
    digest: str
    said: types.ElicitResult

    @classmethod
    def of(cls, state: str | None, said: object) -> "Returned | None":
        if state is None or not isinstance(said, types.ElicitResult):
            return None
        fields = cast("object", json.loads(state))
        if not isinstance(fields, dict):
            return None
        known = cast("dict[str, object]", fields)
        return cls(str(known.get("request")), str(known.get("digest")), said)


class ReturningAsker:
    def __init__(self, inbox: Inbox, returned: Returned | None, name: str) -> None:
        self.returned = returned
        self.name = name
        self._inbox = inbox
        self._asked: ApprovalRequest | None = None

    def answer(self, request: ApprovalRequest) -> Approval:
        """The answer that came back, if it is for exactly this and was not used before.

        Threat: whatever comes back is the client's to forge, keep and send again. The state is
        sealed; what it names is looked up, compared and taken from the inbox, where it stands once.
        """
        returned = self.returned
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
                False, self.name, ApprovalExpiredError.code, ANSWERED_BEFORE, hint=ASK_ANEW
            )
        return approval

    def _forget_superseded(self) -> None:
        """What was asked before and answered now: the call comes to something else by now."""
        returned = self.returned
        if returned is None:
            return
        for parked in self._inbox.list_all():
            if (parked.id, parked.request.digest) == (returned.identity, returned.digest):
                self._inbox.forget_waiting(parked.request)

    def question(self, result: ToolResult) -> types.InputRequiredResult | None:
        identity = result.details.get(KEY)
        if self._asked is None or not isinstance(identity, str):
            return None
        form = types.ElicitRequestFormParams(
            message=question_of(self._asked), requested_schema=_SCHEMA
        )
        state = json.dumps({"request": identity, "digest": self._asked.digest})
        return types.InputRequiredResult(
            input_requests={KEY: types.ElicitRequest(params=form)}, request_state=state
        )


def approval_of(said: types.ElicitResult, name: str) -> Approval:
    """What a form says: only an explicit yes is one, and a form that was closed is no answer."""
    if said.action == "cancel":
        return Approval(
            False, name, ApprovalUnavailableError.code, "the question was closed without an answer"
        )
    approves = is_yes(said)
    return Approval(approves, name, "" if approves else ApprovalRefusedError.code)


def is_yes(said: types.ElicitResult) -> bool:
    return said.action == "accept" and (said.content or {}).get("approve") is True
