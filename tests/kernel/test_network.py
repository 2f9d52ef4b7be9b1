"""The network of a command: what policy names is reached, on record, and nothing else is."""

import queue
import socket
import time
from pathlib import Path

import pytest

from paddock.values.calls import RefusedConnection
from tests.support.networks import HERE, TALK, a_server, echo, walled
from tests.support.sandboxes import said

pytestmark = [pytest.mark.needs("stage"), pytest.mark.loopback]


def rules(port: int, host: str = "db.example.org", more: str = HERE) -> str:
    return f'[[profiles.test.rules]]\naction = "tool:net:connect {host}:{port}"\noutcome = "allow"\n{more}\n'


def test_a_named_host_is_reached_by_its_name_and_on_record(tmp_path: Path):
    with (
        a_server(echo) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        end = behind.python(TALK, "db.example.org", str(port))

    assert said(end) == "hello\none\n"
    (opened,), (closed,) = behind.seen.opened_, behind.seen.closed_
    assert (opened.host, opened.port, opened.address) == ("db.example.org", port, "127.0.0.1")
    assert (closed.opened, closed.sent_bytes, closed.received_bytes) == (opened, 4, 10)
    assert closed.ending == "closed"
    assert end.network.opened == 1
    assert end.network.refused == ()


def test_another_name_is_unknown_at_once_and_on_record(tmp_path: Path):
    with walled(tmp_path, rules(443), {}) as behind:
        began = time.monotonic()
        end = behind.python(TALK, "other.example.org", "443")
        took_s = time.monotonic() - began

    assert "Name or service not known" in (end.stderr.head + end.stderr.tail).decode()
    (refused,) = behind.seen.refused_
    assert (refused.host, refused.port) == ("other.example.org", 0)
    assert end.network.refused[0].host == "other.example.org"
    assert behind.seen.opened_ == []
    assert took_s < 10


def test_another_port_of_a_named_host_is_refused_by_the_kernel(tmp_path: Path):
    with walled(tmp_path, rules(443), {"db.example.org": "127.0.0.1"}) as behind:
        end = behind.python(TALK, "db.example.org", "444")

    assert "ConnectionRefusedError" in (end.stderr.head + end.stderr.tail).decode()
    assert behind.seen.opened_ == []


def test_a_name_that_leads_into_this_machine_is_not_followed_without_a_rule_for_that(
    tmp_path: Path,
):
    with (
        a_server(echo) as port,
        walled(tmp_path, rules(port, more=""), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        end = behind.python(TALK, "db.example.org", str(port))

    assert end.exit_code != 0
    (refused,) = behind.seen.refused_
    assert isinstance(refused, RefusedConnection)
    assert "127.0.0.1" in refused.why
    assert behind.seen.opened_ == []


def test_a_server_inside_is_met_on_the_loopback(tmp_path: Path):
    with walled(tmp_path, rules(443), {}) as behind:
        end = behind.python(
            "import socket, threading\n"
            "door = socket.create_server(('127.0.0.1', 8000))\n"
            "threading.Thread(target=lambda: door.accept()[0].sendall(b'inside')).start()\n"
            "print(socket.create_connection(('localhost', 8000), 5).recv(9).decode())\n"
        )

    assert said(end) == "inside\n"


def test_the_way_out_is_closed_when_the_command_has_ended(tmp_path: Path):
    left: queue.Queue[bytes] = queue.Queue()

    def serve(client: socket.socket) -> None:
        client.sendall(b"hello\n")
        left.put(client.recv(100))
        left.put(client.recv(100))

    with (
        a_server(serve) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        end = behind.python(
            "import socket, sys, os\n"
            "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n"
            "made.recv(6); made.sendall(b'last words'); os._exit(0)\n",
            "db.example.org",
            str(port),
        )

        words = [left.get(timeout=30), left.get(timeout=30)]

    assert end.exit_code == 0
    assert words == [b"last words", b""]
