import json
import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError, PaddockError, UsageError
from paddock.plane.agents import AgentRecord, AgentSpec, AgentStore, RemovedAgent
from paddock.plane.create import open_plane
from paddock.plane.discover import ProjectRoot, register_bare_plane
from paddock.plane.layout import PlaneLayout
from paddock.plane.tokens import find_bearer, make_token
from paddock.values.decisions import Agent, Permissions, PlaneKind


@pytest.fixture
def store(project, environment) -> AgentStore:
    layout = open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment).layout
    return AgentStore(layout, environment)


def declare(store: AgentStore, name: str, /, **fields: object) -> Path:
    file = store.layout.agent_file(name)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(json.dumps({"name": name, "profile": "standard"} | fields))
    return file


def test_an_agent_that_was_created_is_read_back_as_it_is(store, project):
    permissions = Permissions(read=("docs/**",), write=(), forbidden=("docs/secret*",))
    new = AgentSpec("writer", "careful", project, "main", ("workspace", "search"), permissions)
    record = store.create(new)
    assert record.agent == Agent(
        name="writer",
        profile="careful",
        toolsets=("workspace", "search"),
        permissions=permissions,
        parent="main",
        source=str(store.layout.agent_file("writer")),
        declaration=record.file.read_bytes(),
    )
    assert record.workspace == project
    assert store.read("writer") == record
    assert store.names() == ("main", "writer")
    assert [found.agent.name for found in store.read_all()] == ["main", "writer"]


def test_an_agent_without_a_workspace_has_its_own_in_the_plane(store):
    record = store.create(AgentSpec("helper"))
    assert record.workspace == store.layout.agent_workspace("helper")
    assert record.owns_workspace
    assert record.workspace.is_dir()
    assert json.loads(record.file.read_bytes())["workspace"] is None


def test_what_a_declaration_leaves_out_has_its_default(store):
    file = declare(store, "short")
    assert store.read("short").agent == Agent(
        "short", "standard", source=str(file), declaration=file.read_bytes()
    )


def test_the_chain_names_the_agent_first_and_the_eldest_last(store):
    store.create(AgentSpec("child", parent="main"))
    store.create(AgentSpec("grandchild", parent="child"))
    assert [agent.name for agent in store.chain("grandchild")] == ["grandchild", "child", "main"]
    assert [agent.name for agent in store.chain("main")] == ["main"]


@pytest.mark.parametrize(
    "name",
    ["", "A", "-a", ".a", "_a", "a/b", "..", "a\n", "a\0", "ä", "a" * 65, "a b", "a\u202eb"],
)
def test_a_name_that_is_none_is_refused_and_nothing_is_made(store, name):
    before = sorted(os.listdir(store.layout.agents))
    for act in (lambda: store.create(AgentSpec(name)), lambda: store.read(name)):
        with pytest.raises(UsageError, match="not an agent's name"):
            act()
    with pytest.raises(UsageError, match="not an agent's name"):
        store.remove(name)
    assert sorted(os.listdir(store.layout.agents)) == before


@pytest.mark.parametrize("name", ["a", "0", "a.b_c-d", "a" * 64])
def test_a_name_that_fits_is_accepted(store, name):
    assert store.create(AgentSpec(name)).agent.name == name


def test_an_agent_is_never_replaced(store):
    store.create(AgentSpec("one", "first"))
    with pytest.raises(UsageError, match="already"):
        store.create(AgentSpec("one", "second"))
    assert store.read("one").agent.profile == "first"


def test_of_many_that_create_one_name_exactly_one_wins(store):
    start = threading.Barrier(8)
    answers: list[str] = []

    def create(profile: str) -> None:
        start.wait()
        try:
            answers.append(store.create(AgentSpec("one", profile)).agent.profile)
        except UsageError:
            answers.append("")

    threads = [threading.Thread(target=create, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [""] * 7 + [store.read("one").agent.profile]
    assert sorted(os.listdir(store.layout.agent_directory("one"))) == ["agent.json", "workspace"]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (AgentSpec("x", toolsets=("shell", "nuclear")), "unknown toolset 'nuclear'"),
        (AgentSpec("x", toolsets=("core",)), "'core' is never declared"),
        (AgentSpec("x", toolsets=("development",)), "never declared"),
        (AgentSpec("x", profile=""), "not a profile's name"),
        (AgentSpec("x", profile="a\nb"), "not a profile's name"),
        (AgentSpec("x", parent="nobody"), "no agent is named 'nobody'"),
        (AgentSpec("x", workspace=Path("/does/not/exist")), "does not exist"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(store, new, message):
    with pytest.raises(UsageError, match=message):
        store.create(new)
    assert os.listdir(store.layout.agents) == ["main"]


def test_the_root_of_a_bare_plane_is_a_workspace_and_its_inside_is_none(tmp_path, environment):
    store = AgentStore(PlaneLayout(tmp_path / "bare", PlaneKind.BARE), environment)
    store.layout.config.mkdir(parents=True)
    store.layout.agents.mkdir()
    record = store.create(AgentSpec("ops", workspace=store.layout.root))
    assert store.read("ops") == record
    for inside in (store.layout.config, store.layout.agents, store.layout.hot):
        with pytest.raises(ConfigError, match="overlap"):
            store.create(AgentSpec("spy", workspace=inside))


@pytest.mark.parametrize("toolset", ["core", "development"])
def test_on_a_bare_plane_too_no_agent_declares_the_admins_toolsets(tmp_path, environment, toolset):
    store = AgentStore(PlaneLayout(tmp_path / "bare", PlaneKind.BARE), environment)
    store.layout.agents.mkdir(parents=True)
    with pytest.raises(UsageError, match="is never declared"):
        store.create(AgentSpec("spy", toolsets=(toolset,)))
    declare(store, "spy", toolsets=[toolset])
    with pytest.raises(ConfigError, match="is never declared"):
        store.read("spy")


def admin_of(layout: PlaneLayout) -> AgentRecord:
    agent = Agent("admin", "admin", ("core",), source=str(layout.admin_config))
    return AgentRecord(agent, layout.root, False, layout.admin_config, "sha256:x")


def test_the_admin_of_a_bare_plane_comes_from_its_configuration_alone(tmp_path, environment):
    layout = PlaneLayout(tmp_path / "bare", PlaneKind.BARE)
    layout.agents.mkdir(parents=True)
    store = AgentStore(layout, environment, admin_of(layout))
    store.create(AgentSpec("zoe"))
    assert store.names() == ("admin", "zoe")
    assert store.read("admin") == admin_of(layout)
    with pytest.raises(UsageError, match="an agent named 'admin' exists already"):
        store.create(AgentSpec("admin"))
    assert os.listdir(layout.agents) == ["zoe"]


def test_a_second_declaration_of_the_admin_does_not_load(tmp_path, environment):
    layout = PlaneLayout(tmp_path / "bare", PlaneKind.BARE)
    layout.agents.mkdir(parents=True)
    store = AgentStore(layout, environment, admin_of(layout))
    declare(store, "admin", toolsets=["workspace"])
    for ask in (store.names, lambda: store.read("admin"), store.read_all):
        with pytest.raises(ConfigError, match="'admin' is declared a second time"):
            ask()


def test_a_workspace_that_overlaps_paddocks_own_files_is_refused(store, environment, project):
    environment.config_home.mkdir(parents=True)
    (project / ".git" / "hooks").mkdir(parents=True)
    places = (
        Path("/"),
        environment.home,
        environment.paddock_home,
        environment.planes,
        store.layout.root,
        store.layout.hot,
        store.layout.agents,
        store.layout.agent_directory("main"),
        environment.config_home,
        project / ".git" / "hooks",
    )
    for place in places:
        with pytest.raises(ConfigError):
            store.create(AgentSpec("spy", workspace=place))
        declare(store, "spy", workspace=str(place))
        with pytest.raises(ConfigError):
            store.read("spy")
        store.layout.agent_file("spy").unlink()
    assert store.create(AgentSpec("fine", workspace=project)).workspace == project


def test_a_workspace_in_another_bare_plane_is_refused(store, environment, project, tmp_path):
    # Threat: below `OTHER/HOT` the other plane's configuration is any file.
    other = tmp_path / "other"
    (other / "HOT").mkdir(parents=True)
    (tmp_path / "link").symlink_to(other / "HOT")
    assert store.create(AgentSpec("before", workspace=other)).workspace == other
    register_bare_plane(other, environment)
    for place in (other, other / "HOT", tmp_path / "link"):
        with pytest.raises(ConfigError, match="is in the bare plane"):
            store.create(AgentSpec("spy", workspace=place))
        declare(store, "spy", workspace=str(place))
        with pytest.raises(ConfigError, match="is in the bare plane"):
            store.read("spy")
        store.layout.agent_file("spy").unlink()
    with pytest.raises(ConfigError, match="is in the bare plane"):
        store.read("before")
    assert store.create(AgentSpec("fine", workspace=project)).workspace == project


def test_a_new_workspace_is_none_in_what_looks_like_a_plane(store, tmp_path):
    config = tmp_path / "other" / "HOT" / "config"
    config.mkdir(parents=True)
    (config / "admin_config.json").write_bytes(b"{}")
    for place in (tmp_path / "other", config):
        with pytest.raises(ConfigError, match="is in the bare plane"):
            store.create(AgentSpec("spy", workspace=place))
    # An agent that is there stays: anybody who can write a file could take it away.
    declare(store, "mine", workspace=str(tmp_path / "other"))
    assert store.read("mine").workspace == tmp_path / "other"


def test_a_new_workspace_holds_no_plane_and_one_that_is_there_may(store, environment, project):
    register_bare_plane(project / "sub" / "plane", environment)
    with pytest.raises(ConfigError, match="holds the bare plane"):
        store.create(AgentSpec("spy", workspace=project))
    assert store.read("main").workspace == project
    assert store.create(AgentSpec("child", workspace=project, parent="main")).workspace == project


def test_a_workspace_that_a_link_leads_into_the_plane_is_refused(store, project):
    (project / "link").symlink_to(store.layout.hot)
    with pytest.raises(ConfigError):
        store.create(AgentSpec("spy", workspace=project / "link"))
    declare(store, "spy", workspace=str(project / "link"))
    with pytest.raises(ConfigError):
        store.read("spy")


def test_an_own_workspace_that_is_a_link_elsewhere_is_refused(store):
    record = store.create(AgentSpec("x"))
    record.workspace.rmdir()
    record.workspace.symlink_to(store.layout.hot)
    with pytest.raises(ConfigError, match="overlap"):
        store.read("x")


@pytest.mark.parametrize("swapped", ["work", "work/place"])
def test_a_declared_workspace_whose_place_a_link_took_is_refused(store, tmp_path, swapped):
    # Threat: another agent works around it, and makes links there.
    for name in ("work", "other"):
        (tmp_path / name / "place").mkdir(parents=True)
    workspace = tmp_path / "work" / "place"
    record = store.create(AgentSpec("x", workspace=workspace))
    assert store.read("x") == record
    (tmp_path / swapped).rename(tmp_path / "aside")
    target = tmp_path / swapped.replace("work", "other")
    (tmp_path / swapped).symlink_to(target)
    with pytest.raises(ConfigError, match="is reached through a link, and is") as caught:
        store.read("x")
    assert caught.value.where == f"{record.file}, field 'workspace'"
    (tmp_path / swapped).unlink()
    (tmp_path / "aside").rename(tmp_path / swapped)
    assert store.read("x") == record


def test_an_own_workspace_in_whose_place_stands_a_link_to_anothers_is_refused(store):
    record, other = store.create(AgentSpec("x")), store.create(AgentSpec("y"))
    record.workspace.rmdir()
    record.workspace.symlink_to(other.workspace)
    with pytest.raises(ConfigError, match="is reached through a link, and is"):
        store.read("x")
    assert store.read("y") == other


def test_a_link_to_a_workspace_is_resolved_when_its_agent_is_made(store, project, tmp_path):
    (tmp_path / "link").symlink_to(project)
    assert store.create(AgentSpec("x", workspace=tmp_path / "link")).workspace == project
    assert store.read("x").workspace == project


@pytest.mark.parametrize(
    "place", [".claude", ".claude/hooks", ".codex", ".Codex/prompts", ".claude/worktrees", "named"]
)
@pytest.mark.parametrize("whose", ["home", "project"])
def test_a_clients_folder_is_no_workspace(store, project, environment, place, whose):
    # Threat: there `settings.json`, which takes the hook away, matches no pattern of it.
    base = project if whose == "project" else environment.home
    given = replace(environment, variables=(("CODEX_HOME", str(base / "named")),))
    agents = AgentStore(store.layout, given)
    (base / place).mkdir(parents=True)
    with pytest.raises(ConfigError, match="where a coding agent's client keeps its settings"):
        agents.create(AgentSpec("spy", workspace=base / place))
    declare(agents, "spy", workspace=str(base / place))
    with pytest.raises(ConfigError, match="where a coding agent's client keeps its settings"):
        agents.read("spy")


def test_a_work_tree_that_a_client_made_in_its_folder_is_a_workspace(store, environment, project):
    for base in (environment.home / ".codex", project / ".claude"):
        tree = base / "worktrees" / "one"
        tree.mkdir(parents=True)
        assert store.create(AgentSpec(base.name[1:], workspace=tree)).workspace == tree


def test_a_client_whose_folder_holds_the_home_closes_no_project(store, environment, project):
    named = str(environment.home.parent)
    given = replace(environment, variables=(("CLAUDE_CONFIG_DIR", named), ("CODEX_HOME", "work")))
    made = AgentStore(store.layout, given).create(AgentSpec("fine", workspace=project))
    assert made.workspace == project


def test_two_agents_may_share_one_workspace(store):
    first = store.create(AgentSpec("first"))
    second = store.create(AgentSpec("second", workspace=first.workspace))
    assert second.workspace == first.workspace


def test_a_childs_workspace_is_its_parents_or_its_own(store, project, tmp_path):
    (tmp_path / "project-evil").mkdir()
    (tmp_path / "link").symlink_to(project)
    store.create(AgentSpec("same", workspace=project, parent="main"))
    store.create(AgentSpec("linked", workspace=tmp_path / "link", parent="main"))
    store.create(AgentSpec("own", parent="main"))
    with pytest.raises(ConfigError, match="is not that of its parent"):
        store.create(AgentSpec("out", workspace=tmp_path / "project-evil", parent="main"))
    assert store.create(AgentSpec("out", workspace=tmp_path / "project-evil")).agent.parent is None


def test_a_child_works_in_no_part_of_its_parents_workspace(store, project):
    # What a pattern of the parent's policy says of `sub/keep.md` would not be about `keep.md`.
    (project / "sub").mkdir()
    with pytest.raises(ConfigError, match="is not that of its parent") as caught:
        store.create(AgentSpec("inside", workspace=project / "sub", parent="main"))
    assert caught.value.where == "--workspace"
    assert caught.value.hint.startswith("give it the parent's workspace, or none")
    assert store.names() == ("main",)
    # Of a declaration that is there, its file is named.
    file = declare(store, "inside", parent="main", workspace=str(project / "sub"))
    with pytest.raises(ConfigError, match="is not that of its parent") as caught:
        store.read("inside")
    assert caught.value.where == f"{file}, field 'workspace'"


def test_a_child_has_no_toolset_that_its_parent_lacks(store):
    store.create(AgentSpec("reader", toolsets=("search",)))
    with pytest.raises(ConfigError, match="lacks: shell") as caught:
        store.create(AgentSpec("child", parent="reader", toolsets=("search", "shell")))
    assert caught.value.where == "--toolsets"
    assert store.create(AgentSpec("child", parent="reader")).agent.toolsets == ("search",)
    declare(store, "other", parent="reader", toolsets=["shell"])
    with pytest.raises(ConfigError, match="lacks: shell"):
        store.chain("other")


def test_an_agent_that_is_not_there_is_a_usage_error(store):
    for act in (store.read, store.chain, store.remove):
        with pytest.raises(UsageError, match="no agent is named 'nobody'"):
            act("nobody")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"name": "other"}, "name"),
        ({"name": 5}, "name"),
        ({"name": "Bad"}, "name"),
        ({"profile": None}, "profile"),
        ({"profile": ""}, "profile"),
        ({"workspace": "relative"}, "workspace"),
        ({"workspace": "/a/../b"}, "workspace"),
        ({"workspace": "/a\0b"}, "workspace"),
        ({"workspace": False}, "workspace"),
        ({"parent": "x"}, "parent"),
        ({"parent": "../x"}, "parent"),
        ({"parent": "nobody"}, "parent"),
        ({"toolsets": "shell"}, "toolsets"),
        ({"toolsets": ["shell", "shell"]}, "toolsets"),
        ({"toolsets": [1]}, "toolsets"),
        ({"toolsets": ["development"]}, "toolsets"),
        ({"permissions": []}, "permissions"),
        ({"permissions": {"reed": []}}, "permissions.reed"),
        ({"permissions": {"read": "**"}}, "permissions.read"),
        ({"permissions": {"write": ["\ud800"]}}, "permissions.write"),
    ],
)
def test_a_declaration_with_a_mistake_does_not_load_and_names_the_field(store, fields, field):
    file = declare(store, "x", **fields)
    with pytest.raises(ConfigError) as caught:
        store.read("x")
    assert caught.value.where.startswith(f"{file}, ")
    assert caught.value.where.endswith(f"field '{field}'")
    assert caught.value.hint
    with pytest.raises(ConfigError):
        store.read_all()


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "line 1"),
        (b"{\n\n  nope}", "line 3"),
        (b"{}\n\xff", "line 2"),
        (b"[]", "line 1"),
        (b'{"name": "x", "name": "x"}', "agent.json"),
        (b'{"name": NaN}', "agent.json"),
        (b"[" * 100_000, "agent.json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "agent.json"),
        (b" " * (limits.agent_file_bytes_max + 1), "agent.json"),
    ],
)
def test_bytes_that_are_no_declaration_do_not_load(store, content, where):
    declare(store, "x").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        store.read("x")
    assert where in caught.value.where


def test_a_missing_name_or_profile_is_named(store):
    file = declare(store, "x")
    file.write_text('{"name": "x"}')
    with pytest.raises(ConfigError, match="'profile' is missing"):
        store.read("x")


def test_a_circle_of_parents_stops(store):
    declare(store, "a", parent="b")
    declare(store, "b", parent="c")
    declare(store, "c", parent="a")
    for name in "abc":
        with pytest.raises(ConfigError, match="its own ancestor"):
            store.chain(name)


def test_a_chain_has_an_end(store):
    for number in range(limits.agent_chain_max):
        declare(store, f"a{number + 1}", **({"parent": f"a{number}"} if number else {}))
    assert len(store.chain(f"a{limits.agent_chain_max}")) == limits.agent_chain_max
    with pytest.raises(ConfigError, match="ancestors"):
        store.create(AgentSpec("last", parent=f"a{limits.agent_chain_max}"))


def test_a_removed_agent_is_gone_and_its_files_are_not(store):
    record = store.create(AgentSpec("x", "first"))
    (record.workspace / "notes.md").write_text("mine")
    declaration = record.file.read_bytes()
    kept = record.file.with_name("agent.removed-1.json")
    assert store.remove("x") == RemovedAgent("x", kept)
    assert store.names() == ("main",)
    assert kept.read_bytes() == declaration
    assert (record.workspace / "notes.md").read_text() == "mine"
    assert store.create(AgentSpec("x", "second")).agent.profile == "second"
    assert store.remove("x").kept == record.file.with_name("agent.removed-2.json")
    assert kept.read_bytes() == declaration


def test_the_token_of_a_removed_agent_is_void_and_is_not_the_next_ones(store):
    place = (store.layout, store.environment)
    store.create(AgentSpec("x", "first"))
    tokens = {name: make_token(*place, name) for name in ("x", "main")}
    store.remove("x")
    found = [find_bearer(*place, tokens[name]).agent for name in ("x", "main")]
    assert found == [None, "main"]
    # One that is left over, as by a declaration that was removed by hand.
    left = make_token(*place, "x")
    store.create(AgentSpec("x", "second"))
    assert find_bearer(*place, left).agent is None


def test_a_parent_cannot_be_removed_before_its_children(store):
    store.create(AgentSpec("child", parent="main"))
    with pytest.raises(UsageError, match="is the parent of child"):
        store.remove("main")
    assert store.names() == ("child", "main")
    store.remove("child")
    store.remove("main")
    assert store.names() == ()


def test_a_broken_declaration_can_be_removed(store):
    declare(store, "x").write_bytes(b"\xff")
    declare(store, "y").write_bytes(b"\xff")
    store.remove("x")
    assert store.names() == ("main", "y")


def test_a_directory_that_is_a_link_declares_nobody(store, project):
    evil = project / "evil"
    evil.mkdir()
    (evil / "agent.json").write_text('{"name": "evil", "profile": "open"}')
    (store.layout.agents / "evil").symlink_to(evil)
    for act in (
        lambda: store.read("evil"),
        store.read_all,
        lambda: store.create(AgentSpec("evil")),
        lambda: store.remove("evil"),
    ):
        with pytest.raises(ConfigError, match="is not a directory"):
            act()
    assert [path.name for path in evil.iterdir()] == ["agent.json"]


def test_agents_that_is_a_link_declares_nobody_and_a_real_one_does(store, project):
    agents, away = store.layout.agents, project / "away"
    declare(store, "kid")
    agents.rename(away)
    agents.symlink_to(away)
    before = sorted(away.rglob("*"))
    for act in (
        store.names,
        store.read_all,
        lambda: store.read("kid"),
        lambda: store.create(AgentSpec("new")),
        lambda: store.remove("kid"),
    ):
        with pytest.raises(ConfigError, match="is not a directory"):
            act()
    assert sorted(away.rglob("*")) == before
    agents.unlink()
    away.rename(agents)
    assert store.names() == ("kid", "main")


@pytest.mark.parametrize("name", ["agents", "agents/kid"])
def test_where_others_may_declare_agents_nobody_is_declared(store, name):
    declare(store, "kid")
    directory = store.layout.root / name
    for mode in (0o777, 0o770, 0o702):
        directory.chmod(mode)
        with pytest.raises(ConfigError, match="can be written by others"):
            store.read("kid")
    directory.chmod(0o755)
    assert store.read("kid").agent.name == "kid"


def test_a_declaration_that_is_a_link_does_not_load(store, project):
    (project / "agent.json").write_text('{"name": "x", "profile": "open"}')
    store.layout.agent_directory("x").mkdir()
    store.layout.agent_file("x").symlink_to(project / "agent.json")
    with pytest.raises(ConfigError, match="is a link"):
        store.read("x")


def test_what_is_no_agent_is_passed_over_and_a_bad_name_is_not(store):
    (store.layout.agents / ".DS_Store").write_text("")
    (store.layout.agents / "empty").mkdir()
    assert store.names() == ("main",)
    (store.layout.agents / "Bad").mkdir()
    (store.layout.agents / "Bad" / "agent.json").write_text("{}")
    with pytest.raises(ConfigError, match="'Bad' is not an agent's name"):
        store.names()


def test_a_plane_without_agents_has_none(tmp_path, environment):
    assert AgentStore(PlaneLayout(tmp_path / "p", PlaneKind.BARE), environment).names() == ()


def test_too_many_agents_are_refused(store, monkeypatch):
    monkeypatch.setattr(limits, "agents_max", 1)
    assert store.names() == ("main",)
    declare(store, "x")
    with pytest.raises(PaddockError, match="there are 2 agents; at most 1 are allowed"):
        store.names()
