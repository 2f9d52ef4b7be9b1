"""Every attack of the list on ended TLS and credentials: held behind it, and not without it."""

import gzip
import json
import os
import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.network.credentials import Credential
from paddock.network.requests import Authority
from paddock.policy.settings import CredentialSettings
from tests.kernel.request_attacks import ATTACKS, HOST, Attack
from tests.support.networks import HERE, walled
from tests.support.sandboxes import PYTHON, complained, said
from tests.support.tls_ends import WORLD, Host

pytestmark = [pytest.mark.needs("stage"), pytest.mark.loopback]

PROGRAM = Path(__file__).with_name("request_attacks.py")
VALUE = "tok-3n7XQ9vLr2JmKc8Wd5Zy"
OTHER_VALUE = "tok-6Hs1Yb0Tg4PfNe2Ux8Ra"
OWN = Authority(datetime.now(UTC), WORLD.pem)
KEY = OWN._key.private_numbers().private_value.to_bytes(32, "little")
"""The authority's, as its library keeps it."""
IDLE_S = 0.1


class Parrot(Struct):
    """Hears everything, and answers by the path what it was told in `X-Echo`."""

    heard: list[bytearray] = field(default_factory=list)

    def __call__(self, tls: ssl.SSLSocket) -> None:
        whole, last = bytearray(), b""
        self.heard.append(whole)
        while True:
            tls.settimeout(IDLE_S if last else 20)
            try:
                piece = tls.recv(65536)
            except TimeoutError:
                # That is all for now: it is answered once, however many requests it was.
                self.answer(tls, last)
                if b"Connection: close" in last:
                    return
                last = b""
                continue
            if not piece:
                return
            whole += piece
            last += piece

    def answer(self, tls: ssl.SSLSocket, request: bytes) -> None:
        way = request.partition(b" /issues/")[2].partition(b" ")[0]
        echo = request.partition(b"X-Echo: ")[2].partition(b"\r\n")[0]
        head, body = b"HTTP/1.1 200 OK\r\n", echo
        if way == b"header":
            head += b"X-Got: %b\r\nSet-Cookie: t=%b\r\n" % (echo, echo)
        elif way == b"name":
            head += echo + b": x\r\n"
        elif way == b"reason":
            head = b"HTTP/1.1 200 %b\r\n" % echo
        elif way == b"early":
            head = b"HTTP/1.1 103 Hints\r\nLink: <%b>\r\n\r\n" % echo + head
        elif way == b"error":
            head = b"HTTP/1.1 500 Failed\r\n"
        elif way == b"redirect":
            head = b"HTTP/1.1 302 Found\r\nLocation: https://other.example.org/%b\r\n" % echo
        elif b"Accept-Encoding: gzip" in request:
            head, body = head + b"Content-Encoding: gzip\r\n", gzip.compress(echo)
        elif b"Range: bytes=" in request:
            start = int(request.partition(b"bytes=")[2].partition(b"-")[0])
            head, body = b"HTTP/1.1 206 Part\r\n", echo[start:10] if start < 10 else echo[start:]
        if way not in (b"pieces", b"trailer"):
            tls.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return
        tls.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 5):
            tls.sendall(b"%x\r\n%b\r\n" % (len(body[at : at + 5]), body[at : at + 5]))
        tls.sendall(b"0\r\nX-Got: %b\r\n\r\n" % echo)


def furnish(home: Path, **world: object) -> list[str]:
    (home / "readable").mkdir(exist_ok=True)
    shutil.copy(PROGRAM, home / "readable/attacks.py")
    needles = [VALUE.encode()[::-1].hex(), KEY[::-1].hex()]
    world = {"needles": needles, "processes": [], **world}
    (home / "readable/world.json").write_text(json.dumps(world))
    places = (f"{home}/readable/{name}" for name in ("attacks.py", "world.json"))
    return [PYTHON, "-I", "-S", *places]


def credential(name: str, host: str, port: int, value: str) -> Credential:
    settings = CredentialSettings(name, ((host, port),), f"{name.upper()}_TOKEN")
    return Credential(settings, value, os.urandom)


class Outcome(Struct):
    heard: bytes
    seen: bytes

    def is_reached(self, attack: Attack, token: str) -> bool:
        if attack.kind == "told":
            return VALUE.encode() in self.seen or KEY in self.seen
        return (attack.goal or token.encode()) in self.heard


def on_the_host(home: Path, attack: Attack) -> Outcome:
    """What comes of it for a program that has the value and connects as it likes."""
    parrot = Parrot()
    with Host(parrot, name=HOST) as host:
        world = {"front": "127.0.0.1", "port": host.port, "processes": [str(os.getpid())]}
        argv = furnish(home, token=VALUE, other_token=VALUE, **world)
        ran = subprocess.run([*argv, attack.name], capture_output=True, text=True, check=True)
    return Outcome(b"\n".join(map(bytes, parrot.heard)), bytes.fromhex(ran.stdout))


def rules(port: int) -> str:
    return "".join(
        f'[[profiles.test.rules]]\naction = "tool:net:request {method} {HOST}:{port}/issues/**"\n'
        f'outcome = "allow"\n{HERE}\n'
        for method in ("GET", "POST")
    )


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_requests_and_credentials_is_held(name: str, tmp_path: Path):
    attack, parrot = ATTACKS[name], Parrot()
    (tmp_path / "free").mkdir()
    free = on_the_host(tmp_path / "free", attack)
    with (
        Host(parrot, name=HOST) as host,
        walled(tmp_path, rules(host.port), {HOST: "127.0.0.1"}) as behind,
    ):
        behind.room.readable = (f"{tmp_path}/readable",)
        behind.authority = OWN
        own = credential("api", HOST, host.port, VALUE)
        other = credential("other", "other.example.org", 443, OTHER_VALUE)
        behind.credentials = own, other
        argv = furnish(tmp_path, front=HOST, port=host.port, token="", other_token="")
        end = behind.run(*argv, name)
        assert end.exit_code == 0, complained(end)
        held = Outcome(b"\n".join(map(bytes, parrot.heard)), bytes.fromhex(said(end)))
        count = len(parrot.heard)
        neighbour = behind.run(*argv, "a_value_that_the_server_sends_on_to_another")
        assert own.placeholder.encode() in bytes.fromhex(said(neighbour))

    needs_root = attack.name == "a_value_in_what_other_processes_hold"
    assert free.is_reached(attack, VALUE) or (needs_root and os.geteuid() != 0)
    assert not held.is_reached(attack, own.placeholder)
    assert other.placeholder.encode() not in held.heard
    assert OTHER_VALUE.encode() not in held.heard + held.seen
    assert VALUE.encode() in b"\n".join(map(bytes, parrot.heard[count:]))


def test_every_number_has_its_attack():
    assert [each.number for each in ATTACKS.values()] == [*range(81, 105)]


EXPIRED = Authority(datetime.now(UTC) - timedelta(days=60))
UNKNOWN = Authority(datetime.now(UTC))


@pytest.mark.parametrize(
    ("authority", "name", "why"),
    [
        (EXPIRED, HOST, "certificate has expired"),
        (UNKNOWN, HOST, "certificate"),
        (WORLD, "other.example.org", "Hostname mismatch"),
    ],
)
def test_a_server_that_is_not_certainly_the_host_gets_nothing(
    authority: Authority, name: str, why: str, tmp_path: Path
):
    """N105: who sits in between has a certificate, and it is not the host's of today."""
    parrot, trusted = Parrot(), WORLD.pem + EXPIRED.pem
    with (
        Host(parrot, authority, name) as host,
        walled(tmp_path, rules(host.port), {HOST: "127.0.0.1"}) as behind,
    ):
        behind.room.readable = (f"{tmp_path}/readable",)
        behind.authority = Authority(datetime.now(UTC), trusted)
        behind.credentials = (credential("api", HOST, host.port, VALUE),)
        argv = furnish(tmp_path, front=HOST, port=host.port, token="", other_token="")
        end = behind.run(*argv, "a_value_that_the_server_sends_on_to_another")

    assert parrot.heard == []
    assert bytes.fromhex(said(end)).startswith(b"HTTP/1.1 502 ")
    assert why in end.network.refused[0].why
