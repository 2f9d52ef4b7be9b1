"""Who may speak to the HTTP server at all: an ASGI application round the SDK's.

# Threat (DNS rebinding): a page in the user's browser, under a name that its owner lets
# point to this machine, sends requests here. The name then stands in Host, and the page's
# origin in Origin; a browser lets no page change either. An address in Host is no name.
"""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


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
        """See `starlette.types.ASGIApp`."""
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
