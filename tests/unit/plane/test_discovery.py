import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError, UsageError
from paddock.plane.create import open_plane
from paddock.plane.discover import (
    ProjectRoot,
    find_root,
    is_registered_bare_plane,
    plane_for,
    register_bare_plane,
)
from paddock.plane.layout import PlaneLayout, plane_name
from paddock.values.decisions import PlaneKind


def make_bare(directory: Path) -> Path:
    (directory / "HOT" / "config").mkdir(parents=True)
    (directory / "HOT" / "config" / "admin_config.json").write_text("{}")
    return directory


def below(project: Path) -> Path:
    directory = project / "a" / "b"
    directory.mkdir(parents=True)
    return directory


def test_without_a_marker_the_directory_itself_is_the_root(project, environment):
    start = below(project)
    assert find_root(start, environment) == ProjectRoot(start, PlaneKind.PROJECT)


@pytest.mark.parametrize("marker", ["paddock.toml", "paddock.json", ".git"])
def test_the_nearest_marker_above_is_the_root(project, environment, marker):
    start = below(project)
    (project / ".git").mkdir()
    (project / "a" / marker).write_text("")
    assert find_root(start, environment) == ProjectRoot(project / "a", PlaneKind.PROJECT)
    assert find_root(project, environment) == ProjectRoot(project, PlaneKind.PROJECT)


@pytest.mark.parametrize("policy", ["paddock.toml", "paddock.json"])
def test_a_policy_file_above_outranks_a_repository_below_it(project, environment, policy):
    start = below(project)
    (project / policy).write_text("")
    (project / "a" / ".git").mkdir()
    (start / ".git").write_text("gitdir: elsewhere")
    assert find_root(start, environment) == ProjectRoot(project, PlaneKind.PROJECT)
    (project / "a" / "paddock.toml").write_text("")
    assert find_root(start, environment) == ProjectRoot(project / "a", PlaneKind.PROJECT)


def test_of_repositories_alone_the_nearest_is_the_root(project, environment):
    start = below(project)
    (project / ".git").mkdir()
    (project / "a" / ".git").mkdir()
    assert find_root(start, environment) == ProjectRoot(project / "a", PlaneKind.PROJECT)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda p: os.symlink("nowhere", p)])
def test_a_marker_of_any_type_counts(project, environment, make):
    make(project / "paddock.toml")
    assert find_root(below(project), environment).path == project


def test_the_root_is_the_real_path(project, environment, tmp_path):
    (project / "paddock.toml").write_text("")
    start = below(project)
    (tmp_path / "link").symlink_to(start)
    assert find_root(tmp_path / "link", environment) == ProjectRoot(project, PlaneKind.PROJECT)


def test_a_home_directory_in_git_is_not_everyones_project(environment):
    (environment.home / ".git").mkdir()
    start = environment.home / "work"
    start.mkdir()
    assert find_root(start, environment) == ProjectRoot(start, PlaneKind.PROJECT)
    (start / "paddock.toml").write_text("")
    assert find_root(start, environment) == ProjectRoot(start, PlaneKind.PROJECT)


def test_a_home_directory_counts_where_the_users_paddock_files_lie_elsewhere(environment, tmp_path):
    (environment.home / "paddock.toml").write_text("")
    start = environment.home / "work"
    start.mkdir()
    away = replace(environment, paddock_home=tmp_path / "s", config_home=tmp_path / "c")
    assert find_root(start, away) == ProjectRoot(environment.home, PlaneKind.PROJECT)


def test_the_home_directory_itself_is_refused_because_state_lies_in_it(environment):
    root = find_root(environment.home, environment)
    assert root == ProjectRoot(environment.home, PlaneKind.PROJECT)
    with pytest.raises(ConfigError, match=r"state directory .* is inside"):
        plane_for(root, environment)


@pytest.mark.needs("root")
def test_a_strangers_marker_where_everybody_can_write_is_passed_over(tmp_path, environment):
    shared = tmp_path / "shared"
    mine = shared / "mine"
    mine.mkdir(parents=True)
    (shared / ".git").mkdir()
    os.chown(shared / ".git", 12345, 12345)
    assert find_root(mine, environment).path == shared
    shared.chmod(0o1777)
    assert find_root(mine, environment).path == mine
    os.chown(shared / ".git", 0, 0)
    assert find_root(mine, environment).path == shared


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    ("mode", "owner", "marker", "is_passed"),
    [
        (0o2775, 0, 12345, True),
        (0o755, 12345, 12345, True),
        (0o700, 12345, 12345, True),
        (0o2775, 0, 0, False),
        (0o755, 12345, 0, False),
        (0o755, 0, 12345, False),
    ],
)
def test_a_colleagues_marker_is_passed_over_where_they_could_make_it(
    tmp_path, environment, mode, owner, marker, is_passed
):
    shared = tmp_path / "shared"
    mine = shared / "mine"
    mine.mkdir(parents=True)
    (shared / ".git").mkdir()
    os.chown(shared / ".git", marker, marker)
    os.chown(shared, owner, owner)
    shared.chmod(mode)
    assert find_root(mine, environment).path == (mine if is_passed else shared)
    # Who starts in it means it.
    assert find_root(shared, environment).path == shared


def test_what_is_no_directory_is_no_start(project, environment):
    (project / "file").write_text("")
    for start in (project / "absent", project / "file", project / "file" / "below"):
        with pytest.raises(UsageError):
            find_root(start, environment)


def test_a_path_that_is_not_utf8_is_refused(project, environment):
    start = os.fsencode(project) + b"/\xff"
    os.mkdir(start)
    with pytest.raises(ConfigError, match="not UTF-8"):
        find_root(Path(os.fsdecode(start)), environment)


def test_a_named_project_replaces_where_the_user_stands(project, environment, tmp_path):
    (project / ".git").mkdir()
    start = below(project)
    assert find_root(tmp_path, environment, override=start).path == project
    assert find_root(tmp_path, replace(environment, plane=project)).path == project
    other = tmp_path / "other"
    other.mkdir()
    named = find_root(tmp_path, replace(environment, plane=project), override=other)
    assert named.path == other


def test_inside_a_registered_bare_plane_that_plane_is_the_root(tmp_path, environment):
    plane = make_bare(tmp_path / "plane")
    inner = plane / "HO2" / "scratch"
    (inner / ".git").mkdir(parents=True)
    assert register_bare_plane(plane, environment)
    assert not register_bare_plane(plane, environment)
    assert find_root(inner, environment) == ProjectRoot(plane, PlaneKind.BARE, accepted=True)


def test_an_unregistered_bare_plane_counts_only_outside_of_projects(tmp_path, environment):
    plane = make_bare(tmp_path / "around" / "plane")
    assert find_root(plane / "HOT", environment) == ProjectRoot(plane, PlaneKind.BARE)
    (plane.parent / "paddock.toml").write_text("")
    assert find_root(plane / "HOT", environment) == ProjectRoot(plane.parent, PlaneKind.PROJECT)


def test_a_named_bare_plane_is_accepted(tmp_path, environment):
    plane = make_bare(tmp_path / "plane")
    (tmp_path / ".git").mkdir()
    found = find_root(tmp_path, environment, override=plane)
    assert found == ProjectRoot(plane, PlaneKind.BARE, accepted=True)


def test_a_named_project_cannot_turn_into_a_bare_plane(project, environment, tmp_path):
    (project / ".git").mkdir()
    make_bare(project)
    assert find_root(project, environment) == ProjectRoot(project, PlaneKind.PROJECT)
    with pytest.raises(ConfigError, match="looks like a bare plane as well"):
        find_root(tmp_path, environment, override=project)
    register_bare_plane(project, environment)
    assert find_root(tmp_path, environment, override=project).kind == "bare"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 2, "path": "/"}'])
def test_a_registration_that_does_not_load_counts_as_none(tmp_path, environment, content):
    plane = make_bare(tmp_path / "plane")
    register_bare_plane(plane, environment)
    assert is_registered_bare_plane(plane, environment)
    [record] = (environment.paddock_home / "bare").iterdir()
    record.write_bytes(content)
    assert not is_registered_bare_plane(plane, environment)


def test_a_registration_that_others_could_have_written_counts_as_none(tmp_path, environment):
    plane = make_bare(tmp_path / "plane")
    register_bare_plane(plane, environment)
    (environment.paddock_home / "bare").chmod(0o777)
    assert not is_registered_bare_plane(plane, environment)


def test_a_registration_of_another_path_does_not_count(tmp_path, environment):
    plane = make_bare(tmp_path / "plane")
    register_bare_plane(plane, environment)
    plane.rename(tmp_path / "moved")
    assert not is_registered_bare_plane(tmp_path / "moved", environment)


def test_the_plane_of_a_project_lies_in_the_state_directory(project, environment):
    layout = plane_for(ProjectRoot(project, PlaneKind.PROJECT), environment)
    assert layout == PlaneLayout(environment.planes / plane_name(project), PlaneKind.PROJECT)
    assert not environment.paddock_home.exists()


def test_a_bare_plane_is_its_own_plane(tmp_path, environment):
    plane = make_bare(tmp_path / "plane")
    assert plane_for(ProjectRoot(plane, PlaneKind.BARE), environment) == PlaneLayout(
        plane, PlaneKind.BARE
    )


@pytest.mark.parametrize("kind", ["project", "bare"])
@pytest.mark.parametrize("where", ["paddock_home", "config_home"])
def test_state_or_configuration_inside_the_root_is_refused(project, environment, where, kind):
    root = ProjectRoot(project, kind)
    inside = replace(environment, **{where: project / "x" / "paddock"})
    plane_for(root, environment)
    with pytest.raises(ConfigError, match="is inside"):
        plane_for(root, inside)


def test_state_that_a_link_leads_into_the_root_is_refused(project, environment, tmp_path):
    (project / "state").mkdir()
    (tmp_path / "outside").symlink_to(project / "state")
    linked = replace(environment, paddock_home=tmp_path / "outside" / "paddock")
    with pytest.raises(ConfigError, match="is inside"):
        plane_for(ProjectRoot(project, PlaneKind.PROJECT), linked)


def test_a_sibling_whose_name_begins_like_the_root_is_outside(project, environment):
    sibling = replace(environment, paddock_home=Path(f"{project}-state"))
    plane = plane_for(ProjectRoot(project, PlaneKind.PROJECT), sibling)
    assert plane.root.is_relative_to(f"{project}-state")


def test_a_root_inside_the_state_directory_is_refused(environment):
    inner = environment.paddock_home / "somewhere"
    inner.mkdir(parents=True)
    with pytest.raises(ConfigError, match="is inside"):
        plane_for(ProjectRoot(inner, PlaneKind.PROJECT), environment)


def test_inside_a_projects_plane_the_project_is_the_root(project, environment):
    plane = open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment).layout
    assert find_root(plane.ho2, environment) == ProjectRoot(project, PlaneKind.PROJECT)
    assert find_root(project, environment, override=plane.root).path == project


def test_a_plane_whose_name_and_record_differ_leads_nowhere(project, environment):
    plane = open_plane(ProjectRoot(project, PlaneKind.PROJECT), environment).layout
    copy = plane.root.rename(plane.root.with_name("copy-0000"))
    with pytest.raises(ConfigError, match="its name does not"):
        find_root(copy, environment)


def test_a_registered_plane_with_a_link_for_its_configuration_is_nothing_else(
    tmp_path, environment
):
    plane = make_bare(tmp_path / "plane")
    register_bare_plane(plane, environment)
    marker = plane / "HOT" / "config" / "admin_config.json"
    marker.rename(tmp_path / "mine.json")
    marker.symlink_to(tmp_path / "mine.json")
    for start, override in ((plane, None), (tmp_path, plane), (plane / "HOT", None)):
        with pytest.raises(ConfigError, match="is not a regular file"):
            find_root(start, environment, override=override)
    marker.unlink()
    assert find_root(plane, environment).kind == "project"


def test_a_link_in_a_directory_that_is_no_plane_of_ours_stops_nobody(tmp_path, environment):
    marker = make_bare(tmp_path / "clone") / "HOT" / "config" / "admin_config.json"
    marker.unlink()
    marker.symlink_to("/nowhere")
    assert find_root(tmp_path / "clone", environment) == ProjectRoot(
        tmp_path / "clone", PlaneKind.PROJECT
    )


def test_a_plane_that_would_stand_behind_a_link_where_no_ledger_could_name_it_is_refused(
    project, environment, tmp_path
):
    real = tmp_path / "h\udcff"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    elsewhere = replace(environment, paddock_home=tmp_path / "link")
    with pytest.raises(ConfigError, match="is not UTF-8") as caught:
        plane_for(ProjectRoot(project, PlaneKind.PROJECT), elsewhere)
    assert (caught.value.where, list(real.iterdir())) == ("PADDOCK_HOME", [])
