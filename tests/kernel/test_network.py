"""The network of a command: what policy names is reached, on record, and nothing else is."""

import os
import queue
import socket
from pathlib import Path

import pytest

from paddock.errors import HostError
from paddock.values.calls import OpenedConnection, RefusedConnection
from tests.support.networks import HERE, TALK, Seen, a_server, echo, walled
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
        end = behind.python(TALK, "other.example.org", "443")

    assert "Name or service not known" in (end.stderr.head + end.stderr.tail).decode()
    (refused,) = behind.seen.refused_
    assert (refused.host, refused.port) == ("other.example.org", 0)
    assert end.network.refused[0].host == "other.example.org"
    assert behind.seen.opened_ == []


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
    assert refused.remedy.startswith('addresses = ["127.0.0.1"] in the rule tool:net:connect db.')
    assert refused.remedy.endswith("paddock.toml:3), then: paddock trust")
    assert behind.seen.opened_ == []


def test_an_allowed_name_that_does_not_resolve_is_a_fault_and_on_record(tmp_path: Path):
    with walled(tmp_path, rules(5432), {}) as behind:
        end = behind.python(TALK, "db.example.org", "5432")

    place, why = "db.example.org:5432", "the name cannot be resolved"
    told = f"paddock: policy allows the connection to {place}, but it failed: {why}\n"
    assert told in b"".join(behind.told).decode()
    assert end.exit_code != 0
    assert behind.seen.refused_ == [RefusedConnection("db.example.org", 5432, why, remedy="")]
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


HELLO = """
import socket, ssl, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
try:
    context.wrap_socket(made, server_hostname=sys.argv[3])
except OSError as error:
    print(type(error).__name__)
"""


def receiving(got: "queue.Queue[bytes]"):
    def serve(client: socket.socket) -> None:
        try:
            got.put(client.recv(65536))
        except ConnectionResetError:
            got.put(b"")

    return serve


@pytest.mark.parametrize(("name", "arrives"), [("db.example.org", True), ("b.example.org", False)])
def test_a_tls_hello_names_the_host_that_was_asked_for_or_does_not_leave(
    tmp_path: Path, name: str, arrives: bool
):
    got: queue.Queue[bytes] = queue.Queue()
    with (
        a_server(receiving(got)) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        behind.python(HELLO, "db.example.org", str(port), name)
        first = got.get(timeout=30)

    assert (name.encode() in first) is arrives
    assert [event.why for event in behind.seen.refused_] == (
        [] if arrives else ["it asks for b.example.org, which is not the name of the connection"]
    )
    assert behind.seen.closed_[0].server_name == (name if arrives else "")


@pytest.mark.parametrize(("name", "arrives"), [("db.example.org", True), ("b.example.org", False)])
def test_a_clear_request_names_the_host_that_was_asked_for_or_does_not_leave(
    tmp_path: Path, name: str, arrives: bool
):
    got: queue.Queue[bytes] = queue.Queue()
    with (
        a_server(receiving(got)) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        behind.python(
            "import socket, sys\n"
            "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n"
            "made.sendall(f'GET / HTTP/1.1\\r\\nHost: {sys.argv[3]}\\r\\n\\r\\n'.encode())\n"
            "try: made.recv(1)\n"
            "except OSError: pass\n",
            "db.example.org",
            str(port),
            name,
        )
        first = got.get(timeout=30)

    assert first == (b"GET / HTTP/1.1\r\nHost: db.example.org\r\n\r\n" if arrives else b"")


class Forgetful(Seen):
    """Cannot put anything on record."""

    def opened(self, event: OpenedConnection) -> None:
        raise HostError("the disk is full")


def test_what_cannot_be_put_on_record_is_not_opened(tmp_path: Path):
    got: queue.Queue[bytes] = queue.Queue()
    with (
        a_server(lambda client: got.put(b"reached")) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        behind.seen = Forgetful()
        end = behind.python(TALK, "db.example.org", str(port))

    assert end.exit_code != 0
    assert got.empty()
    assert [event.why for event in end.network.refused] == ["it cannot be recorded"]


def test_a_denied_address_is_not_reached_by_an_allowed_name(tmp_path: Path):
    deny = '[profiles.test]\ndeny = ["tool:net:connect 127.0.0.0/8:*"]\n'
    with (
        a_server(echo) as port,
        walled(tmp_path, deny + rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        end = behind.python(TALK, "db.example.org", str(port))

    assert end.exit_code != 0
    assert "tool:net:connect 127.0.0.0/8:*" in behind.seen.refused_[0].why
    assert behind.seen.opened_ == []


@pytest.mark.parametrize(
    "later",
    ["", 'allow = ["tool:net:request GET db.example.org:{}/**"]\n'],
    ids=["denied", "judged"],
)
def test_what_policy_does_not_let_pass_unseen_by_now_is_cut_off(tmp_path: Path, later: str):
    with (
        a_server(echo) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        behind.changes_once_opened = True
        behind.later_rules = later.format(port)
        end = behind.python(
            "import socket, sys\n"
            "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n"
            "made.settimeout(30)\n"
            "print(made.recv(6).decode().strip())\n"
            "try: print(made.recv(1))\n"
            "except ConnectionResetError: print('cut off')\n",
            "db.example.org",
            str(port),
        )

    assert said(end) == "hello\ncut off\n"
    assert [event.why for event in end.network.refused] == ["policy no longer allows it"]


def test_no_descriptor_of_a_commands_network_is_left(tmp_path: Path):
    with (
        a_server(echo) as port,
        walled(tmp_path, rules(port), {"db.example.org": "127.0.0.1"}) as behind,
    ):
        behind.python(TALK, "db.example.org", str(port))
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(3):
            behind.python(TALK, "db.example.org", str(port))
        after = sorted(os.listdir("/proc/self/fd"))
        spaces = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in after
            if fd.isdigit() and os.path.islink(f"/proc/self/fd/{fd}")
        ]

    assert len(after) == len(before)
    assert not any(space.startswith("net:") for space in spaces)
