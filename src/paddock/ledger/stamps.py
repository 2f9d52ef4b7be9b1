"""Ids and times for entries, at the price of a call for each and not of two system calls."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from paddock.ledger.format.encoding import (
    ID_BYTES,
    TIMESTAMP_SECONDS_MAX,
    format_ids,
    format_timestamp,
)

_KEPT_IDS: Final = 64
_FRACTION_CHARS: Final = len("123456Z")
_SECOND_US: Final = 1_000_000


class Stamps:
    """Gives each entry its id, and each append its time. Threads may share it.

    Random bytes are asked for many ids at once: the system call, and the slower
    code after it, cost more than the id. A forked child has to `forget` what is
    kept, as its parent gives the same ids.
    """

    __slots__ = ("_clock", "_ids", "_randomness", "_second")

    def __init__(self, clock: Callable[[], float], randomness: Callable[[int], bytes]) -> None:
        self._clock = clock
        self._randomness = randomness
        self._ids: Iterator[str] = iter(())
        # One attribute, set at once: what belongs together.
        self._second = (math.inf, "")
        """A second since 1970, and its text up to the point."""

    def time(self) -> str:
        """Return the time now, as `format_timestamp` does."""
        seconds = self._clock()
        second, text = self._second
        since = seconds - second
        if 0 <= since < 1:
            # Within a second only six digits change; the one before them keeps
            # their zeros, at half the price of a format.
            return f"{text}{str(_SECOND_US + int(since * 1e6))[1:]}Z"
        text = format_timestamp(seconds)
        if 0 <= seconds < TIMESTAMP_SECONDS_MAX:
            self._second = float(int(seconds)), text[:-_FRACTION_CHARS]
        return text

    def ids(self, count: int) -> list[str]:
        """Return so many ids, in the order of their random bytes."""
        # One step for the interpreter: no two threads get the same id.
        found = list(islice(self._ids, count))
        while len(found) < count:
            self._ids = iter(format_ids(self._randomness(ID_BYTES * _KEPT_IDS)))
            found += islice(self._ids, count - len(found))
        return found

    def forget(self) -> None:
        """Drop the ids that are kept: after a fork the other process has them too."""
        self._ids = iter(())
