"""Reserve and settle the token budgets of a running session, shared by its threads.

One lock covers the whole tree: a reservation checks every scope from its own up to the session, and
takes tokens from all of them or from none.
"""

import threading
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.errors import BudgetExhaustedError
from paddock.providers.gateway import request_text
from paddock.values.models import Account, BudgetMode, ModelRequest, Shortage


class _Scope(Struct):
    account: Account


class _Shared(Struct):
    mode: BudgetMode
    lock: threading.Lock = field(default_factory=threading.Lock)
    reported: set[str] = field(default_factory=set[str])
    """Names of scopes already reported as short."""


class Budget(Struct, frozen=True):
    shared: _Shared
    chain: tuple[_Scope, ...]
    """This scope, then those above it."""

    @property
    def mode(self) -> BudgetMode:
        return self.shared.mode

    @property
    def account(self) -> Account:
        with self.shared.lock:
            return self.chain[0].account

    @property
    def free(self) -> int | None:
        with self.shared.lock:
            return self._free()

    def child(self, name: str, limit: int | None = None) -> "Budget":
        return Budget(self.shared, (_Scope(Account(name, limit)), *self.chain))

    def reserve(self, tokens: int, *, at_least: int | None = None) -> "TokenReservation":
        """Take `tokens` from this scope and all above, to be settled after the call.

        With `at_least`, mode `enforce` grants the free tokens, from `at_least` up to `tokens`.

        Raises: BudgetExhaustedError: in mode `enforce`, if a scope has too little. ValueError.
        """
        if tokens < 0 or (at_least is not None and not 0 <= at_least <= tokens):
            raise ValueError(f"a reservation of {tokens} tokens, at least {at_least}")
        with self.shared.lock:
            needed = tokens if at_least is None else at_least
            shortage = self._find_shortage(needed)
            free = self._free()
            granted = tokens
            if self.mode is BudgetMode.ENFORCE:
                if shortage is not None:
                    raise BudgetExhaustedError(
                        str(shortage), hint="raise the budget, or start a new session"
                    )
                granted = tokens if free is None else max(needed, min(tokens, free))
            self._take(reserved=granted, spent=0)
            if shortage is None or self.mode is BudgetMode.OFF:
                return TokenReservation(self, granted)
            is_news = shortage.scope not in self.shared.reported
            self.shared.reported.add(shortage.scope)
            return TokenReservation(self, granted, shortage, is_news)

    def settle(self, reserved: int, used: int) -> None:
        with self.shared.lock:
            self._take(reserved=-reserved, spent=used)

    def _free(self) -> int | None:
        accounts = (scope.account for scope in self.chain)
        return min((each.free for each in accounts if each.free is not None), default=None)

    def _find_shortage(self, tokens: int) -> Shortage | None:
        found: Shortage | None = None
        for scope in self.chain:
            account = scope.account
            free = account.free
            if account.limit is not None and free is not None and free < tokens:
                short = Shortage(account.name, account.limit, free, tokens)
                found = short if found is None or free < found.free else found
        return found

    def _take(self, *, reserved: int, spent: int) -> None:
        # In every scope above too, so that parallel requests cannot spend the same tokens.
        for scope in self.chain:
            own = scope.account
            scope.account = replace(own, reserved=own.reserved + reserved, spent=own.spent + spent)


class TokenReservation(Struct, frozen=True):
    """Tokens reserved for one request, to be settled once."""

    budget: Budget
    granted: int
    shortage: Shortage | None = None
    """In mode `warn`: the reason for which `enforce` would have refused it."""
    is_news: bool = False
    """True for the first reservation that finds the scope short."""

    def settle(self, used: int) -> None:
        """Spend the used tokens, even more than were granted."""
        self.budget.settle(self.granted, used)


def session_budget(limit: int | None, mode: BudgetMode = BudgetMode.ENFORCE) -> Budget:
    return Budget(_Shared(mode), (_Scope(Account("session", limit)),))


# An estimate for reservations, above most tokenizers' counts: these need at least two bytes of
# ordinary text for a token, most of them four; the estimate uses three.

MESSAGE_TOKENS: Final = 8
"""The overhead of an API for each message."""


def estimate_input_tokens(request: ModelRequest) -> int:
    size = len(request_text(request).encode("utf-8", "surrogatepass"))
    framing = MESSAGE_TOKENS * (len(request.messages) + 1)
    return size // limits.model_bytes_per_token + framing
