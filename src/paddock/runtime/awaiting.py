"""Awaiting what runs in a thread: who stops waiting stops it, and its end is waited for."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from paddock.providers.cancel import CancelToken
from paddock.values.cancelling import Cancel

T = TypeVar("T")


async def await_thread(work: Callable[[Cancel], T]) -> T:
    """What `work` returns, run in a worker thread with a token of its own.

    Raises: what `work` raises; CancelledError once the thread has come to its end, with what
        `work` raised as its cause. Work that had not begun by then never does.
    """
    token, begun = CancelToken(), threading.Lock()
    done: list[T] = []

    def run() -> None:
        if begun.acquire(blocking=False):
            done.append(work(token))

    context = contextvars.copy_context()
    # No task around it, which a loop that ends would cancel while the thread goes on.
    running = asyncio.get_running_loop().run_in_executor(None, partial(context.run, run))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        token.cancel()
        if begun.acquire(blocking=False):
            raise
        # Threat: what is left to itself would change files after its caller went on without it.
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise cancelled from running.exception()
    return done[0]
