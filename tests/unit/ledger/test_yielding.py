from itertools import count

from paddock.ledger.yielding import Yielding

SLICE_S = 0.003


class Turns:
    """A clock that goes on by as much as the others take at each turn of theirs."""

    def __init__(self, *taken_s):
        self.taken_s = iter(taken_s)
        self.now = 0.0

    def __call__(self):
        self.now += next(self.taken_s)
        return self.now


def tries(yielding, most=5):
    return sum(1 for _ in yielding.tries(most))


def test_whoever_waits_tries_as_often_as_was_said():
    assert tries(Yielding(Turns(*[10e-6] * 6))) == 5


def test_whoever_has_what_it_waited_for_stops():
    yielding = Yielding(Turns(*[10e-6] * 12))

    assert next(yielding.tries(5), "none") is None
    assert tries(yielding) == 5


def test_after_a_time_slice_lost_nobody_yields_for_a_thousand_waits():
    yielding = Yielding(Turns(0.0, 10e-6, SLICE_S, *[10e-6] * 6))

    assert tries(yielding) == 2
    assert next(wait for wait in count() if tries(yielding)) == 1000


def test_many_writers_that_each_take_their_turn_are_no_time_slice():
    assert tries(Yielding(Turns(0.0, *[0.001] * 5))) == 5
