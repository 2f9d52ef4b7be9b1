"""Ctrl-C as a request to stop: once it cancels what runs, a second time it interrupts."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from paddock.providers.cancel import CancelToken


@contextmanager
def cancelled_by_interrupt() -> Generator[CancelToken]:
    """A token that the first SIGINT cancels, while the block runs.

    Outside the main thread no signal arrives, and nothing cancels it.
    """
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop.token
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield stop.token
    finally:
        signal.signal(signal.SIGINT, before)


class _Stop:
    def __init__(self) -> None:
        self.token = CancelToken()
        self._is_first = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self._is_first:
            raise KeyboardInterrupt
        self._is_first = False
        # In a thread: the one that was interrupted may hold the token's lock right now.
        threading.Thread(target=self.token.cancel, name="paddock-cancel").start()
