"""Waiting for another writer by letting it run: sched_yield(2), as long as that is cheap.

What is waited for is done within microseconds, by a process that waits for this
processor, or runs on another one. Yielding costs less than a sleep then: a
processor that has nothing to run is slow to wake, and its caches are cold.

Where programs that only compute are at work besides, whoever yields gets the
processor back a time slice later. A sleeper that is woken goes first there, so
nobody yields for some waits after that: a few, as once is chance, and more each
time that it happens again.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final

_YIELD_MAX_S: Final = 2e-3
"""Less than a time slice, more than a turn of every writer that waits."""
_WAITS_WITHOUT_MIN: Final = 16
_WAITS_WITHOUT_MAX: Final = 1024
"""A second or so of appends: to find out anew costs each writer a time slice."""
_WAITS_WITHOUT_GROWTH: Final = 4


class Yielding:
    """How one waits at one place. Threads may share it: a lost count matters to nobody."""

    __slots__ = ("_monotonic", "_waits_since", "_waits_without", "_without_next")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waits_without = 0
        self._waits_since = 0
        """Waits with yields since a time slice was lost."""
        self._without_next = _WAITS_WITHOUT_MIN

    def tries(self, most: int) -> Iterator[None]:
        """Let others run before each of at most so many tries; none where that takes long."""
        if self._waits_without:
            self._waits_without -= 1
            return
        self._waits_since += 1
        now = self._monotonic
        before = now()
        for _ in range(most):
            os.sched_yield()
            yield
            after = now()
            if after - before > _YIELD_MAX_S:
                self._lose()
                return
            before = after

    def _lose(self) -> None:
        """A time slice was lost; not for the first time, where one was lost not long ago."""
        is_chance = self._waits_since > _WAITS_WITHOUT_MAX
        self._waits_without = _WAITS_WITHOUT_MIN if is_chance else self._without_next
        self._without_next = min(self._waits_without * _WAITS_WITHOUT_GROWTH, _WAITS_WITHOUT_MAX)
        self._waits_since = 0
