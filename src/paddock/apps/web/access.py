"""Who is let in: the code of a link, bearer tokens, Host and Origin, and a page's headers.

No cookie is ever set: one of 127.0.0.1 goes to every port there, so a server that an agent
starts would be sent it.
"""

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from msgspec import Struct
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import limits
from paddock.apps.web.view import HttpRefusal, PlaneDesk, refused
from paddock.plane import tokens

FOLDER: Final = "web"
ACTING: Final = "acting"
READING: Final = "reading"
_SECRET_BYTES: Final = 32
_AGAIN: Final = "press Enter where paddock web runs, for a new link"


class Codes:
    """Codes of links, each good once and for a minute, for a token that lives as long as we do.

    Threat: an address stands in histories, on screens and in the arguments of the program that
    opens it. What stands there is worth nothing once the page, or anybody, has used it.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._codes: dict[bytes, float] = {}
        self._tokens: dict[bytes, bool] = {}

    def new(self) -> str:
        """Make one; from any thread, so none is put back that is being exchanged."""
        code = secrets.token_urlsafe(_SECRET_BYTES)
        self._codes[_digest(code)] = self._clock() + limits.web_code_s
        return code

    def exchange(self, code: str, *, reads_only: bool) -> str:
        """Return a token. Raises: HttpRefusal: the code was used, is too old, or is none."""
        until = self._codes.pop(_digest(code), 0.0)
        if self._clock() >= until:
            said = "this link was used already, or is older than a minute"
            raise HttpRefusal(403, "web.code", said, _AGAIN)
        token = secrets.token_urlsafe(_SECRET_BYTES)
        self._tokens[_digest(token)] = reads_only
        return token

    def find(self, token: str) -> bool | None:
        """Return whether it reads only; None where it is no token of a page."""
        return self._tokens.get(_digest(token))


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def require_bearer(desk: PlaneDesk, codes: Codes, headers: Headers) -> bool:
    """Return whether the bearer only reads: a page, or a program by the token in its file.

    Raises: HttpRefusal; ConfigError, HostError.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_only = None
    if scheme.lower() == "bearer" and token:
        is_only = codes.find(token)
        if is_only is None:
            found = tokens.find_bearer(desk.site.layout, desk.site.environment, token, FOLDER)
            is_only = None if found.agent is None else found.agent != ACTING
    if is_only is None:
        raise HttpRefusal(401, "web.token", "no token, or an old one", _AGAIN)
    return is_only or desk.reads_only


# Threat (DNS rebinding): a page in the person's browser, under a name that its owner lets point
# to this machine, sends requests here. The name then stands in Host, and the page's origin in
# Origin; a browser lets no page change either. Another port of this machine is another origin.

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
            # The server's own start and end: WebSockets are none of its protocols.
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
            app = refused(HttpRefusal(421, "web.host", "no such host here"))
        elif origins not in ([], [self.origin]):
            app = refused(HttpRefusal(403, "web.origin", "not from this origin"))
        await app(scope, receive, with_headers)
