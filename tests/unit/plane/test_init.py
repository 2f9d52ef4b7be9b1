import os
from datetime import UTC, datetime, timedelta

import pytest

from paddock.errors import ConfigError, HostError, UsageError
from paddock.plane.create import POLICY_TEMPLATE, InitResult, init_project
from paddock.plane.discover import ProjectRoot, find_root, plane_for, register_bare_plane
from paddock.plane.records import WhereReport
from paddock.plane.trust import is_trusted, read_policy_files
from paddock.values.decisions import PlaneKind

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(root, trust):
    """What has no ledger to tell of a trust."""


def snapshot(*directories):
    return {
        path: (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for directory in directories
        for path in directory.rglob("*")
    }


def test_init_makes_a_policy_a_plane_and_the_agent_main(project, environment):
    result = init_project(project, environment, NOW, record)
    layout = result.plane.layout
    assert layout == plane_for(ProjectRoot(project, PlaneKind.PROJECT), environment)
    assert result.made == (project / "paddock.toml", layout.root, layout.agent_file("main"))
    assert not result.already
    assert os.listdir(project) == ["paddock.toml"]
    assert (project / "paddock.toml").read_bytes() == POLICY_TEMPLATE


def test_what_init_wrote_is_trusted_at_once(project, environment):
    init_project(project, environment, NOW, record)
    files = read_policy_files(find_root(project, environment), environment)
    assert files.project.trusted


def test_init_again_changes_nothing_and_says_so(project, environment):
    first = init_project(project, environment, NOW, record)
    before = snapshot(project, environment.home)
    again = init_project(project, environment, NOW + timedelta(days=1), record)
    assert again == InitResult(
        root=first.root,
        plane=type(first.plane)(first.plane.layout, created=False),
        policy_file=first.policy_file,
        made=(),
        trust=None,
    )
    assert again.already
    assert snapshot(project, environment.home) == before


def test_a_policy_that_was_there_is_neither_overwritten_nor_trusted(project, environment):
    file = project / "paddock.toml"
    file.write_bytes(b"# came with the clone\n")
    result = init_project(project, environment, NOW, record)
    layout = result.plane.layout
    assert result.made == (layout.root, layout.agent_file("main"))
    assert file.read_bytes() == b"# came with the clone\n"
    assert not is_trusted(file, file.read_bytes(), environment)
    assert init_project(project, environment, NOW, record).already


def test_a_json_policy_that_was_there_is_the_policy(project, environment):
    (project / "paddock.json").write_bytes(b"{}")
    assert init_project(project, environment, NOW, record).policy_file == project / "paddock.json"
    assert os.listdir(project) == ["paddock.json"]


def test_a_crash_between_file_and_trust_is_mended(project, environment):
    (project / "paddock.toml").write_bytes(POLICY_TEMPLATE)
    assert not init_project(project, environment, NOW, record).already
    assert is_trusted(project / "paddock.toml", POLICY_TEMPLATE, environment)
    assert init_project(project, environment, NOW, record).already


@pytest.mark.parametrize("content", [b"# of somebody else\n", POLICY_TEMPLATE])
def test_a_policy_that_somebody_else_wrote_meanwhile_is_trusted_only_if_it_is_the_same(
    project, environment, content
):
    file = project / "paddock.toml"
    is_same = content == POLICY_TEMPLATE

    def record(root, trust):
        file.write_bytes(content)

    result = init_project(project, environment, NOW, record)

    own = read_policy_files(result.root, environment).project
    assert (result.trust is not None, own.trusted) == (is_same, is_same)
    assert (own.content, file in result.made) == (content, False)
    assert init_project(project, environment, NOW, record).already


def test_a_missing_directory_is_made(tmp_path, environment):
    result = init_project(tmp_path / "new" / "app", environment, NOW, record)
    assert result.root == ProjectRoot(tmp_path / "new" / "app", PlaneKind.PROJECT)
    assert (tmp_path / "new" / "app" / "paddock.toml").is_file()


def test_init_takes_the_directory_itself_not_the_project_around_it(project, environment):
    (project / ".git").mkdir()
    (project / "sub").mkdir()
    assert init_project(project / "sub", environment, NOW, record).root.path == project / "sub"


def test_a_linked_directory_is_the_real_one(project, environment, tmp_path):
    (tmp_path / "link").symlink_to(project)
    assert init_project(tmp_path / "link", environment, NOW, record).root.path == project
    assert init_project(project, environment, NOW, record).already


def test_a_policy_that_is_a_link_is_not_written_through(project, environment, tmp_path):
    (project / "paddock.toml").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match="is a link"):
        init_project(project, environment, NOW, record)
    assert not (tmp_path / "outside").exists()


def test_the_home_directory_is_no_project(environment):
    with pytest.raises(ConfigError, match="is inside"):
        init_project(environment.home, environment, NOW, record)
    assert os.listdir(environment.home) == []


def test_a_refused_directory_is_not_made(environment):
    with pytest.raises(ConfigError, match="is inside"):
        init_project(environment.paddock_home / "app", environment, NOW, record)
    assert os.listdir(environment.home) == []


def test_a_file_is_no_project(tmp_path, environment):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a directory"):
        init_project(tmp_path / "file", environment, NOW, record)
    with pytest.raises(HostError):
        init_project(tmp_path / "file" / "below", environment, NOW, record)


def test_a_bare_plane_is_no_project(tmp_path, environment):
    (tmp_path / "bare" / "HOT" / "config").mkdir(parents=True)
    (tmp_path / "bare" / "HOT" / "config" / "admin_config.json").write_text("{}")
    with pytest.raises(UsageError, match="is a bare plane"):
        init_project(tmp_path / "bare", environment, NOW, record)
    assert not environment.paddock_home.exists()


def test_where_says_where_everything_is(project, environment):
    layout = init_project(project, environment, NOW, record).plane.layout
    root = find_root(project, environment)
    files = read_policy_files(root, environment)
    assert WhereReport(root, layout, files, environment).as_json() == {
        "root": str(project),
        "plane": str(layout.root),
        "policy": [str(project / "paddock.toml")],
        "ledgers": {
            "governance": f"{layout.root}/HOT/ledger/governance.jsonl",
            "packages": f"{layout.root}/HOT/ledger/packages.jsonl",
            "ho2m": f"{layout.root}/HO2/ledger/ho2m.jsonl",
            "ho1m": f"{layout.root}/HO1/ledger/ho1m.jsonl",
        },
        "user_config": str(environment.config_home / "config.toml"),
    }


def test_the_trust_is_on_record_before_it_holds_and_before_the_file_stands(project, environment):
    heard = []

    def listen(root, trust):
        stands = (project / "paddock.toml").exists()
        holds = is_trusted(project / "paddock.toml", POLICY_TEMPLATE, environment)
        heard.append((root, trust, stands, holds))

    result = init_project(project, environment, NOW, listen)
    assert heard == [(result.root, result.trust, False, False)]


def test_a_trust_that_cannot_be_put_on_record_is_none_and_init_can_go_on_later(
    project, environment
):
    def fail(root, trust):
        raise HostError("the disk is full")

    with pytest.raises(HostError, match="the disk is full"):
        init_project(project, environment, NOW, fail)
    assert not is_trusted(project / "paddock.toml", POLICY_TEMPLATE, environment)
    assert os.listdir(project) == []
    assert init_project(project, environment, NOW, record).trust is not None
    assert is_trusted(project / "paddock.toml", POLICY_TEMPLATE, environment)


def test_a_project_in_a_bare_plane_is_refused_and_nothing_is_made(project, environment):
    register_bare_plane(project, environment)
    with pytest.raises(ConfigError, match="is in the bare plane"):
        init_project(project / "HO2" / "scratch" / "x", environment, NOW, record)
    assert os.listdir(project) == []


def test_a_project_that_is_there_stays_with_a_plane_in_it(project, environment):
    init_project(project, environment, NOW, record)
    register_bare_plane(project / "plane", environment)
    assert init_project(project, environment, NOW, record).already
