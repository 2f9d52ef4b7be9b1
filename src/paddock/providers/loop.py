"""Waiting for a server in a way that can be stopped.

A thread that blocks in a read cannot be interrupted: closing its socket from
another thread does not wake it. So exchanges run on an event loop in a thread of
its own, where stopping one closes its connection at once, and the caller's
thread only waits for pieces of text and for the end.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

from paddock import limits
from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.ports import TextSink
from paddock.values.calls import Cancel

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread, started with the first exchange."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start `work` on the loop.

        Raises: ProviderError where the loop is closed.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise ProviderError("the provider was closed", kind=FailureKind.REQUEST)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self, last: Callable[[], Coroutine[object, object, None]]) -> None:
        """Stop everything, run `last` on the loop, and end the thread. Twice is harmless."""
        with self._lock:
            is_first = not self._is_closed
            self._is_closed = True
            loop, thread = self._loop, self._thread
        if not is_first or loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_wind_up(last), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _wind_up(last: Callable[[], Coroutine[object, object, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
    await asyncio.get_running_loop().shutdown_asyncgens()


class Exchange:
    """One exchange: pieces of text come through it to the thread that waits."""

    def __init__(self, on_text: TextSink | None, cancel: Cancel | None) -> None:
        self._on_text = on_text
        self._cancel = cancel
        # None wakes the waiting thread to look around.
        self._arrived: SimpleQueue[str | None] = SimpleQueue()
        self._seen: list[str] = []

    @property
    def text(self) -> str:
        """What has been handed to the waiting thread."""
        return "".join(self._seen)

    def piece(self, text: str) -> None:
        if text:
            self._arrived.put(text)

    def wait(self, loop: LoopThread, work: Coroutine[object, object, T]) -> T | None:
        """Run `work` to its end and return what it came to; None where it was cancelled.

        Raises: what `work` raises, and what the sink raises; then `work` is stopped.
        """
        try:
            future = loop.submit(_in_time(work))
        except ProviderError:
            work.close()
            raise
        future.add_done_callback(self._wake_done)
        forget = None if self._cancel is None else self._cancel.on_cancel(self._wake)
        try:
            while True:
                piece = self._arrived.get()
                if piece is not None:
                    self._seen.append(piece)
                    if self._on_text is not None:
                        self._on_text.text(piece)
                elif self._cancel is not None and self._cancel.is_cancelled:
                    return None
                elif future.done():
                    return _result(future)
        finally:
            future.cancel()
            if forget is not None:
                forget()

    def _wake(self) -> None:
        self._arrived.put(None)

    def _wake_done(self, future: "Future[T]") -> None:
        self._wake()


async def _in_time(work: Coroutine[object, object, T]) -> T:
    try:
        async with asyncio.timeout(limits.model_timeout_s):
            return await work
    except TimeoutError:
        raise ProviderError(
            f"the model took longer than {limits.model_timeout_s:g} seconds",
            kind=FailureKind.TIMEOUT,
        ) from None


def _result(future: "Future[T]") -> T:
    if future.cancelled():
        raise ProviderError("the provider was closed meanwhile", kind=FailureKind.REQUEST)
    return future.result()
