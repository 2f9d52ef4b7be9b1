"""The dual gate at the running door: with either half missing, development tools are nowhere."""

import json
import os
from pathlib import Path

import pytest

from paddock.assembly.ledgers import record_in_governance
from paddock.assembly.project import find_project
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import approver_of, open_runtime, tools_allowed
from paddock.assembly.sessions import SessionWish, open_session
from paddock.errors import ConfigError
from paddock.plane.environment import RISKY_TOOLS_VARIABLE
from paddock.providers.scripted import Say, ScriptedModel
from paddock.runtime.approvals import NoApprover
from paddock.runtime.runtime import Runtime
from tests.support.disks import file_bytes_at_most
from tests.support.ledgers import note
from tests.support.planes import RISKY, Operator, operator_in

CORE = ["gate_check", "read_file", "query_ledger", "list_files", "list_packages"]
DEVELOPMENT = ["write_file_dev", "edit_file_dev", "grep_dev", "run_shell_dev"]
PROVIDERS = ("anthropic", "openai", "openai-responses", "mcp")
STATES = [
    ("development", "1", True),
    ("development", None, False),
    ("production", "1", False),
    ("production", None, False),
]


def open_admin(operator: Operator, variables: dict[str, str]) -> Runtime:
    environment = operator.environment(variables)
    project = open_project(operator.plane, environment)
    return open_runtime(project, agent=None, approver=NoApprover())


def names_at_every_place(operator: Operator, variables: dict[str, str]) -> dict[str, list[str]]:
    """Which tools there are: by calling them, as allowed, in every schema, in every listing."""
    found: dict[str, list[str]] = {}
    project = open_project(operator.plane, operator.environment(variables))
    with open_runtime(project, agent=None, approver=NoApprover()) as runtime:
        every = [*CORE, *DEVELOPMENT, "view", "create_file"]
        found["door"] = [
            name
            for name in every
            if (refusal := runtime.call(name, {}).refusal) is None or refusal.code != "tool.unknown"
        ]
        found["registry"] = [tool.name for tool in runtime.tools.list_all()]
        for provider in PROVIDERS:
            schemas = runtime.tools.for_provider(provider)
            found[f"schema {provider}"] = [
                schema.get("name") or schema["function"]["name"] for schema in schemas
            ]
    found["tools_allowed"] = list(tools_allowed(project, None))
    table = operator.run("tools", variables=variables).out.splitlines()
    found["table"] = [row.split()[0] for row in table]
    listed = operator.run("tools", "--json", variables=variables).json
    found["json"] = [row["name"] for row in listed]
    printed = operator.run("tools", "--provider", "anthropic", variables=variables).json
    found["printed schema"] = [row["name"] for row in printed]
    return found


@pytest.mark.parametrize(("profile", "variable", "is_open"), STATES)
def test_the_four_states_change_every_place_together(operator, profile, variable, is_open):
    operator.change(tool_profile=profile)
    variables = {} if variable is None else {RISKY_TOOLS_VARIABLE: variable}
    found = names_at_every_place(operator, variables)
    expected = [*CORE, *DEVELOPMENT] if is_open else CORE
    known = {*CORE, *DEVELOPMENT}
    shown = {place: [n for n in names if n in known] for place, names in found.items()}
    assert shown == dict.fromkeys(found, expected)
    others = {n for names in found.values() for n in names} - known
    assert all(name.endswith("_dev") for name in others) if is_open else others == set()


@pytest.mark.parametrize(("profile", "variable", "is_open"), STATES)
def test_a_call_writes_with_both_halves_and_is_unknown_without(
    operator, profile, variable, is_open
):
    operator.change(tool_profile=profile)
    variables = {} if variable is None else {RISKY_TOOLS_VARIABLE: variable}
    ran = operator.call(
        "write_file_dev", variables=variables, path="HO2/scratch/test.txt", content="hello"
    )
    target = operator.plane / "HO2/scratch/test.txt"
    assert ran.status == (0 if is_open else 1)
    assert ran.json.get("code") == (None if is_open else "tool.unknown")
    assert target.exists() is is_open
    if not is_open:
        assert "write_file_dev" not in ran.json["hint"]


@pytest.mark.parametrize(("profile", "variable", "is_open"), STATES)
def test_that_the_gate_was_open_for_a_single_call_is_on_record(
    operator, profile, variable, is_open
):
    operator.change(tool_profile=profile)
    variables = {} if variable is None else {RISKY_TOOLS_VARIABLE: variable}
    operator.call("write_file_dev", variables=variables, path="HO2/scratch/a", content="a")
    calls = [entry["session_id"] for entry in operator.entries("ho1m", "TOOL_INTENT")]
    gates = operator.entries("governance", "DUAL_GATE")
    assert [(gate["session_id"], gate["agent"]) for gate in gates] == [
        (session, "admin") for session in calls
    ]
    assert [gate["decision"] for gate in gates] == ["allow"] * is_open


def test_where_the_open_gate_cannot_be_recorded_nothing_comes_through_it(operator):
    operator.change(tool_profile="development")
    project = open_project(operator.plane, operator.environment())
    # By that governance is the largest file that is written to, and it alone has no room.
    record_in_governance(project, *[note("long", 40_000)] * 40)
    operator.call("list_files", path=".")
    with file_bytes_at_most((operator.plane / "HOT/ledger/governance.jsonl").stat().st_size):
        ran = operator.call("write_file_dev", variables=RISKY, path="HO2/scratch/a", content="a")
    assert (ran.status, ran.json["code"]) == (5, "ledger.full")
    assert not (operator.plane / "HO2/scratch/a").exists()
    ran = operator.call("write_file_dev", variables=RISKY, path="HO2/scratch/a", content="a")
    assert (ran.status, (operator.plane / "HO2/scratch/a").read_bytes()) == (0, b"a")


def test_a_refused_call_is_on_record_as_one_that_did_not_run(operator):
    operator.call("edit_file_dev", path="HO2/x", old_string="a", new_string="b")
    [denied] = operator.entries("ho1m", "TOOL_DENIED")
    assert (denied["agent"], denied["metadata"]["code"]) == ("admin", "tool.unknown")


@pytest.mark.parametrize("value", ["", "0", "true", "True", " 1", "1 ", "01", "yes", "１", "1\n"])
def test_another_value_of_the_variable_keeps_it_closed(operator, value):
    operator.change(tool_profile="development")
    rows = operator.run("tools", "--json", variables={RISKY_TOOLS_VARIABLE: value}).json
    assert [row["name"] for row in rows] == CORE


@pytest.mark.parametrize(
    "value", ["Development", "DEVELOPMENT", " development", "dev", "risky", "", None, True, 1]
)
def test_another_word_for_the_profile_does_not_load_anywhere(operator, value):
    operator.change(tool_profile=value)
    for command in (("tools",), ("call", "list_files", "{}"), ("agent", "list")):
        ran = operator.run(*command, variables=RISKY)
        assert (ran.status, ran.out) == (3, "")
        assert "field 'tool_profile'" in ran.err
    where = operator.run("where", variables=RISKY)
    assert (where.status, "gate" in where.out) == (3, False)
    assert "field 'tool_profile'" in where.err


def test_a_missing_profile_is_production(operator):
    config = json.loads(operator.config.read_bytes())
    del config["tool_profile"]
    operator.config.write_text(json.dumps(config))
    rows = operator.run("tools", "--json", variables=RISKY).json
    assert [row["name"] for row in rows] == CORE


def test_toggling_the_variable_changes_nothing_for_what_is_open(operator):
    operator.change(tool_profile="development")
    variables = {"HOME": str(operator.home)}
    with open_admin(operator, variables) as closed:
        variables[RISKY_TOOLS_VARIABLE] = "1"
        os.environ[RISKY_TOOLS_VARIABLE] = "1"
        try:
            arguments = {"path": "HO2/scratch/x", "content": "x"}
            assert closed.call("write_file_dev", arguments).refusal.code == "tool.unknown"
            with open_admin(operator, variables) as opened:
                del variables[RISKY_TOOLS_VARIABLE]
                del os.environ[RISKY_TOOLS_VARIABLE]
                assert opened.call("write_file_dev", arguments).refusal is None
        finally:
            os.environ.pop(RISKY_TOOLS_VARIABLE, None)


def test_replacing_the_configuration_changes_nothing_for_what_is_open(operator):
    arguments = {"path": "HO2/scratch/x", "content": "x"}
    with open_admin(operator, RISKY) as runtime:
        operator.change(tool_profile="development", permissions={"forbidden": []})
        assert runtime.call("write_file_dev", arguments).refusal.code == "tool.unknown"
        operator.write("HOT/kernel/k", b"k")
        refusal = runtime.call("read_file", {"path": "HOT/kernel/k"}).refusal
        assert refusal.code == "policy.forbidden"
    with open_admin(operator, RISKY) as runtime:
        assert runtime.call("write_file_dev", arguments).refusal is None
        assert runtime.call("read_file", {"path": "HOT/kernel/k"}).content == "k"


@pytest.mark.parametrize("closing", ["production", "broken", "gone"])
def test_a_gate_that_closes_takes_the_tools_from_a_program_that_has_the_plane_open(
    operator, closing
):
    arguments = {"path": "HO2/scratch/x", "content": "x"}
    operator.change(tool_profile="development")
    with open_admin(operator, RISKY) as runtime:
        assert runtime.call("write_file_dev", arguments).refusal is None
        {
            "production": lambda: operator.change(tool_profile="production"),
            "broken": lambda: operator.config.write_text("{"),
            "gone": operator.config.unlink,
        }[closing]()
        arguments["path"] = "HO2/scratch/y"
        assert runtime.call("write_file_dev", arguments).refusal.code == "tool.unknown"
        assert not (operator.plane / "HO2/scratch/y").exists()
        offered = [
            *(tool.name for tool in runtime.tools.list_all()),
            *(schema["name"] for schema in runtime.tools.for_provider("anthropic")),
        ]
        assert set(offered) == set(CORE)
        # Those that need no gate work as before, and it does not open again.
        assert runtime.call("list_files", {"path": "HO2"}).refusal is None
        operator.config.write_text('{"tool_profile": "development"}')
        assert runtime.call("write_file_dev", arguments).refusal.code == "tool.unknown"
    assert len(operator.entries("ho1m", "TOOL_DENIED")) == 2


def test_a_call_that_was_let_through_does_not_run_when_the_gate_closed_meanwhile(operator):
    operator.change(tool_profile="development")
    operator.write("HOT/config/policy.toml", b'[profiles.admin]\nask = ["tool:file:*"]\n')

    def answer(request):
        operator.change(tool_profile="production")
        return True

    project = open_project(operator.plane, operator.environment(RISKY))
    with open_runtime(project, agent=None, approver=approver_of(answer)) as runtime:
        asked = runtime.call("write_file_dev", {"path": "HO2/scratch/x", "content": "x"})
    assert asked.refusal.code == "tool.unknown"
    assert not (operator.plane / "HO2/scratch/x").exists()


def test_a_session_offers_its_model_no_tool_of_a_gate_that_closed(operator):
    model = ScriptedModel([Say("one"), Say("two")])
    operator.change(tool_profile="development", classify=False)
    project = open_project(operator.plane, operator.environment(RISKY))
    with open_session(project, SessionWish(provider=model)) as session:
        session.handle_turn("hello")
        operator.change(tool_profile="production")
        session.handle_turn("hello")
    first, second = [[tool.name for tool in each.tools] for each in model.requests]
    assert set(first) == {*CORE, *DEVELOPMENT}
    assert set(second) == set(CORE)


# Ways round it


@pytest.mark.parametrize("name", [*DEVELOPMENT])
def test_a_development_tool_in_the_static_list_does_not_load(operator, name):
    spec = {"tool_id": name, "description": "d", "parameters": {"type": "object"}}
    for profile in ("production", "development"):
        operator.change(tool_profile=profile, tools=[spec])
        ran = operator.run("tools", variables=RISKY)
        assert (ran.status, ran.out) == (3, "")
        assert f"the development tool '{name}' is listed in 'tools'" in ran.err
        assert "line 1, field 'tools[0].tool_id'" in ran.err


@pytest.mark.parametrize(
    "fields",
    [
        {"environment": {RISKY_TOOLS_VARIABLE: "1"}},
        {RISKY_TOOLS_VARIABLE: "1"},
        {"toolsets": ["core", "development"]},
        {"dual_gate": True},
        {"permissions": {"development": ["**"]}},
    ],
)
def test_a_configuration_that_brings_the_other_half_does_not_load(operator, fields):
    operator.change(tool_profile="development", **fields)
    ran = operator.run("tools")
    assert (ran.status, ran.out) == (3, "")
    assert "unknown key" in ran.err


@pytest.mark.parametrize("name", ["policy.toml", "config.toml"])
def test_a_policy_cannot_set_the_variable(operator, name):
    operator.change(tool_profile="development")
    text = f'[env]\n{RISKY_TOOLS_VARIABLE} = "1"\n'
    file = operator.config.with_name(name)
    if name == "config.toml":
        file = operator.home / ".config" / "paddock" / name
        file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    ran = operator.run("tools")
    assert (ran.status, ran.out) == (3, "")


def test_a_linked_configuration_opens_nothing(operator, tmp_path):
    operator.change(tool_profile="development")
    elsewhere = tmp_path / "mine.json"
    operator.config.rename(elsewhere)
    operator.config.symlink_to(elsewhere)
    for options in ((), ("--plane", str(operator.plane))):
        ran = operator.run("tools", *options, variables=RISKY)
        assert (ran.status, ran.out) == (3, "")
    operator.config.unlink()
    elsewhere.rename(operator.config)
    assert operator.run("tools", variables=RISKY).status == 0


def test_a_plane_that_was_neither_named_nor_registered_stays_closed(operator, tmp_path):
    # Threat: an unpacked archive brings the configuration's half, and the operator's shell
    # has had the other one for a plane of its own.
    operator.change(tool_profile="development", system_prompt="obey", permissions={"forbidden": []})
    brought = tmp_path / "brought"
    operator.plane.rename(brought)
    rows = operator.run("tools", "--json", variables=RISKY, here=brought).json
    assert [row["name"] for row in rows] == CORE
    project = find_project(brought, operator.environment(RISKY), None)
    assert not project.gate.is_open
    assert project.gate.missing == ("this is not a bare plane that you named or registered",)
    told = "no development tools: this is not a bare plane that you named or registered"
    assert told in operator.run("tools", variables=RISKY, here=brought).err
    assert told not in operator.run("tools", here=brought).err
    opened = open_project(brought, operator.environment(RISKY))
    with open_runtime(opened, agent=None, approver=NoApprover()) as runtime:
        assert any(told in notice for notice in runtime.notices)
    said = operator.run("where", variables=RISKY, here=brought).out
    assert "production" not in said
    assert "named or registered" in said
    assert project.admin.system_prompt != "obey"
    assert project.admin.permissions.forbidden == ("HOT/kernel/*", "HOT/scripts/*")
    named = operator.run("--plane", str(brought), "tools", "--json", variables=RISKY).json
    assert {row["name"] for row in named} >= {*CORE, *DEVELOPMENT}


def test_a_project_has_no_gate_to_open(operator, tmp_path):
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "HOT" / "config").mkdir(parents=True)
    (project / "HOT" / "config" / "admin_config.json").write_text('{"tool_profile":"development"}')
    rows = operator.run("tools", "--json", variables=RISKY, here=project).json
    names = {row["name"] for row in rows}
    assert "create_file" in names
    assert names.isdisjoint([*CORE, *DEVELOPMENT])
    found = find_project(project, operator.environment(RISKY), None)
    assert (found.gate.is_open, found.admin) == (False, None)


def test_no_other_agent_of_a_plane_gets_the_admins_tools(operator):
    operator.change(tool_profile="development")
    assert operator.run("agent", "create", "kid", variables=RISKY).status == 0
    ran = operator.run("agent", "create", "heir", "--parent", "admin", variables=RISKY)
    assert ran.status == 0
    for name in ("kid", "heir"):
        rows = operator.run("tools", "--agent", name, "--json", variables=RISKY).json
        assert {row["toolset"] for row in rows}.isdisjoint({"core", "development"})
        ran = operator.call(
            "write_file_dev", "--agent", name, variables=RISKY, path="x", content="x"
        )
        assert ran.json["code"] == "tool.unknown"
    for toolset in ("core", "development"):
        ran = operator.run("agent", "create", "spy", "--toolsets", toolset, variables=RISKY)
        assert ran.status == 2
        file = operator.plane / "agents" / "kid" / "agent.json"
        declared = json.loads(file.read_bytes()) | {"toolsets": [toolset]}
        before = file.read_bytes()
        file.write_text(json.dumps(declared))
        assert operator.run("tools", "--agent", "kid", variables=RISKY).status == 3
        file.write_bytes(before)


@pytest.mark.parametrize(
    "path",
    [
        "HOT/config/admin_config.json",
        "HOT/config/../config/admin_config.json",
        "hot/config/admin_config.json",
        "HOT/config/policy.toml",
        "HOT/config/new.json",
        "HOT/ledger/governance.jsonl",
        "HOT/registries/keys/mine",
        "HOT/registries/approvals/WO-1.json",
        "HOT/installed/PKG/receipt.json",
        "HO1/ledger/ho1m.jsonl",
        "agents/admin/agent.json",
        "agents/kid/agent.json",
        "objects/aa/bb",
        "paddock.toml",
    ],
)
def test_the_admin_writes_none_of_paddocks_own_files_through_any_door(operator, path):
    operator.change(tool_profile="development", permissions={"forbidden": []})
    before = {p: p.read_bytes() for p in operator.plane.rglob("*.json") if p.is_file()}
    calls = (
        ("write_file_dev", {"path": path, "content": "{}", "create_dirs": True}),
        ("edit_file_dev", {"path": path, "old_string": "e", "new_string": "3"}),
    )
    for tool, arguments in calls:
        ran = operator.call(tool, variables=RISKY, **arguments)
        assert ran.json["code"] == "policy.protected", tool
        ran = operator.call(tool, "--yes", variables=RISKY, **arguments)
        assert ran.json["code"] == "policy.protected", tool
    with open_admin(operator, RISKY) as runtime:
        message = {
            "content": [
                {"type": "tool_use", "id": "1", "name": tool, "input": arguments}
                for tool, arguments in calls
            ]
        }
        answered = runtime.answer("anthropic", message)
        assert [block["is_error"] for block in answered] == [True, True]
        assert all("policy.protected" in block["content"] for block in answered)
    assert {p: p.read_bytes() for p in operator.plane.rglob("*.json") if p.is_file()} == before


def test_a_link_does_not_lead_a_write_to_the_configuration(operator):
    operator.change(tool_profile="development", permissions={"forbidden": []})
    (operator.plane / "HO2/scratch/alias").symlink_to(operator.config)
    (operator.plane / "HO2/scratch/config").symlink_to("../../HOT/config")
    before = operator.config.read_bytes()
    for path, code in (
        ("HO2/scratch/alias", "policy.protected"),
        ("HO2/scratch/config/admin_config.json", "path.through_link"),
    ):
        ran = operator.call("write_file_dev", variables=RISKY, path=path, content="{}")
        assert ran.json["code"] == code
    assert operator.config.read_bytes() == before


def test_what_the_gate_found_is_shown_where_things_are(operator):
    said = operator.run("where").out
    assert (
        "gate     dual gate closed: tool_profile is production,"
        " CP_ADMIN_ENABLE_RISKY_TOOLS is not 1\n"
    ) in said
    operator.change(tool_profile="development")
    assert operator.run("where", "--json", variables=RISKY).json["dual_gate"] == {
        "open": True,
        "tool_profile": "development",
        "variable": True,
        "accepted": True,
        "missing": [],
    }


NO_APPROVALS = "made with --dev: changes of this plane need no approval"


@pytest.mark.parametrize("options", [("--dev",), ()])
def test_a_plane_that_was_made_with_dev_says_so_wherever_it_is_shown(tmp_path, options):
    made_so = operator_in(tmp_path).make(*options)
    # What the configuration says later changes nothing about how it was made.
    made_so.change(tool_profile="production" if options else "development")
    is_dev = bool(options)

    assert made_so.run("where", "--json").json["made_with_dev"] is is_dev
    assert made_so.run("doctor", "--json").json["made_with_dev"] is is_dev
    assert (f"note     {NO_APPROVALS}\n" in made_so.run("where").out) is is_dev
    assert (f"plane: {NO_APPROVALS}\n" in made_so.run("doctor").out) is is_dev
    assert (f"note: {NO_APPROVALS}\n" in made_so.run("agent", "list").err) is is_dev


def test_of_a_project_nothing_is_said_of_how_its_plane_was_made(tmp_path):
    operator = operator_in(tmp_path)
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)

    assert "made_with_dev" not in operator.run("where", "--json", here=project).json
    assert operator.run("doctor", "--json", here=project).json["made_with_dev"] is False


def test_a_configuration_that_does_not_load_opens_nothing(operator):
    operator.config.write_text('{"tool_profile": "production",\n "tool_profile": "development"}')
    with pytest.raises(ConfigError) as caught:
        find_project(operator.plane, operator.environment(RISKY), None)
    assert caught.value.where == f"{operator.config}, line 2"


# What was asked about while the gate was open


@pytest.fixture
def asked(tmp_path: Path) -> tuple[Operator, str]:
    """A plane where a development tool asked, and the id of its question."""
    operator = operator_in(tmp_path).make("--dev")
    operator.write("HOT/config/policy.toml", b'[profiles.admin]\nask = ["tool:file:*"]\n')
    arguments = {"path": "HO2/scratch/note.txt", "content": "x"}
    ran = operator.call("write_file_dev", variables=RISKY, **arguments)
    return operator, ran.json["approval"]


def states(operator: Operator) -> list[tuple[str, str]]:
    rows = operator.run("approvals", "list", "--json").json
    return [(row["state"], row["outdated"]) for row in rows]


def test_no_answer_is_used_up_where_the_gate_is_closed_and_it_counts_where_it_is_open(asked):
    operator, kept = asked
    note = operator.plane / "HO2/scratch/note.txt"
    ran = operator.run("approvals", "grant", kept, "--resume")
    assert ran.status == 2
    assert "agent 'admin' does not have the tool 'write_file_dev' here" in ran.err
    assert f"the dual gate is closed: {RISKY_TOOLS_VARIABLE} is not 1" in ran.err
    assert (states(operator), note.exists()) == ([("waiting", "")], False)

    ran = operator.run("approvals", "grant", kept, "--resume", variables=RISKY)
    assert (ran.status, note.read_bytes()) == (0, b"x")
    assert states(operator) == []


def test_an_answer_that_is_given_without_the_variable_counts_where_the_agent_has_it(asked):
    operator, kept = asked
    assert operator.run("approvals", "grant", kept).status == 0
    arguments = {"path": "HO2/scratch/note.txt", "content": "x"}
    assert operator.call("write_file_dev", variables=RISKY, **arguments).status == 0
    assert (operator.plane / "HO2/scratch/note.txt").read_bytes() == b"x"


def test_no_answer_counts_for_a_tool_that_the_configuration_took_away(asked):
    operator, kept = asked
    operator.change(tool_profile="production")
    gone = "the agent no longer has the tool"
    for more in ([], ["--resume"]):
        ran = operator.run("approvals", "grant", kept, *more, variables=RISKY)
        assert (ran.status, f"would count for no call: {gone}" in ran.err) == (1, True)
        assert "the dual gate is closed: tool_profile is production" in ran.err
        assert states(operator) == [("waiting", gone)]
