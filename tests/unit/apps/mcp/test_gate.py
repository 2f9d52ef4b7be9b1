"""By which hosts and origins the HTTP server may be addressed."""

import pytest

from paddock.apps.mcp.http import Hosts

LOOPBACK = Hosts(is_loopback=True)
REMOTE = Hosts(is_loopback=False, names=frozenset({"paddock.internal"}))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]", "[::1]:9", "127.9.9.9"],
)
def test_this_machine_is_served_by_its_names(host):
    assert LOOPBACK.permits(host)
    assert REMOTE.permits(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "0x7f.1",
    ],
)
def test_another_name_is_refused_everywhere(host):
    assert not LOOPBACK.permits(host)
    assert not REMOTE.permits(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "paddock.internal:80", "[2001:db8::1]:80"])
def test_other_addresses_and_names_that_were_given_are_for_a_remote_server(host):
    assert not LOOPBACK.permits(host)
    assert REMOTE.permits(host)


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://127.0.0.1"])
def test_a_page_of_this_machine_may_ask(origin):
    assert LOOPBACK.permits_origin(origin)


@pytest.mark.parametrize(
    "origin", ["null", "", "http://evil.example", "file://localhost", "http://[::1", "localhost"]
)
def test_a_page_of_another_may_not(origin):
    assert not LOOPBACK.permits_origin(origin)
