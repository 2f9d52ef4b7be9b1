"""What a client says first: TLS and HTTP are found, read strictly, or refused; the rest passes."""

import shutil
import socket
import subprocess

import pytest

from paddock.network.sniff import Greeting, read_greeting
from tests.support.greetings import client_hello, openssl_server_names

HELLO = client_hello("example.org")
BAD_HELLO = Greeting("tls", problem="it begins like TLS, but is not a valid hello")
BAD_NAMES = Greeting("tls", problem="its TLS hello does not name exactly one host")
OTHER = Greeting("other")
SERVER_NAME, PADDING, GREASE, ENCRYPTED = 0, 21, 0x2A2A, 0xFE0D


def vector(data: bytes, width: int = 2) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2, "big") + vector(content)


def server_name(*names: bytes, kind: int = 0) -> bytes:
    entries = b"".join(bytes([kind]) + vector(name) for name in names)
    return extension(SERVER_NAME, vector(entries))


def message(
    extensions: bytes | None, *, suites: bytes = b"\x13\x01", session: bytes = b""
) -> bytes:
    body = b"\3\3" + bytes(32) + vector(session, 1) + vector(suites) + vector(b"\0", 1)
    return b"\1" + vector(body + (b"" if extensions is None else vector(extensions)), 3)


def records(handshake: bytes, size: int = 16_384) -> bytes:
    parts = [handshake[at : at + size] for at in range(0, len(handshake), size)]
    return b"".join(b"\x16\3\1" + vector(part) for part in parts)


def hello(extensions: bytes | None, size: int = 16_384) -> bytes:
    return records(message(extensions), size)


def problem_of(first: bytes) -> str:
    greeting = read_greeting(first)
    return "" if greeting is None else greeting.problem


# --- TLS ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["example.org", "A.Example.ORG", "xn--bcher-kva.example", "localhost"]
)
def test_a_hello_of_python_is_read_as_openssl_reads_it(name: str):
    first = client_hello(name, alpn=("h2", "http/1.1"))

    assert openssl_server_names(first) == [name]
    assert read_greeting(first) == Greeting("tls", name.lower())


def test_a_hello_without_a_name_asks_for_none():
    first = client_hello(None)

    assert openssl_server_names(first) == [None]
    assert read_greeting(first) == Greeting("tls")


COMMANDS = {
    "openssl": ("openssl s_client -connect 127.0.0.1:{} -servername example.org", "example.org"),
    "openssl-1.2": (
        "openssl s_client -connect 127.0.0.1:{} -tls1_2 -servername a.example",
        "a.example",
    ),
    "openssl-none": ("openssl s_client -connect 127.0.0.1:{} -noservername", ""),
    "openssl-ip": ("openssl s_client -connect 127.0.0.1:{} -servername 10.0.0.1", "10.0.0.1"),
    "curl": (
        "curl -sq --noproxy * --connect-to ::127.0.0.1:{} https://Example.org/",
        "example.org",
    ),
}


@pytest.mark.loopback
@pytest.mark.parametrize("client", COMMANDS)
def test_a_hello_of_a_real_client_is_read(client: str):
    line, name = COMMANDS[client]
    if shutil.which(line.split()[0]) is None:
        pytest.skip(f"{line.split()[0]} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = line.format(server.getsockname()[1]).split()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, stdin=subprocess.PIPE, **quiet) as process:
            first, greeting = b"", None
            accepted, _ = server.accept()
            with accepted:
                while greeting is None and (piece := accepted.recv(7)):
                    first += piece
                    greeting = read_greeting(first)
            process.kill()

    assert greeting == Greeting("tls", name)


def test_a_hello_in_pieces_needs_more_until_its_last_byte():
    found = [read_greeting(HELLO[:size]) for size in range(len(HELLO) + 1)]

    assert found == [None] * len(HELLO) + [Greeting("tls", "example.org")]


@pytest.mark.parametrize("size", [3, 16, 100, 300])
def test_a_hello_in_several_records_is_put_together(size: int):
    first = records(HELLO[5:], max(size, len(HELLO) // 120))
    found = [read_greeting(first[:at]) for at in range(len(first) + 1)]

    assert openssl_server_names(first) == ["example.org"]
    assert found == [None] * len(first) + [Greeting("tls", "example.org")]


def test_a_hello_in_very_many_records_is_refused():
    assert problem_of(records(HELLO[5:], 1)) == "its TLS hello comes in more than 128 records"


def test_what_follows_a_hello_in_records_of_its_own_is_left_unread():
    assert read_greeting(HELLO + b"\x17\3\3\0\5early") == Greeting("tls", "example.org")


@pytest.mark.parametrize(
    ("extensions", "name"),
    [
        (None, ""),
        (b"", ""),
        (server_name(b"example.org"), "example.org"),
        (server_name(b"EXAMPLE.org."), "example.org"),
        (server_name(b"10.0.0.1"), "10.0.0.1"),
        (server_name(b"2001:DB8::0:1"), "2001:db8::1"),
        (
            extension(GREASE, b"\0") + server_name(b"a.example") + extension(0x3A3A, b""),
            "a.example",
        ),
        (extension(ENCRYPTED, bytes(200)) + server_name(b"outer.example"), "outer.example"),
        (extension(PADDING, bytes(60_000)) + server_name(b"a.example"), "a.example"),
    ],
)
def test_a_hello_asks_for_the_name_that_it_has(extensions: bytes | None, name: str):
    first = hello(extensions)

    assert read_greeting(first) == Greeting("tls", name)
    assert read_greeting(first[:-1]) is None


@pytest.mark.parametrize(
    "extensions",
    [
        server_name(b"a.example", b"b.example"),
        server_name(b"a.example", b"a.example"),
        server_name(b"a.example", kind=1),
        server_name(b""),
        extension(SERVER_NAME, vector(b"\0" + vector(b"a.example")) + b"\0"),
    ],
)
def test_a_hello_with_no_single_host_name_is_refused(extensions: bytes):
    assert read_greeting(hello(extensions)) == BAD_NAMES


@pytest.mark.parametrize(
    "name", [b"a b", b"a\0.example", b"b\xc3\xbccher.example", b"127.1", b"a" * 300, b"*.example"]
)
def test_a_hello_for_what_is_no_name_is_refused(name: bytes):
    greeting = read_greeting(hello(server_name(name)))

    assert greeting is not None
    assert (greeting.kind, greeting.name, bool(greeting.problem)) == ("tls", "", True)


GOOD = message(server_name(b"a.example"))


@pytest.mark.parametrize(
    "first",
    [
        hello(server_name(b"a.example") + server_name(b"b.example")),
        hello(extension(GREASE, b"") + extension(GREASE, b"")),
        hello(extension(SERVER_NAME, b"")),
        hello(server_name()),
        hello(server_name(b"a.example")[:-1]),
        records(message(b"", suites=b"")),
        records(message(b"", suites=b"\1")),
        records(message(b"", session=bytes(33))),
        records(b"\1" + vector(b"", 3)),
        records(b"\1" + vector(GOOD[4:] + b"\0", 3)),
        records(b"\1" + vector(GOOD[4:-1], 3)),
        records(b"\1" + vector(b"\2" + GOOD[5:], 3)),
        records(GOOD + b"\0"),  # more in its record
        records(GOOD + GOOD),
        b"\x16\3\1\0\0" + records(GOOD),  # an empty record first, as OpenSSL takes it
        b"\x15\3\1\0\2\1\0" + records(GOOD),  # a warning first, as Go takes it
        b"\x15\2\2\0\2\1\0" + records(GOOD),
        b"\x14\3\3\0\1\1" + records(GOOD),
        b"\x17\3\3\0\0" + records(GOOD),
        b"\x16\3\1\0\4\0\0\0\0" + records(GOOD),  # a hello request first
        b"\x16\x0f\1" + records(GOOD)[3:],  # a version that Go takes
        b"\x16\3\x09" + records(GOOD)[3:],
        b"\x16\3\1\x40\1" + bytes([1]) + bytes(0x4000),
        records(GOOD, 40)[:50] + b"\x15\3\1\0\2\1\0" + records(GOOD, 40)[45:],
        b"\x80\x2e\1\3\1\0\x15\0\0\0\x10" + bytes(40),  # a hello of SSL 2
        b"\x80\x2e\1\0\2\0\x15\0\0\0\x10" + bytes(40),
    ],
)
def test_what_a_lax_server_might_take_for_a_hello_is_refused(first: bytes):
    assert read_greeting(first) == BAD_HELLO


def test_a_hello_larger_than_64_kb_is_refused_at_once():
    first = b"\x16\3\1\x40\0\1\1\0\0" + bytes(10)

    assert problem_of(first) == "its TLS hello is larger than 64 kB"


def test_a_hello_that_has_not_ended_after_64_kb_is_refused():
    first = hello(extension(PADDING, bytes(65_400)), 600)

    assert read_greeting(first[:65_535]) is None
    assert problem_of(first[:65_536]) == "its first message is larger than 64 kB"


# --- HTTP -----------------------------------------------------------------------

GET = b"GET /a?b HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        # curl 7.88 (plain, 1.0, to a proxy, through a proxy), Wget 1.21, Node 18, Python 3.11
        (b"GET /a?b HTTP/1.1\r\nHost: example.org:51801\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n", "example.org"),
        (b"GET /a?b HTTP/1.0\r\nHost: example.org\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n", "example.org"),
        (b"GET http://example.org/a?b HTTP/1.1\r\nHost: example.org\r\nProxy-Connection: Keep-Alive\r\n\r\n", "example.org"),
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\nUser-Agent: curl/7.88.1\r\n\r\n", "example.org"),
        (b"GET /x HTTP/1.1\r\nHost: localhost:56423\r\nUser-Agent: Wget/1.21.3\r\nConnection: Keep-Alive\r\n\r\n", "localhost"),
        (b"GET /x HTTP/1.1\r\nhost: localhost:48261\r\nconnection: keep-alive\r\naccept: */*\r\n\r\n", "localhost"),
        (b"GET /x HTTP/1.1\r\nAccept-Encoding: identity\r\nHost: localhost:59631\r\nConnection: close\r\n\r\n", "localhost"),
        (GET + b"HOST:EXAMPLE.org.\t \r\n\r\n", "example.org"),
        (GET + b"Host: 10.0.0.1:80\r\n\r\n", "10.0.0.1"),
        (GET + b"Host: [2001:DB8::0:1]:80\r\n\r\n", "2001:db8::1"),
        (GET + b"Host: example.org\r\n\r\nHost: other.example\n\0", "example.org"),
        (b"\r\n\r\n" + GET + b"Host: example.org\r\n\r\n", "example.org"),
        (b"GET / HTTP/1.0\r\n\r\n", ""),
        (b"GET http://example.org/ HTTP/1.0\r\n\r\n", "example.org"),
        (b"OPTIONS * HTTP/1.1\r\nHost: example.org\r\n\r\n", "example.org"),
        (b"M-SEARCH /\xc3\xbc HTTP/1.1\r\nHost: example.org\r\nX:\r\n\r\n", "example.org"),
        (b"GET //other.example/ HTTP/1.1\r\nHost: example.org\r\n\r\n", "example.org"),
    ],
)  # fmt: skip
def test_a_request_asks_for_the_host_that_it_has(head: bytes, name: str):
    end = head.index(b"\r\n\r\n", 4) + 4

    assert read_greeting(head) == Greeting("http", name)
    assert {read_greeting(head[:size]) for size in range(end)} == {None}


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (GET + b"Host: a.example\r\nhost: b.example\r\n\r\n", "it has 2 Host headers"),
        (GET + b"Host: a.example\r\nHost: a.example\r\n\r\n", "it has 2 Host headers"),
        (GET + b"Accept: */*\r\n\r\n", "it has no Host header"),
        (b"GET http://a.example/ HTTP/1.1\r\n\r\n", "it has no Host header"),
        (GET + b"Host:\r\n\r\n", "it asks for b'', which is not HOST or HOST:PORT"),
        (GET + b"Host: a.example\r\n b.example\r\n\r\n", "header 2 is not NAME: VALUE"),
        (GET + b"X: a\r\n\tHost: b\r\n\r\n", "header 2 is not NAME: VALUE"),
        (GET + b"Host : a.example\r\n\r\n", "header 1 is not NAME: VALUE"),
        (GET + b"Host\r\n\r\n", "header 1 is not NAME: VALUE"),
        (GET + b": a\r\n\r\n", "header 1 is not NAME: VALUE"),
        (GET + b"X: 1\r\n" * 257 + b"\r\n", "it has more than 256 headers"),
        (b"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "its target and its Host header name different hosts"),
        (b"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n", "its target and its Host header name different hosts"),
        (b"GET b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "its target is neither a path nor an address with a scheme"),
        (b"GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n", "it asks for b'', which is not HOST or HOST:PORT"),
        (GET + b"Host: a.example\nHost: b.example\r\n\r\n", "a line of its head does not end in CRLF, or holds a NUL"),
        (GET + b"Host: a.example\rHost: b.example\r\n\r\n", "a line of its head does not end in CRLF, or holds a NUL"),
        (GET + b"Host: a.example\r\r\n\r\n", "a line of its head does not end in CRLF, or holds a NUL"),
        (GET + b"Host: a.example\r\nX: \0\r\n\r\n", "a line of its head does not end in CRLF, or holds a NUL"),
        (GET + b"\n", "a line of its head does not end in CRLF, or holds a NUL"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "it speaks HTTP/2 without TLS, where the host cannot be checked"),
        (b"GET /" + b"a" * 16_384, "its first line is longer than 16 kB"),
        (GET + b"Host: a.example\r\nX: " + b"a" * 70_000, "its first message is larger than 64 kB"),
        (b"\r\n" * 40_000, "its first message is larger than 64 kB"),
    ],
)  # fmt: skip
def test_a_request_whose_host_is_not_certain_is_refused(head: bytes, problem: str):
    assert read_greeting(head) == Greeting("http", problem=problem)


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"GET / HTTP/1.1\n",
            b"GET  / HTTP/1.1\r\n",
            b" GET / HTTP/1.1\r\n",
            b"GET\t/\tHTTP/1.1\r\n",
        ),
        *(
            b"GET\x0b/\x0cHTTP/1.1\r\n",
            b"POST / http/1.1\r\n",
            b"\xa0GET\xa0/\x1cHTTP/1.1\r\n",
            b"GET / HTTP/1.1 \r\n",
            b"GET / HTTP/1.2\r\n",
        ),
        *(b"GET / HTTP/3\r\n", b"GET /\r\n", b"GET http://b.example\r\n", b"GET /a b HTTP/1.1\r\n"),
        *(
            b"GET / HTTP/1.1\r\r\n",
            b"GET / HTTP/11\r\n",
            b"GET /\0 HTTP/1.1\r\n",
            b"GET /\x01 HTTP/1.1\r\n",
        ),
    ],
)
def test_a_request_line_that_only_some_servers_take_is_refused(line: bytes):
    greeting = read_greeting(line + b"Host: a.example\r\n\r\n")

    assert greeting is not None
    assert (greeting.kind, greeting.name, bool(greeting.problem)) == ("http", "", True)


@pytest.mark.parametrize(
    "host",
    [
        *(b"a.example, b.example", b"user@a.example", b"a.example:80:80", b"a.example:x", b"a_b c"),
        *(b"[::1", b"::1", b"[a.example]", b"[10.0.0.1]", b"127.1", b"ex%61mple.org", b"http://a/"),
        *(
            b"b\xc3\xbccher.example",
            b"a" * 60_000,
            b"[" + b":" * 60_000,
            b"[" + b":" * 60_000 + b"]",
        ),
    ],
)
def test_a_host_that_is_none_is_refused(host: bytes):
    greeting = read_greeting(GET + b"Host: " + host + b"\r\n\r\n")

    assert greeting is not None
    assert (greeting.kind, greeting.name, bool(greeting.problem)) == ("http", "", True)


# --- anything else --------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "needs"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u6\r\n", 40),
        (b"EHLO client.example\r\n", 21),
        (b"a1 LOGIN user pass\r\n", 20),
        (b"NICK x\r\nUSER x 0 * :x\r\n", 8),
        (b"get key\r\n", 9),
        (b"GET key\r\n", 9),
        (b"PING\r\n", 6),
        (b"*1\r\n$4\r\nPING\r\n", 4),
        (b'CONNECT {"verbose":false}\r\n', 27),
        (b"CONNECT\naccept-version:1.2\nhost:a\n\n\0", 8),
        (b"OPTIONS rtsp://a.example/x RTSP/1.0\r\n", 37),
        (b"/path\r\n", 1),
        (b"<?xml version='1.0'?>", 1),
        (b"0037git-upload-pack /x\0host=localhost:45517\0\0version=2\0", 23),
        (b"0\x0c\2\1\1`\7\2\1\3\4\0\x80\0", 3),  # LDAP: anonymous bind
        (b"0 \2\1\1`\x1b\2\1\3", 3),
        (b"\0\0\0\x08\4\xd2\x16/", 1),  # PostgreSQL: SSLRequest
        (b"AMQP\0\0\x09\1", 5),
        (b"\x10\x0e\0\4MQTT", 1),
        (b"\x16\1\0\1\x85\xa2\x1f\0", 6),  # MySQL: a response of 278 bytes
        (b"\x15\1\0\1\x85\xa2\x1f\0", 6),
        (b"\x16\3\0\1\x85\xa2\x1f\0", 6),
        (b"\x14\0\0\0\1\0\0\0", 6),  # MongoDB: a message of 20 bytes
        (b"\xff\xfb\x1f", 3),  # telnet
        (b"\x80\1\0\1\0\0\0\4ping", 3),  # Thrift
        (b"\x81\0\0\x44 CK", 3),  # NetBIOS
        (b"\x13BitTorrent protocol", 1),
        (b"\x05\1\0", 1),
    ],
)
def test_what_is_neither_passes_as_soon_as_it_cannot_become_one(first: bytes, needs: int):
    assert read_greeting(first) == OTHER
    assert [read_greeting(first[:size]) for size in range(needs)] == [None] * needs
    assert read_greeting(first[:needs]) == OTHER


def test_nothing_said_is_not_enough():
    assert read_greeting(b"") is None


@pytest.mark.parametrize(
    "head", [b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n"]
)
def test_who_says_that_it_speaks_for_somebody_else_is_a_problem_from_the_first_byte_on(head: bytes):
    start = len(head.split(b" ")[0])
    assert [read_greeting(head[:end]) for end in range(start)] == [None] * start
    greeting = read_greeting(head + GET + b"Host: example.org\r\n\r\n")
    assert greeting is not None
    assert greeting.problem == "it sends a PROXY protocol header"
