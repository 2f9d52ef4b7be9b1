"""What real clients say first, and what other readers than ours take it for."""

import contextlib
import functools
import io
import ssl
from http.server import BaseHTTPRequestHandler


def client_hello(name: str | None, *, alpn: tuple[str, ...] = ()) -> bytes:
    """A hello of this Python's own TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols(list(alpn))
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake that needs no answer")


@functools.cache
def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    return context


def openssl_server_names(first: bytes) -> list[str | None]:
    """The names that a server of OpenSSL is asked for; none where it takes it for no hello."""
    asked: list[str | None] = []
    context = _server_context()
    context.sni_callback = lambda _, name, __: asked.append(name)
    received = ssl.MemoryBIO()
    received.write(first)
    server = context.wrap_bio(received, ssl.MemoryBIO(), server_side=True)
    with contextlib.suppress(ssl.SSLError):  # It looks for its certificate after the name.
        server.do_handshake()
    return asked


_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH")


class _Handler(BaseHTTPRequestHandler):
    """Python's own server, stopped when it has read a request."""

    def __init__(self, first: bytes) -> None:
        self.rfile = io.BytesIO(first)
        self.wfile = io.BytesIO()
        self.client_address = ("", 0)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def python_server_hosts(first: bytes) -> list[str]:
    """The Host headers that Python's lax server reads; none where it takes it for no request."""
    handler = _Handler(first)
    handler.raw_requestline = handler.rfile.readline(65_537)
    is_request = handler.parse_request() and handler.command in _METHODS
    if not is_request or handler.request_version == "HTTP/0.9":  # It knew no headers.
        return []
    return handler.headers.get_all("Host") or []
