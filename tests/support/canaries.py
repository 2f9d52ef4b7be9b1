"""Servers of a test that keep every byte that reached them, and count who came."""

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from msgspec import Struct, field


class Canary(Struct, dict=True):
    """A server on the loopback: what each connection said, whole, once nobody speaks any more."""

    door: socket.socket
    answer: bytes = b"ok\n"
    heard: list[bytearray] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = self.door.getsockname()[1]

    def settle(self) -> list[bytes]:
        """Wait until every connection has ended, and return what was said on each."""
        for thread in self.threads:
            thread.join(30)
        return [bytes(said) for said in self.heard]

    def said(self) -> bytes:
        return b"\n".join(self.settle())

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.door.accept()
            except OSError:
                return
            said = bytearray()
            self.heard.append(said)
            thread = threading.Thread(target=self._listen, args=(client, said), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _listen(self, client: socket.socket, said: bytearray) -> None:
        # A wall that cuts a connection off is an error for the server, too.
        with client, suppress(OSError):
            while piece := client.recv(65536):
                said += piece
                # Who has gone without reading has said all the same what is still to be read.
                with suppress(OSError):
                    client.sendall(self.answer)


@contextmanager
def _accepting(canary: Canary) -> Generator[Canary, None, None]:
    accepting = threading.Thread(target=canary.accept, daemon=True)
    accepting.start()
    try:
        yield canary
    finally:
        canary.door.shutdown(socket.SHUT_RDWR)
        accepting.join()


@contextmanager
def a_canary(host: str = "127.0.0.1", answer: bytes = b"ok\n") -> Generator[Canary, None, None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family, backlog=512) as door,
        _accepting(Canary(door, answer)) as canary,
    ):
        yield canary


@contextmanager
def held_canary(host: str, port: int) -> Generator[Canary | None, None, None]:
    """The same at a port that is given; None where this machine has no such address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family)
    except OSError:
        yield None
        return
    with door, _accepting(Canary(door)) as canary:
        yield canary


@contextmanager
def a_local_canary(address: str) -> Generator[Canary, None, None]:
    """The same on a unix socket, by its path or, behind a NUL, its abstract name."""
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        if not address.startswith("\0"):
            # For everybody: whoever the command is, it is not this that stops it.
            os.chmod(address, 0o777)
        with _accepting(Canary(door)) as canary:
            yield canary


class Resolver(Struct, dict=True):
    """Gives datagrams back, and counts them."""

    door: socket.socket
    asked: int = 0

    @property
    def port(self) -> int:
        return self.door.getsockname()[1]

    def answer(self) -> None:
        while True:
            content, sender = self.door.recvfrom(2048)
            if not content:
                return
            self.asked += 1
            self.door.sendto(content, sender)


@contextmanager
def a_resolver(host: str) -> Generator[Resolver, None, None]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((host, 0))
        resolver = Resolver(door)
        answering = threading.Thread(target=resolver.answer, daemon=True)
        answering.start()
        try:
            yield resolver
        finally:
            # An empty datagram is the last one.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", door.getsockname())
            answering.join()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
