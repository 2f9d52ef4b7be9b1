"""Serve clients over streamable HTTP. A bearer token identifies the calling agent."""

import ipaddress
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import anyio.to_thread
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware, get_access_token
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import JSONRPCError, RequestId
from msgspec import Struct, field
from starlette.applications import Starlette
from starlette.authentication import AuthenticationError
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import limits
from paddock.apps.listener import listen, serve
from paddock.apps.mcp.agents import Agents, ServedAgent
from paddock.apps.mcp.server import make_server
from paddock.apps.mcp.stdio import read_content, request_id_of, still_runs
from paddock.assembly.project import Project
from paddock.errors import PaddockError, PermissionDeniedError, UsageError
from paddock.plane import tokens
from paddock.text.show import quote


class TokenVerifier(Struct, frozen=True):
    """Looks up the token at each request, so a replaced one is refused. Reports an error once."""

    project: Project
    only: str | None
    """The only agent that is served; None for all that have a token."""
    reported: set[str] = field(default_factory=set[str])
    """Errors that were reported. Owned by the event loop's thread."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """See `mcp.server.auth.provider.TokenVerifier`. Raises: AuthenticationError."""
        try:
            # In a thread: reading files must not block other requests.
            find = partial(tokens.find_bearer, self.project.layout, self.project.environment, token)
            bearer = await anyio.to_thread.run_sync(find)
        except PaddockError as error:
            self._report(error)
            raise AuthenticationError from error
        for error in bearer.unread:
            self._report(error)
        agent = bearer.agent
        if agent is None or self.only not in (None, agent):
            return None
        if not self.project.agents.is_known(agent):
            # The agent's declaration was removed by hand, but not its token.
            return None
        # The token's digest keeps sessions of a replaced token from being taken over.
        return AccessToken(token="", client_id=agent, scopes=[], subject=tokens.token_digest(token))

    def _report(self, error: PaddockError) -> None:
        said = error.render()
        if said not in self.reported:
            self.reported.add(said)
            sys.stderr.write(f"paddock mcp: {said}\n")


def answer_unverifiable(connection: HTTPConnection, error: AuthenticationError) -> Response:
    """Refuse the request as temporary when tokens cannot be read."""
    del connection, error
    return PlainTextResponse("tokens cannot be checked until the operator fixes the server", 503)


def _find_agent_by_token(agents: Agents) -> ServedAgent:
    token = get_access_token()
    if token is None:
        raise PermissionDeniedError("the request carries no token")
    return agents.get(token.client_id)


# Threat: the SDK stores a session's requests by id, and treats 11 and "11" as the same id. With
# two of one id running, a cancellation of the first would stop the second.
#
# A request counts as running while the client waits for its answer, and while its handler runs: a
# client that disconnects ends only the waiting.

_SESSION: Final = "mcp-session-id"


RequestKey = tuple[str, RequestId]


def key_of(headers: Headers, request_id: RequestId | None) -> RequestKey | None:
    session = headers.get(_SESSION)
    if session is None or request_id is None:
        return None
    return session, coerce_request_id(request_id)


class RunningRequests:
    def __init__(self) -> None:
        self._held: Counter[RequestKey] = Counter()

    def has(self, key: RequestKey | None) -> bool:
        return key in self._held

    @contextmanager
    def held(self, key: RequestKey | None) -> Generator[None]:
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
        request = ctx.request
        key = None if request is None else key_of(request.headers, ctx.request_id)
        with self.held(key):
            return await call_next(ctx)


# Threat (DNS rebinding): a page in the user's browser sends requests here through a name that its
# owner points to this machine. Host then contains that name, and Origin the page's origin; a page
# cannot change either. An IP address in Host cannot be rebound.


class Hosts(Struct, frozen=True):
    is_loopback: bool
    """The server listens on loopback only: other addresses in Host are then refused, too."""
    names: frozenset[str] = frozenset()

    def permits(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            if name == "localhost" or name in self.names:
                return True
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.is_loopback

    def permits_origin(self, origin: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and self.permits(parts.netloc)


class Gate(Struct, frozen=True):
    app: ASGIApp
    hosts: Hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self.hosts.permits(hosts[0]):
            await PlainTextResponse("unknown host", 421)(scope, receive, send)
        elif not all(map(self.hosts.permits_origin, origins)):
            await PlainTextResponse("origin not allowed", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class Unambiguous(Struct, frozen=True):
    """Refuses requests that two parsers could read differently.

    That is invalid JSON, a duplicate name (the SDK uses the last), and the id of a request that is
    still running in the same session. It runs after the token check, so only an agent's body is
    parsed, and after the size limit, which delivers the body in one piece.
    """

    app: ASGIApp
    running: RunningRequests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        whole = [await receive()]
        value = read_content(whole[0].get("body", b""))
        if isinstance(value, JSONRPCError):
            await _answer(value)(scope, receive, send)
            return
        request_id = request_id_of(value)
        key = key_of(Headers(scope=scope), request_id)
        if request_id is not None and self.running.has(key):
            await _answer(still_runs(request_id))(scope, receive, send)
            return

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        with self.running.held(key):
            await self.app(scope, again, send)


def _answer(error: JSONRPCError) -> Response:
    content = error.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(content, 400, media_type="application/json")


PATH: Final = "/mcp"


class Address(Struct, frozen=True):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, _, port = text.rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
            raise UsageError(f"{quote(text)} is not HOST:PORT", hint="as in 127.0.0.1:8765")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def make_app(agents: Agents, only: str | None, hosts: Hosts) -> Gate:
    server = make_server(partial(_find_agent_by_token, agents), agents)
    running = RunningRequests()
    server.middleware.insert(0, running.handled)
    manager = StreamableHTTPSessionManager(
        server,
        max_request_body_size=limits.mcp_body_bytes_max,
        max_sessions=limits.mcp_sessions_max,
    )
    protocol = StreamableHTTPASGIApp(manager)
    verifier = TokenVerifier(agents.project, only)
    held = RequestBodyLimitMiddleware(Unambiguous(protocol, running), limits.mcp_body_bytes_max)
    app = Starlette(
        routes=[Route(PATH, RequireAuthMiddleware(held, []))],
        middleware=[
            Middleware(
                AuthenticationMiddleware,
                backend=BearerAuthBackend(verifier),
                on_error=answer_unverifiable,
            ),
            Middleware(AuthContextMiddleware),
        ],
        lifespan=lambda _: manager.run(),
    )
    return Gate(app, hosts)


def serve_http(
    agents: Agents,
    only: str | None,
    address: Address,
    names: frozenset[str],
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT; `say` gets the address once it is bound.

    Running requests then have `limits.mcp_end_s` to finish. Raises: UsageError, ConfigError;
    HostError: the address cannot be used.
    """
    try:
        agents.get(only)
        app = make_app(agents, only, Hosts(address.is_loopback, names))
        with listen(address.host, address.port) as listening:
            port = listening.getsockname()[1]
            host = f"[{address.host}]" if ":" in address.host else address.host
            say(f"serving on http://{host}:{port}{PATH}")
            serve(app, [listening])
    finally:
        agents.close()
