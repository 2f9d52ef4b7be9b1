"""Both ends of a connection whose TLS is ended in between: real servers, a real loop, a plain gate.

    with Host(answer) as host, Ended(host, gate=Rules()) as ended:
        reply = ended.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

`answer` is what the host does with one connection: it gets the TLS socket and may read and write as
it likes. Everything is on 127.0.0.1; the host's name is `localhost`.
"""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Self

from msgspec import Struct, field

from paddock.network.credentials import Credential
from paddock.network.requests import Authority, serve_requests

NAME = "localhost"
PORT = 443
WORLD = Authority(datetime.now(UTC))
"""Whom the machine trusts."""
WAIT_S = 20
CANCELLED = "cancelled"


def read_request(tls: ssl.SSLSocket) -> bytes:
    """One request as its bytes: head, and a body by its length or up to the last chunk."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = tls.recv(65536)
        if not piece:
            return said
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        while not body.endswith(b"0\r\n\r\n"):
            piece = tls.recv(65536)
            if not piece:
                break
            body += piece
    elif b"content-length: " in lower:
        length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            piece = tls.recv(65536)
            if not piece:
                break
            body += piece
    return head + b"\r\n\r\n" + body


class Host:
    """A TLS server with a certificate that the world trusts, unless another authority is given."""

    def __init__(
        self,
        answer: Callable[[ssl.SSLSocket], None],
        authority: Authority = WORLD,
        name: str = NAME,
    ) -> None:
        self._answer = answer
        self._context = authority.serving(name)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self._threads: list[threading.Thread] = []
        self.ended = threading.Event()
        """Set when a connection was ended from here."""
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self._listener.close()
        for each in self._threads:
            each.join(WAIT_S)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            accepted.settimeout(WAIT_S)
            self._threads.append(threading.Thread(target=self._serve, args=(accepted,)))
            self._threads[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted:
            try:
                with self._context.wrap_socket(accepted, server_side=True) as tls:
                    self._answer(tls)
            except OSError:
                return  # The other side may break off: some tests want just that.
        self.ended.set()


class Replies:
    """Hears requests, and gives each the next reply; the last one again and again."""

    def __init__(self, *replies: bytes) -> None:
        self._replies = list(replies)
        self.heard: list[bytes] = []
        self.connections = 0

    def __call__(self, tls: ssl.SSLSocket) -> None:
        self.connections += 1
        while request := read_request(tls):
            self.heard.append(request)
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
            tls.sendall(reply)
            if b"connection: close" in reply.lower():
                tls.unwrap()
                return


class Rules(Struct):
    """A gate that says yes but to what begins with a denied method and path."""

    denied: tuple[str, ...] = ()
    way: str = ""
    """Why there is no way out."""
    judged: list[tuple[str, str]] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    closings: list[tuple[bool, bool]] = field(default_factory=list)
    port: int = 0

    async def judge(self, method: str, target: str) -> str:
        self.judged.append((method, target))
        if f"{method} {target}".startswith(self.denied or ("\0",)):
            return f"denied by a rule of the test: {method}"
        return ""

    async def dial(self) -> socket.socket | str:
        if self.way:
            return self.way
        made = socket.socket()
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
        return made

    def closed(self, sent: int, received: int) -> None:
        self.closings.append((sent > 0, received > 0))

    def refused(self, code: str, said: str) -> None:
        self.told.append((code, said))


class Ended:
    """A listener of this machine whose connections are served as the host."""

    def __init__(
        self,
        host: Host,
        gate: Rules,
        credentials: Sequence[Credential] = (),
        head_s: float = WAIT_S,
        port: int = 0,
    ) -> None:
        self.gate = gate
        gate.port = host.port
        self.authority = Authority(datetime.now(UTC), trusted=WORLD.pem)
        self._credentials, self._head_s = credentials, head_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._named_port = port or PORT
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self.expected: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(WAIT_S * 2)
        assert not self._thread.is_alive()
        self._listener.close()
        # Nothing that either end says is raised.
        assert [each for each in self.results if each is not None] == self.expected

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        accepting = asyncio.create_task(self._accept())
        await self._over.wait()
        accepting.cancel()
        ended = asyncio.gather(*self._tasks, return_exceptions=True)
        results = await asyncio.wait_for(ended, WAIT_S)
        self.results = [
            CANCELLED if isinstance(each, asyncio.CancelledError) else each for each in results
        ]

    async def _accept(self) -> None:
        while True:
            accepted, _ = await self._loop.sock_accept(self._listener)
            port = self._named_port if self._named_port > 0 else self.port
            serving = serve_requests(
                accepted, NAME, port, self.gate, self.authority, self._credentials, self._head_s
            )
            self._tasks.append(asyncio.create_task(serving))

    def cancel(self) -> None:
        """End all that is served, as a wall does at the end of its command."""
        self.expected = [CANCELLED] * len(self._tasks)
        for each in self._tasks:
            self._loop.call_soon_threadsafe(each.cancel)

    def connect(self, trusted: str = "", alpn: Sequence[str] = ()) -> ssl.SSLSocket:
        context = ssl.create_default_context(cadata=trusted or self.authority.pem)
        # Some builds of Python take a cut for an end.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        if alpn:
            context.set_alpn_protocols(list(alpn))
        plain = socket.create_connection(("127.0.0.1", self.port), WAIT_S)
        return context.wrap_socket(plain, server_hostname=NAME, suppress_ragged_eofs=False)

    def say(self, *pieces: bytes, half_closed: bool = False) -> bytes:
        """Send these, each in a record of its own, and return all that comes until the end."""
        with self.connect() as tls:
            for piece in pieces:
                tls.sendall(piece)
            if half_closed:
                socket.socket.shutdown(tls, socket.SHUT_WR)  # Without a word of TLS.
            return read_all(tls)


def read_all(tls: ssl.SSLSocket) -> bytes:
    said = b""
    while True:
        try:
            piece = tls.recv(65536)
        except ConnectionResetError:
            return said + b"<reset>"
        except ssl.SSLError:
            return said + b"<cut>"
        if not piece:
            return said
        said += piece
