"""Conversations as JSON and back: for sessions that are resumed, for digests and scripts."""

from collections.abc import Mapping
from typing import cast

from paddock.errors import ConfigError
from paddock.providers.wire import as_map, as_maps, as_text
from paddock.text.json import canonical_json
from paddock.text.show import quote
from paddock.values.calls import Json, Refusal
from paddock.values.entries import digest_of
from paddock.values.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    Native,
    ToolAnswer,
    ToolAnswers,
    ToolUse,
    UserMessage,
)


def message_as_json(message: Message) -> dict[str, Json]:
    """One message: `role` is `user`, `assistant` or `tools`."""
    if isinstance(message, UserMessage):
        return {"role": "user", "text": message.text}
    if isinstance(message, ToolAnswers):
        return {"role": "tools", "answers": [_answer_as_json(each) for each in message.answers]}
    shown: dict[str, Json] = {"role": "assistant", "text": message.text}
    if message.tool_calls:
        shown["tool_calls"] = [_call_as_json(call) for call in message.tool_calls]
    if message.native is not None:
        native = message.native
        shown["native"] = {"dialect": native.dialect, "blocks": list(native.blocks)}
    return shown


def message_from_json(value: Json, where: str) -> Message:
    """The message that `message_as_json` wrote; `where` says in which file and line it stands.

    Raises: ConfigError for anything else.
    """
    members = as_map(value)
    role = members.get("role")
    if role == "user":
        return UserMessage(_text(members, "text", where))
    if role == "tools":
        given = _objects(members, "answers", where)
        return ToolAnswers(tuple(_answer_from_json(each, where) for each in given))
    if role != "assistant":
        raise _unreadable(f"no message has the role {quote(role)}", where)
    calls = _objects(members, "tool_calls", where) if "tool_calls" in members else []
    native = as_map(members.get("native"))
    blocks: Json = native.get("blocks")
    return AssistantMessage(
        _text(members, "text", where),
        tuple(_call_from_json(call, where) for call in calls),
        Native(_text(native, "dialect", where), tuple(blocks)) if native else None,
    )


def _answer_as_json(answer: ToolAnswer) -> dict[str, Json]:
    return {
        "call_id": answer.call_id,
        "tool": answer.tool,
        "content": answer.content,
        "is_error": answer.is_error,
    }


def _answer_from_json(members: Mapping[str, Json], where: str) -> ToolAnswer:
    return ToolAnswer(
        _text(members, "call_id", where),
        _text(members, "tool", where),
        _text(members, "content", where),
        members.get("is_error") is True,
    )


def _call_as_json(call: ToolUse) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "id": call.id,
        "name": call.name,
        "arguments": dict(call.arguments),
        "raw": call.raw,
    }
    if call.problem is not None:
        problem = call.problem
        shown["problem"] = {
            "code": problem.code,
            "error": problem.error,
            "hint": problem.hint,
        }
    return shown


def _call_from_json(members: Mapping[str, Json], where: str) -> ToolUse:
    arguments: Json = members.get("arguments")
    if not isinstance(arguments, Mapping):
        raise _unreadable("a call's arguments are not an object", where)
    problem = as_map(members.get("problem"))
    return ToolUse(
        _text(members, "id", where),
        _text(members, "name", where),
        cast("Mapping[str, Json]", arguments),
        _problem(problem) if problem else None,
        as_text(members.get("raw")),
    )


def _problem(members: Mapping[str, Json]) -> Refusal:
    return Refusal(
        as_text(members.get("code")), as_text(members.get("error")), as_text(members.get("hint"))
    )


def _text(members: Mapping[str, Json], name: str, where: str) -> str:
    value = members.get(name)
    if not isinstance(value, str):
        raise _unreadable(f"{quote(name)} is not text", where)
    return value


def _objects(members: Mapping[str, Json], name: str, where: str) -> list[Mapping[str, Json]]:
    value: Json = members.get(name)
    if not isinstance(value, list):
        raise _unreadable(f"{quote(name)} is not a list", where)
    return as_maps(cast("list[Json]", value))


def _unreadable(what: str, where: str) -> ConfigError:
    return ConfigError(
        f"this is no message of a conversation: {what}",
        where=where,
        hint="it was written by something else, or changed",
    )


def request_as_json(request: ModelRequest) -> dict[str, Json]:
    shown: dict[str, Json] = {
        "system": request.system,
        "messages": [message_as_json(message) for message in request.messages],
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            }
            for tool in request.tools
        ],
        "max_output_tokens": request.max_output_tokens,
        "temperature": request.temperature,
    }
    if request.output is not None:
        shown["output"] = {"name": request.output.name, "schema": dict(request.output.schema)}
    return shown


def request_text(request: ModelRequest) -> str:
    """The request in one form."""
    return canonical_json(request_as_json(request))


def request_digest(request: ModelRequest) -> str:
    """`sha256:…` of the request: equal exactly for equal requests."""
    return digest_of(request_text(request).encode("utf-8", "surrogatepass"))
