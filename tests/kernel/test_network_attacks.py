"""Every attack of the list on the network wall, for real: held behind it, and not without it.

Run as root and as a plain user. Nothing here leaves this machine: names lead to servers of the
test, and literal addresses are those of documents or of the loopback.
"""

import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kernel.network_attacks import ATTACKS
from tests.support.canaries import Canary, a_canary
from tests.support.networks import HERE, Walled, walled
from tests.support.sandboxes import PYTHON, complained, said

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
