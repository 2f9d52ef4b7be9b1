import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paddock import limits
from paddock.errors import ConfigError
from paddock.plane.discover import ProjectRoot
from paddock.plane.trust import PolicyFile, PolicyFiles, read_policy_files
from paddock.values.decisions import PlaneKind
from tests.support.trusting import record_trust

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def root(project) -> ProjectRoot:
    return ProjectRoot(project, PlaneKind.PROJECT)


@pytest.fixture
def bare(tmp_path) -> Path:
    directory = tmp_path / "bare" / "HOT" / "config"
    directory.mkdir(parents=True)
    return directory


def test_without_files_there_is_nothing_to_read(root, environment):
    assert read_policy_files(root, environment) == PolicyFiles(PlaneKind.PROJECT, None, None)


@pytest.mark.parametrize("name", ["paddock.toml", "paddock.json"])
def test_a_projects_policy_counts_whole_once_it_is_trusted(root, environment, name):
    file = root.path / name
    file.write_bytes(b"x")
    untrusted = PolicyFile(file, b"x", trusted=False, reason="it was never trusted")
    assert read_policy_files(root, environment).project == untrusted
    record_trust(file, b"x", environment, NOW)
    assert read_policy_files(root, environment).project == PolicyFile(file, b"x", trusted=True)
    file.write_bytes(b"y")
    found = read_policy_files(root, environment).project
    assert (found.content, found.trusted) == (b"y", False)


def test_two_policies_in_one_project_are_refused(root, environment):
    (root.path / "paddock.toml").write_bytes(b"")
    (root.path / "paddock.json").write_bytes(b"{}")
    with pytest.raises(ConfigError, match="two policies"):
        read_policy_files(root, environment)


def test_the_users_configuration_is_trusted_and_may_be_a_link(root, environment, tmp_path):
    (tmp_path / "dotfiles.toml").write_bytes(b"mine")
    environment.config_home.mkdir(parents=True)
    environment.user_config.symlink_to(tmp_path / "dotfiles.toml")
    found = read_policy_files(root, environment)
    assert found.user == PolicyFile(environment.user_config, b"mine", trusted=True)
    assert found.paths() == (environment.user_config,)


def test_the_users_whole_configuration_may_be_a_link(root, environment, tmp_path):
    (tmp_path / "dotfiles" / "keys").mkdir(parents=True)
    (tmp_path / "dotfiles" / "config.toml").write_bytes(b"mine")
    environment.config_home.parent.mkdir()
    environment.config_home.symlink_to(tmp_path / "dotfiles")
    found = read_policy_files(root, environment).user
    assert found == PolicyFile(environment.user_config, b"mine", trusted=True)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720])
@pytest.mark.parametrize("name", [".", "keys"])
def test_a_configuration_into_which_others_can_put_files_is_refused(root, environment, name, mode):
    place = environment.config_home / name
    place.mkdir(parents=True)
    assert read_policy_files(root, environment).user is None
    place.chmod(mode)
    with pytest.raises(ConfigError, match="can be written by others") as caught:
        read_policy_files(root, environment)
    assert caught.value.where == str(place)
    assert caught.value.hint.endswith("choose another XDG_CONFIG_HOME")


@pytest.mark.parametrize("mode", [0o660, 0o606])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_configuration_that_others_can_write_is_refused(
    root, environment, tmp_path, mode, is_link
):
    environment.config_home.mkdir(parents=True)
    file = tmp_path / "dotfiles.toml" if is_link else environment.user_config
    file.write_bytes(b"mine")
    if is_link:
        environment.user_config.symlink_to(file)
    file.chmod(0o644)
    assert read_policy_files(root, environment).user is not None
    file.chmod(mode)
    with pytest.raises(ConfigError, match="can be written by others"):
        read_policy_files(root, environment)


@pytest.mark.needs("root")
@pytest.mark.parametrize("name", [".", "keys", "config.toml"])
def test_a_configuration_of_somebody_elses_is_refused(root, environment, name):
    (environment.config_home / "keys").mkdir(parents=True)
    environment.user_config.write_bytes(b"theirs")
    assert read_policy_files(root, environment).user is not None
    os.chown(environment.config_home / name, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        read_policy_files(root, environment)


@pytest.mark.needs("root")
def test_of_a_home_that_was_mounted_into_a_container_the_owner_counts_as_the_user(
    root, environment
):
    environment.config_home.mkdir(parents=True)
    environment.user_config.write_bytes(b"mine")
    for path in (environment.config_home.parent, environment.config_home, environment.user_config):
        os.chown(path, 12345, 12345)
    assert read_policy_files(root, environment).user is not None


@pytest.mark.needs("root")
def test_a_link_to_a_configuration_counts_only_where_the_user_made_it(root, environment, tmp_path):
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "config.toml").write_bytes(b"an agent's")
    environment.config_home.parent.mkdir()
    environment.config_home.symlink_to(tmp_path / "workspace")
    os.chown(environment.config_home, 12345, 12345, follow_symlinks=False)
    with pytest.raises(ConfigError, match="a link that belongs to user 12345"):
        read_policy_files(root, environment)


def test_a_bare_planes_policy_counts_whole_where_the_plane_was_accepted(bare, environment):
    (bare / "policy.toml").write_bytes(b"x")
    plane = bare.parent.parent
    accepted = read_policy_files(ProjectRoot(plane, PlaneKind.BARE, accepted=True), environment)
    assert accepted.project == PolicyFile(bare / "policy.toml", b"x", trusted=True)
    found = read_policy_files(ProjectRoot(plane, PlaneKind.BARE), environment)
    assert found.project == PolicyFile(
        bare / "policy.toml",
        b"x",
        trusted=False,
        reason="this plane was neither named nor registered",
    )


def test_a_paddock_toml_in_a_bare_plane_is_not_its_policy(bare, environment):
    plane = bare.parent.parent
    (plane / "paddock.toml").write_bytes(b"x")
    root = ProjectRoot(plane, PlaneKind.BARE, accepted=True)
    assert read_policy_files(root, environment).project is None


@pytest.mark.parametrize(
    "make",
    [os.mkdir, os.mkfifo, lambda p: os.symlink("/etc/passwd", p), lambda p: os.symlink("x", p)],
)
@pytest.mark.parametrize("name", ["paddock.toml", "paddock.json"])
def test_what_is_no_regular_file_stops_at_once(root, environment, make, name):
    make(root.path / name)
    with pytest.raises(ConfigError) as caught:
        read_policy_files(root, environment)
    assert caught.value.where == str(root.path / name)


def test_a_policy_over_the_limit_is_refused(root, environment):
    file = root.path / "paddock.toml"
    file.write_bytes(b"#" * limits.policy_bytes_max)
    assert read_policy_files(root, environment).project is not None
    file.write_bytes(b"#" * (limits.policy_bytes_max + 1))
    with pytest.raises(ConfigError, match="more than"):
        read_policy_files(root, environment)
