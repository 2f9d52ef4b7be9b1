"""Who may speak to the HTTP server at all: an ASGI application round the SDK's.

Threat (DNS rebinding): a page in the user's browser, under a name that its owner lets
point to this machine, sends requests here. The name then stands in Host, and the page's
origin in Origin; a browser lets no page change either. An address in Host is no name.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from mcp_types import JSONRPCError
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import limits
from paddock.apps.mcp.lines import read_content, request_id_of, still_runs
from paddock.apps.mcp.running import RunningRequests, key_of


@dataclass(frozen=True, slots=True)
class Hosts:
    """By which hosts the server may be addressed."""

    is_loopback: bool
    """Bound to this machine alone: then other addresses are refused as well."""
    names: frozenset[str] = frozenset()

    def permits(self, host: str) -> bool:
        """Whether a Host header's value (RFC 9110, 7.2) names this server."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
            if name == "localhost" or name in self.names:
                return True
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.is_loopback

    def permits_origin(self, origin: str) -> bool:
        """Whether an Origin header's value is a page that this server could have sent."""
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and self.permits(parts.netloc)


@dataclass(frozen=True, slots=True)
class Gate:
    """Refuses requests for another host, and those that a page of another origin sends."""

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


@dataclass(frozen=True, slots=True)
class Unambiguous:
    """Refuses what two readers could take for different things.

    That is no JSON, a name that is given twice (the SDK's readers take the last), and the
    id of a request of the same session that runs still. It stands behind the token:
    nobody else's body is held or parsed.
    """

    app: ASGIApp
    running: RunningRequests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or _says_too_large(scope):
            await self.app(scope, receive, send)
            return
        pieces, body = await _read(receive)
        value = None if body is None else read_content(body)
        if isinstance(value, JSONRPCError):
            await _answer(value)(scope, receive, send)
            return
        request_id = request_id_of(value)
        key = key_of(Headers(scope=scope), request_id)
        if request_id is not None and self.running.has(key):
            await _answer(still_runs(request_id))(scope, receive, send)
            return

        async def again() -> Message:
            return pieces.pop(0) if pieces else await receive()

        with self.running.held(key):
            await self.app(scope, again, send)


def _answer(error: JSONRPCError) -> Response:
    content = error.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(content, 400, media_type="application/json")


def _says_too_large(scope: Scope) -> bool:
    """Such a body is refused before it comes; nobody may wait for it."""
    said = Headers(scope=scope).get("content-length", "0")
    return said.isascii() and said.isdigit() and int(said) > limits.mcp_body_bytes_max


async def _read(receive: Receive) -> tuple[list[Message], bytes | None]:
    """What comes in up to the limit, piece by piece and as a whole; over it, nothing whole.

    The SDK refuses what is over it.
    """
    pieces: list[Message] = []
    body = bytearray()
    while len(body) <= limits.mcp_body_bytes_max:
        piece = await receive()
        pieces.append(piece)
        body += piece.get("body", b"")
        if not piece.get("more_body", False):
            return pieces, bytes(body)
    return pieces, None
