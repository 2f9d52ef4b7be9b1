"""Terminate TLS to hosts that request rules or credentials name, and judge each request.

To the command this is the host, with a certificate of the runtime's authority; to the host it is a
client that verifies it. HTTP/1.1 in between is parsed strictly by `h11` and serialised again.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import unquote_to_bytes

import h11
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from paddock.network.credentials import (
    Credential,
    Pair,
    StreamReplacer,
    decode_basic,
    replace_in_header,
    replace_texts,
)
from paddock.network.egress import SERVER_FAILED, reset
from paddock.text.show import quote

if TYPE_CHECKING:
    from paddock.network.wall import RequestGate

_HEAD_BYTES_MAX: Final = 65_536
_HEADERS_MAX: Final = 128
_PIECE_BYTES: Final = 65_536
_BUNDLES: Final = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
"""The distributions' CA bundles, if the TLS library does not name one."""
_IDLE_S: Final = 3_600.0
_LINGER_S: Final = 2.0
_VALID: Final = timedelta(days=30)

_REFUSED: Final = "net.request_refused"

_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer "
    b"transfer-encoding upgrade".split()
)
_FRAMING: Final = frozenset((b"host", b"content-length", b"transfer-encoding"))
# Threat: a server takes method, host or path from these, and handles a request that was not judged.
_OVERRIDES: Final = frozenset(
    b"x-http-method-override x-http-method x-method-override x-original-method x-original-url "
    b"x-original-uri x-rewrite-url x-forwarded-uri x-forwarded-host x-host forwarded".split()
)
# Threat: in a compressed body, or in ranges that the command chose, values are not detected.
_HIDING: Final = frozenset((b"accept-encoding", b"range", b"if-range"))
_BOTH_DONE: Final = {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}

Result = TypeVar("Result")


class Authority:
    """The certificate authority that one runtime's sandboxes trust; its key is only in memory.

    `verifying` is the context for outgoing connections: it verifies hosts with `trusted` (PEM), by
    default with the machine's authorities.
    """

    def __init__(self, now: datetime, trusted: str = "") -> None:
        self._begin, self.expires = now - timedelta(hours=1), now + _VALID
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self._issue("")
        self.serving = lru_cache(maxsize=256)(self._make_serving)
        # Threat: a man in the middle gets the credentials unless chain and name are verified, which
        # this protocol does. The library's default context would also write TLS keys into a file
        # that an environment variable names.
        self.verifying = _narrowed(ssl.PROTOCOL_TLS_CLIENT)
        if trusted:
            self.verifying.load_verify_locations(cadata=trusted)
        else:
            self.verifying.load_default_certs()

    def bundle(self) -> str:
        """Return the authorities for programs to trust, as PEM: the host's and this one."""
        paths = ssl.get_default_verify_paths()
        found = ""
        for path in filter(None, (paths.cafile, *_BUNDLES)):
            if Path(path).is_file():
                found = Path(path).read_text("ascii", "ignore")
                break
        return f"{found}\n{self.pem}"

    def _make_serving(self, host: str) -> ssl.SSLContext:
        context = _narrowed(ssl.PROTOCOL_TLS_SERVER)
        key = self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        # The library only loads keys from files: this one has no name, and is closed here.
        with os.fdopen(os.memfd_create("paddock"), "wb") as file:
            file.write(key + self._issue(host).encode())
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _issue(self, host: str) -> str:
        """Return a host's certificate as PEM; with an empty host, the authority's."""
        own, subject = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
            for text in ("Paddock", "Paddock for a host" if host else "Paddock")
        )
        public = self._key.public_key()
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
        builder = (
            x509.CertificateBuilder()
            .issuer_name(own)
            .subject_name(subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._begin)
            .not_valid_after(self.expires)
            .add_extension(x509.BasicConstraints(not host, None if host else 0), critical=True)
            .add_extension(issuer, critical=False)
        )
        if host:
            is_literal = ":" in host or host.rpartition(".")[2].isdigit()
            name = x509.IPAddress(ip_address(host)) if is_literal else x509.DNSName(host)
            builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
        else:
            # Bit 5 of nine is keyCertSign (RFC 5280, 4.2.1.3).
            usage = x509.KeyUsage(*(bit == 5 for bit in range(9)))
            key_id = x509.SubjectKeyIdentifier.from_public_key(public)
            builder = builder.add_extension(usage, True).add_extension(key_id, False)
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM).decode()


def _narrowed(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # Threat: a man in the middle cuts a response, and the beginning counts as complete.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Refused(Exception):
    """A refusal, sent to the command if possible. `code` is empty if it is recorded already."""

    def __init__(self, status: int, said: str, code: str = _REFUSED) -> None:
        self.status, self.said, self.code = status, said, code


class _Lost(Exception):
    """A peer's connection ended early."""

    def __init__(self, peer: "_Peer", said: str) -> None:
        self.peer, self.said = peer, said


class _Peer:
    """One side: HTTP over TLS on a socket; a server has a `name`.

    It does not use the event loop's transport: nothing is read ahead, and a cut connection differs
    from a closed one.
    """

    def __init__(self, own: socket.socket, context: ssl.SSLContext, name: str | None) -> None:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self._name = own, name
        self.http = h11.Connection(h11.CLIENT if name else h11.SERVER, _HEAD_BYTES_MAX)
        self.sent = self.received = 0
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._arrived, self._leaving, not name, name)
        self._flushing = asyncio.Lock()

    async def shake_hands(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._run(self._tls.do_handshake)
        except TimeoutError:
            raise _Lost(self, "did not finish its TLS handshake") from None

    async def receive(self) -> bytes:
        """Feed the next data to the parser and return it; empty at the end of the peer's data."""
        is_over = self.http.trailing_data[1]
        data = b"" if is_over else await self._run(self._decrypt)
        self.http.receive_data(data)
        return data

    async def event(self) -> h11.Event:
        try:
            while (found := self.http.next_event()) is h11.NEED_DATA:
                await self.receive()
        except h11.RemoteProtocolError as error:
            if self._name is None:
                raise _Refused(error.error_status_hint, f"malformed request: {error}") from None
            # Threat: the library quotes malformed data, which may be a credential's value.
            raise _Lost(self, "did not send a complete, well-formed response") from None
        return cast("h11.Event", found)

    async def send(self, *events: h11.Event) -> None:
        try:
            data = memoryview(b"".join(self.http.send(event) or b"" for event in events))
        except h11.LocalProtocolError:  # As above, it may quote a value.
            raise _Lost(self, "would have got invalid HTTP/1.1") from None
        await self._run(partial(self._encrypt, data))
        await asyncio.sleep(0)  # A socket that is always ready would starve the other tasks.

    def is_idle(self) -> bool:
        """Return True if nothing arrived after the last response, not even its end."""
        if self.http.trailing_data != (b"", False) or self._tls.pending() or self._arrived.pending:
            return False
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except OSError as error:
            return isinstance(error, BlockingIOError)
        return False

    async def end(self) -> None:
        """Close the TLS connection, and give the peer a moment to read the last data."""
        with suppress(OSError):
            with suppress(ssl.SSLError):  # It would wait for the peer's close message, too.
                self._tls.unwrap()
            await self._flush()
            self.socket.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_S):
                while await asyncio.get_running_loop().sock_recv(self.socket, _PIECE_BYTES):
                    continue

    def _decrypt(self) -> bytes:
        data = found = self._tls.read(_PIECE_BYTES)
        with suppress(ssl.SSLWantReadError):
            while found and self._arrived.pending:
                found = self._tls.read(_PIECE_BYTES)
                data += found
        return data

    def _encrypt(self, data: memoryview) -> None:
        while data:
            data = data[self._tls.write(data) :]

    async def _run(self, step: Callable[[], Result]) -> Result:
        try:
            while True:
                with suppress(ssl.SSLWantReadError):
                    result = step()
                    await self._flush()
                    return result
                await self._flush()
                async with asyncio.timeout(_IDLE_S):
                    data = await asyncio.get_running_loop().sock_recv(self.socket, _PIECE_BYTES)
                self.received += len(data)
                _ = self._arrived.write(data) if data else self._arrived.write_eof()
        except OSError as error:
            with suppress(OSError):
                await self._flush()  # Send the TLS alert.
            why = getattr(error, "verify_message", None) or getattr(error, "reason", None)
            said = f"{type(error).__name__}, {why or error.strerror or 'too slow'}"
            raise _Lost(self, f"broke off ({said})") from None

    async def _flush(self) -> None:
        # Take the lock only if there is data, so that a reader does not wait for a writer.
        if self._leaving.pending:
            async with self._flushing, asyncio.timeout(_IDLE_S):
                data = self._leaving.read()
                await asyncio.get_running_loop().sock_sendall(self.socket, data)
                self.sent += len(data)


async def serve_requests(
    client_socket: socket.socket,
    host: str,
    port: int,
    gate: "RequestGate",
    authority: Authority,
    credentials: Sequence[Credential],
    head_s: float = 30.0,
) -> None:
    """Act as `host` for a command until its connection ends, and close its socket.

    `client_socket` is non-blocking, its TLS hello unread. A handshake and the head of a request
    may take `head_s` seconds. Bad input from the command or the host raises nothing: it is
    answered, or ends the connection, and is reported to `gate`.
    """
    client = _Peer(client_socket, authority.serving(host), None)
    service = _Service(client, (host, port), gate, authority.verifying, credentials, head_s)
    try:
        await service.run()
    except _Lost as lost:
        reset(client_socket)  # Threat: a cut answer would count as complete.
        if lost.peer is not client:
            gate.refused(SERVER_FAILED, f"{host} {lost.said}")
        elif "UNKNOWN_CA" in lost.said or "CERTIFICATE" in lost.said:
            said = f"the program does not trust Paddock's certificate: it {lost.said}"
            gate.refused("net.certificate_unknown", said)
    finally:
        service.hang_up()
        client_socket.close()


class _Service:
    def __init__(
        self,
        client: _Peer,
        where: tuple[str, int],
        gate: "RequestGate",
        verifying: ssl.SSLContext,
        credentials: Sequence[Credential],
        head_s: float,
    ) -> None:
        self._client, self._gate, self._verifying, self._head_s = client, gate, verifying, head_s
        self._host, port = where
        self._shown = self._host if port == 443 else f"{self._host}:{port}"
        self._server: _Peer | None = None
        self._names = {each.placeholder.encode(): each.name for each in credentials}
        own = (each for each in credentials if where in each.hosts)
        self._values = [(each.placeholder.encode(), each.reveal().encode()) for each in own]

    async def run(self) -> None:
        client, method = self._client, b""
        try:
            await client.shake_hands(self._head_s)
            while (request := await self._read_head()) is not None:
                method = request.method
                await self._serve(request)
                if client.http.states != _BOTH_DONE:
                    break
                client.http.start_next_cycle()
        except _Refused as refused:
            if refused.code:
                self._gate.refused(refused.code, refused.said)
            if client.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                raise _Lost(client, "") from None
            text = f"paddock: {refused.said}\n".encode()
            headers = [("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close")]
            headers.append(("Content-Length", str(len(text))))
            head = h11.Response(status_code=refused.status, headers=headers)
            await client.send(head, h11.Data(data=b"" if method == b"HEAD" else text))
        await client.end()

    async def _read_head(self) -> h11.Request | None:
        """Return the next request; None if there is no further one."""
        client = self._client
        try:
            async with asyncio.timeout(self._head_s):
                if not client.http.trailing_data[0] and not await client.receive():
                    return None
                return cast("h11.Request", await client.event())
        except TimeoutError:
            if not client.http.trailing_data[0]:
                return None
            raise _Refused(408, "the head of the request did not arrive in time") from None

    async def _serve(self, request: h11.Request) -> None:
        target = self._checked_target(request)
        headers, pairs = self._outgoing(request, target)
        refusal = await self._gate.judge(request.method.decode(), target)
        if refusal != "":  # None must not count as allowed.
            raise _Refused(403, refusal, "")
        server = await self._find_server()
        try:
            await server.send(h11.Request(method=request.method, target=target, headers=headers))
            await self._exchange(server, pairs)
        except _Lost as lost:
            if lost.peer is server and self._client.http.our_state is h11.SEND_RESPONSE:
                raise _Refused(502, f"{self._host} {lost.said}", SERVER_FAILED) from None
            raise
        if server.http.states == _BOTH_DONE:
            server.http.start_next_cycle()
        else:
            self.hang_up()

    async def _find_server(self) -> _Peer:
        if self._server is not None and self._server.is_idle():
            return self._server
        self.hang_up()
        dialled = await self._gate.dial()
        if isinstance(dialled, str):
            raise _Refused(502, dialled, "")
        self._server = _Peer(dialled, self._verifying, self._host)
        try:
            await self._server.shake_hands(self._head_s)
        except _Lost as lost:
            raise _Refused(502, f"{self._host} {lost.said}", SERVER_FAILED) from None
        return self._server

    def hang_up(self) -> None:
        if self._server is not None:
            self._gate.closed(self._server.sent, self._server.received)
            self._server.socket.close()
            self._server = None

    def _checked_target(self, request: h11.Request) -> str:
        """Return path and query."""
        if request.http_version != b"1.1":
            raise _Refused(505, "only HTTP/1.1 is supported")
        names = {name: name.replace(b"_", b"-") for name, _ in request.headers}
        if request.method == b"CONNECT" or names.keys() & {b"upgrade", b"http2-settings"}:
            raise _Refused(501, "changing the protocol is not supported: omit Upgrade and CONNECT")
        if len(request.headers) > _HEADERS_MAX:
            raise _Refused(431, f"the request has more than {_HEADERS_MAX} headers")
        if {b"content-length", b"transfer-encoding"} <= names.keys():
            raise _Refused(400, "the request gives the length of its body twice")
        for name, alike in names.items():
            if alike in _OVERRIDES or (alike in _FRAMING and alike != name):
                said = f"the header {name.decode()} may contradict the judged request: omit it"
                raise _Refused(400, said)
        shown, target = dict(request.headers)[b"host"].decode("latin-1"), request.target.decode()
        is_own, path = self._is_own(shown), target
        if not path.startswith("/"):
            authority, slash, path = target.removeprefix("https://").partition("/")
            is_own, path = is_own and bool(slash) and self._is_own(authority), f"/{path}"
        if not is_own or "#" in path:
            said = f"{quote(target)} with Host {quote(shown)} is not a request to {self._shown}"
            raise _Refused(421, said)
        return path

    def _is_own(self, shown: str) -> bool:
        name, colon, port = shown.lower().partition(":")
        return f"{name.removesuffix('.')}{colon}{port}" in {self._shown, f"{self._shown}:443"}

    def _outgoing(self, request: h11.Request, target: str) -> tuple[list[Pair], list[Pair]]:
        """Return the headers to send, and the replacements for the response."""
        self._find_misuse("request line", target.encode(), unquote_to_bytes(target))
        headers, pairs = [(b"Host", self._shown.encode())], list(self._values)
        for name, value in _end_to_end(request):
            if name.lower() == b"host" or (self._values and name.lower() in _HIDING):
                continue
            given = replace_in_header(value, self._values)
            # A placeholder that is left here belongs to other hosts.
            self._find_misuse("headers", name.lower(), given, decode_basic(given))
            if decode_basic(given) != decode_basic(value):
                pairs.append((value[6:], given[6:]))
            headers.append((name, given))
        if self._values:
            headers.append((b"Accept-Encoding", b"identity"))
        if b"transfer-encoding" in dict(request.headers):
            headers.append((b"Transfer-Encoding", b"chunked"))
        # The longest first, because a value may be part of another.
        return headers, sorted(((new, old) for old, new in pairs), key=lambda each: -len(each[0]))

    def _find_misuse(self, where: str, *texts: bytes) -> None:
        for placeholder, name in self._names.items():
            if any(placeholder in text for text in texts):
                said = f"the credential {quote(name)} may only go in headers to its own hosts: its "
                said += f"placeholder is in the {where} of a request to {self._shown}"
                raise _Refused(403, said, "net.credential_misused")

    async def _exchange(self, server: _Peer, pairs: list[Pair]) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                up = both.create_task(self._pass_request(server))
                await self._pass_response(server, pairs)
                up.cancel()  # A response may be complete before its request.
        except BaseExceptionGroup as stopped:
            raise stopped.exceptions[0] from None

    async def _pass_request(self, server: _Peer) -> None:
        search, event = StreamReplacer([(each, b"") for each in self._names]), None
        while not isinstance(event, h11.EndOfMessage):
            event = await self._client.event()
            out: list[h11.Event] = []
            if isinstance(event, h11.Data):
                out.append(h11.Data(data=search.feed(bytes(event.data))))
            elif isinstance(event, h11.EndOfMessage):
                # Threat: a server may treat trailers as headers. Drop them all.
                self._find_misuse("trailers", *(text for each in event.headers for text in each))
                out += [h11.Data(data=search.feed(b"")), h11.EndOfMessage()]
            self._find_misuse("body", search.found)
            try:
                await server.send(*out)
            except _Lost:
                return  # Its response may have arrived already.

    async def _pass_response(self, server: _Peer, pairs: list[Pair]) -> None:
        swap, event = StreamReplacer(pairs), None
        while not isinstance(event, h11.EndOfMessage):
            event = await server.event()
            if isinstance(event, h11.Data):
                await self._client.send(h11.Data(data=swap.feed(bytes(event.data))))
            elif isinstance(event, h11.EndOfMessage):
                end = h11.EndOfMessage(headers=_incoming(event, pairs))
                await self._client.send(h11.Data(data=swap.feed(b"")), end)
            elif isinstance(event, h11.InformationalResponse | h11.Response):
                headers, reason = _incoming(event, pairs), replace_texts(event.reason, pairs)
                head = type(event)(status_code=event.status_code, headers=headers, reason=reason)
                await self._client.send(head)


_Headed = h11.Request | h11.InformationalResponse | h11.Response | h11.EndOfMessage


def _incoming(event: _Headed, pairs: list[Pair]) -> list[Pair]:
    # If its length can change, the body is sent in chunks.
    is_kept = all(len(old) == len(new) for old, new in pairs)
    is_kept = is_kept and b"transfer-encoding" not in dict(event.headers)
    return [
        (replace_texts(name, pairs), replace_texts(value, pairs))
        for name, value in _end_to_end(event)
        if is_kept or name.lower() != b"content-length"
    ]


def _end_to_end(event: _Headed) -> list[Pair]:
    """Return the headers that are not hop-by-hop."""
    options = (value for name, value in event.headers if name == b"connection")
    named = {each.strip() for value in options for each in value.lower().split(b",")}
    dropped = _HOP | (named - _FRAMING)
    items = event.headers.raw_items()
    return [(name, value) for name, value in items if name.lower() not in dropped]
