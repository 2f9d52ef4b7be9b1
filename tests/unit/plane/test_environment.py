import os
import pwd
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.plane.environment import Environment, process_environment, read_environment


def test_the_defaults_are_below_the_home_directory():
    assert read_environment({"HOME": "/home/ada"}) == Environment(
        home=Path("/home/ada"),
        paddock_home=Path("/home/ada/.local/state/paddock"),
        config_home=Path("/home/ada/.config/paddock"),
        plane=None,
    )


def test_every_place_can_be_set():
    variables = {
        "HOME": "/home/ada",
        "PADDOCK_HOME": "/state/mine/",
        "XDG_STATE_HOME": "/state",
        "XDG_CONFIG_HOME": "/config",
        "PADDOCK_PLANE": "/srv/plane",
    }
    assert read_environment(variables) == Environment(
        home=Path("/home/ada"),
        paddock_home=Path("/state/mine"),
        config_home=Path("/config/paddock"),
        plane=Path("/srv/plane"),
    )


def test_the_state_home_counts_where_no_paddock_home_is_set():
    found = read_environment({"HOME": "/h", "XDG_STATE_HOME": "/state", "PADDOCK_HOME": ""})
    assert found.paddock_home == Path("/state/paddock")


@pytest.mark.parametrize("value", ["", "relative/state", "./state", "~/state"])
def test_xdg_values_that_are_not_absolute_are_ignored(value):
    found = read_environment({"HOME": "/h", "XDG_STATE_HOME": value, "XDG_CONFIG_HOME": value})
    assert found == read_environment({"HOME": "/h"})


def test_a_relative_paddock_home_is_refused():
    with pytest.raises(ConfigError) as caught:
        read_environment({"HOME": "/h", "PADDOCK_HOME": "state"})
    assert (caught.value.where, bool(caught.value.hint)) == ("PADDOCK_HOME", True)


@pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"HOME": "not/absolute"}])
def test_without_a_home_the_password_database_is_asked(variables):
    assert read_environment(variables).home == Path(pwd.getpwuid(os.geteuid()).pw_dir)


def test_a_user_whom_nobody_knows_is_told_to_set_home(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_001)
    with pytest.raises(ConfigError) as caught:
        read_environment({})
    assert caught.value.hint == "set HOME to an absolute path"


def test_a_relative_plane_is_taken_from_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_environment({"HOME": "/h", "PADDOCK_PLANE": "p"}).plane == tmp_path / "p"


def test_the_environment_of_the_process_is_read(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert process_environment() == read_environment(dict(os.environ))
    assert process_environment().home == Path("/home/ada")
