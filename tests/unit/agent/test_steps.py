"""What each way of ending a turn leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import limits
from paddock.agent.steps import (
    Allowed,
    Answer,
    AskAgain,
    Fail,
    OrderProgress,
    Resend,
    RunCalls,
    next_step,
)
from paddock.values.calls import Refusal
from paddock.values.models import ModelTurn, Stop, ToolUse, Usage
from paddock.values.orders import OrderError, OrderFailure

VIEW = ToolUse("c1", "view", {"path": "a"})
OTHER = ToolUse("c2", "view", {"path": "b"})
FOREIGN = ToolUse("c3", "rm_everything", {})
BROKEN = ToolUse("c4", "view", {}, Refusal("args.invalid", "no JSON"), '{"path": ')
BOTH = Allowed(frozenset({"view"}), turn_limit=10)
NO_TOOLS = Allowed(frozenset(), turn_limit=1)
SCHEMA = Allowed(frozenset({"view"}), turn_limit=10, has_schema=True)


def turn(stop=Stop.END_TURN, text="", calls=(), structured=None, **more):
    return ModelTurn(text, tuple(calls), structured, stop, Usage(1, 1), "m", **more)


def step(given_turn, allowed=BOTH, progress=None):
    return next_step(given_turn, progress or OrderProgress(), allowed)[0]


@pytest.mark.parametrize("stop", [Stop.TOOL_USE, Stop.END_TURN, Stop.STOP_SEQUENCE])
def test_calls_go_to_the_door_whatever_a_normal_stop_calls_itself(stop):
    assert step(turn(stop, calls=[VIEW, OTHER])) == RunCalls()


def test_what_may_not_run_goes_to_the_door_too_and_is_refused_there():
    assert step(turn(Stop.TOOL_USE, calls=[FOREIGN, BROKEN])) == RunCalls()


def test_without_allowed_tools_nothing_runs_and_the_turns_text_is_the_answer():
    found = step(turn(Stop.TOOL_USE, text="here", calls=[VIEW]), NO_TOOLS)
    assert found == Answer({"response_text": "here"}, not_allowed=(VIEW,))


def test_without_allowed_tools_the_turns_object_is_the_answer():
    found = step(turn(Stop.TOOL_USE, calls=[VIEW], structured={"a": 1}), NO_TOOLS)
    assert found == Answer({"a": 1}, not_allowed=(VIEW,))


def test_without_allowed_tools_and_without_an_answer_the_order_fails():
    found = step(turn(Stop.TOOL_USE, calls=[VIEW]), NO_TOOLS)
    error = OrderError(OrderFailure.EXECUTION_ERROR, "the model called tools, but none are allowed")
    assert found == Fail(error)


def test_an_object_without_calls_is_the_result():
    assert step(turn(structured={"x": 1}), SCHEMA) == Answer({"x": 1})


def test_an_object_beside_real_calls_is_not_the_answer():
    found = step(turn(Stop.TOOL_USE, calls=[VIEW], structured={"early": True}), SCHEMA)
    assert found == RunCalls()


def test_plain_text_is_wrapped_where_the_contract_has_no_schema():
    assert step(turn(text="hello")) == Answer({"response_text": "hello"})


def test_plain_text_is_no_answer_where_an_object_was_asked_for():
    found = step(turn(text="hello", structured_problem="no object"), SCHEMA)
    error = OrderError(OrderFailure.OUTPUT_SCHEMA_INVALID, "no object")
    assert found == Fail(error, {"response_text": "hello"})


def test_a_cut_turn_runs_none_of_its_calls_and_is_asked_again_once():
    first, progress = next_step(turn(Stop.MAX_TOKENS, calls=[VIEW]), OrderProgress(), BOTH)
    second, _ = next_step(turn(Stop.MAX_TOKENS, text="half"), progress, BOTH)
    error = OrderError(OrderFailure.TRUNCATED, "the answer was cut at the output limit")
    assert first == AskAgain()
    assert second == Fail(error, {"response_text": "half"})


@pytest.mark.parametrize("tools", [frozenset(), frozenset({"view"})])
def test_a_cut_turn_is_asked_for_again_once_where_it_was_the_only_one(tools):
    only = Allowed(tools, turn_limit=1)
    first, progress = next_step(turn(Stop.MAX_TOKENS, text="half"), OrderProgress(), only)
    answered, _ = next_step(turn(text="short"), progress, only)
    again, _ = next_step(turn(Stop.MAX_TOKENS, text="half"), progress, only)
    error = OrderError(OrderFailure.TRUNCATED, "the answer was cut at the output limit")
    assert first == AskAgain()
    assert answered == Answer({"response_text": "short"})
    assert again == Fail(error, {"response_text": "half"})


def test_being_asked_again_gives_no_turn_for_calls():
    only = Allowed(frozenset({"view"}), turn_limit=1)
    _, progress = next_step(turn(Stop.MAX_TOKENS, text="half"), OrderProgress(), only)
    found, _ = next_step(turn(Stop.TOOL_USE, calls=[VIEW]), progress, only)
    said = "1 turn is used up and calls are pending"
    assert found == Fail(OrderError(OrderFailure.TURN_LIMIT_EXCEEDED, said))


@pytest.mark.parametrize("stop", [Stop.REFUSAL, Stop.CONTENT_FILTER])
def test_a_refusal_fails_with_its_reason(stop):
    found = step(turn(stop, calls=[VIEW], stop_reason="unsafe"))
    assert found == Fail(OrderError(OrderFailure.REFUSED, "unsafe"))


def test_a_pause_is_resent_five_times_and_no_more():
    progress = OrderProgress()
    steps = []
    for _ in range(limits.model_pauses_max + 1):
        found, progress = next_step(turn(Stop.PAUSE), progress, BOTH)
        steps.append(found)
    assert steps[:-1] == [Resend()] * 5
    assert steps[-1] == Fail(
        OrderError(OrderFailure.GATEWAY_ERROR, "the provider paused more than 5 times")
    )


def test_calls_beside_a_pause_do_not_run_and_are_answered():
    assert step(turn(Stop.PAUSE, calls=[VIEW, BROKEN])) == Resend(not_run=(VIEW, BROKEN))


def test_what_a_server_says_of_its_stop_stands_on_one_line_and_is_bounded():
    unknown = step(turn(Stop.UNKNOWN, stop_raw="zzz\n" * 100))
    refused = step(turn(Stop.REFUSAL, stop_reason="no\n" * 1_000))
    named = ToolUse("c1", "view\nyes", {})
    stuck = step(turn(Stop.TOOL_USE, calls=[named] * 3))

    said = "zzz\\n" * 50
    assert unknown.error.message == (
        f"the turn ended for an unknown reason '{said}' (and 200 more characters)"
    )
    assert refused.error.message == "no\\n" * 333 + "n… (2000 more characters)"
    assert stuck.error.message == "the same call came 3 times in a row: 'view\\nyes'"


def test_an_unknown_stop_fails_and_says_what_it_was():
    found = step(turn(Stop.UNKNOWN, calls=[VIEW], stop_raw="zzz"))
    said = "the turn ended for an unknown reason 'zzz'"
    assert found == Fail(OrderError(OrderFailure.GATEWAY_ERROR, said))


def test_turns_used_up_with_calls_pending_fail_with_what_there_is():
    found = step(
        turn(Stop.TOOL_USE, text="so far", calls=[VIEW]),
        Allowed(frozenset({"view"}), turn_limit=1),
    )
    said = "1 turn is used up and calls are pending"
    error = OrderError(OrderFailure.TURN_LIMIT_EXCEEDED, said)
    assert found == Fail(error, {"response_text": "so far"})


def test_the_last_turn_may_answer():
    assert step(turn(text="done"), Allowed(frozenset({"view"}), 1)) == Answer(
        {"response_text": "done"}
    )


def test_the_same_call_a_third_time_in_a_row_is_not_run():
    progress = OrderProgress()
    steps = []
    for number in range(3):
        same = ToolUse(f"id{number}", "view", {"path": "a"})
        found, progress = next_step(turn(Stop.TOOL_USE, calls=[same]), progress, BOTH)
        steps.append(found)
    assert [type(found) for found in steps] == [RunCalls, RunCalls, Fail]
    assert steps[2].error.code is OrderFailure.STUCK


def test_the_same_call_three_times_in_one_turn_is_not_run():
    calls = [ToolUse(f"id{n}", "view", {"path": "a"}) for n in range(3)]
    assert step(turn(Stop.TOOL_USE, calls=[*calls, OTHER])).error.code is OrderFailure.STUCK


def test_another_call_between_two_equal_ones_starts_the_count_anew():
    progress = OrderProgress()
    for call in (VIEW, VIEW, OTHER, VIEW, VIEW):
        found, progress = next_step(turn(Stop.TOOL_USE, calls=[call]), progress, BOTH)
        assert found == RunCalls()


def test_refusals_are_counted_in_a_row():
    progress = OrderProgress().after_results((True, True))
    assert progress.refusals == 2
    assert progress.after_results((False, True)).refusals == 1
    assert progress.after_results((True,)).refusals == limits.refusals_max
    assert progress.after_results((True, True, False)).refusals == 4


TURNS = st.builds(
    turn,
    stop=st.sampled_from(Stop),
    text=st.sampled_from(["", "text"]),
    calls=st.lists(st.sampled_from([VIEW, OTHER, FOREIGN, BROKEN]), max_size=3),
    structured=st.sampled_from([None, {"a": 1}]),
)


@given(st.lists(TURNS, max_size=30), st.booleans(), st.integers(1, 12))
def test_calls_run_after_a_normal_stop_alone_and_every_loop_ends(turns, has_schema, limit):
    allowed = Allowed(frozenset({"view"}), limit, has_schema)
    progress = OrderProgress()
    asked = 0
    for each in turns:
        found, progress = next_step(each, progress, allowed)
        if isinstance(found, RunCalls):
            assert each.stop in {Stop.TOOL_USE, Stop.END_TURN, Stop.STOP_SEQUENCE}
        if isinstance(found, Resend):
            assert found == Resend(each.tool_calls)
        if isinstance(found, Answer | Fail):
            break
        asked += 1
    assert asked <= limit + limits.model_pauses_max
