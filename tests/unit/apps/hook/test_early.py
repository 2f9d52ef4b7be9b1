"""A call that is refused before anything was decided about it is on record all the same."""

import json
import os

import pytest

from paddock.apps.hook.full import HookInput, answer_or_refuse, salvage_call
from paddock.apps.hook.lean import flow
from tests.support.hooks import Client, Said

WRITE = '{"tool_name": "Write", "tool_use_id": "C-1", "session_id": "S", '


def kept(client: Client) -> list[tuple[str, ...]]:
    """Decision, code and tool of what is on record, and what the answer was."""
    return [
        (
            each.decision,
            each.metadata["code"],
            each.metadata["tool"],
            each.metadata["answer"],
        )
        for each in client.entries()
    ]


@pytest.mark.parametrize(
    "rest",
    [
        '"tool_input": "text"}',
        '"tool_input": null}',
        '"tool_input": []}',
        '"agent_id": "A"}',
        '"tool_input": {}, "hook_event_name": "Other"}',
        '"tool_input": {}, "hook_event_name": 7}',
        '"tool_input": {}, "cwd": "relative"}',
        '"tool_input": {}, "agent_type": 7}',
        '"tool_input": {"file_path": "a", "file_path": "b"}}',
        '"tool_input": {"n": NaN}}',
        '"tool_input": {}} and more',
    ],
)
def test_a_call_that_names_its_tool_and_is_not_understood_is_on_record(rest, client: Client):
    said = client.say((WRITE + rest).encode())

    assert said.word == "deny"
    (entry,) = client.entries()
    assert kept(client) == [("deny", "args.invalid", "Write", "deny")]
    assert (entry.call_id, entry.session_id, entry.reason) == ("C-1", "S", said.reason)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"\xff",
        b'{"tool_input": {}}',
        b'{"tool_name": "", "tool_input": {}}',
        b'{"tool_name": ["Write"], "tool_input": {}}',
        b'{"tool_name": "Write", "tool_input": 7, "hook_event_name": "PostToolUse"}',
        b'{"tool_name": "Write", "n": ' + b"[" * 100_000,
    ],
)
def test_what_names_no_call_is_refused_and_leaves_no_entry(data, client: Client):
    assert client.say(data).word == "deny"
    client.ask("Read", tool_input={"file_path": "{root}/x"})
    assert [each.decision for each in client.entries()] == ["allow"]


def test_the_arguments_are_kept_where_every_reader_reads_them_alike(client: Client):
    client.say(client.event("Write", tool_input={"file_path": "a"}, session_id=7))
    client.say((WRITE + '"tool_input": {"file_path": "a"}} x').encode())

    assert [each.metadata["arguments"] for each in client.entries()] == [{"file_path": "a"}, {}]


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
def test_a_call_under_a_policy_that_does_not_load_is_on_record(event, client: Client):
    client.write_policy("nonsense", trusted=False)

    said = client.say(client.event("Write", tool_input={"file_path": "a"}, hook_event_name=event))

    assert b"paddock.toml" in said.raw
    (entry,) = client.entries()
    assert (entry.decision, "paddock.toml" in entry.reason) == ("deny", True)
    assert entry.metadata == {
        "tool": "Write",
        "arguments": {"file_path": "a"},
        "actions": [],
        "client": "claude",
        "answer": "deny",
        "code": "config.invalid",
        "agents": [],
    }


@pytest.mark.parametrize("event", ["PostToolUse", "SessionStart"])
def test_an_event_that_is_no_call_to_be_decided_leaves_no_denial(event, client: Client):
    client.write_policy("nonsense", trusted=False)

    assert client.ask("Write", hook_event_name=event).raw == b""

    client.write_policy("[paths]\n")
    client.ask("Read", tool_input={"file_path": "{root}/x"})
    assert [each.decision for each in client.entries()] == ["allow"]


def test_a_defect_is_on_record_and_its_denial_counts(client: Client):
    def broken(*given: object) -> bytes:
        raise RuntimeError("a bug")

    event = client.event("Write", tool_input={"file_path": "{root}/docs/a"})
    given = HookInput(event, "", client.environment, client.root)
    said = Said(answer_or_refuse(given, broken, flow.refusal_for))

    assert said.word == "deny"
    assert said.reason.endswith("the call cannot be judged: a defect of Paddock, RuntimeError")
    assert kept(client) == [("deny", "internal", "Write", "deny")]


def test_a_refusal_that_cannot_be_recorded_says_so(client: Client):
    client.ask("Read", tool_input={"file_path": "{root}/x"})
    ledger = client.ledger
    os.rename(ledger, f"{ledger}.away")
    ledger.mkdir()

    said = client.say(b'{"tool_name": "Write"}')

    assert said.word == "deny"
    assert "this refusal could not be recorded" in said.reason


def test_early_denials_are_listed_like_others(client: Client):
    client.say(b'{"tool_name": "Bash"}')
    client.ask("Write", tool_input={"file_path": "/elsewhere/x"})

    rows = json.loads(client.place.run("hook", "status", "--json").out)["denials"]

    assert [(row["agent"], row["tool"]) for row in rows] == [("", "Bash"), ("main", "Write")]
    assert " - Bash: the call was not understood" in client.place.run("hook", "status").out


def test_a_client_is_told_apart_where_the_input_is_not_understood():
    named = salvage_call(b'{"tool_name": "Write", "turn_id": "T"}', "")

    assert named is not None
    assert (named.client, named.tool, named.name) == ("codex", "Write", "PreToolUse")
