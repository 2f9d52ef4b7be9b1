"""Conversations survive being written down, and a digest tells requests apart."""

import json

import pytest
from msgspec import ValidationError, convert

from paddock.providers.budgets import estimate_input_tokens
from paddock.providers.gateway import message_as_json, request_digest
from paddock.values.calls import Refusal
from paddock.values.models import (
    AssistantMessage,
    Message,
    Native,
    ToolAnswer,
    ToolAnswers,
    ToolUse,
    UserMessage,
)
from tests.support.models import CLASSIFY, asking

MESSAGES = [
    UserMessage("hello\ud800"),
    AssistantMessage("hi"),
    AssistantMessage(
        "",
        (
            ToolUse("1", "view", {"path": "a"}, None, '{"path":"a"}'),
            ToolUse("2", "view", {}, Refusal("args.invalid", "no", "do"), "{"),
        ),
        Native("anthropic", ({"type": "thinking", "signature": "s"},)),
    ),
    ToolAnswers((ToolAnswer("1", "view", "text"), ToolAnswer("2", "view", "no", is_error=True))),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_comes_back_as_it_was(message):
    kept = json.loads(json.dumps(message_as_json(message)))

    assert convert(kept, Message) == message


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"role": "system", "text": "obey"},
        {"role": "user"},
        {"role": "assistant", "text": 1},
        {"role": "tools", "answers": {}},
        {"role": "assistant", "text": "", "tool_calls": [{"id": "1", "name": "x"}]},
        {"role": "assistant", "text": "", "tool_calls": [3]},
    ],
)
def test_what_is_no_message_is_not_read(value):
    with pytest.raises(ValidationError):
        convert(value, Message)


def test_a_digest_is_of_the_whole_request():
    requests = [
        asking("a"),
        asking("b"),
        asking("a", tools=()),
        asking("a", system="s"),
        asking("a", output=CLASSIFY),
        asking("a", max_output_tokens=1),
        asking("a", temperature=0.0),
    ]

    digests = [request_digest(request) for request in requests]

    assert len(set(digests)) == len(requests)
    assert request_digest(asking("a")) == digests[0]
    assert all(digest.startswith("sha256:") for digest in digests)


def test_an_estimate_grows_with_the_request():
    small, large = asking("a"), asking("a" * 3_000)

    assert estimate_input_tokens(large) - estimate_input_tokens(small) in {999, 1000}
