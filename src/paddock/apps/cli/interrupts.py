"""Signals as a request to stop: what runs is cancelled, and comes to its end on record."""

import signal
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Final

from paddock.providers.failures import CancelToken

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """What signals asked for while a block ran."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.ended_by: int | None = None
        """The signal, SIGTERM or SIGHUP, by whose status the command ends."""
        self._is_first = True

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C: once it cancels what runs, a second time it interrupts."""
        if not self._is_first:
            raise KeyboardInterrupt
        self._is_first = False
        self._cancel()

    def end(self, number: int, frame: FrameType | None) -> None:
        """Whoever ends the process, also again and again: what runs is cancelled."""
        self.ended_by = self.ended_by or number
        self._cancel()

    def _cancel(self) -> None:
        # In a thread: the one that was interrupted may hold the token's lock right now.
        threading.Thread(target=self.token.cancel, name="paddock-cancel").start()


@contextmanager
def cancelled_by_signals() -> Generator[Stopping]:
    """What SIGINT, SIGTERM and SIGHUP ask for, while the block runs.

    A SIGTERM or SIGHUP that is ignored (nohup(1)) stays so. Outside the main thread no
    signal arrives, and nothing cancels anything.
    """
    stopping = Stopping()
    with ExitStack() as held:
        if threading.current_thread() is threading.main_thread():
            before = signal.signal(signal.SIGINT, stopping.interrupt)
            held.callback(signal.signal, signal.SIGINT, before)
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    before = signal.signal(number, stopping.end)
                    held.callback(signal.signal, number, before)
        yield stopping
