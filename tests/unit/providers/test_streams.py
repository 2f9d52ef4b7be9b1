"""Events of a stream: cut anywhere, out of order, twice, or unknown."""

import json

import pytest

from paddock.providers.anthropic import MessageAssembly
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.openai import ChatAssembly, ResponseAssembly
from tests.support.wire_words import anthropic_events, calls, chat_events, responses_events, says


def events(made) -> list[dict]:
    return [data for _, data in made if isinstance(data, dict)]


def feed(assembly, rows: list[dict]) -> str:
    return "".join(assembly.feed(row) for row in rows)


MESSAGE = events(anthropic_events(calls(("view", {"path": "a"}), text=("Hi",))))


@pytest.mark.parametrize(
    "rows",
    [
        MESSAGE[1:],
        [MESSAGE[0], *MESSAGE],
        [MESSAGE[0], *MESSAGE[2:]],
        [*MESSAGE[:2], *MESSAGE[1:]],
        [*MESSAGE[:3], MESSAGE[-1]],
        [*MESSAGE, MESSAGE[-1]],
        [*MESSAGE, MESSAGE[2]],
        [*MESSAGE[:4], {"type": "content_block_delta", "index": 0, "delta": {}}],
    ],
    ids=[
        "no start",
        "two starts",
        "no block",
        "block twice",
        "block not ended",
        "two ends",
        "after the end",
        "closed block",
    ],
)
def test_events_of_a_message_in_a_wrong_order_are_broken(rows):
    with pytest.raises(ProviderError) as caught:
        feed(MessageAssembly(), rows)

    assert caught.value.kind is FailureKind.BROKEN


def test_events_and_parts_that_nobody_knows_change_nothing():
    news = [
        {"type": "something_new", "index": 7},
        {"type": "ping"},
    ]
    assembly = MessageAssembly()

    text = feed(assembly, [*news, *MESSAGE[:2], *news, *MESSAGE[2:]])

    assert (text, assembly.is_complete) == ("Hi", True)
    assert assembly.message()["is_exact"] is True


def test_a_turn_with_a_part_that_was_not_understood_is_not_sent_back_as_it_came():
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}}
    assembly = MessageAssembly()

    feed(assembly, [*MESSAGE[:2], delta, *MESSAGE[2:]])

    assert assembly.message()["is_exact"] is False


def test_blocks_beside_each_other_are_kept_apart():
    start, first, *_ = MESSAGE
    second = {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "text", "text": ""},
    }

    def delta(index: int, text: str) -> dict:
        return {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": "text_delta", "text": text},
        }

    stops = [{"type": "content_block_stop", "index": index} for index in (1, 0)]
    assembly = MessageAssembly()
    feed(assembly, [start, first, second, delta(1, "b"), delta(0, "a"), delta(1, "B"), *stops])

    assert [block["text"] for block in assembly.message()["content"]] == ["a", "bB"]


RESPONSE = events(responses_events(calls(("view", {"path": "a"}), text=("Hi",))))


def test_a_response_without_its_items_has_those_of_the_stream():
    rows = json.loads(json.dumps(RESPONSE))
    rows[-1]["response"]["output"] = []
    whole, bare = ResponseAssembly(), ResponseAssembly()

    feed(whole, RESPONSE)
    feed(bare, rows)

    assert bare.message() == whole.message()


@pytest.mark.parametrize("extra", [RESPONSE[-1], RESPONSE[0]], ids=["the end", "the beginning"])
def test_nothing_comes_after_the_end_of_a_response(extra):
    with pytest.raises(ProviderError, match="after the end"):
        feed(ResponseAssembly(), [*RESPONSE, extra])


def test_an_item_that_ends_twice_is_broken():
    done = next(row for row in RESPONSE if row["type"] == "response.output_item.done")

    with pytest.raises(ProviderError, match="twice"):
        feed(ResponseAssembly(), [done, done])


CHAT = events(chat_events(says("Hi")))


def test_text_after_the_end_of_a_reply_is_broken():
    with pytest.raises(ProviderError, match="after its end"):
        feed(ChatAssembly(), [*CHAT, CHAT[1]])


def test_calls_that_all_have_number_0_are_told_apart_by_their_ids():
    def part(call_id: str, name: str, arguments: str) -> dict:
        function = {"name": name, "arguments": arguments}
        delta = {"tool_calls": [{"index": 0, "id": call_id, "function": function}]}
        return {"choices": [{"index": 0, "delta": delta}]}

    assembly = ChatAssembly()
    feed(assembly, [part("a", "view", "{}"), part("b", "ls", '{"p'), part("b", "", '":1}')])

    made = assembly.message()["choices"][0]["message"]["tool_calls"]
    assert [(call["id"], call["function"]) for call in made] == [
        ("a", {"name": "view", "arguments": "{}"}),
        ("b", {"name": "ls", "arguments": '{"p":1}'}),
    ]


def test_only_the_first_choice_is_read():
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assembly = ChatAssembly()

    assert feed(assembly, [other, *CHAT]) == "Hi"
    assert assembly.message()["choices"][0]["finish_reason"] == "stop"
