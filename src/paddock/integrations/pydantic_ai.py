"""Use Paddock's tools as a toolset of Pydantic AI: `Agent(model, toolsets=[PaddockToolset(".")])`.

Where policy asks, the call is deferred (`DeferredToolRequests`). Its approval is valid only for the
request that was shown.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct
from pydantic_ai import RunContext, ToolDefinition, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from paddock.errors import ApprovalUnavailableError
from paddock.integrations import Opened, Root
from paddock.runtime.approvals import Approval, ApprovalRequest, question_of
from paddock.runtime.prepared import Bounds
from paddock.runtime.program import await_thread

DIGEST: Final = "paddock_digest"
"""In the metadata of a deferred call, beside `question`: the digest of the request."""
_BY: Final = "pydantic-ai"
_ANYTHING: Final = SchemaValidator(core_schema.dict_schema())
"""Paddock validates the arguments and reports errors, so the framework need not."""


class PaddockToolset(AbstractToolset[Any], Opened):
    """The tools of one agent on one workspace, for any number of runs; `close` it at the end.

    With an `approver` among the open arguments, it answers where policy asks, and no call is
    deferred. A refusal is a failed result, which the model reads. `ToolResult.details` becomes the
    metadata of the return.
    """

    def __init__(self, root: Root, *, id: str | None = None, **open_arguments: Any) -> None:  # noqa: A002 - the framework's name
        """`root` is a directory, for `paddock.open` with its arguments, or an open runtime."""
        super().__init__(root, **open_arguments)
        self._id = id
        self._defers = open_arguments.get("approver") is None
        self._asked: dict[str, str] = {}  # id of a deferred call → digest of its request

    @property
    def id(self) -> str | None:
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            tool["name"]: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool["name"],
                    description=tool["description"],
                    parameters_json_schema=tool["inputSchema"],
                    # As in Paddock's own turns: a write waits for earlier calls.
                    sequential=not tool["annotations"]["readOnlyHint"],
                ),
                max_retries=ctx.max_retries,
                args_validator=_ANYTHING,
            )
            for tool in self.runtime.tools.for_provider("mcp")
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run one governed call. Raises: ApprovalRequired, ToolFailed; as `Runtime.call`."""
        call_id = ctx.tool_call_id or ""
        answer = _Answer(self._approved(call_id, ctx) if ctx.tool_call_approved else "")
        approver = answer if self._defers else None
        result = await await_thread(
            lambda cancel: self.runtime.call(
                name, tool_args, call_id=call_id, bounds=Bounds(cancel=cancel, approver=approver)
            )
        )
        refusal, asked = result.refusal, answer.asked
        if refusal is None:
            return ToolReturn(result.content, metadata=dict(result.details))
        if asked is not None and refusal.code == ApprovalUnavailableError.code:
            self._asked[call_id] = asked.digest
            raise ApprovalRequired({DIGEST: asked.digest, "question": question_of(asked)})
        raise ToolFailed(result.content)

    def _approved(self, call_id: str, ctx: RunContext[Any]) -> str:
        """Return the approved digest; after a restart the program passes the metadata back."""
        remembered = self._asked.pop(call_id, "")
        metadata = cast("Mapping[str, object]", ctx.tool_call_metadata or {})
        return str(metadata.get(DIGEST, remembered))


class _Answer(Struct):
    """Approves the approved request, and keeps any other one as a question.

    Threat: a file, a symlink or the policy changes after the approval, or another call has the
    same id. The digest then differs, and the call is asked about again.
    """

    approved: str
    asked: ApprovalRequest | None = None

    def answer(self, request: ApprovalRequest) -> Approval:
        if request.digest == self.approved:
            return Approval(True, _BY)
        self.asked = request
        note = "the program is asked"
        return Approval(
            False, _BY, ApprovalUnavailableError.code, note, is_deferred=request.can_wait
        )
