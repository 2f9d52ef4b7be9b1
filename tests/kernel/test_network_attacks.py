"""Every attack of the list on the network wall, for real: held behind it, and not without it.

Run as root and as a plain user. Nothing here leaves this machine: names lead to servers of the
test, and literal addresses are those of documents or of the loopback.
"""

import functools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.network.egress import Egress
from tests.kernel.network_attacks import ATTACKS
from tests.support.canaries import Canary, a_canary, a_local_canary, a_resolver, has_ipv6
from tests.support.networks import HERE, Walled, walled
from tests.support.sandboxes import PYTHON, a_room, complained, said

pytestmark = [pytest.mark.needs("stage"), pytest.mark.loopback]

PROGRAM = Path(__file__).with_name("network_attacks.py")
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


@functools.cache
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


@functools.cache
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
