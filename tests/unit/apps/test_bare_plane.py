"""A bare plane from the command line: made, configured, worked on, accepted."""

import json
import shlex
from pathlib import Path

import jsonschema
import pytest

import paddock
from paddock.assembly.bootstrap import bare_plane_blueprint, init_bare_plane
from paddock.assembly.project import find_project
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime, tools_allowed
from paddock.ledger.verify import verify
from paddock.packages.bootstrap import load_packages
from paddock.plane.admin import contract_digests
from paddock.runtime.approvals import NoApprover
from paddock.values.entries import digest_of
from tests.support.planes import RISKY, operator_in

POLICY = "HOT/config/policy.toml"


# Making one


def test_init_makes_a_plane_with_configuration_schema_and_policy(tmp_path):
    operator = operator_in(tmp_path)
    ran = operator.run("init", "--bare", "plane", "--json", here=tmp_path)
    plane = operator.plane
    assert (ran.status, ran.err) == (0, "")
    made = ran.json["made"]
    assert made[-1] == str(operator.config)
    assert {str(plane / "HOT/schemas/admin_config.schema.json"), str(plane / POLICY)} < set(made)
    assert all(Path(name).is_file() for name in made)
    assert ran.json | {"made": []} == {
        "status": "ok",
        "root": str(plane),
        "plane": str(plane),
        "policy": str(plane / POLICY),
        "made": [],
        "already": False,
        "registered": True,
        "dual_gate": {
            "open": False,
            "tool_profile": "production",
            "variable": False,
            "accepted": True,
            "missing": ["tool_profile is production", "CP_ADMIN_ENABLE_RISKY_TOOLS is not 1"],
        },
    }
    config = json.loads(operator.config.read_bytes())
    schema = json.loads((plane / "HOT/schemas/admin_config.schema.json").read_bytes())
    jsonschema.Draft202012Validator(schema).validate(config)
    assert config["permissions"] == {
        "read": ["**"],
        "write": ["**"],
        "forbidden": ["HOT/kernel/*", "HOT/scripts/*"],
    }
    assert [tool["tool_id"] for tool in config["tools"]] == [
        "gate_check",
        "read_file",
        "query_ledger",
        "list_files",
        "list_packages",
    ]
    assert (config["agent_id"], config["tool_profile"]) == ("admin", "production")
    assert list(tmp_path.joinpath("home").rglob("plane.json")) == []


def test_dev_is_one_half_of_the_gate_and_no_more(tmp_path):
    operator = operator_in(tmp_path).make("--dev")
    assert json.loads(operator.config.read_bytes())["tool_profile"] == "development"
    assert operator.run("where", "--json").json["dual_gate"]["open"] is False
    assert operator.run("where", "--json", variables=RISKY).json["dual_gate"]["open"] is True


@pytest.mark.parametrize("options", [(), ("--dev",)])
def test_a_second_init_changes_nothing_and_says_so(operator, options):
    before = {p: p.read_bytes() for p in operator.plane.rglob("*") if p.is_file()}
    ran = operator.run("init", "--bare", str(operator.plane), *options)
    assert ran.status == 0
    assert "is a bare plane already; nothing changed" in ran.out
    assert ("its tool_profile stays production" in ran.out) is bool(options)
    assert {p: p.read_bytes() for p in operator.plane.rglob("*") if p.is_file()} == before


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path):
    operator = operator_in(tmp_path)
    operator.write("notes.txt", b"precious")
    ran = operator.run("init", "--bare", str(operator.plane))
    assert (ran.status, ran.out) == (2, "")
    assert "is neither empty nor a bare plane: it contains 'notes.txt'" in ran.err
    assert [p.name for p in operator.plane.rglob("*")] == ["notes.txt"]


def test_init_without_bare_does_not_touch_a_plane(operator):
    ran = operator.run("init", str(operator.plane))
    assert ran.status == 2
    assert not (operator.plane / "paddock.toml").exists()


def test_dev_on_a_project_says_that_it_changes_nothing(tmp_path):
    operator = operator_in(tmp_path)
    ran = operator.run("init", "project", "--dev", here=tmp_path)
    assert ran.status == 0
    assert "only a bare plane has a tool_profile" in ran.err


def test_a_new_plane_and_its_configuration_are_on_record(operator):
    config, policy = operator.config, operator.plane / "HOT/config/policy.toml"
    [created] = operator.entries("governance", "PLANE_CREATED")
    assert created["metadata"]["kind"] == "bare"
    [changed] = operator.entries("governance", "CONFIG_CHANGED")
    assert changed["reason"] == "the configuration was first loaded"
    assert changed["metadata"]["files"] == {
        "HOT/config/admin_config.json": digest_of(config.read_bytes()),
        "HOT/config/policy.toml": digest_of(policy.read_bytes()),
        **contract_digests(operator.plane / "HO1/contracts", operator.plane),
    }
    assert len(operator.entries("governance", "POLICY_LOADED")) == 1
    assert verify(str(operator.plane / "HOT/ledger/governance.jsonl")).problems == ()


# Its configuration on record


def test_a_changed_file_is_on_record_when_it_is_first_loaded_and_not_again(operator):
    before = digest_of(operator.config.read_bytes())
    operator.change(classify=False)
    after = digest_of(operator.config.read_bytes())
    for _ in range(3):
        assert operator.call("list_files").status == 0
    [_, changed] = operator.entries("governance", "CONFIG_CHANGED")
    assert changed["reason"] == "changed: HOT/config/admin_config.json"
    files = "HOT/config/admin_config.json"
    assert changed["metadata"]["before"][files] == before
    assert changed["metadata"]["files"][files] == after
    (operator.plane / "HOT/config/policy.toml").unlink()
    assert operator.call("list_files").status == 0
    [*_, gone] = operator.entries("governance", "CONFIG_CHANGED")
    assert gone["metadata"]["changed"] == ["HOT/config/policy.toml"]
    contracts = contract_digests(operator.plane / "HO1/contracts", operator.plane)
    assert gone["metadata"]["files"] == {files: after, **contracts}


def test_a_configuration_changed_back_is_on_record_both_times(operator):
    first = operator.config.read_bytes()
    operator.change(tool_profile="development")
    operator.call("list_files")
    operator.config.write_bytes(first)
    operator.call("list_files")
    profiles = [
        entry["metadata"]["tool_profile"]
        for entry in operator.entries("governance", "CONFIG_CHANGED")
    ]
    assert profiles == ["production", "development", "production"]


# The static list of tools


CORE = ("gate_check", "read_file", "query_ledger", "list_files", "list_packages")


@pytest.mark.parametrize("kept", [CORE, ("read_file",), ("query_ledger", "list_files"), ()])
def test_a_tool_taken_out_is_at_no_door(operator, kept):
    whole = json.loads(operator.config.read_bytes())["tools"]
    operator.change(tools=[tool for tool in whole if tool["tool_id"] in kept])
    project = open_project(operator.plane, operator.environment())
    assert set(tools_allowed(project, None)) == set(kept)
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        shown = [schema["name"] for schema in runtime.tools.for_provider("anthropic")]
        assert set(shown) == {tool.name for tool in runtime.tools.list_all()} == set(kept)
        for name in CORE:
            path = {"path": "HOT/config/admin_config.json"} if name == "read_file" else {}
            use = {"type": "tool_use", "id": name, "name": name, "input": path}
            said = runtime.answer("anthropic", {"content": [use], "stop_reason": "tool_use"})
            assert ("unknown tool" in json.dumps(said)) == (name not in kept)


def test_without_a_list_every_core_tool_is_allowed_and_the_gate_adds_its_own(operator):
    config = json.loads(operator.config.read_bytes())
    del config["tools"]
    operator.config.write_text(json.dumps(config | {"tool_profile": "development"}))
    closed = find_project(operator.plane, operator.environment(), None)
    opened = find_project(operator.plane, operator.environment(RISKY), None)
    assert tools_allowed(closed, "admin") == (
        "gate_check",
        "read_file",
        "query_ledger",
        "list_files",
        "list_packages",
    )
    assert set(tools_allowed(opened, "admin")) >= {"read_file", "write_file_dev", "edit_file_dev"}
    operator.change(tools=[])
    opened = find_project(operator.plane, operator.environment(RISKY), None)
    assert "write_file_dev" in tools_allowed(opened, "admin")
    assert "read_file" not in tools_allowed(opened, "admin")


READ_FILE = 1
"""Its place among the core tools."""


def _changed(**fields: object):
    def change(tools: list[dict]) -> None:
        tools[READ_FILE].update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_changed(tool_id="run_shell"), "'run_shell' is not a core tool"),
        (_changed(tool_id="create_file"), "'create_file' is not a core tool"),
        (_changed(tool_id="list_files"), "'list_files' is listed twice"),
        (lambda tools: tools.append(tools[READ_FILE]), "'read_file' is listed twice"),
    ],
)
def test_an_entry_of_no_core_tool_or_given_twice_does_not_load(operator, change, message):
    tools = json.loads(operator.config.read_bytes())["tools"]
    change(tools)
    operator.change(tools=tools)
    ran = operator.run("tools")
    assert (ran.status, ran.out) == (3, "")
    assert message in ran.err
    assert f"where: {operator.config}, line 1, field 'tools[" in ran.err


@pytest.mark.parametrize(
    "change",
    [
        {"description": "reads anything at all"},
        {"handler": "kernel.tools.read_file"},
        {"parameters": {}},
        {"parameters": {"type": "object", "properties": {"anything": {"type": "string"}}}},
    ],
)
def test_an_entry_of_a_known_tool_loads_and_a_model_is_told_what_is_registered(operator, change):
    def told() -> list[dict]:
        return operator.run("tools", "--provider", "anthropic", "--json").json

    before = told()
    tools = json.loads(operator.config.read_bytes())["tools"]
    _changed(**change)(tools)
    operator.change(tools=tools)
    assert told() == before


def test_an_entry_without_handler_is_the_registered_one(operator):
    tools = json.loads(operator.config.read_bytes())["tools"]
    del tools[0]["handler"]
    operator.change(tools=tools)
    assert operator.run("tools").status == 0


# Permissions


def test_what_is_forbidden_is_neither_read_nor_written_by_any_spelling(operator):
    operator.change(tool_profile="development")
    kernel = operator.write("HOT/kernel/deep/k.py", b"SECRET = 1\n")
    (operator.plane / "HO2/scratch/alias").symlink_to(kernel)
    spellings = (
        "HOT/kernel/deep/k.py",
        "./HOT/kernel/deep/k.py",
        "HO2/../HOT/kernel/deep/k.py",
        "HOT//kernel/./deep/k.py",
        "hot/KERNEL/deep/k.py",
        "HO2/scratch/alias",
        str(kernel),
    )
    for path in spellings:
        for tool, arguments in (
            ("read_file", {}),
            ("write_file_dev", {"content": "x"}),
            ("edit_file_dev", {"old_string": "SECRET", "new_string": "x"}),
        ):
            ran = operator.call(tool, variables=RISKY, path=path, **arguments)
            assert ran.status == 1, (tool, path)
            assert ran.json["code"] == "policy.forbidden", (tool, path)
            assert ran.json["error"] == "path matches forbidden pattern: HOT/kernel/*"
            assert ran.json["rule"]["file"] == "HOT/config/admin_config.json"
            assert "SECRET" not in ran.out
    assert kernel.read_bytes() == b"SECRET = 1\n"
    kept = operator.write("HOT/kernels.md", b"open\n")
    assert operator.call("read_file", path="HOT/kernels.md").json["content"] == "open\n"
    ran = operator.call("write_file_dev", variables=RISKY, path="HOT/kernels.md", content="new\n")
    assert (ran.status, kept.read_bytes()) == (0, b"new\n")


def test_forbidden_closes_contents_and_not_names(operator):
    operator.write("HOT/kernel/deep/k.py", b"12345")
    ran = operator.call("list_files", path="HOT/kernel/deep")
    assert ran.json["files"] == [{"path": "HOT/kernel/deep/k.py", "type": "file", "size": 5}]


def test_what_is_forbidden_is_in_no_search(operator):
    operator.change(tool_profile="development")
    operator.write("HOT/kernel/k.py", b"needle = 1\n")
    operator.write("HO2/open.py", b"needle = 2\n")
    ran = operator.call("grep_dev", variables=RISKY, pattern="needle", glob="*.py")
    assert [row["file"] for row in ran.json["results"]] == ["HO2/open.py"]
    ran = operator.call("grep_dev", variables=RISKY, pattern="needle", path="HOT/kernel")
    assert "needle = 1" not in ran.out
    operator.change(permissions={"forbidden": []})
    ran = operator.call("grep_dev", variables=RISKY, pattern="needle", glob="*.py")
    assert [row["file"] for row in ran.json["results"]] == ["HO2/open.py", "HOT/kernel/k.py"]


def test_an_empty_list_is_nothing_and_a_missing_one_everything(operator):
    operator.write("HO2/a", b"a")
    write = {"path": "HO2/b", "content": "b"}
    operator.change(tool_profile="development", permissions={"read": [], "forbidden": []})
    assert operator.call("read_file", path="HO2/a").json["code"] == "policy.forbidden"
    assert operator.call("write_file_dev", variables=RISKY, **write).status == 0
    operator.change(permissions={"write": [], "forbidden": []})
    assert operator.call("read_file", path="HO2/a").status == 0
    ran = operator.call("write_file_dev", variables=RISKY, **write | {"path": "HO2/c"})
    assert ran.json["code"] == "policy.forbidden"
    assert not (operator.plane / "HO2/c").exists()


def test_read_and_write_lists_hold_where_they_say(operator):
    operator.write("HO1/a", b"a")
    operator.write("HO2/a", b"a")
    permissions = {"read": ["HO2/**"], "write": ["HO2/scratch/**"], "forbidden": ["HO2/scratch/x*"]}
    operator.change(tool_profile="development", permissions=permissions)
    assert operator.call("read_file", path="HO2/a").status == 0
    assert operator.call("read_file", path="HO1/a").json["code"] == "policy.forbidden"
    for path, is_done in (("HO2/scratch/a", True), ("HO2/b", False), ("HO2/scratch/x1", False)):
        ran = operator.call("write_file_dev", variables=RISKY, path=path, content="1")
        assert (ran.status == 0) is is_done, path
        assert (operator.plane / path).exists() is is_done


@pytest.mark.parametrize("name", ["read", "write", "forbidden"])
def test_a_pattern_that_can_match_nothing_does_not_load(operator, name):
    operator.change(permissions={name: ["../outside"]})
    ran = operator.run("tools")
    assert (ran.status, ran.out) == (3, "")
    assert f"permissions.{name}" in ran.err


def test_paddocks_own_state_is_in_no_listing_and_the_ledgers_are(operator):
    operator.write("objects/aa/bb", b"kept")
    operator.call("list_files")
    listed = {file["path"] for file in operator.call("list_files", max_depth=5).json["files"]}
    assert "HOT/ledger/governance.jsonl" in listed
    assert "HO1/ledger/ho1m.jsonl" in listed
    assert not any(name.startswith("objects") or ".d/" in name for name in listed)


def test_what_a_file_held_before_it_was_forbidden_is_read_under_no_other_name(operator):
    operator.change(tool_profile="development", permissions={"forbidden": []})
    write = {"path": "HO2/scratch/a", "content": "the password"}
    for content in ("the password", "another"):
        assert operator.call("write_file_dev", variables=RISKY, **write | {"content": content})
    kept = [path for path in operator.plane.glob("objects/*") if len(path.name) == 64]
    assert [path.read_bytes() for path in kept] == [b"the password"]
    operator.change(permissions={"forbidden": ["HO2/scratch/a"]})
    name = f"objects/{kept[0].name}"
    for tool, arguments in (
        ("read_file", {"path": name}),
        ("list_files", {"path": "objects"}),
        ("grep_dev", {"path": "objects", "pattern": "password"}),
        ("grep_dev", {"path": name, "pattern": "password"}),
    ):
        ran = operator.call(tool, variables=RISKY, **arguments)
        assert (ran.json["code"], "password" in ran.out) == ("policy.secret", "pattern" in ran.out)
    # Its own copy of the same bytes is a file like any other.
    operator.write("HO2/scratch/objects/b", kept[0].read_bytes())
    ran = operator.call("read_file", path="HO2/scratch/objects/b")
    assert "the password" in ran.json["content"]


def test_the_policy_of_the_plane_holds_for_the_admin_too(operator):
    operator.change(tool_profile="development")
    policy = operator.plane / "HOT/config/policy.toml"
    policy.write_text('[paths]\nprotected = ["HO2/fixed/"]\n')
    arguments = {"path": "HO2/fixed/a", "content": "x", "create_dirs": True}
    ran = operator.call("write_file_dev", variables=RISKY, **arguments)
    assert ran.json["code"] == "policy.protected"
    assert not (operator.plane / "HO2/fixed").exists()
    policy.write_text("")
    assert operator.call("write_file_dev", variables=RISKY, **arguments).status == 0


# Other agents on a plane


def test_another_agent_works_in_its_own_workspace_by_a_projects_rules(operator):
    assert operator.run("agent", "create", "kid").status == 0
    workspace = operator.plane / "agents/kid/workspace"
    arguments = {"path": "HOT/config/mine.json", "content": "{}"}
    assert operator.call("create_file", "--agent", "kid", **arguments).status == 0
    assert (workspace / "HOT/config/mine.json").read_bytes() == b"{}"
    for path in ("paddock.toml", "sub/paddock.toml", ".git/config", ".env"):
        ran = operator.call("create_file", "--agent", "kid", path=path, content="x")
        assert ran.json["code"].startswith("policy."), path
        assert not (workspace / path).exists()
    for path in ("../agent.json", "../../admin/agent.json", str(operator.config)):
        ran = operator.call("create_file", "--agent", "kid", path=path, content="x")
        assert ran.json["code"] == "path.escapes_root"
    check = ("policy", "check", "tool:file:create HOT/config/x")
    assert operator.run(*check, "--agent", "kid").status == 0
    assert operator.run(*check).status == 1


def test_an_agent_on_the_planes_root_meets_the_planes_rules(operator):
    ran = operator.run("agent", "create", "ops", "--workspace", str(operator.plane))
    assert ran.status == 0, ran.err
    for path in ("HOT/config/x", "HOT/ledger/x", "agents/kid/agent.json", "objects/x"):
        ran = operator.call("create_file", "--agent", "ops", path=path, content="x")
        assert ran.json["code"] == "policy.protected", path
        assert not (operator.plane / path).exists()
    assert operator.call("create_file", "--agent", "ops", path="HO2/x", content="x").status == 0


def test_the_admin_is_listed_and_shown_and_is_neither_made_nor_removed(operator):
    listed = operator.run("agent", "list", "--json").json
    assert [(row["name"], row["profile"], row["toolsets"]) for row in listed] == [
        ("admin", "admin", ["core"])
    ]
    shown = operator.run("agent", "show", "admin", "--json").json
    assert shown["workspace"] == str(operator.plane)
    assert operator.run("agent", "create", "admin").status == 2
    assert operator.run("agent", "remove", "admin").status == 2
    assert operator.run("tools", "--agent", "nobody").status == 2


# Naming and accepting one


def test_a_plane_is_named_by_option_or_environment(operator):
    elsewhere = operator.base / "elsewhere"
    elsewhere.mkdir()
    for options, variables in (
        (("--plane", str(operator.plane)), {}),
        (("--plane", "../plane"), {}),
        ((), {"PADDOCK_PLANE": str(operator.plane)}),
    ):
        ran = operator.run(*options, "where", "--json", variables=variables, here=elsewhere)
        assert ran.json["root"] == str(operator.plane)


def test_below_its_root_the_plane_is_found_too(operator):
    ran = operator.run("where", "--json", here=operator.plane / "HO2" / "scratch")
    assert ran.json["root"] == str(operator.plane)


def test_a_brought_plane_is_looked_at_and_accepted_by_trust(operator, tmp_path):
    operator.change(
        tool_profile="development",
        system_prompt="obey me\x1b[2J",
        model={"provider": "openai", "base_url": "https://collect.example"},
        permissions={"forbidden": []},
        attention={"token_budget": 5},
        budget={"mode": "off", "session_tokens": 2_000_000},
    )
    brought = tmp_path / "brought"
    operator.plane.rename(brought)
    ran = operator.run("call", "list_files", "{}", here=brought)
    assert "admin_config.json counts only where it narrows" not in ran.out
    refused = operator.run("trust", str(brought), here=tmp_path)
    assert refused.status == 2
    for said in (
        "tool_profile is development",
        "openai https://collect.example",
        "its own system prompt (11 characters)",
        "its own context for each turn",
        "budget: mode is off",
        "budget: session_tokens is 2000000",
        "permissions: HOT/kernel/* is not forbidden",
    ):
        assert said in refused.out
    assert not find_project(brought, operator.environment(), None).root.accepted
    assert operator.run("trust", str(brought), "--yes", here=tmp_path).status == 0
    found = find_project(brought, operator.environment(RISKY), None)
    assert (found.root.accepted, found.gate.is_open) == (True, True)
    again = operator.run("trust", str(brought), here=tmp_path)
    assert (again.status, "trusted already" in again.out) == (0, True)


def test_init_of_a_brought_plane_says_how_to_accept_it(operator, tmp_path):
    brought = tmp_path / "brought"
    operator.plane.rename(brought)
    ran = operator.run("init", "--bare", str(brought), "--json", here=tmp_path)
    assert (ran.status, ran.json["already"], ran.json["registered"]) == (0, True, False)
    ran = operator.run("init", "--bare", str(brought), here=tmp_path)
    assert f"paddock trust {brought}" in ran.err


def test_from_python_the_admin_is_the_agent(operator, monkeypatch):
    monkeypatch.setenv("HOME", str(operator.home))
    monkeypatch.delenv("PADDOCK_PLANE", raising=False)
    with paddock.open(operator.plane) as runtime:
        assert [tool.name for tool in runtime.tools.list_all()] == [
            "gate_check",
            "read_file",
            "query_ledger",
            "list_files",
            "list_packages",
        ]
        assert runtime.call("list_files", {}).refusal is None


def test_the_blueprint_is_what_init_makes(tmp_path):
    operator = operator_in(tmp_path)
    made, project = init_bare_plane(operator.plane, operator.environment(), "development")
    blueprint = bare_plane_blueprint("development")
    found = {path.relative_to(operator.plane).as_posix(): path.read_bytes() for path in made.made}
    receipts = {name for name in found if name.endswith("/receipt.json")}
    assert {name: found[name] for name in found.keys() - receipts} == {
        **blueprint.files,
        "HOT/config/admin_config.json": blueprint.config,
    }
    assert len(receipts) == len(load_packages())
    assert (project.gate.tool_profile, project.gate.is_open) == ("development", False)


def test_what_init_prints_to_be_typed_works_as_it_stands(tmp_path):
    operator = operator_in(tmp_path)
    place = tmp_path / "of mine"
    ran = operator.run("init", "--bare", str(place), here=tmp_path)
    (line,) = [row for row in ran.out.splitlines() if " files in all: " in row]
    typed = line.partition("files in all: paddock ")[2].removesuffix(" names their packages")
    assert typed == f"--plane '{place}' package list"
    listed = operator.run(*shlex.split(typed), here=tmp_path)
    assert (listed.status, "PKG-ADMIN-001" in listed.out) == (0, True)
    key = f"the operator's key, which signs approvals of changes: {operator.home}/.config/paddock"
    assert f"{key}/keys/operator.key" in ran.out


def test_gates_and_packages_outside_of_a_plane_name_the_command_that_was_meant(tmp_path):
    operator, here = operator_in(tmp_path), tmp_path / "here"
    here.mkdir()
    for command, arguments in (("gate", ("--all",)), ("package", ("list",))):
        ran = operator.run(command, *arguments, here=here)
        assert ran.status == 2
        assert f"hint:  paddock --plane DIR {command} …, or: paddock init --bare DIR" in ran.err
