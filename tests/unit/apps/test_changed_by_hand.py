"""What somebody edits by hand is on record from its first loading on, and once."""

import json
from pathlib import Path

from paddock.values.entries import digest_of


def agent_file(user) -> Path:
    where = user.run("where", "--json").json
    return Path(where["plane"]) / "agents"


def changes(user, event_type="AGENT_CHANGED"):
    ran = user.run("ledger", "query", "--type", event_type, "--json")
    return [json.loads(row) for row in ran.out.splitlines()]


def edit(file: Path, **fields) -> tuple[str, str]:
    before = file.read_bytes()
    file.write_text(json.dumps(json.loads(before) | fields))
    return digest_of(before), digest_of(file.read_bytes())


def test_an_edited_agent_is_on_record_when_it_is_first_loaded_and_not_again(user):
    user.run("init")
    user.run("agent", "create", "writer", "--profile", "locked")
    before, after = edit(agent_file(user) / "writer" / "agent.json", profile="standard")
    assert changes(user) == []

    for _ in range(3):
        assert user.call("view", "--agent", "writer", path="nothing").status == 1

    [changed] = changes(user)
    assert (changed["agent"], changed["reason"]) == ("writer", "the agent's declaration changed")
    assert changed["metadata"]["before_digest"] == before
    assert changed["metadata"]["digest"] == after
    assert changed["metadata"]["profile"] == "standard"


def test_an_agent_that_was_not_edited_is_not_said_to_have_changed(user):
    user.run("init")
    user.run("agent", "create", "writer", "--parent", "main")

    user.call("view", path="README.md")
    user.call("view", "--agent", "writer", path="nothing")

    assert changes(user) == []


def test_an_edited_ancestor_is_on_record_with_its_child(user):
    user.run("init")
    user.run("agent", "create", "writer", "--parent", "main")
    edit(agent_file(user) / "main" / "agent.json", permissions={"forbidden": ["secret/**"]})

    user.call("view", "--agent", "writer", path="nothing")

    assert [entry["agent"] for entry in changes(user)] == ["main"]


def test_an_agent_that_was_changed_back_is_on_record_both_times(user):
    user.run("init")
    file = agent_file(user) / "main" / "agent.json"
    first = file.read_bytes()
    edit(file, profile="locked")
    user.call("view", path="README.md")
    file.write_bytes(first)
    user.call("view", path="README.md")

    profiles = [entry["metadata"]["profile"] for entry in changes(user)]
    assert profiles == ["locked", "standard"]


def test_a_declaration_that_was_put_there_by_hand_is_on_record(user):
    user.run("init")
    user.run("agent", "create", "writer")
    agents = agent_file(user)
    other = agents / "other"
    other.mkdir(mode=0o700)
    declared = json.loads((agents / "writer" / "agent.json").read_bytes()) | {"name": "other"}
    (other / "agent.json").write_text(json.dumps(declared))
    (other / "workspace").mkdir()

    user.call("view", "--agent", "other", path="nothing")

    [entry] = changes(user)
    assert (entry["agent"], entry["metadata"]["before_digest"]) == ("other", "")


def test_a_removed_declaration_that_was_put_back_by_hand_is_on_record(user):
    user.run("init")
    user.run("agent", "create", "writer")
    file = agent_file(user) / "writer" / "agent.json"
    content = file.read_bytes()
    user.run("agent", "remove", "writer")
    file.write_bytes(content)

    user.call("view", "--agent", "writer", path="nothing")

    assert [entry["agent"] for entry in changes(user)] == ["writer"]


# The prompt contracts of a bare plane


def test_a_changed_contract_is_on_record_with_the_digests_before_and_after(operator):
    name = "HO1/contracts/PRC-EXECUTE-001.json"
    file = operator.plane / name
    before = digest_of(file.read_bytes())
    file.write_bytes(file.read_bytes() + b"\n")
    for _ in range(2):
        assert operator.call("list_files").status == 0

    [first, changed] = operator.entries("governance", "CONFIG_CHANGED")

    assert first["metadata"]["files"][name] == before
    assert changed["metadata"]["changed"] == [name]
    assert changed["metadata"]["before"][name] == before
    assert changed["metadata"]["files"][name] == digest_of(file.read_bytes())


def test_a_contract_that_is_gone_or_new_is_on_record(operator):
    contracts = operator.plane / "HO1/contracts"
    (contracts / "PRC-EXECUTE-001.json").rename(contracts / "PRC-OTHER-001.json")
    operator.call("list_files")

    [*_, changed] = operator.entries("governance", "CONFIG_CHANGED")

    assert changed["metadata"]["changed"] == [
        "HO1/contracts/PRC-EXECUTE-001.json",
        "HO1/contracts/PRC-OTHER-001.json",
    ]
