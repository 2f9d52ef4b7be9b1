"""Running calls: in threads, at most so many at once, stopped when nobody waits any more.

One slow call never holds others: it has a thread of its own, and the loop that reads
and writes messages runs no tool. A place is given back when the call has really ended,
not when its client has left.
"""

from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.to_thread
from mcp.server.session import ServerSession

from paddock.providers.failures import CancelToken
from paddock.sandbox.streams import LastLine

T = TypeVar("T")

_PROGRESS_S: Final = 1.0
"""A call that takes longer is heard of so often, by a client that wants to."""


class Calls:
    """The calls of one server."""

    def __init__(self, calls_max: int) -> None:
        self._places = anyio.CapacityLimiter(calls_max)

    async def run(
        self,
        work: Callable[[], T],
        cancel: CancelToken,
        session: ServerSession,
        printed: LastLine | None = None,
    ) -> T:
        """Run `work` in a thread; when the caller is cancelled, `cancel` is, and work is awaited.

        Threat: a client that cancels and calls again would leave commands behind and
        have more of them run than there are places. `printed` is shown with the progress.
        """
        done: list[T] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, cancel, session, printed)
            # Not abandoned: the thread is told to stop, and its end is waited for.
            done.append(await anyio.to_thread.run_sync(work, limiter=self._places))
            tasks.cancel_scope.cancel()
        return done[0]


async def _watch(cancel: CancelToken, session: ServerSession, printed: LastLine | None) -> None:
    """Report progress until cancelled, and pass that on."""
    seconds = 0
    try:
        while True:
            await anyio.sleep(_PROGRESS_S)
            seconds += 1
            line = printed.text if printed is not None else ""
            message = f"running for {seconds} s" + (f": {line}" if line else "")
            await session.report_progress(float(seconds), message=message)
    finally:
        # Also when the call is done: then nothing listens any more.
        cancel.cancel()
