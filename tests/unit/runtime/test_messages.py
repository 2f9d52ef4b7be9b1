"""Every provider's calls are read, and answered in its own words."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from paddock.errors import UsageError
from paddock.runtime.messages import Malformed, dialect_of
from paddock.values.calls import Refusal, ToolCall, ToolResult

CALL = ToolCall("c1", "view", {"path": "a"})
OK = ToolResult("c1", "view", "     1\ta")
NO = ToolResult("c2", "view", "error[path.not_found]: gone", {}, Refusal("path.not_found", "gone"))


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (
            "anthropic",
            {
                "content": [
                    {"type": "text", "text": "I will look."},
                    {"type": "tool_use", "id": "c1", "name": "view", "input": {"path": "a"}},
                ]
            },
        ),
        (
            "openai",
            {
                "tool_calls": [
                    {"id": "c1", "function": {"name": "view", "arguments": '{"path": "a"}'}}
                ]
            },
        ),
        (
            "openai-responses",
            {
                "output": [
                    {"type": "reasoning"},
                    {
                        "type": "function_call",
                        "call_id": "c1",
                        "name": "view",
                        "arguments": '{"path": "a"}',
                    },
                ]
            },
        ),
    ],
)
def test_calls_are_read_from_plain_messages(provider: str, message: object) -> None:
    assert dialect_of(provider).read(message) == [CALL]


def test_calls_are_read_from_an_sdks_own_objects() -> None:
    block = SimpleNamespace(type="tool_use", id="c1", name="view", input={"path": "a"})
    assert dialect_of("anthropic").read(SimpleNamespace(content=[block])) == [CALL]


@pytest.mark.parametrize("message", [{"content": "text only"}, {"content": None}])
def test_a_message_without_calls_has_none(message: object) -> None:
    assert dialect_of("anthropic").read(message) == []
    assert dialect_of("openai").read(message) == []


WHOLE = '{"path": "a"}'


@pytest.mark.parametrize("kind", [list, tuple, deque, iter])
def test_calls_are_found_in_whatever_holds_them(kind: Callable[[list[object]], object]) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "view", "input": {"path": "a"}}
    item = {"type": "function_call", "call_id": "c1", "name": "view", "arguments": WHOLE}
    called = {"id": "c1", "function": {"name": "view", "arguments": WHOLE}}
    expected = [ToolCall("c1", "view", {"path": "a"})]
    assert dialect_of("anthropic").read({"content": kind([block])}) == expected
    assert dialect_of("openai").read({"tool_calls": kind([called])}) == expected
    assert dialect_of("openai-responses").read({"output": kind([item])}) == expected


@pytest.mark.parametrize("identity", [7, ["c1"], {}])
def test_an_id_that_no_answer_could_carry_is_said_and_nothing_is_read(identity: object) -> None:
    block = {"type": "tool_use", "id": identity, "name": "view", "input": {"path": "a"}}
    kind = type(identity).__name__
    with pytest.raises(UsageError, match=f"the id of a call is {kind}, and has to be text"):
        dialect_of("anthropic").read({"content": [block]})


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-responses"])
@pytest.mark.parametrize("message", [{}, None, 7, [], "text"])
def test_what_is_no_message_at_all_is_not_taken_for_one_without_calls(
    provider: str, message: object
) -> None:
    with pytest.raises(UsageError, match="not a model's message"):
        dialect_of(provider).read(message)


@pytest.mark.parametrize("arguments", ['{"path": "a', "[]", '{"a": 1, "a": 2}'])
def test_arguments_that_do_not_parse_are_a_refusal_and_not_a_call(arguments: str) -> None:
    message = {"tool_calls": [{"id": "c1", "function": {"name": "view", "arguments": arguments}}]}
    (asked,) = dialect_of("openai").read(message)
    assert isinstance(asked, Malformed)
    assert (asked.call, asked.refusal.code) == (ToolCall("c1", "view", {}), "args.invalid")


def anthropic(**more: object) -> object:
    block = {"type": "tool_use", "id": "c1", "name": "view", "input": {"path": "a"}}
    return {"content": [block], **more}


def chat(**more: object) -> object:
    return {"tool_calls": [{"id": "c1", "function": {"name": "view", "arguments": WHOLE}}], **more}


def function_call(**more: object) -> dict[str, object]:
    item = {"type": "function_call", "call_id": "c1", "name": "view", "arguments": WHOLE}
    return {**item, **more}


def response(*items: dict[str, object], **more: object) -> object:
    return {"output": [function_call(), *items], **more}


def dropped(why: str) -> Malformed:
    return Malformed(
        ToolCall("c1", "view", {}),
        Refusal(
            "call.dropped",
            f"it was not run: {why}, so it may be cut, or not intended",
            "make it again in a turn that ends normally; if the turn was cut, do less in one turn",
        ),
    )


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        *(
            ("anthropic", anthropic(stop_reason=reason))
            for reason in ("tool_use", "end_turn", "stop_sequence", None)
        ),
        *(
            ("openai", chat(finish_reason=reason))
            for reason in ("tool_calls", "function_call", "stop", None)
        ),
        ("openai", chat(refusal=None)),
        ("openai-responses", response(status="completed")),
        ("openai-responses", response(status=None)),
        ("openai-responses", {"output": [function_call(status="completed")]}),
        ("openai-responses", {"output": [function_call(status=None)]}),
    ],
)
def test_the_calls_of_a_turn_that_came_to_its_end_are_calls(provider: str, message: object) -> None:
    assert dialect_of(provider).read(message) == [CALL]


@pytest.mark.parametrize(
    "reason",
    ["max_tokens", "refusal", "model_context_window_exceeded", "pause_turn", "brand_new", "", 5],
)
def test_no_call_of_an_anthropic_turn_runs_that_was_cut_or_ended_for_no_known_reason(
    reason: object,
) -> None:
    told = [dropped(f"its stop_reason is '{reason}'")]
    block = SimpleNamespace(type="tool_use", id="c1", name="view", input={"path": "a"})

    assert dialect_of("anthropic").read(anthropic(stop_reason=reason)) == told
    sdk = SimpleNamespace(content=[block], stop_reason=reason)
    assert dialect_of("anthropic").read(sdk) == told


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled", "in_progress", "new", ""])
def test_no_call_of_a_response_runs_that_did_not_complete(status: str) -> None:
    told = [dropped(f"its status is '{status}'")]
    assert dialect_of("openai-responses").read(response(status=status)) == told


def test_a_call_that_did_not_complete_is_refused_and_the_others_run() -> None:
    half = function_call(call_id="c2", status="incomplete")
    whole, other = dialect_of("openai-responses").read(response(half, status="completed"))

    assert whole == CALL
    assert isinstance(other, Malformed)
    assert other.call == ToolCall("c2", "view", {})
    assert other.refusal == dropped("its status is 'incomplete'").refusal


@pytest.mark.parametrize("reason", ["length", "content_filter", "brand_new", ""])
def test_no_call_of_a_chat_message_runs_that_says_that_it_was_cut(reason: str) -> None:
    told = [dropped(f"its finish_reason is '{reason}'")]
    assert dialect_of("openai").read(chat(finish_reason=reason)) == told


def test_no_call_runs_beside_the_word_that_the_model_declined() -> None:
    said = {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}
    told = [dropped("the model declined")]

    assert dialect_of("openai-responses").read(response(said, status="completed")) == told
    assert dialect_of("openai").read(chat(refusal="no")) == told


def test_a_cut_turn_is_why_whatever_its_arguments_are() -> None:
    message = {
        "tool_calls": [{"id": "c1", "function": {"name": "view", "arguments": '{"pa'}}],
        "finish_reason": "length",
    }
    assert dialect_of("openai").read(message) == [dropped("its finish_reason is 'length'")]


def test_results_are_written_in_order_as_each_provider_wants_them() -> None:
    assert dialect_of("anthropic").write([OK, NO]) == [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": "     1\ta",
            "is_error": False,
        },
        {
            "type": "tool_result",
            "tool_use_id": "c2",
            "content": "error[path.not_found]: gone",
            "is_error": True,
        },
    ]
    assert dialect_of("openai").write([OK]) == [
        {"role": "tool", "tool_call_id": "c1", "content": "     1\ta"}
    ]
    assert dialect_of("openai-responses").write([OK]) == [
        {"type": "function_call_output", "call_id": "c1", "output": "     1\ta"}
    ]


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(UsageError, match="unknown provider 'acme'"):
        dialect_of("acme")
