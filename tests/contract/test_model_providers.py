"""What every provider promises, the built-in and the scripted one included."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from paddock.providers.builtin import BuiltinModel
from paddock.providers.failures import CancelToken
from paddock.providers.gateway import Gateway
from paddock.providers.scripted import Say, ScriptedCall, ScriptedModel
from paddock.values.models import OutputSchema, Stop
from tests.support.models import Listener, answered, asking, gateway, provider_for
from tests.support.wire_server import WireServer
from tests.support.wire_words import WIRES, calls, says

pytestmark = pytest.mark.loopback

ANSWER = OutputSchema(
    "answer",
    {
        "type": "object",
        "properties": {"response_text": {"type": "string", "minLength": 1}},
        "required": ["response_text"],
        "additionalProperties": False,
    },
)


class Case(Struct, frozen=True, dict=True):
    """A provider that will talk, then call list_files on `src`, then answer an object."""

    provider: Any
    talk: str = "hello"
    order: str = "list the files in src"


def builtin() -> Iterator[Case]:
    yield Case(BuiltinModel())


def scripted() -> Iterator[Case]:
    steps = [
        Say("Hello there,\nyou."),
        Say(calls=(ScriptedCall("list_files", {"path": "src"}),)),
        Say(structured={"response_text": "a.txt"}),
    ]
    yield Case(ScriptedModel(steps))


def wired(wire: str) -> Iterator[Case]:
    with WireServer() as server:
        server.say(
            says("Hello ", "there,\nyou."),
            calls(("list_files", {"path": "src"})),
            says(json.dumps({"response_text": "a.txt"})),
        )
        yield Case(provider_for(wire, server.url))


@pytest.fixture(params=["builtin", "scripted", *WIRES])
def case(request):
    makers = {"builtin": builtin, "scripted": scripted}
    made = makers[request.param]() if request.param in makers else wired(request.param)
    found = next(made)
    yield found
    found.provider.close()
    assert next(made, None) is None


def test_a_session_goes_from_talk_to_a_call_to_an_answer(case):
    routes: Gateway = gateway(case.provider)
    listener = Listener()

    talk = routes.route(asking(case.talk), on_text=listener)
    call = routes.route(asking(case.order))
    last = routes.route(answered(call, asked=case.order, output=ANSWER))

    assert (talk.stop, talk.tool_calls, talk.structured) == (Stop.END_TURN, (), None)
    assert "".join(listener.pieces) == talk.text
    assert len(listener.pieces) > 0
    assert (call.stop, call.structured) == (Stop.TOOL_USE, None)
    assert [(use.name, use.arguments, use.problem) for use in call.tool_calls] == [
        ("list_files", {"path": "src"}, None)
    ]
    assert all(use.id for use in call.tool_calls)
    assert (last.stop, last.tool_calls, last.structured_problem) == (Stop.END_TURN, (), "")
    assert "a.txt" in last.structured["response_text"]
    assert [turn.attempts for turn in (talk, call, last)] == [1, 1, 1]
    assert all(turn.usage_is_known for turn in (talk, call, last))
    assert {turn.model for turn in (talk, call, last)} != {""}


def test_cancelled_before_it_begins_a_turn_is_empty_and_says_so(case):
    token = CancelToken()
    token.cancel()
    listener = Listener()

    turn = case.provider.route(asking(case.talk), on_text=listener, cancel=token)

    assert (turn.stop, turn.text, turn.tool_calls, listener.pieces) == (Stop.CANCELLED, "", (), [])


def test_it_has_a_name_and_a_model_and_closes_twice(case):
    assert case.provider.name in {"builtin", "scripted", "anthropic", "openai"}
    assert case.provider.model
    case.provider.close()
    case.provider.close()
