"""Token budgets as values: reserve before a call, settle after it.

A scope (session, work order, call) draws on the one that holds it, up to the
session. What is reserved anywhere below counts as taken everywhere above, so
that calls side by side cannot spend the same tokens twice.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class BudgetMode(StrEnum):
    ENFORCE = "enforce"
    """The reservation is refused."""
    WARN = "warn"
    """It is granted, and says so."""
    OFF = "off"
    """Spending is counted, nothing is said."""


@dataclass(frozen=True, slots=True)
class Account:
    """One scope's tokens. `limit` is None where there is none."""

    name: str
    limit: int | None = None
    spent: int = 0
    reserved: int = 0

    @property
    def free(self) -> int | None:
        """What may still be reserved, never below 0; None where there is no limit."""
        if self.limit is None:
            return None
        return max(0, self.limit - self.spent - self.reserved)


class Shortage(NamedTuple):
    """Which scope is short, and by how much."""

    scope: str
    limit: int
    free: int
    wanted: int

    def __str__(self) -> str:
        return f"{self.scope} has {self.free} of {self.limit} tokens left, {self.wanted} are wanted"


Chain = tuple[Account, ...]
"""A scope first, then what holds it, up to the session."""


def find_free(chain: Chain) -> int | None:
    """What can be reserved through the whole chain; None where nothing limits it."""
    limited = [account.free for account in chain if account.free is not None]
    return min(limited, default=None)


def find_shortage(chain: Chain, tokens: int) -> Shortage | None:
    """The scope that has least and cannot give `tokens`; None where every scope can."""
    short = [
        Shortage(account.name, account.limit, account.free, tokens)
        for account in chain
        if account.limit is not None and account.free is not None and account.free < tokens
    ]
    return min(short, key=_free_of, default=None)


def _free_of(shortage: Shortage) -> int:
    return shortage.free


def plan_reserve(chain: Chain, tokens: int) -> Chain:
    """The chain with `tokens` reserved in every scope. Whether it may be is asked before."""
    return tuple(replace(account, reserved=account.reserved + tokens) for account in chain)


def plan_settle(chain: Chain, reserved: int, used: int) -> Chain:
    """The chain with a reservation given back and what was really used spent."""
    return tuple(
        replace(account, reserved=account.reserved - reserved, spent=account.spent + used)
        for account in chain
    )
