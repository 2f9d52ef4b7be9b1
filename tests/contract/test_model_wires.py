"""Every provider behind an SDK keeps one contract, from the wire up to the turn.

The servers are on this machine and speak each vendor's API; the SDKs are the real ones.
"""

import json
import threading

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.providers.choice import open_provider
from paddock.providers.failures import CancelToken, FailureKind, ProviderError
from paddock.values.models import (
    AssistantMessage,
    ModelRequest,
    OutputSchema,
    Stop,
    ToolAnswer,
    ToolAnswers,
    ToolUse,
    Usage,
    UserMessage,
)
from tests.support.models import (
    CLASSIFY,
    KEY,
    LIST_FILES,
    READ_FILE,
    Listener,
    Waits,
    answered,
    asking,
    gateway,
    provider_for,
    settings_for,
)
from tests.support.wire_server import (
    Drop,
    Fail,
    FailInStream,
    Hang,
    Raw,
    Speak,
    WireServer,
)
from tests.support.wire_words import WIRES, Call, Said, calls, says

pytestmark = pytest.mark.loopback


@pytest.fixture(params=list(WIRES))
def wire(request):
    return request.param


@pytest.fixture(scope="module")
def running():
    with WireServer() as server:
        yield server


@pytest.fixture
def server(running):
    running.reset()
    return running


@pytest.fixture
def provider(wire, server):
    made = provider_for(wire, server.url)
    yield made
    made.close()


STREAMED = pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])


# --- turns ----------------------------------------------------------------------


@STREAMED
def test_plain_text_is_a_turn_that_ends(provider, server, streams):
    server.reply(Speak(says("Hello", ", ", "world"), streams=streams))

    turn = provider.route(asking())

    assert replace(turn, native=None, raw_ref="", stop_raw="") == replace(
        turn,
        text="Hello, world",
        tool_calls=(),
        structured=None,
        stop=Stop.END_TURN,
        usage=Usage(10, 5),
        model="test-model",
        native=None,
        raw_ref="",
        stop_raw="",
    )
    assert turn.raw_ref
    assert turn.stop_raw


@STREAMED
def test_calls_side_by_side_keep_their_order(provider, server, streams):
    said = calls(("list_files", {"path": "a"}), ("read_file", {"path": "b"}), text=("Look.",))
    server.reply(Speak(said, streams=streams))

    turn = provider.route(asking())

    assert turn.stop is Stop.TOOL_USE
    assert turn.text == "Look."
    assert turn.tool_calls == (
        ToolUse("call_1", "list_files", {"path": "a"}, None, '{"path": "a"}'),
        ToolUse("call_2", "read_file", {"path": "b"}, None, '{"path": "b"}'),
    )


def test_text_is_handed_over_while_it_arrives(provider, server):
    pieces = ("one ", "two ", "line\u2028separator ", "three")
    server.reply(Speak(says(*pieces)))
    listener = Listener()

    turn = provider.route(asking(), on_text=listener)

    assert listener.pieces == list(pieces)
    assert turn.text == "".join(pieces)


def test_text_that_comes_whole_is_handed_over_once(provider, server):
    server.reply(Speak(says("all of it"), streams=False))
    listener = Listener()

    provider.route(asking(), on_text=listener)

    assert listener.pieces == ["all of it"]


STOPS = [
    ("end", Stop.END_TURN),
    ("max_tokens", Stop.MAX_TOKENS),
    ("refusal", Stop.REFUSAL),
    ("something_new", Stop.UNKNOWN),
]


@STREAMED
@pytest.mark.parametrize(("said", "stop"), STOPS, ids=[said for said, _ in STOPS])
def test_every_reason_to_stop_has_its_name(provider, server, said, stop, streams):
    server.reply(Speak(Said(("text",), stop=said), streams=streams))

    turn = provider.route(asking())

    assert turn.stop is stop
    assert turn.text == "text"


@pytest.mark.parametrize(
    ("wire", "said", "stop"),
    [
        ("anthropic", "pause", Stop.PAUSE),
        ("anthropic", "context", Stop.CONTEXT_WINDOW),
        ("anthropic", "sequence", Stop.STOP_SEQUENCE),
        ("responses", "filter", Stop.CONTENT_FILTER),
        ("chat", "filter", Stop.CONTENT_FILTER),
    ],
)
def test_a_reason_that_only_some_have_is_known_by_them(provider, server, said, stop):
    server.reply(Speak(Said(("text",), stop=said)))

    assert provider.route(asking()).stop is stop


@STREAMED
def test_an_unknown_reason_is_kept_as_it_came(provider, server, streams):
    server.reply(Speak(Said(("text",), stop="brand_new"), streams=streams))

    turn = provider.route(asking())

    assert (turn.stop, turn.stop_raw) == (Stop.UNKNOWN, "brand_new")


def test_a_missing_reason_is_unknown(provider, server):
    server.reply(Speak(Said(("text",), stop=None), streams=False))

    turn = provider.route(asking())

    assert (turn.stop, turn.stop_raw) == (Stop.UNKNOWN, "")


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_a_stream_that_ends_without_a_reason_is_unknown(provider, server):
    server.say(Said(("text",), stop=None))

    turn = provider.route(asking())

    assert (turn.stop, turn.stop_raw, turn.text) == (Stop.UNKNOWN, "", "text")


@STREAMED
def test_a_refusal_keeps_its_reason(provider, server, streams):
    said = Said(("I ",), stop="refusal", reason="that would be harmful")
    server.reply(Speak(said, streams=streams))

    turn = provider.route(asking())

    assert turn.stop is Stop.REFUSAL
    assert "that would be harmful" in turn.stop_reason


def test_a_turn_with_calls_that_claims_to_be_an_end_has_calls(provider, server):
    said = replace(calls(("list_files", {})), stop="end")
    server.reply(Speak(said))

    assert provider.route(asking()).stop is Stop.TOOL_USE


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
def test_a_turn_that_claims_calls_and_has_none_is_unknown(provider, server):
    server.reply(Speak(Said(("text",), stop="tool_use")))

    assert provider.route(asking()).stop is Stop.UNKNOWN


# --- usage ------------------------------------------------------------------------


@STREAMED
def test_usage_counts_every_token_once(provider, server, streams):
    server.reply(Speak(Said(("x",), usage=(100, 20, 30, 7)), streams=streams))

    turn = provider.route(asking())

    assert turn.usage == Usage(100, 20, 30, 7)
    assert turn.usage_is_known


@STREAMED
def test_missing_usage_is_said_to_be_missing(provider, server, streams):
    server.reply(Speak(Said(("x",), usage=None), streams=streams))

    turn = provider.route(asking())

    assert (turn.usage, turn.usage_is_known) == (Usage(), False)


# --- arguments ---------------------------------------------------------------------


@STREAMED
def test_arguments_that_were_cut_are_a_problem_and_never_completed(provider, server, streams):
    cut = Call("call_1", "read_file", '{"path": "READ')
    server.reply(Speak(Said((), (cut,), "max_tokens"), streams=streams))

    turn = provider.route(asking())

    [call] = turn.tool_calls
    assert turn.stop is Stop.MAX_TOKENS
    assert (call.arguments, call.raw) == ({}, '{"path": "READ')
    assert call.problem.code == "args.invalid"


@pytest.mark.parametrize(
    "arguments",
    ['{"path": "a", "path": "b"}', "[1]", '"path"', '{"a": NaN}', "not json", "[" * 100_000],
    ids=["twice", "array", "text", "nan", "no json", "too deep"],
)
def test_arguments_that_can_not_be_read_are_a_problem(provider, server, arguments):
    server.say(Said((), (Call("call_1", "read_file", arguments),), "tool_use"))

    [call] = provider.route(asking()).tool_calls

    assert (call.arguments, call.problem.code) == ({}, "args.invalid")


@STREAMED
def test_no_arguments_at_all_are_none(provider, server, streams):
    server.reply(Speak(Said((), (Call("call_1", "list_files", ""),), "tool_use"), streams=streams))

    [call] = provider.route(asking()).tool_calls

    assert (call.arguments, call.problem) == ({}, None)


def test_calls_with_one_id_are_told_apart(provider, server):
    same = (Call("call_1", "list_files"), Call("call_1", "list_files"))
    server.say(Said((), same, "tool_use"))

    turn = provider.route(asking())

    assert [call.id for call in turn.tool_calls] == ["call_1", "call_1-2"]


def test_an_id_of_an_earlier_turn_is_not_used_again(provider, server):
    server.say(calls(("list_files", {})), calls(("list_files", {})))

    first = provider.route(asking())
    second = provider.route(answered(first))

    assert [call.id for call in (*first.tool_calls, *second.tool_calls)] == ["call_1", "call_1-2"]


def test_too_many_calls_are_refused(provider, server):
    many = tuple(Call(f"call_{number}", "list_files") for number in range(200))
    server.say(Said((), many, "tool_use"))

    with pytest.raises(ProviderError) as caught:
        provider.route(asking())

    assert caught.value.kind is FailureKind.TOO_LARGE


# --- the conversation ----------------------------------------------------------------


def test_the_whole_conversation_is_in_each_request(provider, server, wire):
    server.say(
        Said(("Look.",), (Call("call_1", "list_files", '{"path":"."}'),), "tool_use"), says("done")
    )
    turn = provider.route(asking(system="Be brief."))

    provider.route(answered(turn, "a.txt", is_error=True, system="Be brief."))

    assert conversation(wire, server.requests[1].body) == {
        "system": "Be brief.",
        "user": "what is here?",
        "text": "Look.",
        "call": ("call_1", "list_files", {"path": "."}),
        "result": ("call_1", "a.txt"),
    }


def conversation(wire: str, body: dict) -> dict:
    """What a request says, in no API's words."""
    if wire == "anthropic":
        user, own, results = body["messages"]
        text, call = own["content"]
        [result] = results["content"]
        assert result["is_error"] is True
        return {
            "system": body["system"],
            "user": user["content"][0]["text"],
            "text": text["text"],
            "call": (call["id"], call["name"], call["input"]),
            "result": (result["tool_use_id"], result["content"]),
        }
    if wire == "responses":
        user, own, call, result = body["input"]
        return {
            "system": body["instructions"],
            "user": user["content"],
            "text": own["content"][0]["text"],
            "call": (call["call_id"], call["name"], json.loads(call["arguments"])),
            "result": (result["call_id"], result["output"]),
        }
    system, user, own, result = body["messages"]
    [call] = own["tool_calls"]
    return {
        "system": system["content"],
        "user": user["content"],
        "text": own["content"],
        "call": (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])),
        "result": (result["tool_call_id"], result["content"]),
    }


@STREAMED
@pytest.mark.parametrize("wire", ["anthropic", "responses"])
def test_thinking_goes_back_unchanged(provider, server, wire, streams):
    said = replace(calls(("list_files", {})), thinking="secret thoughts")
    server.reply(Speak(said, streams=streams), Speak(says("done")))

    provider.route(answered(provider.route(asking())))

    sent = server.requests[1].body
    expected = {
        "anthropic": lambda: sent["messages"][1]["content"][0],
        "responses": lambda: sent["input"][1],
    }[wire]()
    assert (
        expected
        == {
            "anthropic": {
                "type": "thinking",
                "thinking": "secret thoughts",
                "signature": "sig-of-the-server",
            },
            "responses": {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "encrypted_content": "secret thoughts",
            },
        }[wire]
    )


def test_arguments_that_can_not_be_read_go_back_wrapped(provider, server, wire):
    server.say(Said((), (Call("call_1", "read_file", '{"path'),), "tool_use"), says("done"))
    turn = provider.route(asking())

    provider.route(answered(turn, is_error=True))

    sent = json.dumps(server.requests[1].body)
    assert "INVALID_JSON" in sent
    assert '{\\\\\\"path' in sent or '{\\"path' in sent


def test_a_turn_of_another_provider_is_written_anew(provider, server, wire):
    foreign = AssistantMessage("Look.", (ToolUse("call_1", "list_files", {"path": "."}),))
    server.say(says("done"))
    messages = (
        UserMessage("what is here?"),
        foreign,
        ToolAnswers((ToolAnswer("call_1", "list_files", "a.txt", is_error=True),)),
    )

    provider.route(ModelRequest(messages, system="Be brief.", tools=(LIST_FILES,)))

    body = server.requests[0].body
    if wire == "responses":
        body["input"][1]["content"] = [{"text": body["input"][1]["content"]}]
    assert conversation(wire, body)["call"] == ("call_1", "list_files", {"path": "."})


def test_tools_and_limits_are_said(provider, server, wire):
    server.say(says("done"))

    provider.route(asking(tools=(READ_FILE,), max_output_tokens=77))

    body = server.requests[0].body
    assert (server.requests[0].path, body["model"], body["stream"]) == (
        WIRES[wire].path,
        "test-model",
        True,
    )
    schema = dict(READ_FILE.parameters)
    expected = {
        "anthropic": {
            "name": "read_file",
            "description": READ_FILE.description,
            "input_schema": schema,
        },
        "responses": {
            "type": "function",
            "name": "read_file",
            "description": READ_FILE.description,
            "parameters": schema,
            "strict": False,
        },
        "chat": {
            "type": "function",
            "function": {
                "name": "read_file",
                "description": READ_FILE.description,
                "parameters": schema,
            },
        },
    }[wire]
    limit = {
        "anthropic": "max_tokens",
        "responses": "max_output_tokens",
        "chat": "max_tokens",
    }[wire]
    assert body["tools"] == [expected]
    assert body[limit] == 77


# --- structured output -----------------------------------------------------------------

FITS = {"speech_act": "question", "ambiguity": 0.5}


@STREAMED
def test_a_structured_answer_is_read_from_the_text(provider, server, streams):
    server.reply(Speak(says(json.dumps(FITS)), streams=streams))

    turn = provider.route(asking(tools=(), output=CLASSIFY))

    assert (turn.structured, turn.structured_problem) == (FITS, "")


def test_the_schema_is_sent_in_the_native_form(provider, server, wire):
    server.say(says(json.dumps(FITS)))

    provider.route(asking(tools=(), output=CLASSIFY))

    body = server.requests[0].body
    form = {
        "anthropic": lambda: body["output_config"]["format"],
        "responses": lambda: body["text"]["format"],
        "chat": lambda: body["response_format"],
    }[wire]()
    assert form["type"] == "json_schema"
    sent = form.get("json_schema", form)["schema"]
    assert sent["required"] == ["speech_act", "ambiguity"]
    assert sent["additionalProperties"] is False


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('{"speech_act": "question", "ambiguity": 2}', "greater than the maximum"),
        ('{"speech_act": "song", "ambiguity": 1}', "is not one of"),
        ('{"speech_act": "question"}', "required property"),
        ("I would rather talk", "not JSON"),
        ("", "not JSON"),
        ("[]", "not an object"),
    ],
)
def test_what_was_promised_is_checked_again(provider, server, answer, problem):
    server.say(says(answer))

    turn = provider.route(asking(tools=(), output=CLASSIFY))

    assert turn.structured is None
    assert problem in turn.structured_problem


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "brand_new"])
def test_a_turn_that_did_not_end_well_has_no_structured_answer(provider, server, stop):
    server.say(Said((json.dumps(FITS),), stop=stop))

    turn = provider.route(asking(tools=(), output=CLASSIFY))

    assert (turn.structured, turn.structured_problem) == (None, "")


def test_a_call_named_output_json_is_the_answer_where_no_tool_has_that_name(provider, server):
    server.say(calls(("output_json", FITS)))

    turn = provider.route(asking(output=CLASSIFY))

    assert (turn.structured, turn.tool_calls, turn.stop) == (FITS, (), Stop.END_TURN)


def test_a_tool_that_is_named_output_json_is_a_tool(provider, server):
    server.say(calls(("output_json", FITS)))

    turn = provider.route(asking(tools=(replace(LIST_FILES, name="output_json"),)))

    assert (turn.structured, turn.stop) == (None, Stop.TOOL_USE)
    assert [call.name for call in turn.tool_calls] == ["output_json"]


def test_the_answer_beside_a_real_call_does_not_hide_the_call(provider, server):
    server.say(calls(("output_json", FITS), ("list_files", {"path": "."})))

    turn = provider.route(asking(output=CLASSIFY))

    assert turn.stop is Stop.TOOL_USE
    assert [call.name for call in turn.tool_calls] == ["list_files"]
    assert turn.structured == FITS


def test_an_answer_as_a_call_goes_back_without_the_call(provider, server):
    server.say(calls(("output_json", FITS)), says("done"))
    turn = provider.route(asking(output=CLASSIFY))

    provider.route(ModelRequest((UserMessage("hi"), turn.message, UserMessage("more"))))

    sent = json.dumps(server.requests[1].body)
    assert "output_json" not in sent
    assert "speech_act" in sent


OPEN = OutputSchema("facts", {"type": "object", "additionalProperties": {"type": "string"}})


@pytest.mark.parametrize(
    ("wire", "output"), [("chat", CLASSIFY), ("anthropic", OPEN)], ids=["chat", "anthropic"]
)
def test_where_the_wire_can_not_hold_it_the_answer_comes_as_a_call(provider, server, wire, output):
    server.say(says("{}"), says("{}"))
    for _ in range(2):
        provider.route(asking(output=output))

    names = [issued(wire, request.body) for request in server.requests]

    assert len(set(names)) == 2
    assert all(name.startswith("answer_") for name in names)


def issued(wire: str, body: dict) -> str:
    tool = body["tools"][-1]
    assert not {"output_config", "response_format"} & body.keys()
    return tool["name"] if wire == "anthropic" else tool["function"]["name"]


def test_the_issued_name_is_the_answer_and_a_guessed_one_is_not(server):
    from paddock.providers.choice import Key
    from paddock.providers.client import Server
    from paddock.providers.openai import openai_provider

    at = Server(f"{server.url}/v1")
    provider = openai_provider("m", Key(KEY), at, "chat", issue=lambda: "answer_known")
    server.say(calls(("answer_known", FITS)), calls(("answer_guessed", FITS)))

    known = provider.route(asking(output=CLASSIFY))
    guessed = provider.route(asking(output=CLASSIFY))
    provider.close()

    assert (known.structured, known.tool_calls) == (FITS, ())
    assert (guessed.structured, guessed.tool_calls[0].name) == (None, "answer_guessed")


def test_a_schema_that_is_none_is_the_operators_error(provider, server):
    server.say(says("{}"))
    broken = OutputSchema(
        "broken",
        {
            "type": "object",
            "properties": {"a": {"type": "wrong"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    )

    with pytest.raises(ConfigError, match="'broken' cannot be used"):
        provider.route(asking(tools=(), output=broken))


# --- failures ------------------------------------------------------------------------------

HTTP = [
    (400, "invalid_request_error", FailureKind.REQUEST, False),
    (401, "authentication_error", FailureKind.KEY, False),
    (402, "billing_error", FailureKind.QUOTA, False),
    (403, "permission_error", FailureKind.PERMISSION, False),
    (404, "not_found_error", FailureKind.NOT_FOUND, False),
    (413, "request_too_large", FailureKind.TOO_LARGE, False),
    (429, "insufficient_quota", FailureKind.QUOTA, False),
    (418, "a_new_word", FailureKind.REQUEST, False),
    (429, "rate_limit_error", FailureKind.RATE_LIMITED, True),
    (408, "a_new_word", FailureKind.TIMEOUT, True),
    (500, "api_error", FailureKind.SERVER, True),
    (502, "a_new_word", FailureKind.SERVER, True),
    (503, "a_new_word", FailureKind.OVERLOADED, True),
    (529, "overloaded_error", FailureKind.OVERLOADED, True),
]


@pytest.mark.parametrize(
    ("status", "word", "kind", "is_transient"), HTTP, ids=[f"{row[0]} {row[1]}" for row in HTTP]
)
def test_an_http_error_is_named(provider, server, status, word, kind, is_transient):
    server.reply(Fail(status, word, "because"))

    with pytest.raises(ProviderError, match=f"answers {status}: .*because") as caught:
        provider.route(asking())

    failure = caught.value
    assert (failure.kind, failure.status, failure.is_transient) == (kind, status, is_transient)
    assert len(server.requests) == 1, "the SDK must not retry on its own"


def test_an_error_that_does_not_end_is_named_by_its_status(provider, server):
    server.reply(Raw(b"because " * 2_000_000, "text/plain", 503))

    with pytest.raises(ProviderError, match="answers 503: ") as caught:
        provider.route(asking())

    assert (caught.value.kind, len(str(caught.value)) < 1000) == (FailureKind.OVERLOADED, True)


BROKEN = {
    "empty stream": Raw(b""),
    "ended before the last event": Speak(says("Hel", "lo"), end_after=3),
    "done and nothing else": Raw(b"data: [DONE]\n\n"),
    "not json": Raw(b"event: message_start\ndata: {oops\n\n"),
    "not an object": Raw(b"data: [1]\n\n"),
    "not utf-8": Raw(b'data: {"a": "\xff"}\n\n'),
    "html": Raw(b"<html>gateway</html>", "text/html"),
    "whole and cut": Raw(b'{"id": "x", "choices": [', "application/json"),
    "whole and something else": Raw(b'{"hello": "world"}', "application/json"),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_none_is_broken(provider, server, reply):
    server.reply(reply)

    with pytest.raises(ProviderError) as caught:
        provider.route(asking())

    assert (caught.value.kind, caught.value.is_transient) == (FailureKind.BROKEN, True)


@pytest.mark.parametrize(
    "reply", [Drop(), Speak(says("Hel", "lo"), cut_after=3)], ids=["at once", "later"]
)
def test_a_connection_that_breaks_is_a_failure(provider, server, reply):
    server.reply(reply)

    with pytest.raises(ProviderError, match="the connection to .* failed") as caught:
        provider.route(asking())

    assert (caught.value.kind, caught.value.is_transient) == (FailureKind.CONNECTION, True)


def test_nobody_listening_is_a_failure(wire):
    with WireServer() as server:
        url = server.url
    provider = provider_for(wire, url)

    with pytest.raises(ProviderError) as caught:
        provider.route(asking())
    provider.close()

    assert caught.value.kind is FailureKind.CONNECTION
    assert "base_url" in caught.value.hint


def test_an_error_in_the_middle_of_a_stream_is_a_failure(provider, server):
    server.reply(FailInStream(says("Hel", "lo"), 3, "overloaded_error", "too much"))
    listener = Listener()

    with pytest.raises(ProviderError, match="too much") as caught:
        provider.route(asking(), on_text=listener)

    assert (caught.value.kind, caught.value.is_transient) == (FailureKind.OVERLOADED, True)


def test_a_redirect_is_not_followed(provider, server):
    with WireServer() as other:
        server.reply(Fail(307, headers=(("location", f"{other.url}/v1/messages"),)))

        with pytest.raises(ProviderError, match="answers 307"):
            provider.route(asking())

        assert other.requests == []


def test_text_that_no_wire_can_carry_is_a_refused_request(provider, server):
    with pytest.raises(ProviderError, match="surrogate") as caught:
        provider.route(asking("half \ud800"))

    assert (caught.value.kind, server.requests) == (FailureKind.REQUEST, [])


@STREAMED
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (("smile \ud83d", "\ude00!"), "smile \U0001f600!"),
        (("half \ud83d", " done"), "half \ufffd done"),
    ],
    ids=["split", "lone"],
)
def test_half_a_character_of_the_model_ends_no_conversation(
    provider, server, pieces, text, streams
):
    server.reply(Speak(says(*pieces), streams=streams), Speak(says("more")))

    turn = provider.route(asking())
    provider.route(ModelRequest((UserMessage("hello"), turn.message, UserMessage("go on"))))

    assert turn.text == text
    assert text in str(server.requests[1].body)


def test_arguments_with_half_a_character_are_a_problem_and_go_back(provider, server):
    given = '{"path": "x\\ud800y"}'
    server.say(Said((), (Call("call_1", "read_file", given),), "tool_use"), says("done"))

    turn = provider.route(asking())
    provider.route(answered(turn, is_error=True))

    (call,) = turn.tool_calls
    assert (call.arguments, call.raw) == ({}, given)
    assert call.problem is not None
    assert call.problem.error == "the arguments are text with half of a surrogate pair"
    assert "INVALID_JSON" in json.dumps(server.requests[1].body)


HIDDEN = {
    "ANTHROPIC_CUSTOM_HEADERS": "X-Gateway: SECRET\nAuthorization: Bearer SECRET\nX-Api-Key: SECRET",
    "OPENAI_CUSTOM_HEADERS": "X-Gateway: SECRET\nAuthorization: Bearer SECRET",
    "OPENAI_ORG_ID": "SECRET",
    "OPENAI_PROJECT_ID": "SECRET",
    "ANTHROPIC_AUTH_TOKEN": "SECRET",
}


@pytest.fixture
def ambient(monkeypatch):
    """What people keep in their environment for the address that they usually ask."""
    for name, value in HIDDEN.items():
        monkeypatch.setenv(name, value)


def test_an_address_of_a_configuration_gets_its_key_and_nothing_of_the_environment(
    ambient, wire, server
):
    server.say(says("ok"))
    provider = provider_for(wire, server.url)

    provider.route(asking())
    provider.close()

    (request,) = server.requests
    assert "SECRET" not in str(request.headers)
    assert KEY in str(request.headers)


def test_the_address_of_the_environment_gets_the_headers_of_the_environment(ambient, wire, server):
    server.say(says("ok"))
    named = settings_for(wire, server.url)
    address = {f"{named.provider.upper()}_BASE_URL": named.base_url}
    provider = open_provider(replace(named, base_url=""), {"TEST_KEY": KEY, **address})

    provider.route(asking())
    provider.close()

    (request,) = server.requests
    assert request.headers["x-gateway"] == "SECRET"


def test_a_key_that_the_server_repeats_is_not_in_the_error(provider, server):
    server.reply(Fail(401, "authentication_error", f"no such key: {KEY}"))

    with pytest.raises(ProviderError, match=r"no such key: \[key\]") as caught:
        provider.route(asking())

    assert KEY not in repr(caught.value) + str(caught.value.__dict__)
    assert caught.value.__cause__ is None
    assert KEY in "".join(server.requests[0].headers.values())


# --- retries, from the wire -------------------------------------------------------------------

FAILING = {
    "429": Fail(429, "rate_limit_error"),
    "500": Fail(500),
    "529": Fail(529, "overloaded_error"),
    "dropped": Drop(),
    "empty": Raw(b""),
    "cut": Speak(says("Hel", "lo"), cut_after=3),
    "ended early": Speak(says("Hel", "lo"), end_after=3),
    "error event": FailInStream(says("Hel", "lo"), 3),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_what_fails_on_the_way_is_asked_again(provider, server, failing):
    server.reply(failing, failing, Speak(says("Hello")))
    waits, listener = Waits(), Listener()

    turn = gateway(provider, waits).route(asking(), on_text=listener)

    assert (turn.text, turn.attempts) == ("Hello", 3)
    assert (listener.pieces, listener.restarts) == (["Hello"], 2)
    assert waits.seconds == [0.375, 0.75]
    assert [request.body for request in server.requests] == [server.requests[0].body] * 3


def test_a_refused_request_is_not_asked_again(provider, server):
    server.reply(Fail(400, "invalid_request_error"), Speak(says("never")))

    with pytest.raises(ProviderError):
        gateway(provider).route(asking())

    assert (len(server.requests), server.replies_left) == (1, 1)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ((("retry-after", "7"),), 7.25),
        ((("retry-after-ms", "1500"),), 1.75),
        (
            (
                ("date", "Fri, 20 Nov 2026 10:00:00 GMT"),
                ("retry-after", "Fri, 20 Nov 2026 10:00:09 GMT"),
            ),
            9.25,
        ),
        ((("retry-after", "soon"),), 0.375),
    ],
    ids=["seconds", "milliseconds", "date", "no time"],
)
def test_the_servers_own_time_is_waited_for(provider, server, headers, seconds):
    server.reply(Fail(429, "rate_limit_error", headers=headers), Speak(says("ok")))
    waits = Waits()

    gateway(provider, waits).route(asking())

    assert waits.seconds == [seconds]


def test_a_server_that_wants_to_be_left_alone_for_long_is(provider, server):
    server.reply(Fail(429, "rate_limit_error", headers=(("retry-after", "600"),)))
    waits = Waits()

    with pytest.raises(ProviderError) as caught:
        gateway(provider, waits).route(asking())

    assert (waits.seconds, caught.value.retry_after_s) == ([], 600.0)


def test_the_servers_word_on_retries_counts(provider, server):
    server.reply(
        Fail(500, headers=(("x-should-retry", "false"),)),
        Fail(400, headers=(("x-should-retry", "true"),)),
        Speak(says("ok")),
    )

    with pytest.raises(ProviderError):
        gateway(provider).route(asking())
    assert gateway(provider).route(asking()).text == "ok"


# --- cancel --------------------------------------------------------------------------------------


class CancelOnText(Listener):
    """Cancels with the first piece, as a person would who has read enough."""

    def __init__(self, token: CancelToken) -> None:
        super().__init__()
        self.token = token

    def text(self, piece: str) -> None:
        super().text(piece)
        self.token.cancel()


def test_cancelling_while_text_arrives_closes_the_connection(provider, server, wire):
    after = {"anthropic": 3, "responses": 4, "chat": 2}[wire]
    server.reply(Speak(says("Hel", "lo"), hold_after=after))
    token = CancelToken()
    listener = CancelOnText(token)

    turn = provider.route(asking(), on_text=listener, cancel=token)

    assert (turn.stop, turn.text, turn.tool_calls) == (Stop.CANCELLED, "Hel", ())
    assert turn.usage_is_known is False
    server.wait_for_hang_up()


def test_cancelling_before_a_byte_has_come_closes_the_connection(provider, server):
    server.reply(Hang())
    token = CancelToken()
    turns = []
    thread = threading.Thread(target=lambda: turns.append(provider.route(asking(), cancel=token)))

    thread.start()
    server.wait_for_request()
    token.cancel()
    thread.join()

    assert [turn.stop for turn in turns] == [Stop.CANCELLED]
    server.wait_for_hang_up()


def test_cancelling_one_exchange_leaves_the_others(provider, server):
    server.reply(Hang())
    token = CancelToken()
    thread = threading.Thread(target=provider.route, args=(asking(),), kwargs={"cancel": token})
    thread.start()
    server.wait_for_request()
    server.say(says("here"))

    turn = provider.route(asking())
    token.cancel()
    thread.join()

    assert turn.text == "here"


def test_a_sink_that_fails_ends_the_exchange(provider, server, wire):
    class Failing(Listener):
        def text(self, piece: str) -> None:
            raise BrokenPipeError

    after = {"anthropic": 3, "responses": 4, "chat": 2}[wire]
    server.reply(Speak(says("Hel", "lo"), hold_after=after))

    with pytest.raises(BrokenPipeError):
        provider.route(asking(), on_text=Failing())

    server.wait_for_hang_up()


def test_closing_ends_what_runs(wire, server):
    provider = provider_for(wire, server.url)
    server.reply(Hang())
    failures = []

    def ask() -> None:
        try:
            provider.route(asking())
        except ProviderError as failure:
            failures.append(failure.kind)

    thread = threading.Thread(target=ask)
    thread.start()
    server.wait_for_request()
    provider.close()
    thread.join()
    provider.close()

    assert failures == [FailureKind.REQUEST]
    with pytest.raises(ProviderError, match="closed"):
        provider.route(asking())


def test_exchanges_side_by_side_do_not_mix(provider, server):
    server.say(*(says(f"answer {number}") for number in range(12)))
    texts = []

    def ask() -> None:
        listener = Listener()
        turn = provider.route(asking(), on_text=listener)
        texts.append((turn.text, "".join(listener.pieces)))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(texts) == sorted((f"answer {n}", f"answer {n}") for n in range(12))
