"""A policy that nobody trusts: the first answer says so, and `hook status` at any time."""

import json

import pytest

from tests.support.hooks import Client

TIGHTER = '[paths]\nprotected = ["x"]\n'
UNTRUSTED = "paddock.toml is not trusted (it was never trusted); it can only tighten: paddock trust"
NOTICE = f"Paddock: {UNTRUSTED}"


def read(client: Client):
    return client.ask("Read", tool_input={"file_path": "{root}/x"})


def test_the_first_answer_under_a_policy_that_nobody_trusts_says_so_once(client: Client):
    client.write_policy(TIGHTER, trusted=False)

    first, second = read(client), read(client)

    assert json.loads(first.raw) == {"systemMessage": NOTICE}
    assert second.raw == b""


def test_a_denial_and_the_start_of_a_session_say_it_with_what_else_they_say(client: Client):
    client.write_policy(TIGHTER, trusted=False)
    start = client.say(client.event(hook_event_name="SessionStart"))
    client.write_policy(f"{TIGHTER}# changed\n", trusted=False)
    denied = client.ask("Write", tool_input={"file_path": "/elsewhere/x"})
    client.write_policy(f"{TIGHTER}# and again\n", trusted=False)
    invalid = client.ask("Write")

    assert ("agent_sandbox/" in start.context, start.message) == (True, NOTICE)
    assert denied.message == f"{denied.reason}\n{NOTICE}"
    assert (denied.word, "not trusted" in denied.reason) == ("deny", False)
    assert invalid.message == f"{invalid.reason}\n{NOTICE}"


@pytest.mark.parametrize("text", [TIGHTER, "[paths]\n"])
def test_of_a_trusted_policy_nothing_is_said(text, client: Client):
    client.write_policy(text)

    assert read(client).raw == b""
    assert "not trusted" not in client.place.run("hook", "status").out
    assert json.loads(client.place.run("hook", "status", "--json").out)["notices"] == []


def test_the_status_says_it_every_time(client: Client):
    client.write_policy(TIGHTER, trusted=False)
    read(client)

    for _ in range(2):
        shown = client.place.run("hook", "status").out.splitlines()
        assert [line for line in shown if line.startswith("note: ")] == [f"note: {UNTRUSTED}"]
    assert json.loads(client.place.run("hook", "status", "--json").out)["notices"] == [UNTRUSTED]


def test_each_part_of_it_that_does_not_count_is_a_line_of_its_own(client: Client):
    client.write_policy('[profiles.standard]\nallow = ["tool:*"]\n', trusted=False)

    first, second = read(client).message.splitlines()

    assert first == NOTICE
    assert second.startswith("Paddock: paddock.toml:2: allow of [profiles.standard] ")
