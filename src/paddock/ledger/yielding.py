"""Waiting for another writer by letting it run: sched_yield(2), as long as that is cheap.

What is waited for is done within microseconds, by a process that waits for this
processor, or runs on another one. Yielding costs less than a sleep then: a
processor that has nothing to run is slow to wake, and its caches are cold.

Where programs that only compute are at work besides, whoever yields gets the
processor back a time slice later. A sleeper that is woken goes first there, so
nobody yields for some waits after that.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final

_YIELD_MAX_S: Final = 2e-3
"""Less than a time slice, more than a turn of every writer that waits."""
_WAITS_WITHOUT: Final = 1000
"""A second or so of appends: to find out anew costs each writer a time slice."""


class Yielding:
    """How one waits at one place. Threads may share it: a lost count matters to nobody."""

    __slots__ = ("_monotonic", "_waits_without")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waits_without = 0

    def tries(self, most: int) -> Iterator[None]:
        """Let others run before each of at most so many tries; none where that takes long."""
        if self._waits_without:
            self._waits_without -= 1
            return
        now = self._monotonic
        before = now()
        for _ in range(most):
            os.sched_yield()
            yield
            after = now()
            if after - before > _YIELD_MAX_S:
                self._waits_without = _WAITS_WITHOUT
                return
            before = after
