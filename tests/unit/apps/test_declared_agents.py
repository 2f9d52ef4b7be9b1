"""Agents that a project's policy file declares: after `paddock trust` they are as it says."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.ledger.query import Filter, query
from tests.support.terminals import Terminal
from tests.unit.apps.conftest import User

HELPER = '[agents.helper]\nprofile = "locked"\nparent = "main"\n'
REVIEWER = """[agents.reader]
profile = "reviewer"
workspace = "lib"
permissions = { read = ["**"], forbidden = ["/keys/"] }
"""


def declare(user: User, text: str) -> None:
    (user.project / "paddock.toml").write_text(text)


def agents(user: User) -> dict[str, dict[str, Any]]:
    listed = user.run("agent", "list", "--json")
    return {each["name"]: each for each in listed.json}


def kept(user: User, name: str) -> dict[str, Any]:
    plane = Path(user.run("where", "--json").json["plane"])
    return json.loads((plane / "agents" / name / "agent.json").read_bytes())


def test_after_trust_a_clones_agents_are_there(user: User) -> None:
    declare(user, HELPER + REVIEWER)
    looked = user.run("agent", "list", "--json")
    assert [each["name"] for each in looked.json] == ["main"]
    said = user.run("trust", "--yes")

    assert said.status == 0
    assert "  - create helper: profile locked under main, in " in said.out
    found = agents(user)
    assert (found["helper"]["profile"], found["helper"]["parent"]) == ("locked", "main")
    assert found["helper"]["workspace"] == str(user.project)
    assert found["reader"] == {
        "name": "reader",
        "profile": "reviewer",
        "workspace": str(user.project / "lib"),
        "parent": None,
        "toolsets": ["workspace", "search", "output", "shell"],
        "permissions": {"read": ["**"], "write": ["**"], "forbidden": ["/keys/"]},
    }
    assert user.call("view", "--agent", "helper", path="README.md").status == 0
    assert user.call("create_file", "--agent", "helper", path="a", content="x").status != 0
    assert user.files() == ["README.md", "paddock.toml"]
    assert user.run("trust", "--yes").out.endswith("trusted already\n")


def test_what_the_file_says_otherwise_is_changed_and_put_on_record(user: User) -> None:
    user.run("agent", "create", "helper", "--profile", "open", "--toolsets", "workspace")
    declare(user, HELPER)
    assert "  - change helper: profile locked under main" in user.run("trust", "--yes").out
    changed = agents(user)["helper"]
    # What the file says nothing of stays as a person made it.
    assert (changed["profile"], changed["toolsets"]) == ("locked", ["workspace"])
    declare(user, HELPER.replace("locked", "reviewer"))
    user.run("trust", "--yes")
    assert agents(user)["helper"]["profile"] == "reviewer"
    ledger = user.run("where", "--json").json["ledgers"]["governance"]
    told = query(ledger, Filter("AGENT_CHANGED", agent="helper")).entries
    assert sorted(str(row.entry.metadata["profile"]) for row in told) == ["locked", "reviewer"]


def test_an_agent_that_was_edited_by_hand_is_mended_by_trust(user: User) -> None:
    declare(user, HELPER)
    user.run("trust", "--yes")
    plane = Path(user.run("where", "--json").json["plane"])
    (plane / "agents/helper/agent.json").write_text("{")
    assert user.call("view", "--agent", "helper", path="README.md").status != 0
    assert user.run("trust", "--yes").status == 0
    assert user.call("view", "--agent", "helper", path="README.md").status == 0


def test_what_is_no_longer_declared_is_listed_and_stays(user: User) -> None:
    declare(user, HELPER)
    user.run("trust", "--yes")
    user.run("agent", "create", "own", "--profile", "locked")
    declare(user, "[shell]\n")
    said = user.run("trust", "--yes")

    assert "no longer declared, and still there: helper (paddock agent remove helper)" in said.out
    assert "own" not in said.out
    assert sorted(agents(user)) == ["helper", "main", "own"]


@pytest.mark.parametrize("trusted", [True, False])
def test_without_workspace_and_parent_it_maps_a_clients_kind_of_agent(
    user: User, trusted: bool
) -> None:
    declare(user, '[agents.Explore]\nprofile = "locked"\n')
    if trusted:
        user.run("trust", "--yes")
    assert sorted(agents(user)) == ["main"]
    asked = ("policy", "check", "tool:file:create a", "--agent", "Explore")
    assert user.run(*asked).status == 1


def test_an_untrusted_file_makes_no_agent(user: User) -> None:
    declare(user, HELPER)
    assert user.call("view", path="README.md").status == 0
    assert sorted(agents(user)) == ["main"]
    assert user.call("view", "--agent", "helper", path="README.md").status != 0


@pytest.mark.parametrize("place", ["{}", "../elsewhere", "link"])
def test_a_workspace_outside_is_asked_about_by_name(user: User, place: str) -> None:
    elsewhere = user.project.parent / "elsewhere"
    elsewhere.mkdir()
    (user.project / "link").symlink_to(elsewhere)
    named = place.format(elsewhere)
    declare(user, f'{HELPER}[agents.roamer]\nprofile = "locked"\nworkspace = "{named}"\n')
    said = user.run("trust", "--yes")
    assert (said.status, sorted(agents(user))) == (0, ["helper", "main"])
    assert "roamer is left unchanged: --yes does not approve a workspace outside" in said.err

    program = "from paddock.apps.cli.main import console; console()"
    argv = [sys.executable, "-c", program, "trust"]
    with Terminal.start(argv, {"HOME": str(user.home), "TERM": "dumb"}, user.project, 160) as asks:
        asks.wait_for("trust this policy? [y/N]")
        assert asks.answer("[y/N]", "y\r") == 0
        assert f"let roamer work in {elsewhere}, outside the project? [y/N]" in asks.raw.decode()
    assert agents(user)["roamer"]["workspace"] == str(elsewhere)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agents.a]\nprofile = "open"\nparent = "b"\n', "its parent 'b' does not exist"),
        (
            '[agents.a]\nprofile = "open"\nparent = "b"\n[agents.b]\nprofile = "open"\nparent = "a"',
            "it is its own ancestor",
        ),
        ('[agents.main]\nprofile = "open"\nworkspace = "lib"\n', "the agent of the project"),
        ('[agents.a]\nprofile = "open"\nworkspace = "/nowhere/x"\n', "does not exist"),
        ('[agents.a]\nprofile = "open"\nparent = "main"\nmode = 1\n', 'unknown key "mode"'),
        (
            '[agents.a]\nprofile = "open"\npermissions = { read = ["a"] }\n',
            "permissions in [agents.a] need a workspace or a parent",
        ),
        (
            '[agents.a]\nprofile = "open"\nparent = "main"\npermissions = { read = ["a//"] }\n',
            "can match nothing",
        ),
    ],
)
def test_an_agent_that_cannot_be_so_is_refused_before_anybody_is_asked(
    user: User, text: str, said: str
) -> None:
    declare(user, text)
    refused = user.run("trust", "--yes")
    assert (refused.status, said in refused.err) == (3, True), refused.err
    assert not (user.home / ".local/state/paddock/trust").exists()


@pytest.mark.parametrize("place", [".git", "{home}/.local/state/paddock/x"])
def test_a_workspace_from_which_it_would_reach_what_governs_it_is_refused(
    user: User, place: str
) -> None:
    named = place.format(home=user.home)
    Path(user.project / named).mkdir(parents=True, exist_ok=True)
    declare(user, f'[agents.a]\nprofile = "open"\nworkspace = "{named}"\n')
    refused = user.run("trust", "--yes")
    assert (refused.status, "paddock.toml, [agents.a]" in refused.err) == (3, True)
    assert not (user.home / ".local/state/paddock/trust").exists()
    assert "a" not in agents(user)


def test_a_users_own_configuration_declares_no_agent(user: User) -> None:
    config = user.home / ".config/paddock/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(HELPER)
    refused = user.run("agent", "list")
    assert (refused.status, "belong in a project's file" in refused.err) == (3, True)
