"""Awaiting what runs in a thread: who stops waiting stops it, and its end is waited for.

Each work has a thread of its own. The loop's are few and shared: calls that wait for a
person would take them all, from one another and from whatever brings the answer.
"""

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from paddock.providers.failures import CancelToken
from paddock.values.calls import Cancel

T = TypeVar("T")


async def await_thread(work: Callable[[Cancel], T]) -> T:
    """Run `work` in a thread; CancelledError is raised at its end, with its failure as cause."""
    token = CancelToken()
    context = contextvars.copy_context()
    thread = ThreadPoolExecutor(1, thread_name_prefix="paddock-call")
    # No task around it, which a loop that ends would cancel while the thread goes on.
    call = partial(context.run, partial(work, token))
    running = asyncio.get_running_loop().run_in_executor(thread, call)
    # It takes nothing more, and ends with this.
    thread.shutdown(wait=False)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as cancelled:
        token.cancel()
        # Threat: what is left to itself would change files after its caller went on without it.
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise cancelled from running.exception()
