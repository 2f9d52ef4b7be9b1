"""Calls whose arguments are not understood, or that are not whole, are read as such on every wire."""

import json

import pytest

from paddock.providers.anthropic import AnthropicWire, MessageAssembly
from paddock.providers.openai import COMPATIBLE, ChatAssembly, ChatWire, ResponsesWire
from paddock.values.calls import Refusal
from paddock.values.models import Stop, ToolUse
from tests.support.models import CLASSIFY, asking
from tests.support.wire_words import calls, chat_whole, responses_whole

PATH = {"path": "sub"}
TEXT = '{"path": "sub"}'
NOT_TEXT = [
    (PATH, "an object", TEXT),
    ({}, "an object", "{}"),
    (5, "an integer", "5"),
    (0, "an integer", "0"),
    (False, "a boolean", "false"),
    ([], "an array", "[]"),
]


def not_text(kind: str) -> Refusal:
    said = f"the arguments are {kind}, not text"
    return Refusal("args.invalid", said, "write the text of one JSON object")


def issue() -> str:
    return "answer_1"


CHAT = ChatWire("m", COMPATIBLE, issue)
RESPONSES = ResponsesWire("m")
ANTHROPIC = AnthropicWire("m", issue, {})


def read(wire, message, **asked):
    return wire.read(json.loads(json.dumps(message)), wire.prepare(asking(**asked)))


# --- Chat Completions ---------------------------------------------------------------


def chat(arguments, **more) -> dict:
    reply = chat_whole(calls(("list_files", PATH)))
    [choice] = reply["choices"]
    choice["message"] |= more
    choice["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    return reply


def chat_part(*arguments) -> dict:
    """The reply that is put together from one call's parts."""
    assembly = ChatAssembly()
    for number, piece in enumerate(arguments):
        function = {"name": "list_files"} if number == 0 else {}
        part = {"index": 0, "id": "call_1", "function": {**function, "arguments": piece}}
        assembly.feed({"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]})
    assembly.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return dict(assembly.message())


@pytest.mark.parametrize(("given", "kind", "raw"), NOT_TEXT)
@pytest.mark.parametrize("reply", [chat, chat_part], ids=["whole", "streamed"])
def test_arguments_that_are_no_text_are_no_call_without_arguments(reply, given, kind, raw):
    turn = read(CHAT, reply(given))

    assert turn.tool_calls == (ToolUse("call_1", "list_files", {}, not_text(kind), raw),)


@pytest.mark.parametrize("given", [None, "", "  "])
@pytest.mark.parametrize("reply", [chat, chat_part], ids=["whole", "streamed"])
def test_no_text_at_all_is_a_call_without_arguments(reply, given):
    [call] = read(CHAT, reply(given)).tool_calls

    assert (call.arguments, call.problem) == ({}, None)


def test_one_part_that_is_no_text_makes_all_of_them_unreadable():
    [cut] = read(CHAT, chat_part('{"path":', {"x": 1}, '"sub"}')).tool_calls
    [whole] = read(CHAT, chat_part('{"path": ', None, "", '"sub"}')).tool_calls

    assert cut == ToolUse(
        "call_1", "list_files", {}, not_text("an array"), '["{\\"path\\":", {"x": 1}, "\\"sub\\"}"]'
    )
    assert whole == ToolUse("call_1", "list_files", PATH, None, TEXT)


def test_a_function_that_is_no_object_holds_no_arguments_that_could_be_missing():
    reply = chat("")
    reply["choices"][0]["message"]["tool_calls"][0]["function"] = "list_files"

    [call] = read(CHAT, reply).tool_calls

    assert (call.name, call.problem) == ("", not_text("an array"))


def test_a_turn_that_was_declined_says_so_though_it_asks_for_calls():
    assert read(CHAT, chat(TEXT, refusal="no")).stop is Stop.REFUSAL
    assert read(CHAT, chat(TEXT, refusal="")).stop is Stop.TOOL_USE


def test_a_call_that_is_the_answer_and_no_text_is_no_answer():
    reply = chat({"speech_act": "question", "ambiguity": 0.5})
    reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = "output_json"

    turn = read(CHAT, reply, output=CLASSIFY, tools=())

    assert (turn.structured, turn.tool_calls) == (None, ())
    assert turn.structured_problem == "the answer is an object, not text"


# --- Responses ------------------------------------------------------------------------


def response(**members) -> dict:
    reply = responses_whole(calls(("list_files", PATH)))
    reply["output"][0] |= members
    return reply


@pytest.mark.parametrize(("given", "kind", "raw"), NOT_TEXT)
def test_arguments_of_a_response_that_are_no_text_are_unreadable(given, kind, raw):
    turn = read(RESPONSES, response(arguments=given))

    assert turn.tool_calls == (ToolUse("call_1", "list_files", {}, not_text(kind), raw),)


@pytest.mark.parametrize("status", ["incomplete", "in_progress", "brand_new", "", 5])
def test_a_call_that_is_not_whole_is_refused_though_its_response_is_complete(status):
    turn = read(RESPONSES, response(status=status))

    refusal = Refusal(
        "call.dropped",
        f"the call did not run: its status is '{status}'",
        "make the complete call again",
    )
    assert turn.tool_calls == (ToolUse("call_1", "list_files", {}, refusal, TEXT),)


@pytest.mark.parametrize("status", ["completed", None])
def test_a_call_that_is_whole_is_read(status):
    turn = read(RESPONSES, response(status=status))

    assert turn.tool_calls == (ToolUse("call_1", "list_files", PATH, None, TEXT),)


# --- Anthropic ------------------------------------------------------------------------


def streamed(*deltas: dict, kind: str = "tool_use") -> dict:
    """The message that is put together from one block's deltas."""
    block = {"type": kind, "id": "call_1", "name": "list_files", "input": {}}
    rows = [
        {"type": "message_start", "message": {"type": "message", "model": "m", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    assembly = MessageAssembly()
    for row in rows:
        assembly.feed(row)
    return dict(assembly.message())


def piece(given) -> dict:
    return {"type": "input_json_delta", "partial_json": given}


@pytest.mark.parametrize(("given", "kind", "raw"), NOT_TEXT)
def test_a_piece_of_the_arguments_that_is_no_text_makes_a_call_unreadable(given, kind, raw):
    [call] = read(ANTHROPIC, streamed(piece(given))).tool_calls

    assert call == ToolUse("call_1", "list_files", {}, not_text(kind), raw)


@pytest.mark.parametrize(
    "delta",
    [
        {"type": "new_json_delta", "x": TEXT},
        {"type": "text_delta", "text": TEXT},
        {"type": "citations_delta", "citation": {}},
        {},
    ],
    ids=["unknown", "text", "citation", "no type"],
)
def test_a_delta_that_is_none_of_a_calls_makes_the_call_unreadable(delta):
    turn = read(ANTHROPIC, streamed(piece(TEXT), delta))

    [call] = turn.tool_calls
    assert (call.arguments, call.problem) == ({}, not_text("an array"))
    assert turn.native is None


@pytest.mark.parametrize("deltas", [(), (piece(""),), (piece(None),)])
def test_a_call_without_a_piece_of_text_has_no_arguments(deltas):
    [call] = read(ANTHROPIC, streamed(*deltas)).tool_calls

    assert (call.arguments, call.problem) == ({}, None)


def test_pieces_of_text_are_a_calls_arguments():
    [call] = read(ANTHROPIC, streamed(piece('{"path":'), piece(' "sub"}'))).tool_calls

    assert call == ToolUse("call_1", "list_files", PATH, None, TEXT)


def test_a_delta_that_nobody_knows_in_another_block_leaves_the_calls_alone():
    message = streamed({"type": "new_delta"}, kind="server_tool_use")
    message["content"].append(streamed(piece(TEXT))["content"][0])

    [call] = read(ANTHROPIC, message).tool_calls

    assert call == ToolUse("call_1", "list_files", PATH, None, TEXT)
