"""Events as real clients send them: each gets the answer that is its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from paddock.apps.hook.lean.asked import IGNORED_EVENTS
from tests.support.hooks import Client, Said

VECTORS = Path(__file__).parents[3] / "vectors" / "hook"
EVENTS = [
    pytest.param(name, row, id=f"{name}-{number}-{row['input']['hook_event_name']}")
    for name in ("claude", "codex")
    for number, row in enumerate(json.loads((VECTORS / f"{name}.json").read_text()))
]
NOTHING_ALLOWED = {
    "profiles": {"standard": {"allow": ["tool:search:*"], "otherwise": {"tool:mcp:*": "ask"}}}
}


def bytes_of(client: Client, row: dict[str, Any]) -> bytes:
    home = str(client.place.home)
    return json.dumps(client.filled(row["input"])).replace("{home}", home).encode()


def summary(said: Said) -> str:
    if said.word != "none":
        return said.word
    return "scratch" if "agent_sandbox/" in said.context else "none" if not said.raw else "other"


@pytest.mark.parametrize(("name", "row"), EVENTS)
def test_under_the_defaults_each_event_gets_its_answer(name, row, client: Client):
    del name

    assert summary(client.say(bytes_of(client, row))) == row["says"]


@pytest.mark.parametrize(("name", "row"), EVENTS)
def test_where_nothing_is_allowed_each_call_is_denied_and_nothing_else(name, row, client: Client):
    client.write_policy(NOTHING_ALLOWED)
    given = row["input"]
    # What only `otherwise` asks about is left to the client's own prompts.
    is_call = given["hook_event_name"] == "PreToolUse"
    wanted = "deny" if is_call and not given["tool_name"].startswith("mcp__") else row["says"]

    assert summary(client.say(bytes_of(client, row), name)) == wanted


ALLOWED_BY_STANDARD = frozenset({"Write", "Edit", "Read", "apply_patch", "Agent"})
"""What of these calls the standard profile allows; about the others it would ask."""


@pytest.mark.parametrize(("name", "row"), EVENTS)
def test_where_an_allow_is_told_it_is_told_of_what_policy_allows_alone(name, row, client: Client):
    client.write_policy({"hook": {"on_allow": "approve"}})
    given = row["input"]
    is_call = given["hook_event_name"] == "PreToolUse"
    is_allowed = is_call and given["tool_name"] in ALLOWED_BY_STANDARD

    said = summary(client.say(bytes_of(client, row), name))
    assert said == ("allow" if is_allowed else row["says"])


@pytest.mark.parametrize(("name", "row"), EVENTS)
def test_each_event_that_is_ours_is_one_entry(name, row, client: Client):
    given = row["input"]
    client.say(client.event("Read", tool_input={"file_path": "{root}/x"}))
    before = len(client.entries()) + len(client.entries("HOOK_EVENT"))

    client.say(bytes_of(client, row))

    after = len(client.entries()) + len(client.entries("HOOK_EVENT"))
    assert after - before == (0 if given["hook_event_name"] in IGNORED_EVENTS else 1)
    if given["hook_event_name"] == "PreToolUse":
        entry = client.entries()[-1]
        assert (entry.session_id, entry.call_id, entry.metadata["client"]) == (
            given["session_id"],
            given["tool_use_id"],
            name,
        )
