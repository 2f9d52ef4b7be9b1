"""Events as real clients send them: each gets the answer that is its own."""

import json
from pathlib import Path
from typing import Any

from paddock.apps.hook.lean.request import IGNORED_EVENTS
from tests.support.hooks import Client, Said

VECTORS = Path(__file__).parents[3] / "vectors" / "hook"
EVENTS = [
    (f"{name}-{number}-{row['input']['hook_event_name']}", name, row)
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


def test_under_the_defaults_each_event_gets_its_answer(client: Client):
    for each, _, row in EVENTS:
        assert summary(client.say(bytes_of(client, row))) == row["says"], each


def test_where_nothing_is_allowed_each_call_is_denied_and_nothing_else(client: Client):
    client.write_policy(NOTHING_ALLOWED)
    for each, name, row in EVENTS:
        given = row["input"]
        # What only `otherwise` asks about is left to the client's own prompts.
        is_call = given["hook_event_name"] == "PreToolUse"
        wanted = "deny" if is_call and not given["tool_name"].startswith("mcp__") else row["says"]
        assert summary(client.say(bytes_of(client, row), name)) == wanted, each


ALLOWED_BY_STANDARD = frozenset({"Write", "Edit", "Read", "apply_patch", "Agent"})
"""What of these calls the standard profile allows; about the others it would ask."""


def test_where_an_allow_is_told_it_is_told_of_what_policy_allows_alone(client: Client):
    client.write_policy({"hook": {"on_allow": "approve"}})
    for each, name, row in EVENTS:
        given = row["input"]
        is_call = given["hook_event_name"] == "PreToolUse"
        is_allowed = is_call and given["tool_name"] in ALLOWED_BY_STANDARD
        said = summary(client.say(bytes_of(client, row), name))
        assert said == ("allow" if is_allowed else row["says"]), each


def test_each_event_that_is_ours_is_one_entry(client: Client):
    client.say(client.event("Read", tool_input={"file_path": "{root}/x"}))
    before = len(client.entries()) + len(client.entries("HOOK_EVENT"))
    for each, name, row in EVENTS:
        given = row["input"]
        client.say(bytes_of(client, row))

        decisions = client.entries()
        after = len(decisions) + len(client.entries("HOOK_EVENT"))
        assert after - before == (given["hook_event_name"] not in IGNORED_EVENTS), each
        before = after
        if given["hook_event_name"] == "PreToolUse":
            entry = decisions[-1]
            assert (entry.session_id, entry.call_id, entry.metadata["client"]) == (
                given["session_id"],
                given["tool_use_id"],
                name,
            ), each
