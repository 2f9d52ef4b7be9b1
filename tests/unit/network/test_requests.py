"""TLS ended in front of a host: what goes on, what is refused, what comes back."""

import hashlib
import os
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from paddock.network.requests import Authority
from tests.support.tls_ends import WORLD, Ended, Host, Replies, Rules, read_all, read_request

pytestmark = pytest.mark.loopback

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CLOSE = b"Connection: close\r\n"


def get(path: bytes = b"/", *headers: bytes, close: bool = True) -> bytes:
    lines = [b"GET " + path + b" HTTP/1.1", b"Host: localhost", *headers]
    if close:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def test_an_allowed_request_reaches_the_host_and_its_response_comes_back():
    replies, gate = Replies(OK), Rules()
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(get(b"/a?b=c", b"X-Own: 1"))

    assert reply == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    assert replies.heard == [b"GET /a?b=c HTTP/1.1\r\nHost: localhost\r\nX-Own: 1\r\n\r\n"]
    assert gate.judged == [("GET", "/a?b=c")]
    assert gate.told == []
    assert gate.closings == [(True, True)]


def test_a_denied_request_is_answered_and_never_leaves():
    replies, gate = Replies(OK), Rules(denied=("DELETE",))
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(get(b"/a").replace(b"GET", b"DELETE"))
        neighbour = ended.say(get(b"/a"))

    assert reply == (
        b"HTTP/1.1 403 \r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 46\r\n"
        b"Connection: close\r\n\r\npaddock: denied by a rule of the test: DELETE\n"
    )
    assert neighbour.endswith(b"hello")
    assert replies.heard == [b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    assert gate.told == []


BODY = b"\r\n\r\nhello"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 501),
        (get(b"/", b"Connection: Upgrade", b"Upgrade: websocket"), 501),
        (get(b"/", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"), 501),
        (get(b"/", b"X-HTTP-Method-Override: DELETE"), 400),
        (get(b"/", b"X_Http_Method_Override: DELETE"), 400),
        (get(b"/", b"x-method-override: DELETE"), 400),
        (get(b"/", b"X-Original-URL: /hidden"), 400),
        (get(b"/", b"X-Forwarded-Host: other"), 400),
        (b"GET / HTTP/1.1\r\nHost: other\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost:8443\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\nHost: localhost@other\r\n\r\n", 421),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (get(b"https://other/"), 421),
        (get(b"http://localhost/"), 421),
        (get(b"https://localhost"), 421),
        (get(b"https://localhost:80/"), 421),
        (get(b"https://me@localhost/"), 421),
        (get(b"*"), 421),
        (get(b"other:443"), 421),
        (get(b"/a#b"), 421),
        (get(b"/a b"), 400),
        (get(b"/\xe9"), 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400),
        (POST + b"Content-Length: 5\r\nContent-Length: 6" + BODY, 400),
        (POST + b"Content-Length: 5, 6" + BODY, 400),
        (POST + b"Content-Length: +5" + BODY, 400),
        (POST + b"Content-Length: -5" + BODY, 400),
        (POST + b"Content_Length: 5" + BODY, 400),
        (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + HIDDEN, 400),
        (POST + b"Transfer_Encoding: chunked\r\nContent-Length: 5" + BODY, 400),
        (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (get(b"/", *(b"X-%d: 1" % number for number in range(128))), 431),
        (get(b"/" + b"a" * 200_000), 431),
        (get(b"/", b"X: " + b"a" * 200_000), 431),
        (get(b"/", *(b"X-%d: 1" % number for number in range(20_000))), 431),
    ],
)
def test_what_is_no_plain_request_to_the_host_is_refused_unjudged(said: bytes, status: int):
    replies, gate = Replies(OK), Rules()
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(said)
        neighbour = ended.say(get(b"/neighbour"))

    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert reply.count(b"Content-Type") == 1
    assert [code for code, _ in gate.told] == ["net.request_refused"]
    assert gate.judged == [("GET", "/neighbour")]
    assert neighbour.endswith(b"hello")
    assert [each.split()[1] for each in replies.heard] == [b"/neighbour"]


@pytest.mark.parametrize(
    "said",
    [
        b"GET https://localhost/a?b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET https://LOCALHOST:443/a?b HTTP/1.1\r\nHost: localhost:443\r\nConnection: close\r\n\r\n",
        b"GET /a?b HTTP/1.1\r\nHost: LocalHost.\r\nConnection: close\r\n\r\n",
        b"GET /a?b HTTP/1.1\r\nConnection: close\r\nhost:localhost:443\r\n\r\n",
    ],
)
def test_ways_to_say_the_same_host_are_one_request(said: bytes):
    replies, gate = Replies(OK), Rules()
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(said)

    assert reply.endswith(b"hello")
    assert replies.heard == [b"GET /a?b HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    assert gate.judged == [("GET", "/a?b")]


def test_no_option_of_a_connection_takes_a_length_away():
    replies = Replies(OK.replace(b"OK\r\n", b"OK\r\nConnection: close, content-length\r\n"))
    said = POST + b"Connection: close, content-length, host\r\nContent-Length: 5" + BODY
    with Host(replies) as host, Ended(host, Rules()) as ended:
        reply = ended.say(said)

    assert replies.heard == [b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5" + BODY]
    assert reply == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close" + BODY


def test_lengths_that_agree_go_on_as_one():
    replies = Replies(OK)
    with Host(replies) as host, Ended(host, Rules()) as ended:
        ended.say(POST + CLOSE + b"Content-Length: 5\r\nContent-Length: 5" + BODY)

    assert replies.heard == [b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5" + BODY]


@pytest.mark.parametrize(
    "chunks",
    [
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5 5\r\nhello\r\n0\r\n\r\n",
        b"fffffffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"5;" + b"a" * 200_000,
        b"0\r\n" + b"X: 1\r\n" * 30_000,
        b"0\r\nbad trailer\r\n\r\n",
    ],
)
def test_chunks_that_are_none_end_the_connection_and_finish_no_request(chunks: bytes):
    replies, gate = Replies(OK), Rules()
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + HIDDEN)

    assert reply[:12] in {b"HTTP/1.1 400", b"HTTP/1.1 431"}
    assert [code for code, _ in gate.told] == ["net.request_refused"]
    assert gate.judged == [("POST", "/")]
    assert [each for each in replies.heard if each.endswith(b"0\r\n\r\n")] == []


def test_a_chunked_body_arrives_whole_without_its_trailers():
    replies = Replies(OK)
    said = POST + CLOSE + b"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"
    with Host(replies) as host, Ended(host, Rules()) as ended:
        reply = ended.say(said, b"5;x=y\r\nhel", b"lo\r\n6\r\n world\r", b"\n0\r\nX: 1\r\n\r\n")

    assert reply.endswith(b"hello")
    head, _, body = replies.heard[0].partition(b"\r\n\r\n")
    assert head == b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
    assert b"".join(body.split(b"\r\n")[1::2]) == b"hello world"
    assert body.endswith(b"\r\n0\r\n\r\n")


def test_what_is_about_one_connection_does_not_go_on():
    replies = Replies(
        b"HTTP/1.1 200 Fine\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
        b"X-End: 2\r\nContent-Length: 0\r\n\r\n"
    )
    with Host(replies) as host, Ended(host, Rules()) as ended:
        hop = (b"Connection: X-Hop, close", b"X-Hop: 1", b"Keep-Alive: 1", b"TE: trailers")
        reply = ended.say(get(b"/", *hop, b"Proxy-Authorization: x", b"X-End: 2", close=False))

    assert reply == (
        b"HTTP/1.1 200 Fine\r\nX-End: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    assert replies.heard == [b"GET / HTTP/1.1\r\nHost: localhost\r\nX-End: 2\r\n\r\n"]


def test_requests_that_come_at_once_are_judged_and_answered_one_after_another():
    replies, gate = Replies(OK), Rules(denied=("GET /3",))
    with Host(replies) as host, Ended(host, gate) as ended:
        requests = [get(b"/%d" % number, close=False) for number in (1, 2, 3, 4)]
        reply = ended.say(b"".join(requests))

    assert [each.split()[0] for each in reply.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"403"]
    assert gate.judged == [("GET", "/1"), ("GET", "/2"), ("GET", "/3")]
    assert [each.split()[1] for each in replies.heard] == [b"/1", b"/2"]
    assert replies.connections == 1


def test_a_host_that_closes_after_each_response_is_dialled_again():
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1"
    replies, gate = Replies(closing), Rules()
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(get(close=False) + get())

    assert reply.count(b"200 OK") == 2
    assert replies.connections == 2
    assert gate.closings == [(True, True)] * 2


def test_a_host_that_hung_up_in_between_is_dialled_again():
    def once(tls):
        dialled.append(read_request(tls))
        tls.sendall(OK)

    dialled: list[bytes] = []
    with Host(once) as host, Ended(host, Rules()) as ended, ended.connect() as tls:
        tls.sendall(get(close=False))
        first = b""
        while not first.endswith(b"hello"):
            first += tls.recv(65536)
        assert host.ended.wait(20)
        tls.sendall(get())
        second = read_all(tls)

    assert second.endswith(b"hello")
    assert len(dialled) == 2


@pytest.mark.parametrize(
    ("method", "response", "reply"),
    [
        (
            b"HEAD",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
        ),
        (b"GET", b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n"),
        (
            b"GET",
            b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
            b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\nETag: x\r\nConnection: close\r\n\r\n",
        ),
        (
            b"GET",
            b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK,
            (
                b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
            ),
        ),
        (
            b"GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\n\r\n",
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                b"5\r\nhello\r\n0\r\nX: 1\r\n\r\n"
            ),
        ),
        (
            b"GET",
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n"
                b"5\r\nhello\r\n0\r\n\r\n"
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                b"5\r\nhello\r\n0\r\n\r\n"
            ),
        ),
        (
            b"GET",
            b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello",
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                b"5\r\nhello\r\n0\r\n\r\n"
            ),
        ),
    ],
)
def test_responses_of_every_form_come_back(method: bytes, response: bytes, reply: bytes):
    replies = Replies(response)
    with Host(replies) as host, Ended(host, Rules()) as ended:
        said = ended.say(get().replace(b"GET", method))

    assert said == reply


def test_a_body_waits_for_the_hosts_word_where_the_client_does():
    def careful(tls):
        assert b"Expect: 100-continue" in tls.recv(65536)
        tls.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body.append(tls.recv(65536))
        tls.sendall(OK)

    body: list[bytes] = []
    with Host(careful) as host, Ended(host, Rules()) as ended, ended.connect() as tls:
        tls.sendall(POST + CLOSE + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        first = tls.recv(65536)
        tls.sendall(b"hello")
        rest = read_all(tls)

    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert body == [b"hello"]
    assert rest.endswith(b"hello")


def test_a_response_that_comes_before_the_body_is_whole_ends_the_connection():
    def hasty(tls):
        while b"\r\n\r\n" not in tls.recv(65536):
            pass
        tls.sendall(b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        # Closed while something is unread, this end would take back what it has said.
        read_all(tls)

    with Host(hasty) as host, Ended(host, Rules()) as ended:
        reply = ended.say(POST + b"Content-Length: 1000000\r\n\r\nhello")

    assert reply.startswith(b"HTTP/1.1 413 Large\r\n")


MEGABYTES = 24


def test_large_bodies_go_both_ways_at_once_and_are_not_held():
    def echo(tls):
        length = MEGABYTES << 20
        head = b""
        while b"\r\n\r\n" not in head:
            head += tls.recv(1)
        tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
        while length:
            piece = tls.recv(65536)
            tls.sendall(piece)
            length -= len(piece)

    block = os.urandom(1 << 20)
    with Host(echo) as host, Ended(host, Rules()) as ended, ended.connect() as tls:
        tls.sendall(POST + CLOSE + b"Content-Length: %d\r\n\r\n" % (MEGABYTES << 20))
        head = tls.recv(65536)
        got = bytearray(head.partition(b"\r\n\r\n")[2])
        # Each block is back before the next is sent: whoever waits for a whole body waits for ever.
        for number in range(MEGABYTES):
            tls.sendall(block)
            while len(got) < (number + 1) << 20:
                got += tls.recv(65536)

    assert hashlib.sha256(got).digest() == hashlib.sha256(block * MEGABYTES).digest()


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
    ],
)
def test_a_response_that_was_cut_does_not_count_as_whole(response: bytes):
    def cutting(tls):
        read_request(tls)
        tls.sendall(response)
        socket.socket.shutdown(tls, socket.SHUT_WR)  # Without a word of TLS.
        read_all(tls)

    gate = Rules()
    with Host(cutting) as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.endswith(b"<cut>")
    assert [code for code, _ in gate.told] == ["net.server_failed"]


def test_a_response_that_was_cut_ends_in_a_reset():
    def cutting(tls):
        read_request(tls)
        tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
        socket.socket.shutdown(tls, socket.SHUT_WR)
        read_all(tls)

    with Host(cutting) as host, Ended(host, Rules()) as ended, ended.connect() as tls:
        tls.sendall(get())
        said = b""
        while not said.endswith(b"hello"):
            said += tls.recv(65536)
        # TLS calls every end an end: the socket itself knows of which kind it was.
        with pytest.raises(ConnectionResetError):
            socket.socket.recv(tls, 1)


@pytest.mark.parametrize(
    "response",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n1",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000,
    ],
)
def test_a_response_that_is_none_is_a_failure_of_the_host(response: bytes):
    gate = Rules()
    with Host(Replies(response)) as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 502 ")
    assert gate.told == [
        ("net.server_failed", "localhost did not send a complete, well-formed response")
    ]


def test_a_host_that_hangs_up_unasked_is_a_failure_of_the_host():
    gate = Rules()
    with Host(lambda tls: None) as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 502 ")
    assert [code for code, _ in gate.told] == ["net.server_failed"]


def test_a_host_whom_the_machine_does_not_trust_gets_nothing():
    replies, gate = Replies(OK), Rules()
    stranger = Authority(datetime.now(UTC))
    with Host(replies, stranger) as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 502 ")
    assert b"unable to get local issuer certificate" in reply
    assert replies.heard == []
    assert [code for code, _ in gate.told] == ["net.server_failed"]


def test_a_host_with_anothers_certificate_gets_nothing():
    replies, gate = Replies(OK), Rules()
    with Host(replies, name="other.test") as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 502 ")
    assert b"Hostname mismatch" in reply
    assert replies.heard == []


def test_where_there_is_no_way_out_the_answer_says_why():
    replies, gate = Replies(OK), Rules(way="localhost leads to a private address")
    with Host(replies) as host, Ended(host, gate) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 502 ")
    assert reply.endswith(b"paddock: localhost leads to a private address\n")
    assert (gate.told, gate.closings) == ([], [])


def test_a_program_that_does_not_trust_the_authority_is_told_of():
    gate = Rules()
    with (
        Host(Replies(OK)) as host,
        Ended(host, gate) as ended,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ended.connect(trusted=WORLD.pem)

    assert [code for code, _ in gate.told] == ["net.certificate_unknown"]


def test_a_client_that_offers_http2_gets_the_older_one():
    with Host(Replies(OK)) as host, Ended(host, Rules()) as ended:
        with ended.connect(alpn=("h2", "http/1.1")) as tls:
            chosen = tls.selected_alpn_protocol()
        old = ssl.create_default_context(cadata=ended.authority.pem)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(("127.0.0.1", ended.port), 20) as plain,
            old.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(get())
            reply = read_all(tls)

    assert chosen == "http/1.1"
    assert reply.endswith(b"hello")


@pytest.mark.parametrize(
    ("said", "status"), [(b"", b""), (b"GET / HTTP/1.1\r\nHost:", b"HTTP/1.1 408")]
)
def test_half_a_request_is_not_waited_for_long(said: bytes, status: bytes):
    gate = Rules()
    with Host(Replies(OK)) as host, Ended(host, gate, head_s=2) as ended:
        reply = ended.say(said)

    assert reply[:12] == status
    assert gate.judged == []


def test_half_a_hello_is_not_waited_for_long():
    gate = Rules()
    with (
        Host(Replies(OK)) as host,
        Ended(host, gate, head_s=2) as ended,
        socket.create_connection(("127.0.0.1", ended.port), 20) as plain,
    ):
        plain.sendall(b"\x16\x03\x01")
        with suppress(ConnectionResetError):
            assert plain.recv(100) == b""

    assert gate.judged == []


def test_a_request_in_one_byte_pieces_is_a_request():
    replies = Replies(OK)
    with Host(replies) as host, Ended(host, Rules()) as ended:
        reply = ended.say(*(bytes([each]) for each in get(b"/slow")))

    assert reply.endswith(b"hello")
    assert len(replies.heard) == 1


def test_what_is_cancelled_closes_both_ends_and_counts_as_cut():
    def waiting(tls):
        tls.recv(65536)
        tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
        with suppress(ssl.SSLError, ConnectionResetError):
            rest.append(tls.recv(65536))

    rest: list[bytes] = []
    gate = Rules()
    with Host(waiting) as host, Ended(host, gate) as ended, ended.connect() as tls:
        tls.sendall(get())
        said = b""
        while b"hello" not in said:
            said += tls.recv(65536)
        ended.cancel()
        end = read_all(tls)

    assert end in {b"<cut>", b"<reset>"}
    assert rest in ([], [b""])
    assert gate.closings == [(True, True)]


def test_a_gate_that_gives_no_answer_gives_no_yes():
    class Broken(Rules):
        async def judge(self, method: str, target: str) -> str:
            return None  # type: ignore[return-value] - the mistake that is meant

    replies = Replies(OK)
    with Host(replies) as host, Ended(host, Broken()) as ended:
        reply = ended.say(get())

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert replies.heard == []
