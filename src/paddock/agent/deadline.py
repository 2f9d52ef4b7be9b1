"""A token that is cancelled when its parent is, or when the time is over."""

import threading
from collections.abc import Callable
from typing import Protocol, Self

from paddock.providers.cancel import CancelToken
from paddock.values.calls import Cancel


class Timer(Protocol):
    """Calls back once, later, from some thread."""

    def __call__(self, seconds: float, callback: Callable[[], None], /) -> Callable[[], None]:
        """Start; returns the undoing."""
        ...


def real_timer(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    timer = threading.Timer(seconds, callback)
    timer.daemon = True
    timer.start()
    return timer.cancel


class Deadline:
    """Stops an order in time. A context manager; `token` is what the order's work is given."""

    def __init__(self, parent: Cancel, timeout_s: float | None, timer: Timer) -> None:
        self.token = CancelToken()
        self.is_over = False
        """The time ran out; not set where the parent was cancelled first."""
        self._parent = parent
        self._timeout_s = timeout_s
        self._timer = timer
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._undo.append(self._parent.on_cancel(self.token.cancel))
        if self._timeout_s is not None:
            self._undo.append(self._timer(self._timeout_s, self._run_out))
        return self

    def __exit__(self, *_: object) -> None:
        for undo in self._undo:
            undo()

    def _run_out(self) -> None:
        if not self.token.is_cancelled:
            self.is_over = True
        self.token.cancel()
