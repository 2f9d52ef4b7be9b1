"""Credentials: a placeholder inside, the value on the way to its hosts alone, never on a way back."""

import base64
import copy
import json
import logging
import os
import pickle
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import ConfigError
from paddock.network.credentials import (
    Credential,
    StreamReplacer,
    read_value,
    replace_in_header,
)
from paddock.policy.load import Scope, read_policy
from paddock.policy.settings import CredentialSettings, CredentialSource, Settings
from tests.support.tls_ends import Ended, Host, Replies, Rules, read_all

VALUE = "tok-3n7XQ9vLr2JmKc8Wd5Zy"
SETTINGS = CredentialSettings("issues", (("localhost", 443),), "ISSUES_TOKEN")


def credential(value: str = VALUE, host: str = "localhost", name: str = "issues") -> Credential:
    return Credential(
        CredentialSettings(name, ((host, 443),), f"{name.upper()}_TOKEN"), value, os.urandom
    )


def request(*headers: str, path: str = "/", body: str = "", method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def response(body: str = "", *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.loopback
def test_a_listed_host_gets_the_value_in_headers():
    own, replies, gate = credential(), Replies(response("ok")), Rules()
    with Host(replies) as host, Ended(host, gate, [own]) as ended:
        reply = ended.say(
            request(
                f"Authorization: Bearer {own.placeholder}",
                f"Proxy-Authorization: {own.placeholder}",
                f"X-Twice: {own.placeholder},{own.placeholder}",
                "Accept-Encoding: gzip",
                "Range: bytes=0-3",
            )
        )

    assert reply.endswith(b"ok")
    assert replies.heard == [
        f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {VALUE}\r\n"
        f"X-Twice: {VALUE},{VALUE}\r\nAccept-Encoding: identity\r\n\r\n".encode()
    ]
    assert gate.told == []


@pytest.mark.loopback
@pytest.mark.parametrize("scheme", ["Basic", "basic"])
def test_a_listed_host_gets_the_value_inside_basic_authentication(scheme: str):
    own, replies = credential(), Replies(response("ok"))
    with Host(replies) as host, Ended(host, Rules(), [own]) as ended:
        said = basic(f"me:{own.placeholder}").replace("Basic", scheme)
        ended.say(request(f"Authorization: {said}"))

    wanted = basic(f"me:{VALUE}").replace("Basic", scheme)
    assert f"Authorization: {wanted}\r\n".encode() in replies.heard[0]


ELSEWHERE = ["Authorization: Bearer {}", "Cookie: a={}", "X-{}: 1", "Authorization: BASIC"]


@pytest.mark.loopback
@pytest.mark.parametrize("header", ELSEWHERE)
def test_a_host_that_is_not_listed_gets_no_request_with_a_placeholder(header: str):
    other, replies, gate = credential(host="other.test"), Replies(response("ok")), Rules()
    line = header.format(other.placeholder)
    if header.endswith("BASIC"):
        line = f"Authorization: {basic(f'me:{other.placeholder}')}"
    with Host(replies) as host, Ended(host, gate, [other]) as ended:
        reply = ended.say(request(line))
        neighbour = ended.say(request("Authorization: Bearer another"))

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert gate.told == [
        (
            "net.credential_misused",
            (
                "the credential 'issues' may only go in headers to its own hosts: its placeholder "
                "is in the headers of a request to localhost"
            ),
        )
    ]
    assert gate.judged == [("GET", "/")]
    assert neighbour.endswith(b"ok")
    assert len(replies.heard) == 1


@pytest.mark.loopback
@pytest.mark.parametrize("path", ["/{}", "/?token={}", "/%70{}"])
def test_a_placeholder_in_a_request_line_stops_the_request_to_a_listed_host_too(path: str):
    own, replies, gate = credential(), Replies(response("ok")), Rules()
    said = path.format(own.placeholder[1:] if "%70" in path else own.placeholder)
    with Host(replies) as host, Ended(host, gate, [own]) as ended:
        reply = ended.say(request(path=said))

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert [code for code, _ in gate.told] == ["net.credential_misused"]
    assert (replies.heard, gate.judged) == ([], [])


def chunks(*pieces: str, trailer: str = "") -> bytes:
    text = "".join(f"{len(piece):x}\r\n{piece}\r\n" for piece in pieces)
    return f"{text}0\r\n{trailer}\r\n".encode()


@pytest.mark.loopback
@pytest.mark.parametrize("form", ["length", "chunks", "bytes", "trailer"])
def test_a_placeholder_in_a_body_stops_the_request_before_it_is_whole(form: str):
    own, replies, gate = credential(), Replies(response("ok")), Rules()
    text = f'{{"token": "{own.placeholder}"}}'
    body, header = text.encode(), f"Content-Length: {len(text)}"
    if form != "length":
        header = "Transfer-Encoding: chunked"
        pieces = {"chunks": (text[:20], text[20:25], text[25:]), "bytes": tuple(text)}
        trailer = f"X: {own.placeholder}\r\n" if form == "trailer" else ""
        body = chunks(*pieces.get(form, ("harmless",)), trailer=trailer)
    with Host(replies) as host, Ended(host, gate, [own]) as ended:
        reply = ended.say(request(header, method="POST"), body)

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert [code for code, _ in gate.told] == ["net.credential_misused"]
    assert [each for each in replies.heard if own.placeholder.encode() in each] == []
    assert [each for each in replies.heard if each.endswith((b"0\r\n\r\n", b"}"))] == []


@pytest.mark.loopback
@pytest.mark.parametrize("pieces", [("harmless paddock_", "1234", " text"), ("paddock_",)])
def test_a_body_that_only_looks_like_a_placeholder_arrives_whole(pieces: tuple[str, ...]):
    own, replies, gate = credential(), Replies(response("ok")), Rules()
    with Host(replies) as host, Ended(host, gate, [own]) as ended:
        header = request("Transfer-Encoding: chunked", method="POST")
        reply = ended.say(header, chunks(*pieces))

    body = replies.heard[0].partition(b"\r\n\r\n")[2]
    assert b"".join(body.split(b"\r\n")[1::2]).decode() == "".join(pieces)
    assert reply.endswith(b"ok")
    assert gate.told == []


@pytest.mark.loopback
def test_a_listed_host_that_repeats_the_value_does_not_tell_it():
    own = credential()
    body = f"you are {VALUE}, and {VALUE}!"
    replies = Replies(response(body, f"X-You: {VALUE}", f"X-{VALUE}: 1", f"Set-Cookie: t={VALUE}"))
    with Host(replies) as host, Ended(host, Rules(), [own]) as ended:
        reply = ended.say(request(f"Authorization: Bearer {own.placeholder}"))

    stand_in = own.placeholder
    assert reply.decode() == (
        f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nX-You: {stand_in}\r\n"
        f"X-{stand_in}: 1\r\nSet-Cookie: t={stand_in}\r\nConnection: close\r\n\r\n"
        f"you are {stand_in}, and {stand_in}!"
    )


@pytest.mark.loopback
def test_a_host_that_echoes_basic_authentication_does_not_tell_the_value():
    own = credential()
    replies = Replies(response(json.dumps({"Authorization": basic(f"me:{VALUE}")})))
    said = basic(f"me:{own.placeholder}")
    with Host(replies) as host, Ended(host, Rules(), [own]) as ended:
        reply = ended.say(request(f"Authorization: {said}"))

    assert reply.decode().endswith(json.dumps({"Authorization": said}))


@pytest.mark.loopback
@pytest.mark.parametrize("value", ["shortest", VALUE, "long" * 25])
def test_a_value_over_the_borders_of_pieces_is_replaced_and_the_rest_is_whole(value: str):
    own = credential(value)

    def dripping(tls):
        while b"\r\n\r\n" not in tls.recv(65536):
            pass
        body = f"a {value} b {value[:5]} c {value}{value}".encode()
        tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        for each in body:
            tls.sendall(bytes([each]))

    with Host(dripping) as host, Ended(host, Rules(), [own]) as ended, ended.connect() as tls:
        tls.sendall(request())
        reply = read_all(tls)

    head, _, body = reply.partition(b"\r\n\r\n")
    if b"chunked" in head:
        body = b"".join(body.split(b"\r\n")[1::2])
    stand_in = own.placeholder
    assert body.decode() == f"a {stand_in} b {value[:5]} c {stand_in}{stand_in}"


@pytest.mark.loopback
def test_an_event_goes_on_before_the_next_one_comes():
    own = credential()

    def streaming(tls):
        while b"\r\n\r\n" not in tls.recv(65536):
            pass
        tls.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
        assert heard.wait(20)
        tls.sendall(b"0\r\n\r\n")

    import threading

    heard = threading.Event()
    with Host(streaming) as host, Ended(host, Rules(), [own]) as ended, ended.connect() as tls:
        tls.sendall(request())
        said = b""
        while b"data: 1" not in said:
            said += tls.recv(65536)
        heard.set()
        read_all(tls)


@pytest.mark.loopback
def test_the_value_is_told_nowhere(logged: list[str]):
    logging.getLogger().setLevel(logging.DEBUG)
    own, gate = credential(), Rules()
    broken = f"HTTP/1.1 200 OK\r\n{VALUE}\r\n\r\n".encode()
    replies = Replies(response(VALUE), f"{VALUE}\r\n\r\n".encode(), broken)
    with Host(replies) as host, Ended(host, gate, [own]) as ended:
        said = [
            ended.say(request(f"Authorization: {own.placeholder}", path=f"/{number}"))
            for number in range(3)
        ]
        said.append(ended.say(request(f"X: {own.placeholder}", path=f"/{own.placeholder}")))
    shown = [repr(own), str(own), f"{own}", repr([own]), repr(gate), str(logged), repr(said)]
    for keep in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError) as caught:
            keep(own)
        shown.append("".join(traceback.format_exception(caught.value)))

    assert [text for text in shown if VALUE in text] == []
    assert VALUE in replies.heard[0].decode()
    assert own.reveal() == VALUE
    assert not hasattr(own, "__dict__")


def test_a_placeholder_is_as_long_as_its_value_and_new_each_time():
    lengths = {
        len(value): len(credential(value).placeholder) for value in ("x" * 8, "x" * 24, "x" * 99)
    }

    assert lengths == {8: 24, 24: 24, 99: 99}
    assert credential().placeholder != credential().placeholder
    assert credential().placeholder.startswith("paddock_")


def test_a_header_that_is_no_good_base64_is_taken_as_it_is():
    pairs = [(b"placeholder", b"value")]

    assert replace_in_header(b"Basic placeholder!", pairs) == b"Basic value!"
    assert replace_in_header(b"Basic bm90aGluZw==", pairs) == b"Basic bm90aGluZw=="


@given(st.data())
def test_replacing_in_pieces_is_replacing_at_once(data: st.DataObject):
    alphabet = st.sampled_from([b"a", b"b", b"SECRET", b"SEC", b"RET", b"S"])
    text = b"".join(data.draw(st.lists(alphabet, max_size=30)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    swap = StreamReplacer([(b"SECRET", b"x")])

    replaced = b"".join([swap.feed(piece) for piece in pieces if piece] + [swap.feed(b"")])

    assert replaced == text.replace(b"SECRET", b"x")


@given(st.integers(1, len(VALUE) - 1), st.integers(1, len(VALUE) - 1))
def test_what_waits_tells_no_part_of_the_value(size: int, at: int):
    sizes = []
    for guess in (VALUE[:size], "?" * size):
        swap = StreamReplacer([(VALUE.encode(), b"x"), (b"aMuchLongerOne" * 9, b"y")])
        sizes.append([len(swap.feed(each)) for each in (b"me: ", guess[:at].encode(), b" ")])

    assert sizes[0] == sizes[1]


# --- where values are kept -----------------------------------------------------------


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is taken from a place, where programs say what is asked for, or their words."""
    (tmp_path / "there").write_text("from-a-file\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def take(source: CredentialSource, says: bytes = b"", code: int = 0) -> str:
        (tmp_path / "says").write_bytes(says)
        for name in ("pass", "secret-tool"):
            script = f"""/bin/cat {tmp_path}/says; [ -s {tmp_path}/says ] || (IFS=_; echo "$*")"""
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\nexit {code}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        settings = CredentialSettings("issues", (), "X", source)
        return read_value(settings, {"THERE": "from-a-variable"}, tmp_path)

    return take


@pytest.mark.parametrize(
    ("source", "value"),
    [
        (CredentialSource(env="THERE"), "from-a-variable"),
        (CredentialSource(file="~/there"), "from-a-file"),
        (CredentialSource(command=("pass", "show", "issues")), "show_issues"),
        (CredentialSource(keyring="issues"), "lookup_service_issues"),
        (CredentialSource(keyring="issues/me"), "lookup_service_issues_username_me"),
    ],
)
def test_a_value_is_taken_from_where_it_is_kept(taken, source: CredentialSource, value: str):
    assert taken(source) == value


@pytest.mark.parametrize(
    ("source", "said", "hint"),
    [
        (CredentialSource(env="GONE"), "the variable 'GONE' holds no value", "set it"),
        (CredentialSource(file="/gone"), "the file '/gone' holds no value", "write the value"),
        (
            CredentialSource(command=("pass", "x")),
            "the output of 'pass' holds no value",
            "print the value and exit 0",
        ),
        (
            CredentialSource(keyring="a/b"),
            "the output of 'secret-tool' holds no value",
            "secret-tool store --label=x service a username b",
        ),
    ],
)
def test_a_missing_value_says_what_to_do(taken, source: CredentialSource, said: str, hint: str):
    with pytest.raises(ConfigError) as caught:
        taken(source, b"half-a-value", 1)

    assert (caught.value.message, caught.value.where) == (said, "[credentials.issues]")
    assert hint in caught.value.hint


def test_a_program_that_cannot_be_run_says_so(taken):
    with pytest.raises(ConfigError, match="cannot be run: FileNotFoundError"):
        taken(CredentialSource(command=("gone",)))


@pytest.mark.parametrize(
    "value", [b"short", b"two words", b"line\nline2", b"\xe9tat-secret", b"a" * 9000]
)
def test_a_value_that_no_header_can_hold_is_refused_and_not_shown(taken, value: bytes):
    with pytest.raises(ConfigError) as caught:
        taken(CredentialSource(command=("pass",)), value)

    assert value.decode("latin-1") not in caught.value.render()


# --- the user's configuration --------------------------------------------------------

TABLE = """[credentials.issues]
hosts = ["api.example.org", "api.example.org:8443"]
variable = "ISSUES_TOKEN"
from = {command = ["pass", "issues"]}
"""


def loaded(text: str, scope: Scope = Scope.USER) -> tuple[CredentialSettings, ...]:
    return read_policy("config.toml", text.encode(), scope, Settings(), {}).settings.credentials


def test_credentials_are_read_from_the_users_configuration():
    assert loaded(TABLE) == (
        CredentialSettings(
            "issues",
            (("api.example.org", 443), ("api.example.org", 8443)),
            "ISSUES_TOKEN",
            CredentialSource(command=("pass", "issues")),
        ),
    )


def test_a_project_names_no_credentials():
    with pytest.raises(
        ConfigError, match=r"\[credentials\] is allowed only in the user's"
    ) as caught:
        loaded(TABLE, Scope.PROJECT)

    assert caught.value.where == "config.toml:1"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"api.example.org"', '"*.example.org"', 2, "not a name and a port"),
        ('"api.example.org"', '"*"', 2, "not a name and a port"),
        ('"api.example.org"', '"API.example.org"', 2, "not a name and a port"),
        ('"api.example.org"', '"api.example.org:0"', 2, "not a name and a port"),
        ('"api.example.org"', '"api.example.org:65536"', 2, "not a name and a port"),
        ('"api.example.org"', '"https://api.example.org"', 2, "not a name and a port"),
        ('"api.example.org"', '"10.0.0.1"', 2, "not a name and a port"),
        ('["api.example.org", "api.example.org:8443"]', "[]", 2, "names no hosts"),
        ('hosts = ["api.example.org", "api.example.org:8443"]\n', "", 1, "names no hosts"),
        ("ISSUES_TOKEN", "LD_PRELOAD", 3, "LD_"),
        ("ISSUES_TOKEN", "PATH", 3, "PATH"),
        ("ISSUES_TOKEN", "ISSUES TOKEN", 3, "not a variable name"),
        ("ISSUES_TOKEN", "ISSUES*", 3, "not a variable name"),
        ('variable = "ISSUES_TOKEN"\n', "", 1, "not a variable name"),
        ('{command = ["pass", "issues"]}', "{}", 4, "exactly one source"),
        ('{command = ["pass", "issues"]}', '{env = "A", file = "/b"}', 4, "exactly one source"),
        ('{command = ["pass", "issues"]}', '{file = "b"}', 4, "not an absolute path"),
        ('{command = ["pass", "issues"]}', '{vault = "b"}', 4, "vault"),
        ('{command = ["pass", "issues"]}', '"secret-itself"', 4, "exactly one source"),
        ("from =", 'value = "x"\nfrom =', 4, "value"),
        ("[credentials.issues]", "[credentials]\nissues = 1\n[x]", 2, "not a table"),
    ],
)
def test_a_credential_that_cannot_be_is_refused_with_its_line(
    old: str, new: str, line: int, said: str
):
    with pytest.raises(ConfigError) as caught:
        loaded(TABLE.replace(old, new, 1))

    assert caught.value.where == f"config.toml:{line}"
    assert said in caught.value.render()
    assert "secret-itself" not in caught.value.render()


def test_two_credentials_do_not_share_a_variable():
    with pytest.raises(ConfigError, match="more than one credential has the variable"):
        loaded(TABLE + TABLE.replace("credentials.issues", "credentials.other"))
