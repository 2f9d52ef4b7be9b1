"""Listen and serve until a signal: for the MCP server over HTTP and the console."""

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from paddock import limits
from paddock.errors import HostError, UsageError
from paddock.text.show import quote


def listen(host: str, port: int) -> socket.socket:
    """Raises: UsageError; HostError: the address cannot be used, its cause says why."""
    if not 0 <= port <= 65_535:
        raise UsageError(f"invalid port {port}", where="--port", hint="0 means any free port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise HostError(
            f"cannot listen on {quote(host)} port {port}: {error.strerror}",
            hint="choose another port, or 0 for any free one",
        ) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"invalid host {quote(host)}", hint="such as 127.0.0.1") from error


def serve(
    app: ASGIApp, listening: list[socket.socket], on_end: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or SIGINT; call `on_end` when one arrives."""
    config = uvicorn.Config(
        app,
        http=_connections(),
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        # Half-open connections must not use up the places of complete ones.
        limit_concurrency=limits.mcp_connections_max + limits.mcp_half_open_max,
        h11_max_incomplete_event_size=limits.mcp_head_bytes_max,
        # Threat: a client that never sends the rest of its request would block shutdown.
        timeout_graceful_shutdown=limits.mcp_end_s,
    )
    _Server(config, on_end).run(sockets=listening)


def _connections() -> type[H11Protocol]:
    """Return the connection class of one server: half open until a whole request has arrived.

    Threat: a client needs no token to send half a request, or nothing. Without limits in
    number and time such connections would keep out clients that have a token.
    """
    half_open: dict[H11Protocol, asyncio.TimerHandle] = {}

    class _Arriving(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._arrived()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            super().connection_lost(exc)

        def _wait(self) -> None:
            if self in half_open or self.transport.is_closing():
                return
            half_open[self] = self.loop.call_later(limits.mcp_request_s, self.transport.abort)
            if len(half_open) > limits.mcp_half_open_max:
                oldest = next(iter(half_open))
                half_open.pop(oldest).cancel()
                oldest.transport.abort()

        def _arrived(self) -> None:
            if self in half_open:
                half_open.pop(self).cancel()

    return _Arriving


class _Server(uvicorn.Server):
    """A server that does not raise the signal again after it has ended.

    uvicorn does: SIGTERM would end the process before the served runtime is closed, and
    closing it signs the last ledger entries.
    """

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        del frame
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True
        self._on_end()
