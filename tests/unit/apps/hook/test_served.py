"""Calls of our own server: the hook records them, and the server judges them."""

import json

import pytest

from paddock.apps.hook.lean.request import DeclinedError
from tests.support.hooks import BothWays, Client

DENIES = '[profiles.standard]\ndeny = ["tool:mcp:*"]\n'
OURS = {"command": "paddock", "args": ["mcp"]}
TOOL = "mcp__paddock__issues__list"


def configure(client: Client, entry: object, name: str = "paddock") -> None:
    text = json.dumps({"mcpServers": {name: entry}})
    (client.place.project / ".mcp.json").write_text(text)


def test_a_call_of_our_own_server_is_recorded_and_the_client_goes_its_usual_way(client: Client):
    client.write_policy(DENIES)
    configure(client, OURS)

    assert client.ask(TOOL, tool_input={"a": 1}).raw == b""

    (entry,) = client.entries()
    assert (entry.metadata["actions"], entry.metadata["outcome"], entry.metadata["source"]) == (
        [f"tool:mcp:call {TOOL}"],
        "allow",
        "hook.served",
    )
    assert entry.reason == "Paddock's MCP server judges the call"
    assert client.ask("mcp__other__list").word == "deny"
    assert client.ask("mcp__paddock_x__list").word == "deny"


def test_what_approves_an_allow_does_not_approve_a_call_of_our_own_server(client: Client):
    client.write_policy('[hook]\non_allow = "approve"\n[profiles.standard]\nallow = ["tool:*"]\n')
    configure(client, OURS)

    assert client.ask(TOOL).raw == b""
    assert client.ask("mcp__other__list").word == "allow"


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "./paddock", "args": ["mcp"]},
        {"command": "/tmp/paddock", "args": ["mcp"]},
        {"command": "paddock", "args": ["call"]},
        {"command": "paddock", "args": ["mcp", "--plane", "evil"]},
        {"command": "paddock", "args": ["mcp"], "env": {"PATH": "evil"}},
        {"command": "paddock", "args": ["mcp"], "cwd": "evil"},
        {"url": "https://example.org/mcp"},
        "paddock",
        None,
    ],
)
def test_what_a_project_starts_by_our_name_and_is_another_program_is_judged(client: Client, entry):
    client.write_policy(DENIES)
    configure(client, entry)

    assert client.ask(TOOL).word == "deny"


@pytest.mark.parametrize("args", [["mcp"], ["mcp", "--agent", "writer"]])
def test_what_the_installation_writes_is_ours(client: Client, args):
    client.write_policy(DENIES)
    configure(client, {"command": "paddock", "args": args})

    assert client.ask(TOOL).raw == b""


def test_without_a_server_in_the_clients_configuration_the_call_is_judged(client: Client):
    client.write_policy(DENIES)
    assert client.ask(TOOL).word == "deny"
    configure(client, OURS, "other")
    assert client.ask(TOOL).word == "deny"


def test_the_users_own_configuration_counts_where_the_projects_names_no_such_server(client: Client):
    client.write_policy(DENIES)
    entry = {"command": "/opt/venv/bin/paddock", "args": ["mcp", "--plane", "/p"]}
    path = client.place.home / ".claude.json"
    path.write_text(json.dumps({"mcpServers": {"paddock": entry}}))
    assert client.ask(TOOL).raw == b""

    configure(client, {"command": "./paddock", "args": ["mcp"]})
    assert client.ask(TOOL).word == "deny"


def test_both_ways_say_it_and_the_lean_one_leaves_what_it_cannot_follow(client: Client):
    client.write_policy(DENIES)
    configure(client, OURS)
    ways = BothWays.of(client)
    event = client.event(TOOL, tool_input={})
    assert ways.lean(event, "claude") == ways.full(event, "claude")

    configure(client, OURS, "other")
    ways = BothWays.of(client)
    with pytest.raises(DeclinedError):
        ways.lean(event, "claude")


def test_of_another_clients_server_rules_may_look_at_the_arguments(client: Client):
    client.write_policy(
        '[profiles.standard]\n[[profiles.standard.rules]]\naction = "tool:mcp:call mcp__toy__add"\n'
        'outcome = "deny"\nwhen = { "/a" = { min = 10 } }\n'
        '[profiles.standard.otherwise]\n"tool:*" = "ask"\n'
    )

    assert client.ask("mcp__toy__add", tool_input={"a": 1}).word == "none"
    assert client.ask("mcp__toy__add", tool_input={"a": 10}).word == "deny"
    assert client.ask("mcp__toy__add", tool_input={"b": 1}).word == "deny"
