"""Every attack of the list on the network wall, for real: held behind it, and not without it.

Run as root and as a plain user. Nothing here leaves this machine: names lead to servers of the
test, and literal addresses are those of documents or of the loopback.
"""

import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.errors import HostError, PaddockError
from paddock.network.egress import Address, Egress
from paddock.policy.network import Reach
from paddock.sandbox.values import CommandEnd
from paddock.values.calls import ClosedConnection, RefusedConnection
from paddock.values.decisions import Action
from tests.kernel.network_attacks import ATTACKS
from tests.support.canaries import (
    Canary,
    a_canary,
    a_local_canary,
    a_resolver,
    has_ipv6,
    held_canary,
)
from tests.support.children import start
from tests.support.networks import HERE, Seen, Walled, a_server, walled
from tests.support.sandboxes import PYTHON, Way, a_room, all_run, complained, once_a_way, said

pytestmark = [pytest.mark.needs("stage"), pytest.mark.loopback]

PROGRAM = Path(__file__).with_name("network_attacks.py")


@pytest.fixture(autouse=True, params=Way)
def way(request: pytest.FixtureRequest):
    with all_run(request.param):
        yield request.param


GOOD, EVIL = "good.example.org", "evil.example.org"


def rule(port: int, host: str = GOOD, more: str = HERE) -> str:
    return (
        f'[[profiles.test.rules]]\naction = "tool:net:connect {host}:{port}"\n'
        f'outcome = "allow"\n{more}\n'
    )


def furnish(home: Path, world: dict[str, object]) -> list[str]:
    """The command that tries the attacks on this world."""
    (home / "readable").mkdir(exist_ok=True)
    shutil.copy(PROGRAM, home / "readable/attacks.py")
    (home / "readable/world.json").write_text(json.dumps(world))
    return [
        PYTHON,
        "-I",
        "-S",
        *(f"{home}/readable/{name}" for name in ("attacks.py", "world.json")),
    ]


@contextmanager
def a_wall(home: Path, rules: str, names: dict[str, str]) -> Generator[Walled, None, None]:
    with walled(home, rules, names) as behind:
        behind.room.readable = (f"{home}/readable",)
        yield behind


# --- server names and hosts of requests -----------------------------------------

GREETINGS = {name: each for name, each in ATTACKS.items() if each.kind == "greeting"}


def arrived(server: Canary) -> set[str]:
    heard = server.said()
    return {name for name, each in GREETINGS.items() if each.mark in heard}


@functools.cache
def without_a_wall() -> set[str]:
    """Whose mark a server gets from a program that connects to it as it likes."""
    with tempfile.TemporaryDirectory() as home, a_canary() as server:
        world = {"front": "127.0.0.1", "front_port": server.port, "host": EVIL}
        subprocess.run([*furnish(Path(home), world), "greeting"], capture_output=True, check=True)
        return arrived(server)


@once_a_way
def behind_a_wall(host: str) -> set[str]:
    """Whose mark the allowed server gets, where each asks it for this host."""
    with tempfile.TemporaryDirectory() as place, a_canary() as server:
        home = Path(place)
        with a_wall(home, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
            world = {"front": GOOD, "front_port": server.port, "host": host}
            end = behind.run(*furnish(home, world), "greeting")
            assert len(said(end).splitlines()) == len(GREETINGS), complained(end)
            assert end.network.opened == len(GREETINGS)
        return arrived(server)


@pytest.mark.parametrize("name", GREETINGS)
def test_a_greeting_for_another_name_does_not_leave(name: str):
    attack = GREETINGS[name]

    assert name in without_a_wall()
    assert (name in behind_a_wall(EVIL)) is attack.is_gap
    if attack.has_neighbour:
        assert name in behind_a_wall(GOOD)


# --- other ways out -------------------------------------------------------------

INSIDE = {name: each for name, each in ATTACKS.items() if each.kind == "inside"}


class Tried(Struct):
    """What the attacks saw, and how many connections and datagrams the servers had."""

    reached: set[str]
    why: dict[str, str]
    met: int


@contextmanager
def the_world(home: Path) -> Generator[tuple[dict[str, object], Callable[[], int]], None, None]:
    """Servers of the host on every kind of address; how often they were met."""
    (home / "workspace").mkdir()
    path, abstract = f"{home}/workspace/daemon", f"paddock-network-{os.getpid()}"
    with ExitStack() as held:
        near, far = held.enter_context(a_canary()), held.enter_context(a_canary())
        tcp6 = held.enter_context(a_canary("::1")) if has_ipv6() else None
        local = [held.enter_context(a_local_canary(name)) for name in (path, f"\0{abstract}")]
        servers = [near, far, *local, *filter(None, [tcp6])]
        shared = held.enter_context(socket.create_server(("127.0.0.1", 0), reuse_port=True))
        udp = held.enter_context(a_resolver("127.0.0.1"))
        world = {
            "host": EVIL,
            "tcp": near.port,
            "tcp6": tcp6.port if tcp6 else 9,
            "resolver": "127.0.0.1",
            "tcp_far": far.port,
            "resolver_udp": udp.port,
            "path": path,
            "abstract": abstract,
            "name_server": "127.0.0.153",
            "shared_host": "127.0.0.1",
            "shared_port": shared.getsockname()[1],
        }
        yield world, lambda: sum(len(server.settle()) for server in servers) + udp.asked


@functools.cache
def tried_on_the_host() -> Tried:
    with tempfile.TemporaryDirectory() as place, the_world(Path(place)) as (world, met):
        ran = subprocess.run(
            [*furnish(Path(place), world), "inside"], capture_output=True, text=True, check=True
        )
        return _read(ran.stdout, met())


@once_a_way
def tried_behind_the_wall() -> Tried:
    with tempfile.TemporaryDirectory() as place, the_world(Path(place)) as (world, met):
        home = Path(place)
        proxy = {"HTTPS_PROXY": f"http://127.0.0.1:{world['tcp']}"}
        with a_room(home, lambda: Egress(proxy)) as room:
            room.readable = (f"{home}/readable",)
            behind = Walled(room, rule(5432))
            world |= {"name_server": "127.0.0.53", "shared_host": GOOD, "shared_port": 5432}
            end = behind.run(*furnish(home, world), "inside")
        assert end.exit_code == 0, complained(end)
        assert behind.seen.opened_ == []
        return _read(said(end), met())


def _read(lines: str, met: int) -> Tried:
    rows = [json.loads(line) for line in lines.splitlines()]
    reached = {row["name"] for row in rows if row["reached"]}
    return Tried(reached, {row["name"]: row["why"] for row in rows}, met)


@pytest.mark.parametrize("name", INSIDE)
def test_another_way_out_is_closed(name: str):
    free, held = tried_on_the_host(), tried_behind_the_wall()

    assert list(held.why) == list(INSIDE)
    assert name not in held.reached
    assert held.met == 0
    works = {"everybody": True, "root": os.geteuid() == 0}.get(INSIDE[name].works_for)
    assert works is None or (name in free.reached) == works, free.why[name]


# --- names, and where they lead -------------------------------------------------

PROBE = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(':')
    try:
        with socket.create_connection((host, int(port)), 5) as made:
            made.sendall(host.encode() + b'\\n')
            print(host, made.recv(9).decode().strip())
    except (OSError, UnicodeError) as error:
        print(host, type(error).__name__)
"""


def attack(number: int):
    """Number an attack that needs a test of its own."""

    def keep(test):
        NUMBERED[number] = test.__name__
        return test

    return keep


NUMBERED: dict[int, str] = {}


def probe(behind: Walled, port: int, *hosts: str) -> list[str]:
    end = behind.python(PROBE, *(f"{host}:{port}" for host in hosts))
    return said(end).splitlines()


def test_every_number_has_its_attack():
    listed = {each.number: name for name, each in ATTACKS.items()}

    assert sorted(listed | NUMBERED) == [*range(1, 81)]
    assert not listed.keys() & NUMBERED


LEADING_HERE = {
    "plain.example.org": "127.0.0.1",
    "mapped.example.org": "::ffff:127.0.0.1",
    "six.example.org": "::1",
    "zero.example.org": "0.0.0.0",
    "nothing.example.org": "::",
}


@attack(62)
def test_names_that_lead_into_this_machine_are_not_followed(tmp_path: Path):
    open_, closed = tmp_path / "open", tmp_path / "closed"
    hosts = [*LEADING_HERE, GOOD]
    names = LEADING_HERE | {GOOD: "127.0.0.1"}
    for home in (open_, closed):
        home.mkdir()
    with a_canary() as server, a_canary() as allowed:
        here = 'addresses = ["127.0.0.0/8", "::1/128"]'
        with walled(open_, rule(server.port, "*.example.org", here), names) as behind:
            free = probe(behind, server.port, "plain.example.org")
        met = len(server.settle())
        rules = rule(server.port, "*.example.org", "")
        with walled(closed, rules + rule(allowed.port), names) as behind:
            held = probe(behind, server.port, *hosts)
            neighbour = probe(behind, allowed.port, GOOD)
        assert len(server.settle()) == met == 1
        assert allowed.settle() == [b"good.example.org\n"]

    assert free == ["plain.example.org ok"]
    assert held == [f"{host} ConnectionResetError" for host in hosts]
    assert neighbour == ["good.example.org ok"]
    assert {event.host for event in behind.seen.refused_} == set(hosts)


NOT_PUBLIC = """10.0.0.1 172.16.0.1 192.168.0.1 fc00::1 169.254.169.254 169.254.1.1 fe80::1 fec0::1
168.63.129.16 100.64.0.1 192.0.0.8 198.18.0.1 224.0.0.1 255.255.255.255 240.0.0.1 203.0.113.1
64:ff9b::a00:1 64:ff9b::a9fe:a9fe 2002:a00:1:: 2001:0:7f00:1:: ::10.0.0.1 ::ffff:169.254.169.254
64:ff9b:1::7f00:1 ff02::1 2001:db8::1"""


@attack(63)
def test_names_that_lead_to_no_public_address_are_not_followed(tmp_path: Path):
    """Nothing shows these without the wall: they would be looked for in a real network."""
    names = {f"n{at}.example.org": address for at, address in enumerate(NOT_PUBLIC.split())}
    with walled(tmp_path, rule(5432, "*.example.org", ""), names) as behind:
        held = probe(behind, 5432, *names)

    assert held == [f"{name} ConnectionResetError" for name in names]
    assert behind.seen.opened_ == []
    assert all(event.why.startswith("it resolves to ") for event in behind.seen.refused_)


@attack(64)
def test_no_rule_lets_a_name_lead_to_an_address_of_everybody_or_nobody(tmp_path: Path):
    """On Linux 0.0.0.0 and :: are this machine, to whoever connects to them."""
    names = {
        "zero.example.org": "0.0.0.0",
        "nothing.example.org": "::",
        "all.example.org": "ff02::1",
    }
    with a_canary() as server:
        everywhere = 'addresses = ["0.0.0.0/0", "::/0"]'
        rules = rule(server.port, "*.example.org", everywhere)
        with walled(tmp_path, rules, names | {GOOD: "127.0.0.1"}) as behind:
            held = probe(behind, server.port, *names, GOOD)
        assert server.settle() == [b"good.example.org\n"]

    assert held == [*(f"{name} ConnectionResetError" for name in names), f"{GOOD} ok"]
    assert {event.remedy for event in behind.seen.refused_} == {"paddock network show"}


@attack(65)
def test_a_name_that_leads_elsewhere_the_second_time_is_judged_the_second_time(tmp_path: Path):
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.1" if len(asked) == 1 else "::1")]

    with a_canary() as server, held_canary("::1", server.port) as canary:
        with a_room(tmp_path, lambda: Egress({}, resolve)) as room:
            behind = Walled(room, rule(server.port))
            held = probe(behind, server.port, GOOD, GOOD)
        assert server.settle() == [b"good.example.org\n"]
        assert canary is None or canary.settle() == []

    assert held == [f"{GOOD} ok", f"{GOOD} ConnectionResetError"]


@attack(66)
def test_of_the_addresses_of_one_answer_only_the_allowed_are_tried(tmp_path: Path):
    with a_canary() as server, held_canary("::1", server.port) as canary:
        with walled(tmp_path, rule(server.port), {GOOD: "::1 10.0.0.1 127.0.0.1"}) as behind:
            held = probe(behind, server.port, GOOD)
        assert server.settle() == [b"good.example.org\n"]
        assert canary is None or canary.settle() == []

    assert held == [f"{GOOD} ok"]
    assert [event.address for event in behind.seen.opened_] == ["127.0.0.1"]


OTHER_SPELLINGS = [
    "EVIL.EXAMPLE.ORG",
    "evil.example.org.",
    "good.example.org.evil.example.org",
    "evilgood.example.org",
    "gооd.example.org",
    "xn--gd-jlcc.example.org",
    "good.example.org..",
    "2130706433",
    "0x7f000001",
    "127.1",
    "0177.0.0.1",
    "[::1]",
    "::ffff:127.0.0.1",
    "a" * 64 + ".example.org",
    ".".join(["a" * 60] * 5),
]


@attack(67)
def test_no_other_spelling_of_a_name_or_address_gets_out(tmp_path: Path):
    honest = [GOOD, "GOOD.Example.ORG", "good.example.org."]
    with a_canary() as server:
        names = {GOOD: "127.0.0.1", EVIL: "127.0.0.1"}
        with walled(tmp_path, rule(server.port), names) as behind:
            held = probe(behind, server.port, *OTHER_SPELLINGS)
            assert server.settle() == []
            passed = probe(behind, server.port, *honest)
        assert len(server.settle()) == len(honest)

    assert len(held) == len(OTHER_SPELLINGS)
    assert not [line for line in held if line.endswith(" ok")]
    assert passed == [f"{host} ok" for host in honest]
    assert {event.host for event in behind.seen.opened_} == {GOOD}


ASK = """
import socket, struct, sys, os
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from attacks import name_server, question
good, evil = b'good.example.org', b'evil.example.org'
whole = question(good)
loop = whole[:12] + b'\\xc0\\x0c' + whole[-4:]
messages = {
    'label of 64': whole[:12] + bytes([64]) + b'a' * 64 + b'\\0' + whole[-4:],
    '256 bytes': question(b'.'.join([b'a' * 50] * 6)),
    'dot in a label': whole[:12] + b'\\x10good.example.org\\0' + whole[-4:],
    'a loop': loop,
    'truncated': whole[:20],
    'two questions': struct.pack('>6H', 7, 256, 2, 0, 0, 0) + question(good)[12:] + question(evil)[12:],
    'an answer': struct.pack('>6H', 7, 0x8180, 1, 0, 0, 0) + question(evil)[12:],
    '64 kB': whole + bytes(60000),
    'no question': struct.pack('>6H', 7, 256, 0, 0, 0, 0),
    'an update': struct.pack('>6H', 7, 0x2800, 1, 0, 0, 0) + whole[12:],
    'a transfer': question(good, 252),
    'evil': question(evil),
    'a text of evil': question(evil, 16),
    'good': whole,
}
for name, message in messages.items():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.settimeout(1 if name == 'an answer' else 5)
        made.connect((name_server(), 53))
        made.send(message)
        try:
            answer = made.recv(600)
            code, answers = answer[3] & 15, int.from_bytes(answer[6:8], 'big')
            print(name, code, answers, sep=': ')
        except OSError as error:
            print(name, type(error).__name__, sep=': ')
"""


@attack(68)
def test_questions_that_are_none_have_an_error_or_no_answer(tmp_path: Path):
    with a_wall(tmp_path, rule(5432), {GOOD: "127.0.0.1", EVIL: "127.0.0.1"}) as behind:
        _, _, _, program, _ = furnish(tmp_path, {})
        end = behind.python(ASK, program)

    found = dict(line.split(": ", 1) for line in said(end).splitlines())
    assert found == {
        "label of 64": "1: 0",
        "256 bytes": "1: 0",
        "dot in a label": "1: 0",
        "a loop": "1: 0",
        "truncated": "1: 0",
        "two questions": "1: 0",
        "an answer": "TimeoutError",
        "64 kB": "1: 0",
        "no question": "1: 0",
        "an update": "4: 0",
        "a transfer": "0: 0",
        "evil": "3: 0",
        "a text of evil": "3: 0",
        "good": "0: 1",
    }, complained(end)
    assert behind.seen.opened_ == []


def redirecting(target: str) -> bytes:
    head = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    return head.encode()


FOLLOW = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=5).read().decode())"


@attack(69)
def test_a_redirect_to_another_name_is_not_followed(tmp_path: Path):
    open_, closed = tmp_path / "open", tmp_path / "closed"
    names = {GOOD: "127.0.0.1", EVIL: "127.0.0.1"}
    for home in (open_, closed):
        home.mkdir()
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nPAGE"
    with a_canary(answer=page) as evil, a_canary() as front:
        front.answer = redirecting(f"http://{EVIL}:{evil.port}/")
        url = f"http://{GOOD}:{front.port}/"
        with walled(open_, rule(front.port) + rule(evil.port, EVIL), names) as behind:
            free = behind.python(FOLLOW, url)
        with walled(closed, rule(front.port), names) as behind:
            held = behind.python(FOLLOW, url)
        assert len(front.settle()) == 2
        assert len(evil.settle()) == 1

    assert said(free) == "PAGE\n"
    assert "Name or service not known" in said(held) + complained(held)
    assert held.network.refused[0].host == EVIL


@attack(70)
def test_a_wildcard_means_names_below_it_and_these_tell_its_owner_something(tmp_path: Path):
    """The gap: what a name below says is resolved outside, once a connection was allowed."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.1")]

    outside = ["example.org", "evilexample.org", "example.org.evil.net", "secret.example.net"]
    with a_canary() as server, a_room(tmp_path, lambda: Egress({}, resolve)) as room:
        behind = Walled(room, rule(server.port, "*.example.org"))
        held = probe(behind, server.port, *outside)
        assert asked == []
        told = probe(behind, server.port, "hunter2.secret.example.org")
        assert server.settle() == [b"hunter2.secret.example.org\n"]

    assert held == [f"{host} gaierror" for host in outside]
    assert told == ["hunter2.secret.example.org ok"]
    assert asked == ["hunter2.secret.example.org"]


# --- addresses that stand for names ---------------------------------------------


@attack(71)
def test_an_address_that_another_command_asked_for_is_nobodys(tmp_path: Path):
    look = (
        "import socket, sys\n"
        "for place in sys.argv[2:]:\n"
        "    try: socket.create_connection((place, int(sys.argv[1])), 5); print('reached')\n"
        "    except OSError as error: print(type(error).__name__)\n"
        "print(open('/proc/net/tcp').read().count(' 0A '))\n"
        "print(socket.gethostbyname('good.example.org'))\n"
    )
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        given = said(behind.python(look, "1")).split()[-1]
        swept = ["198.18.0.0", "198.18.0.1", "198.19.255.255", given]
        held = said(behind.python(look, str(server.port), *swept)).split()
        neighbour = probe(behind, server.port, GOOD)
        assert server.settle() == [b"good.example.org\n"]

    assert held[:-2] == ["ConnectionRefusedError"] * 4
    assert held[-2:] == ["0", given]
    assert neighbour == [f"{GOOD} ok"]


BIND = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
if sys.argv[3] == 'after': print(socket.gethostbyname('good.example.org'))
def take(address, port):
    made = socket.socket()
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    try: made.bind((address, port)); made.listen(); print('bound')
    except OSError as error: print(error.strerror)
    return made
kept = take(address, port), take('0.0.0.0', port), take('127.0.0.1', port)
try: made = socket.create_connection(('good.example.org', port), 5)
except OSError as error: print(type(error).__name__)
else: made.sendall(b'hello\\n'); print(made.recv(9).decode().strip())
"""


@pytest.mark.parametrize(
    "proxy", ["http://proxy:99999", "http://[::1", "http://proxy:x", "socks5://p:1"]
)
def test_a_proxy_that_cannot_be_is_said_and_nobody_is_reached(
    tmp_path: Path, proxy: str, logged: list[str]
):
    environment = {"HTTPS_PROXY": proxy}
    with a_canary() as server, a_room(tmp_path, lambda: Egress(environment)) as room:
        behind = Walled(room, rule(server.port))
        tried = probe(behind, server.port, GOOD)
        assert server.settle() == []

    assert tried == [f"{GOOD} ConnectionResetError"]
    (refused,) = behind.seen.refused_
    assert refused.why.startswith("this host's proxy ")
    assert logged == []


def test_a_command_that_ends_while_its_connection_is_made_leaves_an_end_on_record(tmp_path: Path):
    code = (
        "import socket, sys\n"
        "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)\n"
        "made.settimeout(1)\n"
        "try: made.recv(1)\n"
        "except TimeoutError: print('nothing')\n"
    )
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door:
        port = door.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port)),  # Whoever comes next is not answered.
            walled(tmp_path, rule(port), {GOOD: "127.0.0.1"}) as behind,
        ):
            end = behind.python(code, GOOD, str(port))

    assert said(end) == "nothing\n", complained(end)
    (opened,), (closed,) = behind.seen.opened_, behind.seen.closed_
    assert (closed.opened, closed.ending) == (opened, "cut off")


@attack(72)
def test_who_binds_an_address_of_a_name_first_gets_no_connection_of_it(tmp_path: Path):
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        given = said(
            behind.python("import socket; print(socket.gethostbyname('good.example.org'))")
        )
        held = behind.python(BIND, given.strip(), str(server.port), "before")
        assert server.settle() == []
        after = behind.python(BIND, given.strip(), str(server.port), "after")
        assert server.settle() == [b"hello\n"]

    assert said(held).splitlines() == ["bound", "bound", "bound", "gaierror"]
    assert [event.why for event in held.network.refused] == [
        "a server inside the sandbox uses its ports"
    ]
    in_use = "Address already in use"
    assert said(after).splitlines() == [given.strip(), in_use, in_use, "bound", "ok"]


# --- questions to a person ------------------------------------------------------


def asked(port: int) -> str:
    return f"tool:net:connect {GOOD}:{port}"


@attack(73)
def test_what_was_granted_counts_for_one_port_and_one_command(tmp_path: Path):
    with a_canary() as server, a_canary() as other:
        rules = (rule(server.port) + rule(other.port)).replace('"allow"', '"ask"')
        with walled(tmp_path, rules, {GOOD: "127.0.0.1"}) as behind:
            behind.seen.answer = True
            first = probe(behind, server.port, GOOD, GOOD)
            assert behind.seen.asked == [asked(server.port)]
            behind.seen.answer = False
            second = probe(behind, other.port, GOOD)
            third = probe(behind, server.port, GOOD)
        assert len(server.settle()) == 2
        assert other.settle() == []

    assert behind.seen.asked == [asked(server.port), asked(other.port), asked(server.port)]
    assert first == [f"{GOOD} ok"] * 2
    assert second == third == [f"{GOOD} ConnectionResetError"]


class Slow(Seen):
    """Is asked, and answers yes once it may."""

    may_answer: threading.Event = field(default_factory=threading.Event)

    def ask(self, action: Action, reach: Reach) -> bool:
        self.asked.append(str(action))
        self.may_answer.wait(60)
        return True


@attack(74)
def test_what_is_granted_after_the_end_of_a_command_opens_nothing(tmp_path: Path):
    names = {f"n{number}.example.org": "127.0.0.1" for number in range(12)}
    code = (
        "import socket, sys\n"
        "made = [socket.create_connection((each, int(sys.argv[1]))) for each in sys.argv[2:]]\n"
        "for each in made: each.sendall(b'late\\n')\n"
    )
    with a_canary() as server:
        rules = rule(server.port, "*.example.org").replace('"allow"', '"ask"')
        with walled(tmp_path, rules, names) as behind:
            behind.seen = slow = Slow()
            behind.python(code, str(server.port), *names)
            count = len(slow.asked)
            # The next command waits for nobody who has not answered about the last.
            behind.seen = Seen(answer=True)
            neighbour = probe(behind, server.port, "n1.example.org")
            slow.may_answer.set()
            again = probe(behind, server.port, "n2.example.org")
        assert server.settle() == [b"n1.example.org\n", b"n2.example.org\n"]

    assert neighbour + again == ["n1.example.org ok", "n2.example.org ok"]
    assert slow.opened_ == []
    assert len(slow.asked) == count < len(names)


def test_hundreds_of_questions_wait_for_nobody(tmp_path: Path):
    names = {f"n{number}.example.org": "127.0.0.1" for number in range(40)}
    rules = rule(5432, "*.example.org").replace('"allow"', '"ask"')
    with walled(tmp_path, rules, names) as behind:
        behind.seen = slow = Slow()
        end = behind.python(MANY, "5432", *names)
        slow.may_answer.set()

    refused = [each.host for each in end.network.refused if "wait for an approval" in each.why]
    assert len(refused) == int(said(end)) == 40 - 16
    assert len(slow.asked) <= 4


MANY = """
import selectors, socket, sys
waiting = selectors.DefaultSelector()
for name in sys.argv[2:]:
    waiting.register(socket.create_connection((name, int(sys.argv[1]))), selectors.EVENT_READ)
ended = 0
while found := waiting.select(3):
    for key, _ in found:
        waiting.unregister(key.fileobj)
        ended += 1
print(ended)
"""


# --- floods ---------------------------------------------------------------------


@contextmanager
def counting_descriptors() -> Generator[list[int], None, None]:
    """The most descriptors that this process had at a time, beyond those that it has now."""
    before, most, is_over = len(os.listdir("/proc/self/fd")), [0], threading.Event()

    def look() -> None:
        while not is_over.wait(0.002):
            most[0] = max(most[0], len(os.listdir("/proc/self/fd")) - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        is_over.set()
        looking.join()


ASK_FOR_MANY = """
import os, socket, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from attacks import name_server, question
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.connect((name_server(), 53))
made.setblocking(False)
for number in range(6000):
    try: made.send(question(b'n%d.example.org' % number))
    except BlockingIOError: pass
    if number % 50 == 0: os.sched_yield()
# Another socket, whose answer says that those before it have been looked at.
last = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
last.connect((name_server(), 53))
last.settimeout(0.2)
for _ in range(100):
    last.send(question(b'last.example.org'))
    try: print(len(last.recv(600)) > 0); break
    except TimeoutError: pass
"""


@attack(75)
def test_thousands_of_names_cost_the_runtime_few_sockets(tmp_path: Path, logged: list[str]):
    names = {GOOD: "127.0.0.1"}
    with a_canary() as server, counting_descriptors() as most:
        rules = rule(server.port) + (
            '[[profiles.test.rules]]\naction = "tool:net:connect *.example.org:8000-8031"\n'
            'outcome = "allow"\n'
        )
        with a_wall(tmp_path, rules, names) as behind:
            _, _, _, program, _ = furnish(tmp_path, {})
            end = behind.python(ASK_FOR_MANY, program)
            neighbour = probe(behind, server.port, GOOD)

    assert said(end) == "True\n", complained(end)
    assert {event.why for event in end.network.refused} == {"too many names at once"}
    assert most[0] < 400
    assert neighbour == [f"{GOOD} ok"]
    assert logged == []


CONNECT_OFTEN = """
import socket, sys
host, port, count, said = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4].encode()
kept, failed = [], 0
address = socket.gethostbyname(host)
for _ in range(count):
    try:
        made = socket.create_connection((address, port), 10)
        made.setblocking(False)
        made.send(said)
        kept.append(made)
    except OSError: failed += 1
print('made', len(kept))
"""


@attack(76)
def test_hundreds_of_connections_that_read_nothing_leave_room_for_the_next_command(
    tmp_path: Path, logged: list[str]
):
    """What a client does not read fills buffers: of each only so much."""
    lock, met, peak = threading.Lock(), [0], [0]

    def serve(client: socket.socket) -> None:
        with lock:
            met[0] += 1
            peak[0] = max(peak[0], met[0])
        try:
            client.recv(100)
            client.sendall(bytes(3_000_000))
            client.recv(100)
        finally:
            with lock:
                met[0] -= 1

    with (
        a_server(serve) as port,
        a_canary() as server,
        walled(tmp_path, rule(port) + rule(server.port), {GOOD: "127.0.0.1"}) as behind,
        counting_descriptors() as most,
    ):
        end = behind.python(CONNECT_OFTEN, GOOD, str(port), "400", "hello\n")
        neighbour = probe(behind, server.port, GOOD)

    assert said(end).startswith("made "), complained(end)
    assert peak[0] <= 256
    assert {event.why for event in end.network.refused} == {"too many connections"}
    # Its socket, the way out, and the server's own; and a pipe each way once a megabyte has flowed.
    assert most[0] < 256 * 7 + 100
    assert neighbour == [f"{GOOD} ok"]
    assert logged == []


@attack(77)
def test_thousands_of_half_hellos_reach_nobody_and_delay_nobody(tmp_path: Path, logged: list[str]):
    with (
        a_canary() as server,
        walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind,
    ):
        beside = Walled(behind.room, behind.rules)
        ends: list[CommandEnd] = []
        half = "\x16\x03\x01"
        flood = threading.Thread(
            target=lambda: ends.append(
                behind.python(CONNECT_OFTEN, GOOD, str(server.port), "1500", half)
            )
        )
        flood.start()
        neighbour = probe(beside, server.port, *[GOOD] * 20)
        flood.join()
        assert [heard for heard in server.settle() if heard] == [b"good.example.org\n"] * 20

    assert said(ends[0]).startswith("made ")
    assert neighbour == [f"{GOOD} ok"] * 20
    assert logged == []


ASK_BADLY = """
import os, socket, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
from attacks import name_server, question
made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
made.connect((name_server(), 53))
made.setblocking(False)
whole = question(b'evil.example.org')
for number in range(30000):
    try: made.send((whole[:number % 40], bytes(60000), whole, os.urandom(64))[number % 4])
    except BlockingIOError: pass
print(socket.gethostbyname('good.example.org').startswith('198.'))
"""


@attack(78)
def test_a_flood_of_datagrams_is_lived_through(tmp_path: Path, logged: list[str]):
    with a_canary() as server:
        with a_wall(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
            _, _, _, program, _ = furnish(tmp_path, {})
            end = behind.python(ASK_BADLY, program)
            neighbour = probe(behind, server.port, GOOD)
        assert server.settle() == [b"good.example.org\n"]

    assert said(end) == "True\n", complained(end)
    assert end.network.opened == 0
    assert len(end.network.refused) <= 50
    assert neighbour == [f"{GOOD} ok"]
    assert logged == []


def test_policy_is_read_once_for_each_connection_and_not_ever_more_often(tmp_path: Path):
    """Each connection after a pause once began a watch of its own over policy."""
    code = (
        "import socket, sys\n"
        "for _ in range(200):\n"
        "    try: socket.create_connection((sys.argv[1], 5432), 5).recv(1)\n"
        "    except OSError: pass\n"
        "made = socket.create_connection((sys.argv[2], int(sys.argv[3])), 5)\n"
        "made.settimeout(2)\n"
        "try: made.recv(1)\n"
        "except TimeoutError: print('waited')\n"
    )
    nowhere = "nowhere.example.org"
    with a_canary() as server:
        rules = rule(server.port) + rule(5432, nowhere)
        with walled(tmp_path, rules, {GOOD: "127.0.0.1"}) as behind:
            end = behind.python(code, nowhere, GOOD, str(server.port))

    assert said(end) == "waited\n", complained(end)
    assert behind.policy_reads < 2 * 201 + 100


class Unwritable(Seen):
    """Of which the record keeps what is opened alone."""

    def closed(self, event: ClosedConnection) -> None:
        raise HostError("the disk is full")

    def refused(self, event: RefusedConnection) -> None:
        raise HostError("the disk is full")


def test_an_end_or_a_refusal_that_cannot_be_put_on_record_breaks_nothing(
    tmp_path: Path, logged: list[str]
):
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        behind.seen = Unwritable()
        end = behind.python(PROBE, *[f"n{number}.example.org:1" for number in range(60)])
        first = probe(behind, server.port, GOOD)
        second = probe(behind, server.port, GOOD)

    assert len(end.network.refused) == 50
    assert end.network.more_refused >= 10
    assert first == second == [f"{GOOD} ok"]
    assert logged == []


def test_an_address_that_policy_denies_by_now_is_not_reached_any_more(tmp_path: Path):
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        behind.later_rules = rule(server.port) + (
            '[[profiles.test.rules]]\naction = "tool:net:connect 127.0.0.0/8:*"\noutcome = "deny"\n'
        )
        denied = probe(behind, server.port, GOOD)
        behind.later_rules = rule(server.port, more="")
        narrowed = probe(behind, server.port, GOOD)
        assert server.settle() == []
        behind.later_rules = ""
        neighbour = probe(behind, server.port, GOOD)

    assert denied == narrowed == [f"{GOOD} ConnectionResetError"]
    assert [event.why.partition(" (")[0] for event in behind.seen.refused_] == [
        "it resolves to 127.0.0.1: tool:net:connect 127.0.0.0/8:*",
        "it resolves to 127.0.0.1, which is loopback",
    ]
    assert neighbour == [f"{GOOD} ok"]


def test_requests_that_policy_judges_by_now_do_not_leave_unseen(tmp_path: Path):
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        behind.later_rules = (
            f'[[profiles.test.rules]]\naction = "tool:net:request GET {GOOD}:{server.port}/a"\n'
            f'outcome = "allow"\n{HERE}\n'
        )
        judged = probe(behind, server.port, GOOD)
        assert server.settle() == []
        behind.later_rules = rule(server.port) + rule(server.port, "other.example.org")
        neighbour = probe(behind, server.port, GOOD)

    assert judged == [f"{GOOD} ConnectionResetError"]
    assert [event.why for event in behind.seen.refused_] == [
        "requests to this host are judged, so they must use TLS"
    ]
    assert neighbour == [f"{GOOD} ok"]


# --- ends -----------------------------------------------------------------------

OUTLIVE = """
import os, socket, sys, time
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
made.sendall(b'first\\n')
made.recv(9)
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(tell, b'%d' % os.getpid())
        for fd in (0, 1, 2): os.close(fd)
        for _ in range(3000):
            made.sendall(b'later\\n')
            time.sleep(0.01)
    os._exit(0)
print(os.read(told, 16).decode())
"""


def until(is_so: Callable[[], bool]) -> None:
    """Look again and again, for half a minute."""
    for _ in range(600):
        if is_so():
            return
        threading.Event().wait(0.05)
    raise AssertionError("it never came to that")


@attack(79)
def test_what_outlives_a_command_sends_nothing_after_its_end(tmp_path: Path):
    with a_canary() as server:
        argv = [PYTHON, "-c", OUTLIVE, "127.0.0.1", str(server.port)]
        free = subprocess.run(argv, capture_output=True, text=True, check=True)
        before = len(server.heard[0])
        until(lambda: len(server.heard[0]) > before + 20)
        os.kill(int(free.stdout), signal.SIGKILL)
        server.settle()
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.run(PYTHON, "-c", OUTLIVE, GOOD, str(server.port))
        at_the_end = len(server.settle()[0])
        neighbour = probe(behind, server.port, GOOD)
        assert len(server.settle()[0]) == at_the_end

    assert end.survivors == 1
    assert end.exit_code == 0, complained(end)
    assert neighbour == [f"{GOOD} ok"]


STREAM = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
made.sendall(b'a stream\\n')
while True: made.sendall(bytes(65536))
"""


def processes_with(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if mark.encode() in words:
                found.append(int(name))
    return found


@attack(80)
def test_a_runtime_killed_in_the_middle_of_a_transfer_leaves_nothing(tmp_path: Path):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    (tmp_path / "runtime").mkdir()
    with a_canary() as server:
        server.answer = b""

        def run(writer: int) -> None:
            with walled(tmp_path / "runtime", rule(server.port), {GOOD: "127.0.0.1"}) as behind:
                behind.python(STREAM, GOOD, str(server.port), mark)

        runtime = start(run)
        until(lambda: bool(server.heard) and len(server.heard[0]) > 3_000_000)
        assert processes_with(mark)
        os.kill(runtime.pid, signal.SIGKILL)
        runtime.end_killed()
        server.settle()
        until(lambda: not processes_with(mark))
        (tmp_path / "next").mkdir()
        with walled(tmp_path / "next", rule(server.port), {GOOD: "127.0.0.1"}) as behind:
            server.answer = b"ok\n"
            assert probe(behind, server.port, GOOD) == [f"{GOOD} ok"]


def launchers() -> list[int]:
    """Our children that make sandboxes."""
    tasks = list(Path("/proc/self/task").iterdir())
    children = {pid for task in tasks for pid in (task / "children").read_text().split()}
    lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return [int(pid) for pid, line in lines.items() if b"inside/main.py" in line]


def test_a_launcher_killed_in_the_middle_of_a_transfer_leaves_nothing(
    tmp_path: Path, logged: list[str]
):
    mark = f"mark-{os.getpid()}-{tmp_path.name}"
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        server.answer = b""
        problems: list[Exception] = []

        def run() -> None:
            try:
                behind.python(STREAM, GOOD, str(server.port), mark)
            except PaddockError as error:
                problems.append(error)

        before = set(launchers())
        running = threading.Thread(target=run)
        running.start()
        until(lambda: bool(server.heard) and len(server.heard[0]) > 3_000_000)
        (launcher,) = set(launchers()) - before
        os.kill(launcher, signal.SIGKILL)
        running.join(60)
        assert not running.is_alive()
        server.settle()
        until(lambda: not processes_with(mark))
        server.answer = b"ok\n"
        assert probe(behind, server.port, GOOD) == [f"{GOOD} ok"]

    assert [str(problem) for problem in problems] == ["a sandbox ended without a report"]
    assert logged == []


def test_a_forked_child_of_the_host_holds_no_connection_open(tmp_path: Path):
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        server.answer = b""
        ends: list[CommandEnd] = []
        running = threading.Thread(
            target=lambda: ends.append(behind.python(STREAM, GOOD, str(server.port), timeout_s=3.0))
        )
        running.start()
        until(lambda: bool(server.heard) and len(server.heard[0]) > 3_000_000)
        held, hold = os.pipe()

        def wait(writer: int) -> None:
            os.close(hold)
            links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
            told = [os.readlink(link) for link in links if os.path.islink(link)]
            os.write(writer, b"%d" % sum(each.startswith(("net:", "user:")) for each in told))
            os.read(held, 1)

        child = start(wait)
        running.join()
        server.settle()
        ended = not any(thread.is_alive() for thread in server.threads)
        os.close(hold)
        os.close(held)
        assert child.end() == (0, b"0")

    assert ended


def test_a_forked_child_of_the_host_keeps_no_connection_that_policy_ended(tmp_path: Path):
    held, hold = os.pipe()

    def wait(writer: int) -> None:
        os.close(hold)
        os.write(writer, b"there")
        os.read(held, 1)

    code = (
        "import socket, sys\n"
        "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)\n"
        "made.settimeout(30)\n"
        "made.sendall(b'hello\\n'); made.recv(9)\n"
        "try: print(made.recv(1))\n"
        "except ConnectionResetError: print('cut off')\n"
    )
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        ends: list[CommandEnd] = []
        running = threading.Thread(
            target=lambda: ends.append(behind.python(code, GOOD, str(server.port)))
        )
        running.start()
        until(lambda: bool(server.heard) and server.heard[0] == b"hello\n")
        child = start(wait)
        os.read(child.reader, 5)
        behind.later_rules = rule(1)
        running.join()
        server.settle()
        ended = not any(thread.is_alive() for thread in server.threads)
        os.close(hold)
        os.close(held)
        assert child.end() == (0, b"")

    assert said(ends[0]) == "cut off\n", complained(ends[0])
    assert ended


def test_a_second_process_of_the_user_finds_no_door_to_a_commands_network(tmp_path: Path):
    def doors() -> set[str]:
        """Where this process and its launcher can be connected to, on the host."""
        ours: set[str] = set()
        for pid in ("self", *map(str, launchers())):
            for fd in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    ours.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
        internet = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        local = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
        return {row[1] for row in internet if row[3] == "0A" and row[9] in ours} | {
            row[7] for row in local if len(row) > 7 and row[6] in ours
        }

    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        server.answer = b""
        before = doors()
        running = threading.Thread(
            target=lambda: behind.python(STREAM, GOOD, str(server.port), timeout_s=3.0)
        )
        running.start()
        until(lambda: bool(server.heard) and len(server.heard[0]) > 1_000_000)
        during = doors()
        running.join()

    assert f"0100007F:{server.port:04X}" in before
    assert during <= before


# --- honest work ----------------------------------------------------------------

BIG = """
import hashlib, os, socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
made.settimeout(60)
made.sendall(b'bytes\\n')
piece, digest = os.urandom(1 << 20), hashlib.sha256()
for number in range(int(sys.argv[3])):
    whole = bytes([number % 256]) + piece
    made.sendall(whole)
    digest.update(whole)
made.shutdown(socket.SHUT_WR)
there = made.makefile('rb')
print(there.readline().decode().strip() == digest.hexdigest())
digest = hashlib.sha256()
while piece := there.read(1 << 20): digest.update(piece)
print(digest.hexdigest())
"""


def test_a_hundred_megabytes_go_each_way_and_are_the_same(tmp_path: Path):
    sent = hashlib.sha256()

    def serve(client: socket.socket) -> None:
        heard, said = client.makefile("rb"), os.urandom(1 << 20)
        heard.readline()
        digest = hashlib.sha256()
        while piece := heard.read(1 << 20):
            digest.update(piece)
        client.sendall(digest.hexdigest().encode() + b"\n")
        for number in range(100):
            whole = bytes([number]) + said
            sent.update(whole)
            client.sendall(whole)

    with a_server(serve) as port, walled(tmp_path, rule(port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(BIG, GOOD, str(port), "100")

    assert said(end).splitlines() == ["True", sent.hexdigest()], complained(end)
    assert behind.seen.closed_[0].ending == "closed"


URGE = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
made.settimeout(20)
made.sendall(b'bytes\\n' + bytes(3_000_000))
made.send(b'!', socket.MSG_OOB)
made.sendall(bytes(1000) + b'the end\\n')
if sys.argv[3] == 'ended': made.shutdown(socket.SHUT_WR)
print(made.recv(9).decode().strip())
"""


@pytest.mark.parametrize("way", ["ended", "open"])
def test_urgent_data_in_the_middle_holds_nothing_up(tmp_path: Path, way: str):
    def serve(client: socket.socket) -> None:
        last = b""
        while last != b"the end\n" and (piece := client.recv(1 << 20)):
            last = (last + piece)[-8:]
        client.sendall(last)

    with a_server(serve) as port, walled(tmp_path, rule(port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(URGE, GOOD, str(port), way)

    assert said(end) == "the end\n", complained(end)


SERVERS = """
import socket, threading
def serve(address):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    door = socket.create_server((address, 0), family=family, dualstack_ipv6=address == '::')
    threading.Thread(target=lambda: door.accept()[0].sendall(b'inside'), daemon=True).start()
    return door.getsockname()[1]
for host, address in (
    ('localhost', '127.0.0.1'), ('127.0.0.1', '0.0.0.0'), ('127.9.9.9', '0.0.0.0'),
    ('localhost', '::'), ('127.0.0.1', '::'), ('::1', '::1'), ('::1', '::'),
):
    try: print(host, socket.create_connection((host, serve(address)), 5).recv(9).decode())
    except OSError as error: print(host, error.strerror)
found = socket.getaddrinfo('good.example.org', 5432, flags=socket.AI_ADDRCONFIG)
print({family.name for family, *_ in found})
found = socket.getaddrinfo('127.0.0.1', 1, flags=socket.AI_ADDRCONFIG)
print({family.name for family, *_ in found})
"""


def test_servers_inside_are_met_on_every_address_of_the_loopback(tmp_path: Path):
    with walled(tmp_path, rule(5432), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(SERVERS)
        behind.room.network = "loopback"
        alone = behind.room.python(SERVERS.partition("found =")[0])

    rows, families = said(end).splitlines()[:-2], said(end).splitlines()[-2:]
    # As without a wall, also where this machine has no IPv6.
    assert rows == said(alone).splitlines(), complained(end)
    assert rows[:3] == [f"{host} inside" for host in ("localhost", "127.0.0.1", "127.9.9.9")]
    assert families == ["{'AF_INET'}"] * 2
    if has_ipv6():
        assert all(row.endswith(" inside") for row in rows)


def test_a_server_inside_and_a_name_on_another_port_do_not_disturb_each_other(tmp_path: Path):
    code = (
        "import socket, sys\n"
        "door = socket.create_server(('0.0.0.0', 8000))\n"
        "made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)\n"
        "made.sendall(b'out\\n'); print(made.recv(9).decode().strip())\n"
        "near = socket.create_connection(('localhost', 8000), 5)\n"
        "door.accept()[0].sendall(b'in'); print(near.recv(9).decode())\n"
    )
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(code, GOOD, str(server.port))

    assert said(end) == "ok\nin\n", complained(end)


def test_a_web_port_that_no_rule_names_is_refused_with_the_reason(tmp_path: Path):
    code = (
        "import socket, sys\n"
        "try: print(socket.create_connection((sys.argv[1], 443), 5).recv(1))\n"
        "except ConnectionResetError: print('reset')\n"
    )
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(code, GOOD)
        assert server.settle() == []

    assert said(end) == "reset\n", complained(end)
    assert [(each.host, each.port, each.why, each.remedy) for each in end.network.refused] == [
        (GOOD, 443, "no rule allows it", f"paddock network allow {GOOD}:443")
    ]


def test_a_name_is_known_again_once_the_server_inside_that_had_its_port_has_ended(tmp_path: Path):
    code = (
        "import socket, sys\n"
        "name, port = sys.argv[1], int(sys.argv[2])\n"
        "with socket.create_server(('0.0.0.0', port)):\n"
        "    try: socket.create_connection((name, port), 5)\n"
        "    except socket.gaierror: print('unknown')\n"
        "made = socket.create_connection((name, port), 5)\n"
        "made.sendall(b'out\\n'); print(made.recv(9).decode().strip())\n"
    )
    with a_canary() as server, walled(tmp_path, rule(server.port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(code, GOOD, str(server.port))

    assert said(end) == "unknown\nok\n", complained(end)
    assert [event.why for event in end.network.refused] == [
        "a server inside the sandbox uses its ports"
    ]


def test_a_network_of_literal_addresses_leaves_names_their_ports(tmp_path: Path):
    """The one listens on every address of the port, and names have addresses of their own there."""
    with a_canary() as server:
        literals = rule(server.port, "192.0.2.0/24", "") + rule(server.port, "10.0.0.5", "")
        with walled(tmp_path, rule(server.port) + literals, {GOOD: "127.0.0.1"}) as behind:
            passed = probe(behind, server.port, GOOD)
        assert server.settle() == [b"good.example.org\n"]

    assert passed == [f"{GOOD} ok"]


def test_a_network_of_every_literal_address_is_not_this_machine(tmp_path: Path):
    """Inside, the loopback is the sandbox's own; the host's is where a rule's name may lead."""
    with a_canary() as server:
        everything = rule(server.port, "0.0.0.0/0", "")
        with walled(tmp_path, everything + rule(server.port), {GOOD: "127.0.0.1"}) as behind:
            held = probe(behind, server.port, "127.0.0.1", "127.0.0.53", "127.9.9.9", "0.0.0.0")
            assert server.settle() == []
            passed = probe(behind, server.port, GOOD)

    assert {line.split()[1] for line in held} == {"ConnectionResetError"}
    assert {event.why.partition(", ")[2] for event in behind.seen.refused_} == {"which is loopback"}
    assert passed == [f"{GOOD} ok"]


MANNERS = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
made.settimeout(20)
words = made.makefile('rwb')
print(words.readline().decode().strip())
made.shutdown(socket.SHUT_WR)
print(words.read().decode().strip())
"""


def test_a_server_that_speaks_first_and_after_half_a_close_is_heard(tmp_path: Path):
    def serve(client: socket.socket) -> None:
        client.sendall(b"220 mail.example.org ESMTP\r\n")
        assert client.recv(1) == b""
        client.sendall(b"221 bye\r\n")

    with a_server(serve) as port, walled(tmp_path, rule(port), {GOOD: "127.0.0.1"}) as behind:
        end = behind.python(MANNERS, GOOD, str(port))

    assert said(end).splitlines() == ["220 mail.example.org ESMTP", "221 bye"], complained(end)
