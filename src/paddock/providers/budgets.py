"""The budgets of a running session, shared by its threads.

One lock for the whole tree: a reservation looks at every scope from the call up to
the session and takes from all of them, or from none.
"""

import threading
from typing import Final, Self

from paddock import limits
from paddock.errors import BudgetExhaustedError
from paddock.providers.transcript import request_text
from paddock.values.models import (
    Account,
    BudgetMode,
    Chain,
    ModelRequest,
    Shortage,
    Usage,
    find_free,
    find_shortage,
    plan_reserve,
    plan_settle,
)


class _Tree:
    def __init__(self, mode: BudgetMode) -> None:
        self.mode = mode
        self.lock = threading.Lock()
        self.accounts: list[Account] = []
        self.told: set[str] = set()
        """Scopes of which it was said that they are short."""

    def add(self, account: Account) -> int:
        with self.lock:
            self.accounts.append(account)
            return len(self.accounts) - 1

    def chain(self, places: tuple[int, ...]) -> Chain:
        return tuple(self.accounts[place] for place in places)

    def put(self, places: tuple[int, ...], chain: Chain) -> None:
        for place, account in zip(places, chain, strict=True):
            self.accounts[place] = account

    def note_shortage(self, shortage: Shortage | None) -> bool:
        """Note that it is told; whether it is the first of its scope. Under the lock."""
        if shortage is None or shortage.scope in self.told:
            return False
        self.told.add(shortage.scope)
        return True


class Budget:
    """One scope. Made with `session_budget`, narrowed with `child`."""

    def __init__(self, tree: _Tree, places: tuple[int, ...]) -> None:
        self._tree = tree
        self._places = places
        """Its own account, then those above it."""

    @property
    def mode(self) -> BudgetMode:
        return self._tree.mode

    @property
    def account(self) -> Account:
        with self._tree.lock:
            return self._tree.accounts[self._places[0]]

    @property
    def free(self) -> int | None:
        """What can be reserved here now, every scope above considered; None: no limit."""
        with self._tree.lock:
            return find_free(self._tree.chain(self._places))

    def child(self, name: str, limit: int | None = None) -> "Budget":
        """A scope that draws on this one. Its own limit can only be narrower in effect."""
        return Budget(self._tree, (self._tree.add(Account(name, limit)), *self._places))

    def reserve(self, tokens: int, *, at_least: int | None = None) -> "TokenReservation":
        """Take `tokens` out of this scope and all above, to be settled after the call.

        With `at_least`, whatever is free between the two is granted: `TokenReservation.granted`.

        Raises: BudgetExhaustedError: in mode `enforce`, where a scope has too little. ValueError.
        """
        if tokens < 0 or (at_least is not None and not 0 <= at_least <= tokens):
            raise ValueError(f"a reservation of {tokens} tokens, at least {at_least}")
        with self._tree.lock:
            chain = self._tree.chain(self._places)
            needed = tokens if at_least is None else at_least
            shortage = find_shortage(chain, needed)
            if shortage is not None and self._tree.mode is BudgetMode.ENFORCE:
                raise BudgetExhaustedError(
                    str(shortage), hint="raise the budget, or begin a new session"
                )
            granted = self._granted(chain, tokens, needed)
            self._tree.put(self._places, plan_reserve(chain, granted))
            said = shortage if self._tree.mode is BudgetMode.WARN else None
            return TokenReservation(self, granted, said, is_news=self._tree.note_shortage(said))

    def _granted(self, chain: Chain, tokens: int, needed: int) -> int:
        free = find_free(chain)
        if free is None or self._tree.mode is not BudgetMode.ENFORCE:
            return tokens
        return max(needed, min(tokens, free))

    def settle(self, reserved: int, used: int) -> None:
        with self._tree.lock:
            chain = self._tree.chain(self._places)
            self._tree.put(self._places, plan_settle(chain, reserved, used))


class TokenReservation:
    """Tokens taken for one call. Settled once; a context manager.

    Left without being settled, all of it counts as spent: a call of which nobody
    knows what it cost may have cost everything it was granted.
    """

    def __init__(
        self, budget: Budget, granted: int, shortage: Shortage | None, *, is_news: bool = False
    ) -> None:
        self.granted = granted
        self.shortage = shortage
        """In mode `warn`: what `enforce` would have refused it for."""
        self.is_news = is_news
        """Whether nobody was told before that this scope is short."""
        self._budget = budget
        self._lock = threading.Lock()
        self._is_settled = False

    def settle(self, used: Usage) -> None:
        """Spend what the call used, also where that is more than was granted. Counts once."""
        # An embedding program's provider says what it likes; tokens are never given back.
        self._settle(max(0, used.total))

    def release(self) -> None:
        self._settle(0)

    def _settle(self, used: int) -> None:
        with self._lock:
            is_first = not self._is_settled
            self._is_settled = True
        if is_first:
            self._budget.settle(self.granted, used)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._settle(self.granted)


def session_budget(limit: int | None, mode: BudgetMode = BudgetMode.ENFORCE) -> Budget:
    tree = _Tree(mode)
    return Budget(tree, (tree.add(Account("session", limit)),))


# For reservations: it should rather be too high. Tokenizers differ; none of those in
# use makes more than one token of two bytes of ordinary text, and most make one of four.

MESSAGE_TOKENS: Final = 8
"""What a wire adds around each message."""


def estimate_input_tokens(request: ModelRequest) -> int:
    """An upper estimate of the request's tokens, its tools and schemas included."""
    size = len(request_text(request).encode("utf-8", "surrogatepass"))
    framing = MESSAGE_TOKENS * (len(request.messages) + 1)
    return size // limits.model_bytes_per_token + framing
