"""Conversations as JSON and back: for sessions that are resumed, for digests and scripts."""

from msgspec import ValidationError, convert

from paddock.errors import ConfigError
from paddock.text.json import canonical_json
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.values.models import (
    Message,
    ModelRequest,
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
    """`where` is file and line, for messages. Raises: ConfigError."""
    try:
        return convert(value, Message)
    except (ValidationError, UnicodeEncodeError) as error:
        raise ConfigError(
            f"this is no message of a conversation: {error}",
            where=where,
            hint="it was written by something else, or changed",
        ) from None


def _answer_as_json(answer: ToolAnswer) -> dict[str, Json]:
    return {
        "call_id": answer.call_id,
        "tool": answer.tool,
        "content": answer.content,
        "is_error": answer.is_error,
    }


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
    return canonical_json(request_as_json(request))


def request_digest(request: ModelRequest) -> str:
    """`sha256:…` of the request: equal exactly for equal requests."""
    return digest_of(request_text(request).encode("utf-8", "surrogatepass"))
