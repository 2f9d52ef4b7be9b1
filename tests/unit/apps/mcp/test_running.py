"""A session's request runs for as long as anybody holds it."""

import pytest
from starlette.datastructures import Headers

from paddock.apps.mcp.http import RunningRequests, key_of

SESSION = Headers({"Mcp-Session-Id": "s"})


def test_a_request_runs_until_the_last_who_holds_it_lets_go():
    running, key = RunningRequests(), key_of(SESSION, 11)
    with running.held(key):
        with running.held(key):
            assert running.has(key)
        assert running.has(key)
        assert not running.has(key_of(Headers({"Mcp-Session-Id": "other"}), 11))
    assert not running.has(key)


def test_what_is_held_is_let_go_also_where_it_fails():
    running, key = RunningRequests(), key_of(SESSION, 11)
    with pytest.raises(ValueError, match="no"), running.held(key):
        raise ValueError("no")
    assert not running.has(key)


@pytest.mark.parametrize(("one", "other"), [(11, "11"), ("011", 11), ("a", "a")])
def test_what_the_sdk_takes_for_one_id_is_one(one, other):
    assert key_of(SESSION, one) == key_of(SESSION, other)


@pytest.mark.parametrize(
    ("headers", "request_id"), [(Headers(), 11), (SESSION, None)], ids=["no session", "no request"]
)
def test_what_stands_for_itself_never_runs_already(headers, request_id):
    running, key = RunningRequests(), key_of(headers, request_id)
    with running.held(key):
        assert not running.has(key)
