"""The requests that run in the sessions of the HTTP server, by what they are told apart with.

Threat: the SDK keeps a session's requests by their ids, and to it 11 and "11" are one. Of
two that run at once the first could not be stopped any more, and the second would be
where the first is meant.

A request runs while its answer is waited for, and while its handler does: a client that
hangs up ends the first alone.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId
from starlette.datastructures import Headers

_SESSION: Final = "mcp-session-id"


class RequestKey(NamedTuple):
    session: str
    request_id: RequestId


def key_of(headers: Headers, request_id: RequestId | None) -> RequestKey | None:
    """The key of a request; None of one without a session, which stands for itself."""
    session = headers.get(_SESSION)
    if session is None or request_id is None:
        return None
    return RequestKey(session, coerce_request_id(request_id))


class RunningRequests:
    """Those that run now. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._held: Counter[RequestKey] = Counter()

    def has(self, key: RequestKey | None) -> bool:
        return key in self._held

    @contextmanager
    def held(self, key: RequestKey | None) -> Generator[None]:
        """For so long it runs, whoever else holds it."""
        if key is None:
            yield
            return
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]

    async def handled(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Hold a request while it is handled. See `mcp.server.lowlevel.Server.middleware`."""
        request = ctx.request
        key = None if request is None else key_of(request.headers, ctx.request_id)
        with self.held(key):
            return await call_next(ctx)
