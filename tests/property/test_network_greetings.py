"""Hellos and requests that a hostile program sends: read as other readers do, or refused.

Other readers are a server of OpenSSL and Python's own HTTP server, which is a lax one. Where one
of them takes bytes for its own, ours may refuse them or agree, and never let them pass unread.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.network.sniff import Greeting, read_greeting
from tests.support.greetings import client_hello, openssl_server_names, python_server_hosts
from tests.support.hostile_bytes import lines_run, spoilt

HELLO = client_hello("example.org", alpn=("h2",))
SHORT = HELLO[5:]
HELLOS = [
    HELLO,
    client_hello("other.example"),
    client_hello(None),
    b"".join(b"\x16\3\1" + len(p).to_bytes(2, "big") + p for p in (SHORT[:60], SHORT[60:])),
    b"\x15\3\1\0\2\1\0" + HELLO,
]
HEADS = [
    b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n",
    b"GET / HTTP/1.0\r\nHost: other.example:80\r\n\r\n",
    b"GET http://example.org/a?b HTTP/1.1\r\nHost: example.org\r\nX:\r\n\tb\r\n\r\n",
    b"CONNECT example.org:443 HTTP/1.1\nHost : example.org:443\nHost: other.example\n\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


def may_pass(greeting: Greeting | None, kind: str, name: str) -> bool:
    """Whether ours agrees with a reader who found this name, or refuses, or still waits."""
    return greeting is None or bool(greeting.problem) or greeting == Greeting(kind, name)


@given(st.integers(0, 2**64))
def test_any_bytes_have_a_greeting_and_pieces_of_them_the_same(seed: int):
    for first in spoilt(seed, HELLOS + HEADS):
        greeting = read_greeting(first)
        if greeting is None:
            continue
        assert not (greeting.name and greeting.problem)
        # What is decided early stays decided, though a refusal may find another reason first.
        earlier = read_greeting(first[: len(first) // 2])
        assert earlier in (None, greeting) or (earlier.problem and greeting.problem)


# Python's callback wants ASCII, and says so where nobody can catch it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(st.integers(0, 2**64))
def test_what_openssl_takes_for_a_hello_is_read_so_or_refused(seed: int):
    for first in spoilt(seed, HELLOS):
        for name in openssl_server_names(first):
            canonical = (name or "").lower().removesuffix(".")
            assert may_pass(read_greeting(first), "tls", canonical), first


@given(st.integers(0, 2**64))
def test_what_python_takes_for_a_request_is_read_so_or_refused(seed: int):
    for first in spoilt(seed, HEADS):
        hosts = python_server_hosts(first)
        if not hosts:
            continue
        greeting = read_greeting(first)
        host = hosts[0].strip().lower().split(":")[0].removesuffix(".")
        assert len(hosts) == 1 or greeting is None or greeting.problem
        assert may_pass(greeting, "http", host), first


@settings(max_examples=50)
@given(st.binary(max_size=40), st.sampled_from(HELLOS + HEADS))
def test_more_bytes_never_change_what_was_decided(more: bytes, first: bytes):
    greeting = read_greeting(first)

    assert greeting is not None
    assert read_greeting(first + more) == greeting


def test_the_longest_greetings_are_some_thousand_lines_of_work():
    worst = [
        b"\x16\3\1\0\1" * 13_000,
        b"\x16\3\1\0\1\1" * 10_000,
        b"\x16\3\1\x40\0\1\0\xff\x00" + bytes(65_000),
        b"GET / HTTP/1.1\r\n" + b"X:\r\n" * 16_000 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: " + b"[" * 65_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:" + b" " * 65_000 + b"x\r\n\r\n",
        b"\r\n" * 32_000,
        b" " * 65_000,
        b"\xff" * 65_000,
    ]

    assert max(lines_run(read_greeting, first) for first in worst) < 25_000
