"""One reply, in the words of each API: what a model's server would send.

`Said` is neutral; `WIRES` turns it into events of a stream or into a whole body.
"""

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct


class Call(Struct, frozen=True):
    """A call as the model writes it: its arguments are text, whole or not."""

    id: str
    name: str
    arguments: str = "{}"


class Said(Struct, frozen=True):
    """What the model says. `stop`: end, tool_use, max_tokens, refusal, filter, pause, or a
    word that is passed on as it is; None leaves the reason out."""

    text: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    stop: str | None = "end"
    usage: tuple[int, int, int, int] | None = (10, 5, 0, 0)
    reason: str = ""
    thinking: str = ""

    @property
    def whole_text(self) -> str:
        return "".join(self.text)


Event = tuple[str, Any]
"""Name (may be empty) and data."""


def calls(*wanted: tuple[str, dict], text: tuple[str, ...] = ()) -> Said:
    """A turn that asks for these calls: `("list_files", {"path": "."})`."""
    made = tuple(
        Call(f"call_{number}", name, json.dumps(arguments))
        for number, (name, arguments) in enumerate(wanted, start=1)
    )
    return Said(text, made, "tool_use")


def says(*pieces: str) -> Said:
    """A turn of plain text, in these pieces."""
    return Said(pieces)


# --- Anthropic Messages ---------------------------------------------------------

_ANTHROPIC_STOPS = {
    "end": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "filter": "refusal",
    "pause": "pause_turn",
    "context": "model_context_window_exceeded",
    "sequence": "stop_sequence",
}


def _anthropic_usage(said: Said) -> dict | None:
    if said.usage is None:
        return None
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens")
    return dict(zip((*names, "cache_creation_input_tokens"), said.usage, strict=True))


def _anthropic_end(said: Said) -> dict:
    stop = None if said.stop is None else _ANTHROPIC_STOPS.get(said.stop, said.stop)
    end: dict[str, Any] = {"stop_reason": stop, "stop_sequence": None}
    if said.reason:
        end["stop_details"] = {
            "type": "refusal",
            "category": "cyber",
            "explanation": said.reason,
        }
    return end


def _anthropic_start(said: Said) -> dict:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "test-model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def anthropic_events(said: Said) -> list[Event]:
    usage = _anthropic_usage(said)
    first = _anthropic_start(said) | ({} if usage is None else {"usage": usage})
    events: list[dict] = [{"type": "message_start", "message": first}]
    index = 0

    def block(start: dict, *deltas: dict) -> None:
        nonlocal index
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend(
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        )
        events.append({"type": "content_block_stop", "index": index})
        index += 1

    if said.thinking:
        block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": said.thinking},
            {"type": "signature_delta", "signature": "sig-of-the-server"},
        )
    if said.text:
        pieces = [{"type": "text_delta", "text": piece} for piece in said.text]
        block({"type": "text", "text": ""}, *pieces)
    for call in said.calls:
        half = len(call.arguments) // 2
        pieces = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in (call.arguments[:half], call.arguments[half:])
        ]
        block({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, *pieces)
    end = {"type": "message_delta", "delta": _anthropic_end(said)}
    if usage is not None:
        end["usage"] = {"output_tokens": usage["output_tokens"]}
    events += [end, {"type": "message_stop"}]
    return [(event["type"], event) for event in events]


def anthropic_whole(said: Said) -> dict:
    content: list[dict] = []
    if said.thinking:
        content.append(
            {"type": "thinking", "thinking": said.thinking, "signature": "sig-of-the-server"}
        )
    if said.text:
        content.append({"type": "text", "text": said.whole_text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _or_text(call.arguments)}
        for call in said.calls
    ]
    usage = _anthropic_usage(said)
    body = _anthropic_start(said) | {"content": content} | _anthropic_end(said)
    return body if usage is None else body | {"usage": usage}


def _or_text(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


# --- OpenAI Responses -------------------------------------------------------------


def responses_whole(said: Said) -> dict:
    output: list[dict] = []
    if said.thinking:
        output.append(
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": said.thinking}
        )
    parts: list[dict] = []
    if said.text:
        parts.append({"type": "output_text", "text": said.whole_text, "annotations": []})
    if said.stop == "refusal":
        parts.append({"type": "refusal", "refusal": said.reason or "no"})
    if parts:
        output.append(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": parts,
            }
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for number, call in enumerate(said.calls, start=1)
    ]
    body: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "model": "test-model",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "output": output,
    }
    incomplete = {"max_tokens": "max_output_tokens", "filter": "content_filter"}
    if said.stop in incomplete:
        body["status"] = "incomplete"
        body["incomplete_details"] = {"reason": incomplete[said.stop]}
    elif said.stop is None:
        del body["status"]
    elif said.stop not in {"end", "tool_use", "refusal"}:
        body["status"] = said.stop
    if said.usage is not None:
        plain, out, read, write = said.usage
        body["usage"] = {
            "input_tokens": plain + read + write,
            "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": plain + read + write + out,
        }
    return body


def responses_events(said: Said) -> list[Event]:
    body = responses_whole(said)
    start = body | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict] = [
        {"type": "response.created", "response": start},
        {"type": "response.in_progress", "response": start},
    ]
    for index, item in enumerate(body["output"]):
        events.append({"type": "response.output_item.added", "output_index": index, "item": {}})
        if item["type"] == "message":
            events.extend(
                {"type": "response.output_text.delta", "output_index": index, "delta": piece}
                for piece in said.text
            )
        if item["type"] == "function_call":
            events.append(
                {
                    "type": "response.function_call_arguments.delta",
                    "output_index": index,
                    "delta": item["arguments"],
                }
            )
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    last = "incomplete" if body.get("status") == "incomplete" else "completed"
    events.append({"type": f"response.{last}", "response": body})
    return [
        (event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)
    ]


# --- OpenAI Chat Completions --------------------------------------------------------

_CHAT_STOPS = {
    "end": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "filter": "content_filter",
    "refusal": "stop",
}


def _chat_usage(said: Said) -> dict | None:
    if said.usage is None:
        return None
    plain, out, read, write = said.usage
    return {
        "prompt_tokens": plain + read + write,
        "completion_tokens": out,
        "total_tokens": plain + read + write + out,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
    }


def _chat_call(call: Call) -> dict:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def chat_whole(said: Said) -> dict:
    message: dict[str, Any] = {"role": "assistant", "content": said.whole_text or None}
    if said.calls:
        message["tool_calls"] = [_chat_call(call) for call in said.calls]
    if said.stop == "refusal":
        message["refusal"] = said.reason or "no"
    stop = None if said.stop is None else _CHAT_STOPS.get(said.stop, said.stop)
    body = {
        "id": "chatcmpl_1",
        "object": "chat.completion",
        "created": 1,
        "model": "test-model",
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
    }
    usage = _chat_usage(said)
    return body if usage is None else body | {"usage": usage}


def chat_events(said: Said) -> list[Event]:
    base = {
        "id": "chatcmpl_1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "test-model",
    }

    def chunk(delta: dict, finish: str | None = None) -> Event:
        return ("", base | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": piece}) for piece in said.text]
    if said.stop == "refusal":
        events.append(chunk({"refusal": said.reason or "no"}))
    for index, call in enumerate(said.calls):
        half = len(call.arguments) // 2
        first = {"name": call.name, "arguments": call.arguments[:half]}
        events.append(
            chunk(
                {
                    "tool_calls": [
                        {"index": index, "id": call.id, "type": "function", "function": first}
                    ]
                }
            )
        )
        rest = {"arguments": call.arguments[half:]}
        events.append(chunk({"tool_calls": [{"index": index, "function": rest}]}))
    if said.stop is not None:
        events.append(chunk({}, _CHAT_STOPS.get(said.stop, said.stop)))
    usage = _chat_usage(said)
    if usage is not None:
        events.append(("", base | {"choices": [], "usage": usage}))
    return [*events, ("", "[DONE]")]


# --- which is which --------------------------------------------------------------


class Words(Struct, frozen=True):
    """One API: where it is asked, and how it says things."""

    path: str
    events: Callable[[Said], list[Event]]
    whole: Callable[[Said], dict]
    error: Callable[[str, str], dict]
    error_event: Callable[[str, str], Event]


def _anthropic_error(word: str, message: str) -> dict:
    return {"type": "error", "error": {"type": word, "message": message}, "request_id": "req_1"}


def _openai_error(word: str, message: str) -> dict:
    return {"error": {"type": word, "code": word, "message": message, "param": None}}


WIRES = {
    "anthropic": Words(
        "/v1/messages",
        anthropic_events,
        anthropic_whole,
        _anthropic_error,
        lambda word, message: ("error", _anthropic_error(word, message)),
    ),
    "responses": Words(
        "/v1/responses",
        responses_events,
        responses_whole,
        _openai_error,
        lambda word, message: (
            "error",
            {"type": "error", "code": word, "message": message, "param": None},
        ),
    ),
    "chat": Words(
        "/v1/chat/completions",
        chat_events,
        chat_whole,
        _openai_error,
        lambda word, message: ("", _openai_error(word, message)),
    ),
}
