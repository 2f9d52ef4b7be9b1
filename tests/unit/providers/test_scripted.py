"""The scripted model: strict, and able to say whatever a real one could."""

import threading

import pytest

from paddock.errors import ConfigError
from paddock.providers.failures import CancelToken, FailureKind, ProviderError
from paddock.providers.scripted import (
    Say,
    ScriptedCall,
    ScriptedFailure,
    ScriptedModel,
    parse_script,
)
from paddock.values.models import Stop, ToolUse, Usage
from tests.support.models import CLASSIFY, Listener, asking


def test_steps_go_out_in_order():
    with ScriptedModel([Say("one"), Say("two")]) as model:
        texts = [model.route(asking(text)).text for text in ("a", "b")]

        assert texts == ["one", "two"]
        assert model.requests == [asking("a"), asking("b")]


def test_steps_left_over_are_an_error():
    model = ScriptedModel([Say("one"), Say("two")])
    model.route(asking())

    with pytest.raises(ConfigError, match="1 of 2 steps of the script are left over"):
        model.require_finished()
    with pytest.raises(ConfigError), model:
        pass


def test_an_error_on_its_way_out_is_not_hidden_by_steps_left_over():
    with pytest.raises(ZeroDivisionError), ScriptedModel([Say("one")]):
        raise ZeroDivisionError


def test_a_request_beyond_the_script_is_an_error_that_nobody_retries():
    model = ScriptedModel([])

    with pytest.raises(ProviderError, match="0 steps, and this is request 1") as caught:
        model.route(asking())

    assert (caught.value.kind, caught.value.is_transient) == (FailureKind.SCRIPT, False)


def test_a_step_may_expect_what_is_asked():
    model = ScriptedModel([Say("yes", expects="a.txt"), Say("never", expects="b.txt")])

    assert model.route(asking("is a.txt there?")).text == "yes"
    with pytest.raises(ProviderError, match="step 2 of the script expects 'b.txt'"):
        model.route(asking("is a.txt there?"))


def test_an_expectation_that_did_not_hold_is_told_at_the_end_before_steps_left_over():
    steps = [Say("no", expects="b.txt"), Say("nor", expects="c.txt"), Say("yes", expects="a.txt")]
    model = ScriptedModel([*steps, Say("left over")])

    for _ in range(2):
        with pytest.raises(ProviderError):
            model.route(asking("is a.txt there?"))
    assert model.route(asking("is a.txt there?")).text == "yes"

    with pytest.raises(ConfigError, match="step 1 of the script expects 'b.txt'") as caught:
        model.require_finished()
    with pytest.raises(ConfigError, match="step 1 of"):
        model.require_met()
    assert "is a.txt there?" in caught.value.hint


def test_where_every_expectation_held_nothing_is_told_though_steps_are_left_over():
    model = ScriptedModel([Say("yes", expects="a.txt"), Say("left over")])
    model.route(asking("is a.txt there?"))

    model.require_met()

    with pytest.raises(ConfigError, match="1 of 2 steps"):
        model.require_finished()


def test_calls_side_by_side_and_cut_arguments_are_played():
    calls = (ScriptedCall("list_files", {"path": "."}), ScriptedCall("x", {}, "mine", '{"a'))
    model = ScriptedModel([Say("Look.", calls, Stop.MAX_TOKENS)])

    turn = model.route(asking())

    assert turn.stop is Stop.MAX_TOKENS
    assert turn.tool_calls[0] == ToolUse(
        "call_1_1", "list_files", {"path": "."}, None, '{"path": "."}'
    )
    assert (turn.tool_calls[1].id, turn.tool_calls[1].raw) == ("mine", '{"a')
    assert turn.tool_calls[1].problem.code == "args.invalid"


@pytest.mark.parametrize("stop", [stop for stop in Stop if stop is not Stop.TOOL_USE])
def test_every_reason_to_stop_can_be_played(stop):
    turn = ScriptedModel([Say("text", stop=stop, reason="why", usage=None)]).route(asking())

    assert (turn.stop, turn.stop_reason, turn.usage_is_known) == (stop, "why", False)


def test_a_structured_answer_is_checked_like_any_other():
    fits = {"speech_act": "command", "ambiguity": 0}
    model = ScriptedModel([Say(structured=fits), Say(structured={"speech_act": "song"})])

    good = model.route(asking(tools=(), output=CLASSIFY))
    bad = model.route(asking(tools=(), output=CLASSIFY))

    assert (good.structured, good.structured_problem) == (fits, "")
    assert bad.structured is None
    assert bad.structured_problem


def test_an_error_can_be_played():
    model = ScriptedModel([ScriptedFailure(FailureKind.RATE_LIMITED, "slow down", 429, 2.0)])

    with pytest.raises(ProviderError, match="slow down") as caught:
        model.route(asking())

    assert (caught.value.status, caught.value.retry_after_s) == (429, 2.0)


def test_text_is_streamed_in_words():
    listener = Listener()

    turn = ScriptedModel([Say("one two\nthree ")]).route(asking(), on_text=listener)

    assert listener.pieces == ["one ", "two\nthree "]
    assert turn.text == "one two\nthree "


def test_a_step_that_holds_waits_to_be_cancelled():
    token = CancelToken()
    model = ScriptedModel([Say("half an answer", holds=True)])

    class Stopping(Listener):
        def text(self, piece: str) -> None:
            super().text(piece)
            if piece == "answer":
                threading.Thread(target=token.cancel).start()

    turn = model.route(asking(), on_text=Stopping(), cancel=token)

    assert (turn.stop, turn.text) == (Stop.CANCELLED, "half an answer")


def test_a_script_is_loaded_from_lines_or_from_an_array():
    steps = (
        Say("hello", usage=Usage(1, 2, 3, 4)),
        Say(calls=(ScriptedCall("a", {"b": 1}, "c"), ScriptedCall("d", {}, "", "{"))),
        Say(structured={}, stop=Stop.REFUSAL, reason="no", expects="x", holds=True, usage=None),
        ScriptedFailure(FailureKind.OVERLOADED, "later", 529, 1.5),
    )
    rows = [
        '{"text": "hello", "usage": [1, 2, 3, 4]}',
        '{"calls": [{"name": "a", "arguments": {"b": 1}, "id": "c"}, {"name": "d", "raw": "{"}]}',
        '{"structured": {}, "stop": "refusal", "reason": "no", "expects": "x", "holds": true, "usage": null}',
        '{"error": {"kind": "overloaded", "message": "later", "status": 529, "retry_after_s": 1.5}}',
    ]

    assert parse_script("\n".join([*rows, ""]), "s.jsonl") == steps
    assert parse_script(f"[{','.join(rows)}]", "s.json") == steps


WRONG = [
    ("{", "not JSON"),
    ("3", "expected an object"),
    ('{"txt": "x"}', "unknown key 'txt'"),
    ('{"text": 1}', "'text' is the number '1', not text"),
    ('{"text": "a", "text": "b"}', "'text' is given twice"),
    ('{"stop": "soon"}', "'soon' is not a valid value of 'stop'"),
    ('{"usage": [1, 2, 3, 4, 5]}', "'usage' is a list"),
    ('{"usage": [true]}', "'usage' is true"),
    ('{"usage": [-1]}', "a negative number of tokens"),
    ('{"error": {"kind": "bad"}}', "'bad' is not a valid value of 'kind'"),
    ('{"error": {}}', "'kind' is missing"),
    ('{"error": {"kind": "server"}, "text": "x"}', "unknown key 'text'"),
    ('{"calls": [{"name": "a", "raw": "", "arguments": {}}]}', "not both"),
    ('{"holds": "false"}', "'holds' is the text 'false'"),
]


@pytest.mark.parametrize(("row", "message"), WRONG)
def test_a_script_that_is_not_understood_does_not_load(row, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse_script(f"\n{row}\n", "s.jsonl")

    assert caught.value.where == "s.jsonl, line 2"
