"""Stopping what runs in another thread."""

import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from paddock.values.calls import Cancel


class CancelToken:
    """Cancelled once, for good. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next = 0

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Stop everything that was given this token. Twice is harmless."""
        with self._lock:
            self._event.set()
            waiting = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in waiting:
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when cancelled, or now if that has happened; returns the undoing."""
        with self._lock:
            is_late = self._event.is_set()
            key = self._next
            self._next += 1
            if not is_late:
                self._callbacks[key] = callback
        if is_late:
            callback()
        return _Removal(self, key)

    def remove(self, key: int) -> None:
        """Forget a callback that was not called."""
        with self._lock:
            self._callbacks.pop(key, None)


class _Removal:
    """Undoes one `on_cancel`."""

    def __init__(self, token: CancelToken, key: int) -> None:
        self._token = token
        self._key = key

    def __call__(self) -> None:
        self._token.remove(self._key)


@contextmanager
def stopped_by(*parents: Cancel) -> Generator[CancelToken]:
    """A token that is cancelled when one of `parents` is, while the block runs."""
    token = CancelToken()
    with ExitStack() as held:
        for parent in parents:
            held.callback(parent.on_cancel(token.cancel))
        yield token


def wait_or_cancel(seconds: float, cancel: Cancel | None) -> bool:
    """Wait that long in real time, or until cancelled; true if it was cancelled."""
    woken = threading.Event()
    if cancel is None:
        return woken.wait(seconds)
    forget = cancel.on_cancel(woken.set)
    try:
        return woken.wait(seconds)
    finally:
        forget()
