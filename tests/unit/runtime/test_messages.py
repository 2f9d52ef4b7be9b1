"""Every provider's calls are read, and answered in its own words."""

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
