"""Whatever parallel children do, no scope is ever overspent."""

import threading

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from paddock.errors import BudgetExhaustedError
from paddock.providers.budgets import session_budget

TOKENS = st.integers(0, 120)


class Budgets(RuleBasedStateMachine):
    """A tree of scopes with calls under way, against plain sums."""

    scopes = Bundle("scopes")
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.root = session_budget(200)
        self.all = [(self.root, None)]
        self.taken = {0: 0}
        self.spent = {0: 0}

    def above(self, place: int) -> list[int]:
        places = [place]
        while (parent := self.all[places[-1]][1]) is not None:
            places.append(parent)
        return places

    def limit(self, place: int) -> int | None:
        return self.all[place][0].account.limit

    @rule(target=scopes)
    def the_session(self) -> int:
        return 0

    @rule(target=scopes, parent=scopes, limit=st.none() | st.integers(0, 250))
    def child(self, parent: int, limit: int | None) -> int:
        place = len(self.all)
        self.all.append((self.all[parent][0].child(f"scope {place}", limit), parent))
        self.taken[place] = self.spent[place] = 0
        return place

    @rule(target=held, place=scopes, tokens=TOKENS, spread=st.integers(0, 1))
    def reserve(self, place: int, tokens: int, spread: int):
        least = tokens // 2 if spread else tokens
        free = min(
            (
                limit - self.taken[each] - self.spent[each]
                for each in self.above(place)
                if (limit := self.limit(each)) is not None
            ),
        )
        try:
            reservation = self.all[place][0].reserve(tokens, at_least=least)
        except BudgetExhaustedError:
            assert free < least
            return (place, None)
        assert reservation.granted == min(tokens, free)
        for each in self.above(place):
            self.taken[each] += reservation.granted
        return (place, reservation)

    @rule(pair=consumes(held), share=st.integers(0, 100))
    def settle(self, pair, share: int) -> None:
        place, reservation = pair
        if reservation is None:
            return
        used = reservation.granted * share // 100
        reservation.settle(used)
        for each in self.above(place):
            self.taken[each] -= reservation.granted
            self.spent[each] += used

    @invariant()
    def no_scope_is_overspent(self) -> None:
        for place, (scope, _) in enumerate(self.all):
            account = scope.account
            assert (account.reserved, account.spent) == (self.taken[place], self.spent[place])
            assert account.limit is None or account.spent + account.reserved <= account.limit


TestBudgets = Budgets.TestCase


def test_threads_that_spend_at_once_do_not_overspend():
    session = session_budget(1_000)
    children = [session.child(f"child {number}", 400) for number in range(8)]
    granted = []
    start = threading.Barrier(8)

    def spend(child) -> None:
        start.wait()
        for _ in range(200):
            try:
                reservation = child.reserve(7, at_least=3)
            except BudgetExhaustedError:
                return
            granted.append(reservation.granted)
            reservation.settle(reservation.granted)

    threads = [threading.Thread(target=spend, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(granted) == session.account.spent
    assert 998 <= session.account.spent <= 1_000
    assert all(child.account.spent <= 400 for child in children)
