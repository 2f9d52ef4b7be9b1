"""Retries: which failures, how long, how often, and never beyond the budget."""

import pytest

from paddock.errors import BudgetExhaustedError
from paddock.providers.failures import (
    TRANSIENT,
    CancelToken,
    FailureKind,
    ProviderError,
    wait_or_cancel,
)
from paddock.providers.gateway import RetryLimits, plan_wait
from paddock.providers.scripted import Say, ScriptedFailure, ScriptedModel
from paddock.values.models import Stop
from tests.support.models import Listener, Waits, asking, gateway

LIMITS = RetryLimits(attempts=4, first_s=1.0, longest_s=8.0, budget_s=20.0)


def failure(kind=FailureKind.SERVER, **more) -> ProviderError:
    return ProviderError("no", kind=kind, **more)


def test_waits_double_up_to_the_longest_and_are_drawn_between_half_and_whole():
    many = RetryLimits(attempts=10, first_s=1.0, longest_s=8.0, budget_s=1000.0)

    low = [plan_wait(failure(), attempt, 0, 0.0, many) for attempt in range(1, 7)]
    high = [plan_wait(failure(), attempt, 0, 1.0, many) for attempt in range(1, 7)]

    assert low == [0.5, 1, 2, 4, 4, 4]
    assert high == [1, 2, 4, 8, 8, 8]


@pytest.mark.parametrize("kind", FailureKind)
def test_only_failures_on_the_way_are_waited_for(kind):
    wait = plan_wait(failure(kind), 1, 0, 0.0, LIMITS)

    assert (wait is not None) is (kind in TRANSIENT)


def test_the_last_attempt_is_the_last():
    assert plan_wait(failure(), 3, 0, 0.0, LIMITS) is not None
    assert plan_wait(failure(), 4, 0, 0.0, LIMITS) is None


def test_no_wait_goes_beyond_the_budget():
    assert plan_wait(failure(), 1, 19.5, 0.0, LIMITS) == 0.5
    assert plan_wait(failure(), 1, 19.6, 0.0, LIMITS) is None


@pytest.mark.parametrize(("asked", "wait"), [(0.0, 0.5), (8.0, 8.5), (8.1, None)])
def test_the_servers_wait_is_kept_or_there_is_none(asked, wait):
    found = plan_wait(failure(retry_after_s=asked), 1, 0, 0.5, LIMITS)

    assert found == wait


def test_a_failure_that_stays_is_raised_with_how_often_it_was_tried():
    model = ScriptedModel([ScriptedFailure(FailureKind.OVERLOADED, "busy", 529)] * 4)
    waits = Waits()

    with model, pytest.raises(ProviderError, match=r"(?m)^busy \(tried 4 times\)$") as caught:
        gateway(model, waits).route(asking())

    assert (caught.value.kind, caught.value.status, len(waits.seconds)) == (
        FailureKind.OVERLOADED,
        529,
        3,
    )


def test_every_attempt_sends_the_same_request():
    with ScriptedModel([ScriptedFailure(FailureKind.BROKEN), Say("ok")]) as model:
        turn = gateway(model).route(asking())

        assert (turn.text, turn.attempts) == ("ok", 2)
        assert model.requests == [asking()] * 2


def test_every_attempt_is_paid_for():
    paid = []

    def pay(send):
        paid.append("an attempt")
        return send()

    with ScriptedModel(
        [ScriptedFailure(FailureKind.BROKEN), ScriptedFailure(FailureKind.SERVER), Say("ok")]
    ) as model:
        turn = gateway(model).route(asking(), pay=pay)

    assert (turn.text, turn.attempts, paid) == ("ok", 3, ["an attempt"] * 3)


@pytest.mark.parametrize(("covered", "said"), [(1, "tried once"), (2, "tried 2 times")])
def test_an_attempt_that_is_not_paid_for_is_not_made(covered, said):
    model = ScriptedModel([ScriptedFailure(FailureKind.BROKEN, "cut", 200)] * 4)

    def pay(send):
        if len(model.requests) == covered:
            raise BudgetExhaustedError("nothing is left")
        return send()

    with pytest.raises(ProviderError) as caught:
        gateway(model).route(asking(), pay=pay)

    said = f"cut ({said}, no budget for another attempt: nothing is left)"
    assert (caught.value.message, caught.value.kind) == (said, FailureKind.BROKEN)
    assert len(model.requests) == covered


def test_a_first_attempt_that_is_not_paid_for_is_no_failure_of_the_provider():
    model = ScriptedModel([Say("never")])

    def pay(send):
        raise BudgetExhaustedError("nothing is left")

    with pytest.raises(BudgetExhaustedError):
        gateway(model).route(asking(), pay=pay)

    assert model.steps_left == 1


def test_cancelled_while_waiting_nothing_is_asked_again():
    model = ScriptedModel([ScriptedFailure(FailureKind.SERVER), Say("never")])
    listener = Listener()

    turn = gateway(model, Waits(cancels_at=1)).route(asking(), on_text=listener)

    assert (turn.stop, turn.attempts, model.steps_left) == (Stop.CANCELLED, 1, 1)


def test_cancelled_before_it_begins_nothing_is_asked():
    token = CancelToken()
    token.cancel()
    model = ScriptedModel([Say("never")])

    turn = gateway(model).route(asking(), cancel=token)

    assert (turn.stop, turn.attempts, turn.usage_is_known) == (Stop.CANCELLED, 0, True)
    assert model.steps_left == 1


def test_a_token_calls_back_once_and_not_what_was_taken_back():
    token, calls = CancelToken(), []
    token.on_cancel(lambda: calls.append("kept"))
    token.on_cancel(lambda: calls.append("taken back"))()

    token.cancel()
    token.cancel()
    token.on_cancel(lambda: calls.append("late"))

    assert calls == ["kept", "late"]
    assert token.is_cancelled


def test_waiting_ends_early_when_cancelled():
    token = CancelToken()
    token.cancel()

    assert wait_or_cancel(3600, token) is True
    assert wait_or_cancel(0, None) is False
    assert wait_or_cancel(0, CancelToken()) is False
