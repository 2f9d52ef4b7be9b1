"""Authenticate requests: link codes, bearer tokens, Host and Origin; set security headers.

No cookie is ever set: a cookie of 127.0.0.1 goes to every port there, also to a server that
an agent starts.
"""

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import limits
from paddock.apps.web.view import HttpRefusal, ServedPlane, refused
from paddock.plane import tokens

FOLDER: Final = "web"
ACTING: Final = "acting"
READING: Final = "reading"
_SECRET_BYTES: Final = 32
_AGAIN: Final = "for a new link, press Enter in the terminal of paddock web"


class Codes:
    """Link codes: each is valid once, for a minute, and gives a token valid until the server ends.

    Threat: an address leaks through histories, screens and program arguments. Its code is
    worthless once it was used.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._codes: dict[bytes, float] = {}
        self._tokens: dict[bytes, bool] = {}

    def new(self) -> str:
        """Create a code. Any thread may call it: it only adds, so no used code can return."""
        code = secrets.token_urlsafe(_SECRET_BYTES)
        self._codes[_digest(code)] = self._clock() + limits.web_code_s
        return code

    def exchange(self, code: str, *, reads_only: bool) -> str:
        """Return a token. Raises: HttpRefusal: the code is unknown, used or expired."""
        until = self._codes.pop(_digest(code), 0.0)
        if self._clock() >= until:
            said = "this link was used already, or is older than a minute"
            raise HttpRefusal(403, "web.code", said, _AGAIN)
        token = secrets.token_urlsafe(_SECRET_BYTES)
        self._tokens[_digest(token)] = reads_only
        return token

    def find(self, token: str) -> bool | None:
        """Return whether the token is read-only; None if it is not a page's token."""
        return self._tokens.get(_digest(token))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def require_bearer(plane: ServedPlane, codes: Codes, headers: Headers) -> bool:
    """Authenticate a page or a program; return whether it may only read.

    Raises: HttpRefusal; ConfigError, HostError.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_only = None
    if scheme.lower() == "bearer" and token:
        is_only = codes.find(token)
        if is_only is None:
            found = tokens.find_bearer(plane.site.layout, plane.site.environment, token, FOLDER)
            is_only = None if found.agent is None else found.agent != ACTING
    if is_only is None:
        raise HttpRefusal(401, "web.token", "missing or expired token", _AGAIN)
    return is_only or plane.reads_only


# Threat (DNS rebinding): a foreign page in the user's browser, whose name resolves to this
# machine, sends requests here. Host then holds that name and Origin the page's origin, and no
# page can change them. Another port of this machine is another origin.

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class OriginGate(Struct, frozen=True):
    app: ASGIApp
    origin: str
    """As it was printed: scheme, name and port."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # Lifespan events of the server; WebSockets are disabled.
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        headers = Headers(scope=scope)
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        app = self.app
        if hosts != [self.origin.partition("//")[2]]:
            app = refused(HttpRefusal(421, "web.host", "unknown host"))
        elif origins not in ([], [self.origin]):
            app = refused(HttpRefusal(403, "web.origin", "request from another origin"))
        await app(scope, receive, with_headers)
