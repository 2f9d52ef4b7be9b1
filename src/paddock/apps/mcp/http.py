"""Serving clients over streamable HTTP: a bearer token says which agent is calling."""

import asyncio
import ipaddress
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import FrameType
from typing import Final

import h11
import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from paddock import limits
from paddock.apps.mcp.bearer import ByToken, TokenVerifier, not_looked_up
from paddock.apps.mcp.gate import Gate, Hosts, Unambiguous
from paddock.apps.mcp.running import RunningRequests
from paddock.apps.mcp.served import Agents
from paddock.apps.mcp.server import make_server
from paddock.assembly.project import Project
from paddock.errors import HostError, UsageError
from paddock.plane.tokens import make_token, read_token, token_path
from paddock.text.show import quote

PATH: Final = "/mcp"


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """`HOST:PORT`, an IPv6 address in brackets. Raises: UsageError."""
        host, _, port = text.rpartition(":")
        is_number = port.isascii() and port.isdigit() and len(port) <= len("65535")
        if not host or not is_number or int(port) > 65_535:
            raise UsageError(f"{quote(text)} is no HOST:PORT", hint="as in 127.0.0.1:8765")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it: `localhost` or a loopback address."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def ensure_token(project: Project, agent: str) -> str:
    if read_token(project.layout, project.environment, agent) is None:
        make_token(project.layout, project.environment, agent)
    return str(token_path(project.layout, project.environment, agent))


def make_app(agents: Agents, only: str | None, hosts: Hosts) -> Gate:
    """The whole ASGI application: gate, token, protocol."""
    project = agents.project
    calls_max = project.policy.settings.mcp.calls_max
    server = make_server(ByToken(agents), calls_max, is_structured=agents.is_structured)
    running = RunningRequests()
    server.middleware.insert(0, running.handled)
    manager = StreamableHTTPSessionManager(
        server,
        max_request_body_size=limits.mcp_body_bytes_max,
        max_sessions=limits.mcp_sessions_max,
    )
    protocol = StreamableHTTPASGIApp(manager)
    verifier = TokenVerifier(project, only)
    app = Starlette(
        routes=[Route(PATH, RequireAuthMiddleware(Unambiguous(protocol, running), []))],
        middleware=[
            Middleware(
                AuthenticationMiddleware,
                backend=BearerAuthBackend(verifier),
                on_error=not_looked_up,
            ),
            Middleware(AuthContextMiddleware),
        ],
        lifespan=_Lifespan(manager),
    )
    return Gate(app, hosts)


@dataclass(frozen=True, slots=True)
class _Lifespan:
    manager: StreamableHTTPSessionManager

    def __call__(self, app: Starlette) -> AbstractAsyncContextManager[None]:
        del app
        return self.manager.run()


def serve_http(
    agents: Agents,
    only: str | None,
    address: Address,
    names: frozenset[str],
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; `say` hears the address once it is bound.

    What is under way then has `limits.mcp_end_s` to come to its end, and is told to stop.

    Raises: UsageError, ConfigError; HostError: the address cannot be used.
    """
    try:
        agents.get(only)
        app = make_app(agents, only, Hosts(address.is_loopback, names))
        with _listen(address) as listening:
            port = listening.getsockname()[1]
            host = f"[{address.host}]" if ":" in address.host else address.host
            say(f"serving on http://{host}:{port}{PATH}")
            config = uvicorn.Config(
                app,
                http=_connections(),
                log_level="critical",
                access_log=False,
                server_header=False,
                # Those that are half open count against none that is not.
                limit_concurrency=limits.mcp_connections_max + limits.mcp_half_open_max,
                h11_max_incomplete_event_size=limits.mcp_head_bytes_max,
                # Threat: a client that never sends the rest of its request keeps us for ever.
                timeout_graceful_shutdown=limits.mcp_end_s,
            )
            _Server(config).run(sockets=[listening])
    finally:
        agents.close()


def _connections() -> type[H11Protocol]:
    """The connections of one server: each is half open until a request is there whole.

    Threat: whoever sends half a request, or nothing, needs no token for it. Without a bound
    in number and time such connections keep out those who have one.
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
    """One that a signal only ends.

    uvicorn raises the signal again when it is done: SIGTERM would then end the process
    before the agents are closed, which is what signs the last entries.
    """

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See `uvicorn.Server`; nothing is kept to be raised again."""
        del frame
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise HostError(
            f"{quote(address.host)} port {address.port} cannot be listened on: {error.strerror}",
            hint="choose another port, or 0 for any that is free",
        ) from error
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{quote(address.host)} is no name of a host", hint="as in 127.0.0.1:8765"
        ) from error
