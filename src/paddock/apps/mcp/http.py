"""Serving clients over streamable HTTP: a bearer token says which agent is calling."""

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
from paddock.apps.mcp.agents import Agents, Served
from paddock.apps.mcp.server import make_server
from paddock.apps.mcp.stdio import read_content, request_id_of, still_runs
from paddock.assembly.project import Project
from paddock.errors import PaddockError, PermissionDeniedError, UsageError
from paddock.plane import tokens
from paddock.text.show import quote


class TokenVerifier(Struct, frozen=True):
    """Looks a token up at each request, so a replaced one is refused; says a failure once."""

    project: Project
    only: str | None
    """The one agent that is served; None for all that have a token."""
    told: set[str] = field(default_factory=set[str])
    """What was said already. Owned by the event loop's thread."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """See `mcp.server.auth.provider.TokenVerifier`. Raises: AuthenticationError."""
        try:
            # Files are read, and nobody else may wait for that.
            bearer = await anyio.to_thread.run_sync(self._find, token)
        except PaddockError as error:
            self._tell(error)
            raise AuthenticationError from error
        for error in bearer.unread:
            self._tell(error)
        agent = bearer.agent
        if agent is None or self.only not in (None, agent):
            return None
        if not self.project.agents.is_known(agent):
            # Its declaration was taken away by hand, and its token was not.
            return None
        # The token's digest keeps sessions of a replaced token from being taken over.
        return AccessToken(token="", client_id=agent, scopes=[], subject=tokens.token_digest(token))

    def _find(self, token: str) -> tokens.Bearer:
        return tokens.find_bearer(self.project.layout, self.project.environment, token)

    def _tell(self, error: PaddockError) -> None:
        said = error.render()
        if said not in self.told:
            self.told.add(said)
            sys.stderr.write(f"paddock mcp: {said}\n")


def not_looked_up(connection: HTTPConnection, error: AuthenticationError) -> Response:
    """The answer where no token can be looked up: nobody is let in, and it may pass."""
    del connection, error
    return PlainTextResponse("no token can be looked up until a person has looked", 503)


def _by_token(agents: Agents) -> Served:
    token = get_access_token()
    if token is None:
        raise PermissionDeniedError("the request carries no token")
    return agents.get(token.client_id)


# Threat: the SDK keeps a session's requests by their ids, and to it 11 and "11" are one. Of
# two that run at once the first could not be stopped any more, and the second would be
# where the first is meant.
#
# A request runs while its answer is waited for, and while its handler does: a client that
# hangs up ends the first alone.

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


# Threat (DNS rebinding): a page in the user's browser, under a name that its owner lets
# point to this machine, sends requests here. The name then stands in Host, and the page's
# origin in Origin; a browser lets no page change either. An address in Host is no name.


class Hosts(Struct, frozen=True):
    is_loopback: bool
    """Bound to this machine alone: then other addresses are refused as well."""
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
            await PlainTextResponse("no such host here", 421)(scope, receive, send)
        elif not all(map(self.hosts.permits_origin, origins)):
            await PlainTextResponse("not from this origin", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)


class Unambiguous(Struct, frozen=True):
    """Refuses what two readers could take for different things.

    That is no JSON, a name that is given twice (the SDK's readers take the last), and the
    id of a request of the same session that runs still. It stands behind the token, so nobody
    else's body is parsed, and behind the limit of its size, so it comes whole.
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
            raise UsageError(f"{quote(text)} is no HOST:PORT", hint="as in 127.0.0.1:8765")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def make_app(agents: Agents, only: str | None, hosts: Hosts) -> Gate:
    server = make_server(partial(_by_token, agents), agents)
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
                on_error=not_looked_up,
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
    """Serve until SIGTERM or SIGINT; `say` hears the address once it is bound.

    What is under way then has `limits.mcp_end_s` to come to its end. Raises: UsageError,
    ConfigError; HostError: the address cannot be used.
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
