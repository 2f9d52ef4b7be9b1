"""Budgets: reserved before a call, settled after it, drawn through every scope above."""

import pytest

from paddock.errors import BudgetExhaustedError
from paddock.providers.budgets import session_budget
from paddock.values.models import Account, BudgetMode, Shortage


def test_a_reservation_is_taken_from_every_scope_above():
    session = session_budget(100)
    order = session.child("order", 60)
    call = order.child("call")

    reservation = call.reserve(30)
    taken = (session.account, order.account, call.account, call.free)
    reservation.settle(14)

    assert taken == (
        Account("session", 100, 0, 30),
        Account("order", 60, 0, 30),
        Account("call", None, 0, 30),
        30,
    )
    assert (session.account, order.account, call.account) == (
        Account("session", 100, 14, 0),
        Account("order", 60, 14, 0),
        Account("call", None, 14, 0),
    )


@pytest.mark.parametrize(
    ("session_limit", "order_limit", "short"),
    [
        (100, 10, Shortage("order", 10, 10, 11)),
        (10, 100, Shortage("session", 10, 10, 11)),
        (10, None, Shortage("session", 10, 10, 11)),
    ],
)
def test_the_scope_that_is_short_refuses_and_nothing_is_taken(session_limit, order_limit, short):
    session = session_budget(session_limit)
    order = session.child("order", order_limit)

    with pytest.raises(BudgetExhaustedError) as caught:
        order.reserve(11)

    assert caught.value.message == str(short)
    assert (session.account.reserved, order.account.reserved) == (0, 0)
    assert order.reserve(10).granted == 10


def test_children_side_by_side_share_what_is_above_them():
    session = session_budget(100)
    first, second = session.child("a", 80), session.child("b", 80)
    held = first.reserve(70)

    with pytest.raises(BudgetExhaustedError):
        second.reserve(31)
    held.settle(0)

    assert second.reserve(80).granted == 80


def test_what_is_free_is_granted_down_to_the_least():
    session = session_budget(100)

    assert session.reserve(80, at_least=10).granted == 80
    assert session.reserve(80, at_least=10).granted == 20
    with pytest.raises(BudgetExhaustedError):
        session.reserve(80, at_least=1)


def test_a_warning_grants_and_says_what_it_should_have_refused():
    session = session_budget(10, BudgetMode.WARN)

    kept, over = session.reserve(10), session.reserve(5)

    assert (kept.shortage, over.granted) == (None, 5)
    assert over.shortage == Shortage("session", 10, 0, 5)
    assert str(over.shortage) == "session has 0 of 10 tokens left, 5 are needed"


def test_that_a_scope_is_short_is_news_once():
    session = session_budget(10, BudgetMode.WARN)
    turn = session.child("turn 1", 5)

    made = [scope.reserve(tokens) for scope, tokens in ((session, 10), (turn, 1), (session, 1))]
    again = turn.reserve(9)

    assert [(each.shortage is not None, each.is_news) for each in (*made, again)] == [
        (False, False),
        (True, True),
        (True, False),
        (True, False),
    ]


def test_off_counts_and_says_nothing():
    session = session_budget(10, BudgetMode.OFF)

    reservation = session.reserve(50)
    reservation.settle(42)

    assert (reservation.shortage, session.account.spent) == (None, 42)


def test_what_was_used_beyond_the_grant_is_spent_too():
    session = session_budget(100)

    session.reserve(10).settle(150)

    assert (session.account.spent, session.free) == (150, 0)


@pytest.mark.parametrize(("tokens", "at_least"), [(-1, None), (5, 6), (5, -1)])
def test_a_reservation_that_makes_no_sense_is_a_defect(tokens, at_least):
    with pytest.raises(ValueError, match="a reservation of"):
        session_budget(10).reserve(tokens, at_least=at_least)
