"""One exchange with a model: every attempt is paid for, and none begins that is not covered."""

import pytest

from paddock.agent.events import Noticed
from paddock.agent.records import Scribe
from paddock.agent.steps import ModelDoor
from paddock.errors import BudgetExhaustedError, ConfigError
from paddock.providers.budgets import Budget, estimate_input_tokens, session_budget
from paddock.providers.failures import CancelToken, FailureKind, ProviderError
from paddock.providers.scripted import Say, ScriptedFailure, ScriptedModel
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.models import Account, BudgetMode, ModelTurn, Stop, Usage
from tests.support.agents import SESSION, Heard
from tests.support.models import Waits, asking, gateway

REQUEST = asking(max_output_tokens=1_000)
GRANTED = estimate_input_tokens(REQUEST) + 1_000
BROKEN = ScriptedFailure(FailureKind.BROKEN, "cut")
BUSY = ScriptedFailure(FailureKind.RATE_LIMITED, "busy", 429)
ANSWER = Say("ok", usage=Usage(30, 20))


class Exchange:
    """What asks a scripted model once, and what it left."""

    def __init__(
        self,
        *steps: Say | ScriptedFailure,
        limit: int | None = None,
        waits=None,
        mode=BudgetMode.ENFORCE,
    ) -> None:
        self.model = ScriptedModel(steps)
        self.budget: Budget = session_budget(limit, mode)
        self.ledger = MemoryLedger()
        self.waits = waits or Waits()
        self.heard = Heard()

    def ask(self, cancel: CancelToken | None = None) -> ModelTurn:
        model = gateway(self.model, self.waits)
        scribe = Scribe(SESSION, "main")
        door = ModelDoor(model, self.ledger, scribe, lambda: 0, listener=self.heard)
        return door.ask(REQUEST, 1, "WO-1", self.budget, None, cancel or CancelToken(), ())

    @property
    def account(self) -> Account:
        return self.budget.account

    def recorded(self) -> tuple:
        """Status and charge of its entry."""
        (row,) = self.ledger.entries
        return row.entry.metadata["status"], row.entry.metadata["charged_tokens"]


def test_one_attempt_costs_what_it_used():
    exchange = Exchange(ANSWER)

    turn = exchange.ask()

    assert (turn.usage, turn.usage_is_known, turn.attempts) == (Usage(30, 20), True, 1)
    assert exchange.account == Account("session", None, spent=50)
    assert exchange.recorded() == ("ok", 50)


def test_attempts_that_broke_count_as_all_that_each_was_granted():
    exchange = Exchange(BROKEN, BROKEN, ANSWER)

    turn = exchange.ask()

    assert (turn.usage, turn.usage_is_known, turn.attempts) == (Usage(30, 20), False, 3)
    assert exchange.account == Account("session", None, spent=2 * GRANTED + 50)
    assert exchange.recorded() == ("ok", 2 * GRANTED + 50)


def test_attempts_that_were_turned_away_cost_nothing():
    exchange = Exchange(BUSY, BUSY, ANSWER, limit=GRANTED)

    turn = exchange.ask()

    assert (turn.usage_is_known, turn.attempts) == (True, 3)
    assert exchange.account == Account("session", GRANTED, spent=50)
    assert exchange.recorded() == ("ok", 50)


@pytest.mark.parametrize(("covered", "tried"), [(1, "once"), (2, "2 times"), (3, "3 times")])
def test_no_attempt_begins_that_the_budget_does_not_cover(covered, tried):
    exchange = Exchange(*[BROKEN] * covered, ANSWER, limit=covered * GRANTED + GRANTED // 2)

    with pytest.raises(
        ProviderError, match=rf"cut \(tried {tried}, .*no budget for another attempt: session has"
    ):
        exchange.ask()

    assert (len(exchange.model.requests), exchange.model.steps_left) == (covered, 1)
    assert (exchange.account.spent, exchange.account.reserved) == (covered * GRANTED, 0)
    assert exchange.recorded() == ("error", covered * GRANTED)


def test_a_budget_that_only_warns_lets_every_attempt_begin_and_says_so():
    exchange = Exchange(BROKEN, ANSWER, limit=GRANTED, mode=BudgetMode.WARN)

    assert exchange.ask().text == "ok"

    (row,) = exchange.ledger.entries
    wanted = f"session has 0 of {GRANTED} tokens left, {GRANTED} are needed"
    assert row.entry.metadata["over_budget"] == wanted
    assert exchange.recorded() == ("ok", GRANTED + 50)
    assert exchange.heard.events == [Noticed(f"{wanted}; the budget only warns")]


def test_that_a_scope_is_short_is_told_once():
    exchange = Exchange(ANSWER, ANSWER, ANSWER, limit=1, mode=BudgetMode.WARN)
    session = exchange.budget
    for name in ("turn 1", "turn 1", "turn 2"):
        exchange.budget = session.child(name, 0)
        exchange.ask()

    assert [event.text.split(" has ")[0] for event in exchange.heard.events] == ["turn 1", "turn 2"]
    assert all("over_budget" in row.entry.metadata for row in exchange.ledger.entries)


@pytest.mark.parametrize(
    ("mode", "limit"),
    [(BudgetMode.OFF, 1), (BudgetMode.WARN, 10 * GRANTED), (BudgetMode.WARN, None)],
)
def test_of_a_budget_that_is_off_or_has_enough_nothing_is_told(mode, limit):
    exchange = Exchange(ANSWER, limit=limit, mode=mode)

    exchange.ask()

    assert exchange.heard.events == []


def test_attempts_that_all_broke_are_all_paid_for():
    exchange = Exchange(*[BROKEN] * 4)

    with pytest.raises(ProviderError, match=r"(?m)tried 4 times\)$"):
        exchange.ask()

    assert exchange.account == Account("session", None, spent=4 * GRANTED)
    assert exchange.recorded() == ("error", 4 * GRANTED)


def test_where_the_first_is_not_covered_nothing_is_sent():
    exchange = Exchange(ANSWER, limit=GRANTED // 10)

    with pytest.raises(BudgetExhaustedError):
        exchange.ask()

    assert (exchange.model.requests, exchange.account.spent) == ([], 0)
    assert exchange.ledger.entries == ()


def test_while_it_is_waited_nothing_is_held():
    held = []

    def wait(seconds, cancel) -> bool:
        held.append(exchange.account.reserved)
        return False

    exchange = Exchange(BROKEN, BUSY, ANSWER, waits=wait)
    exchange.ask()

    assert held == [0, 0]


def test_cancelled_before_it_begins_it_costs_nothing():
    cancel = CancelToken()
    cancel.cancel()
    exchange = Exchange(ANSWER)

    turn = exchange.ask(cancel)

    assert (turn.stop, turn.usage_is_known) == (Stop.CANCELLED, True)
    assert exchange.account == Account("session", None)
    assert exchange.recorded() == ("ok", 0)


@pytest.mark.parametrize(("failed", "charged"), [(BROKEN, GRANTED), (BUSY, 0)])
def test_cancelled_while_waiting_it_costs_what_was_tried(failed, charged):
    exchange = Exchange(failed, ANSWER, waits=Waits(cancels_at=1))

    turn = exchange.ask()

    assert (turn.stop, exchange.model.steps_left) == (Stop.CANCELLED, 1)
    assert exchange.account == Account("session", None, spent=charged)
    assert exchange.recorded() == ("ok", charged)


class _Breaks:
    """A provider that is paid for and then fails in a way of no provider."""

    name = "breaks"
    model = "m"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def route(self, request, *, on_text=None, cancel=None):
        raise self.error

    def close(self) -> None:
        return None


@pytest.mark.parametrize(
    ("error", "kind", "charged"),
    [
        (RecursionError("deep"), "defect", GRANTED),
        (KeyboardInterrupt(), "defect", GRANTED),
        (ConfigError("no key"), "config.invalid", 0),
    ],
    ids=["defect", "interrupt", "configuration"],
)
def test_an_exchange_that_fails_otherwise_is_on_record_with_what_it_may_have_cost(
    error, kind, charged
):
    exchange = Exchange()
    exchange.model = _Breaks(error)

    with pytest.raises(type(error)):
        exchange.ask()

    (row,) = exchange.ledger.entries
    assert row.entry.metadata["kind"] == kind
    assert exchange.recorded() == ("error", charged)
    assert exchange.account == Account("session", None, spent=charged)
