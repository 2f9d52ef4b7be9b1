from itertools import count

import pytest

from paddock.ledger.yielding import Yielding

QUICK_S = 10e-6
SLICE_S = 0.003


class Turns:
    """A clock that goes on by as much as the others take at each turn of theirs."""

    def __init__(self, taken_s=QUICK_S):
        self.taken_s = taken_s
        self.now = 0.0

    def __call__(self):
        self.now += self.taken_s
        return self.now


@pytest.fixture
def turns():
    return Turns()


@pytest.fixture
def yielding(turns):
    return Yielding(turns)


def tries(yielding, most=5):
    return sum(1 for _ in yielding.tries(most))


def waits_after_a_loss(yielding, turns):
    """How many waits go by without a yield, once a yield has taken a time slice."""
    turns.taken_s = SLICE_S
    assert tries(yielding) == 1
    turns.taken_s = QUICK_S
    return next(wait for wait in count() if tries(yielding))


def test_whoever_waits_tries_as_often_as_was_said(yielding):
    assert tries(yielding) == 5


def test_whoever_has_what_it_waited_for_stops(yielding):
    assert next(yielding.tries(5), "none") is None
    assert tries(yielding) == 5


def test_after_a_time_slice_lost_nobody_yields_for_a_few_waits(yielding, turns):
    assert waits_after_a_loss(yielding, turns) == 16


def test_each_time_slice_lost_soon_after_costs_four_times_as_many_up_to_a_thousand(yielding, turns):
    waits = [waits_after_a_loss(yielding, turns) for _ in range(5)]

    assert waits == [16, 64, 256, 1024, 1024]


def test_a_time_slice_lost_long_after_is_chance_again(yielding, turns):
    assert [waits_after_a_loss(yielding, turns) for _ in range(2)] == [16, 64]
    assert {tries(yielding) for _ in range(1024)} == {5}

    assert waits_after_a_loss(yielding, turns) == 16


def test_many_writers_that_each_take_their_turn_are_no_time_slice():
    assert tries(Yielding(Turns(0.001))) == 5
