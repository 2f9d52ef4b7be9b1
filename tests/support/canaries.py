"""Servers of a test that keep every byte that reached them, and count who came."""

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
    _threads: list[threading.Thread] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.door.getsockname()[1]

    def settle(self) -> list[bytes]:
        """Wait until every connection has ended, and return what was said on each."""
        for thread in self._threads:
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
            self._threads.append(thread)
            thread.start()

    def _listen(self, client: socket.socket, said: bytearray) -> None:
        # A wall that cuts a connection off is an error for the server, too.
        with client, suppress(OSError):
            while piece := client.recv(65536):
                said += piece
                client.sendall(self.answer)


@contextmanager
def a_canary(host: str = "127.0.0.1", answer: bytes = b"ok\n") -> Generator[Canary, None, None]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, backlog=512) as door:
        canary = Canary(door, answer)
        accepting = threading.Thread(target=canary.accept, daemon=True)
        accepting.start()
        yield canary
        door.shutdown(socket.SHUT_RDWR)
        accepting.join()
