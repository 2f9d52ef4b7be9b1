"""Use Paddock in the Claude Agent SDK: its tools in the process, and the hook's judgement.

    with PaddockServer(".") as server:
        ClaudeAgentOptions(
            mcp_servers={server.name: server.config}, can_use_tool=server.permission_callback()
        )

A permission callback judges the calls of built-in tools that the SDK's rules leave open. Calls that
policy leaves to a client's prompt become questions here, and are denied without an answer.
"""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, cast

from msgspec import Struct

from paddock.apps.hook.context import FullContext, open_context
from paddock.apps.hook.full import FullPorts, HookInput, answer_or_refuse
from paddock.apps.hook.lean import flow
from paddock.apps.hook.lean.records import decision_record
from paddock.apps.hook.lean.request import PROJECT_VARIABLE, HookEvent
from paddock.assembly.ledgers import HOOK_PACE, open_ledger
from paddock.assembly.project import new_session_id
from paddock.errors import ConfigError
from paddock.integrations import Opened
from paddock.plane.environment import process_variables
from paddock.plane.layout import LedgerName
from paddock.policy.compiled import ASK, DENY
from paddock.runtime.program import await_thread
from paddock.values.calls import Cancel, Json

_CLIENT = "claude"
_NO_APPROVER = "no approver can be reached here"
_NO_TYPE = (
    "the type of this sub-agent is not known, so the profile locked applies to it as well: "
    "pass agent_types to permission_callback"
)
NO_TYPES: Mapping[str, str] = MappingProxyType({})
"""For a program that names no types of sub-agents."""

Callback = Callable[[str, dict[str, Any], Any], Awaitable[Any]]
"""The SDK's `CanUseTool`: tool, input and context in, one of its two results out."""


class Permission(Struct, frozen=True):
    """`message` gives the model the reason; `updated_input` replaces the call's input."""

    behavior: Literal["allow", "ask", "deny"]
    message: str = ""
    updated_input: Mapping[str, Json] | None = None


class Requested(Struct, frozen=True):
    tool: str
    input: Mapping[str, Any]
    directory: str
    tool_use_id: str = ""
    agent_id: str = ""
    agent_type: str = ""
    """The sub-agent's type, which selects its profile. An unknown type is `locked`."""
    can_ask: bool = False
    session_id: str = ""
    """Of one client: its background commands share a network with the others."""


def _sdk() -> Any:
    try:
        return import_module("claude_agent_sdk")
    except ImportError:
        raise ConfigError(
            "the Claude Agent SDK is not installed", hint="pip install 'paddock[claude-agent-sdk]'"
        ) from None


class PaddockServer(Opened):
    """The tools of one agent as an MCP server in the process; `close` it at the end.

    Where policy asks, the `approver` among the open arguments answers, or the open runtime's.
    """

    name = "paddock"

    @property
    def config(self) -> Any:
        """The server's entry in `mcp_servers`. Raises: ConfigError without the SDK."""
        sdk = _sdk()
        tools = [
            sdk.SdkMcpTool(
                tool["name"],
                tool["description"],
                tool["inputSchema"],
                partial(self._call, tool["name"]),
                sdk.ToolAnnotations(**tool["annotations"]),
            )
            for tool in self.runtime.tools.for_provider("mcp")
        ]
        return sdk.create_sdk_mcp_server(self.name, tools=tools)

    @property
    def allowed_tools(self) -> list[str]:
        """The names that the client may call without a prompt, if there is no callback."""
        return [f"mcp__{self.name}__{tool.name}" for tool in self.runtime.tools.list_all()]

    def permission_callback(self, otherwise: Callback | None = None) -> Callback:
        """Return `permission_callback` for this workspace. Paddock's tools judge themselves."""
        own, judge = self.allowed_tools, permission_callback(self.runtime.root, otherwise)

        async def can_use_tool(tool: str, given: dict[str, Any], context: Any) -> Any:
            if tool in own:
                return _sdk().PermissionResultAllow()
            return await judge(tool, given, context)

        return can_use_tool

    async def _call(self, tool: str, given: dict[str, Any]) -> dict[str, Any]:
        result = await self.runtime.acall(tool, given)
        content = [{"type": "text", "text": result.content}]
        return {"content": content, "is_error": result.refusal is not None}


def permission_callback(
    directory: str | os.PathLike[str] = ".",
    otherwise: Callback | None = None,
    agent_types: Mapping[str, str] = NO_TYPES,
) -> Callback:
    """Return the SDK's `can_use_tool`, for a client that works in `directory`.

    `otherwise` is asked where policy asks or does not decide; without it those calls are denied.
    `agent_types` maps each sub-agent's id to its type: the SDK passes both only to a hook of
    SubagentStart. Any other sub-agent is `locked`. Raises: ConfigError without the SDK.
    """
    sdk = _sdk()
    start = os.path.abspath(directory)  # now: the program may change its own directory later
    session_id = new_session_id()

    async def can_use_tool(tool: str, given: dict[str, Any], context: Any) -> Any:
        agent_id = getattr(context, "agent_id", None) or ""
        said = await judge_permission(
            Requested(
                tool,
                given,
                start,
                tool_use_id=getattr(context, "tool_use_id", None) or "",
                agent_id=agent_id,
                agent_type=agent_types.get(agent_id, ""),
                can_ask=otherwise is not None,
                session_id=session_id,
            )
        )
        if said.behavior == "ask" and otherwise is not None:
            return _as_changed(await otherwise(tool, given, context), said)
        if said.behavior == "allow":
            changed = said.updated_input
            return sdk.PermissionResultAllow(
                updated_input=None if changed is None else dict(changed)
            )
        return sdk.PermissionResultDeny(message=said.message)

    return can_use_tool


def _as_changed(answer: Any, said: Permission) -> Any:
    is_yes = getattr(answer, "behavior", "") == "allow"
    if said.updated_input is not None and is_yes and answer.updated_input is None:
        answer.updated_input = dict(said.updated_input)
    return answer


async def judge_permission(requested: Requested) -> Permission:
    """Judge in a thread and record the decision. Any failure is a denial with the reason.

    A caller that cancels still waits for the end, which takes no longer than a hook call.
    """
    return await await_thread(partial(_judge, requested))


def _judge(requested: Requested, cancel: Cancel) -> Permission:
    del cancel  # The decision is short, and must be recorded.
    # The program names the client's directory; the program's own environment does not.
    variables = {k: v for k, v in process_variables().items() if k != PROJECT_VARIABLE}
    # Not resolved: a symlink is another name of the project, and is judged as such.
    directory = os.path.abspath(requested.directory)
    data = _event_of(requested, directory)
    given = HookInput(data, _CLIENT, variables, directory)
    decided = partial(_decide, requested)
    return answer_or_refuse(given, decided, lambda _, reason, __: Permission("deny", reason))


def _event_of(requested: Requested, directory: str) -> bytes:
    event = {
        "tool_name": requested.tool,
        "tool_input": requested.input,
        "tool_use_id": requested.tool_use_id,
        "agent_id": requested.agent_id,
        "agent_type": requested.agent_type,
        "cwd": directory,
        "session_id": requested.session_id,
    }
    try:
        return json.dumps(event).encode()
    except (TypeError, ValueError, RecursionError):
        return b""


def _decide(requested: Requested, event: HookEvent, given: HookInput, today: str) -> Permission:
    context = open_context(event, given.variables, given.directory, today)
    with closing(open_ledger(context.project, LedgerName.HO1M, HOOK_PACE)) as ledger:
        ports = FullPorts(ledger, context)
        judged = flow.judge_call(event, context, given.directory)
        said = _permission_for(judged, context, ports, requested)
        record = decision_record(event, judged.verdict, said.behavior, [], context.who)
        flow.note_enforcement(record, judged, is_confined=said.updated_input is not None)
        ports.append(record)
    return said


def _permission_for(
    judged: flow.LeanJudged, context: FullContext, ports: FullPorts, requested: Requested
) -> Permission:
    verdict = judged.verdict
    if verdict.outcome == DENY:
        no_type = _NO_TYPE if requested.agent_id and not requested.agent_type else ""
        lines = (verdict.reason, no_type, flow.scratch_hint_on(context))
        return Permission("deny", "\n".join(filter(None, lines)))
    is_asked = verdict.outcome == ASK or judged.wants_out
    reason = flow.WANTS_OUT if judged.wants_out else verdict.reason
    changed: dict[str, Json] | None = None
    if judged.directory and (requested.can_ask or not is_asked):
        updated = ports.wrap(judged, is_asked)
        changed = cast("dict[str, Json]", json.loads(updated)) if updated else None
    if not is_asked:
        is_command = judged.wanted.line is not None
        if changed is not None:
            return Permission("allow", "", changed)
        if verdict.is_granted and (not is_command or context.shell == "read"):
            return Permission("allow")
        if is_command and not judged.is_outside:
            reason = f"the command needs the sandbox, and cannot run there: {_why(context)}"
    if requested.can_ask:
        return Permission("ask", reason, changed)
    return Permission("deny", f"{reason} ({_NO_APPROVER})")


def _why(context: FullContext) -> str:
    return context.why_unconfined or "it starts outside the workspace"
