"""A command behind the network wall, servers on the loopback, and names that lead to them."""

import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

from msgspec import Struct, field

from paddock.network.credentials import Credential
from paddock.network.decisions import NetworkTerms
from paddock.network.egress import Address, Egress, FaultError
from paddock.network.requests import Authority
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.network import NetworkJudge, Reach
from paddock.sandbox.conversation import Observed
from paddock.sandbox.values import CommandEnd
from paddock.values.calls import ClosedConnection, OpenedConnection, RefusedConnection
from paddock.values.decisions import Action, Agent
from tests.support.sandboxes import PYTHON, Room, a_room

HERE = 'addresses = ["127.0.0.0/8"]'
"""In a rule whose name leads to a server of the test."""


TALK = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
words = made.makefile("rwb")
print(words.readline().decode().strip())
words.write(b"one\\n"); words.flush()
print(words.readline().decode().strip())
"""


class Seen(Struct):
    """What was put on record of one command's connections, in order."""

    answer: bool = False
    asked: list[str] = field(default_factory=list)
    opened_: list[OpenedConnection] = field(default_factory=list)
    closed_: list[ClosedConnection] = field(default_factory=list)
    refused_: list[RefusedConnection] = field(default_factory=list)
    remedy: str = "paddock network allow {}"

    def ask(self, action: Action, reach: Reach) -> bool:
        self.asked.append(str(action))
        return self.answer

    def opened(self, event: OpenedConnection) -> None:
        self.opened_.append(event)

    def closed(self, event: ClosedConnection) -> None:
        self.closed_.append(event)

    def refused(self, event: RefusedConnection) -> None:
        self.refused_.append(event)


def judge_of(rules: str) -> NetworkJudge:
    policy = load_policy(PolicySource("paddock.toml", rules.encode()))
    return NetworkJudge(policy, (Agent("tester", "test"),), None)


class Walled(Struct):
    """Commands in one room, behind the wall of one policy."""

    room: Room
    rules: str
    seen: Seen = field(default_factory=Seen)
    later_rules: str = ""
    """What policy says by the time of the first connection, if that is something else."""
    changes_once_opened: bool = False
    """Whether it is only from the first open connection on that policy says `later_rules`."""
    policy_reads: int = 0
    told: list[bytes] = field(default_factory=list)
    """What the commands wrote, and were told, while they ran."""
    authority: Authority | None = None
    credentials: tuple[Credential, ...] = ()

    def run(self, *argv: str, timeout_s: float = 60.0) -> CommandEnd:
        rules = self.rules if "[profiles.test]" in self.rules else f"[profiles.test]\n{self.rules}"
        judge = judge_of(rules)

        def latest() -> NetworkJudge:
            self.policy_reads += 1
            is_changed = self.seen.opened_ if self.changes_once_opened else self.later_rules
            return judge_of(f"[profiles.test]\n{self.later_rules}") if is_changed else judge

        self.room.network = "policy"
        self.room.literals = tuple(str(network) for network, _ in judge.literals())
        request = self.room.request(*argv, timeout_s=timeout_s)
        terms = NetworkTerms(judge, latest, self.seen, self.authority, self.credentials)
        observed = Observed(on_output=lambda _, piece: self.told.append(piece), network=terms)
        with self.room.opened(request, terms) as (request, stage):
            return self.room.launcher.run(request, stage, observed)

    def shell(self, line: str, timeout_s: float = 60.0) -> CommandEnd:
        return self.run("/bin/sh", "-c", line, timeout_s=timeout_s)

    def python(self, code: str, *arguments: str, timeout_s: float = 60.0) -> CommandEnd:
        return self.run(PYTHON, "-c", code, *arguments, timeout_s=timeout_s)


def leading(names: Mapping[str, str]) -> Callable[[], Egress]:
    """A way out for which these names lead to these addresses, and no other name to any."""

    async def resolve(host: str, port: int) -> list[Address]:
        if host not in names:
            raise FaultError("the name cannot be resolved")
        return [ip_address(address) for address in names[host].split()]

    return lambda: Egress({}, resolve)


@contextmanager
def walled(home: Path, rules: str, names: Mapping[str, str]) -> Generator[Walled, None, None]:
    with a_room(home, leading(names)) as room:
        yield Walled(room, rules)


@contextmanager
def a_server(serve: Callable[[socket.socket], None]) -> Generator[int, None, None]:
    """A server on the loopback, `serve` for each connection in a thread; its port."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def accept() -> None:
            while True:
                try:
                    client, _ = door.accept()
                except OSError:
                    return
                threading.Thread(target=_hold, args=(serve, client), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield door.getsockname()[1]
        door.shutdown(socket.SHUT_RDWR)


def _hold(serve: Callable[[socket.socket], None], client: socket.socket) -> None:
    # A wall that cuts a connection off is an error for the server, too.
    with client, suppress(ConnectionError):
        serve(client)


def echo(client: socket.socket) -> None:
    """Say a word first, then give back what comes, until the other side has said all."""
    client.sendall(b"hello\n")
    while piece := client.recv(65536):
        client.sendall(piece)


def a_proxy(ports: dict[str, int]) -> Callable[[socket.socket], None]:
    """Serve CONNECT for these `HOST:PORT`, each with a port of the loopback behind it."""

    def serve(client: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        target = head.split()[1].decode()
        if target not in ports:
            client.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", ports[target])) as server:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(server, client))
            back.start()
            _copy(client, server)
            back.join()

    return serve


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
