import os
import pwd
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.plane.environment import Environment, process_environment, read_environment


def places(variables: dict[str, str]) -> Environment:
    return replace(read_environment(variables), variables=())


def test_the_variables_are_not_shown():
    assert "hunter2" not in repr(read_environment({"HOME": "/h", "API_KEY": "hunter2"}))


def test_the_defaults_are_below_the_home_directory():
    assert places({"HOME": "/home/ada"}) == Environment(
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
    assert places(variables) == Environment(
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
    found = places({"HOME": "/h", "XDG_STATE_HOME": value, "XDG_CONFIG_HOME": value})
    assert found == places({"HOME": "/h"})


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


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ({"HOME": "/h\udcff"}, "PADDOCK_HOME"),
        ({"HOME": "/h", "PADDOCK_HOME": "/s\udcff"}, "PADDOCK_HOME"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s\udcff"}, "PADDOCK_HOME"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/c\udcff"}, "XDG_CONFIG_HOME"),
        ({"HOME": "/h\udcff", "PADDOCK_HOME": "/s"}, "XDG_CONFIG_HOME"),
    ],
)
def test_places_that_no_ledger_could_name_are_refused_before_anything_is_made(variables, where):
    with pytest.raises(ConfigError, match="is not UTF-8") as caught:
        read_environment(variables)
    assert (caught.value.where, caught.value.hint) == (where, f"set {where} to another one")


def test_a_home_that_is_not_utf8_is_fine_where_paddocks_own_places_are():
    found = read_environment({"HOME": "/h\udcff", "PADDOCK_HOME": "/hé", "XDG_CONFIG_HOME": "/c"})
    assert (found.paddock_home, found.config_home) == (Path("/hé"), Path("/c/paddock"))


def test_a_relative_plane_is_taken_from_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_environment({"HOME": "/h", "PADDOCK_PLANE": "p"}).plane == tmp_path / "p"


def test_the_environment_of_the_process_is_read(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert process_environment() == read_environment(dict(os.environ))
    assert process_environment().home == Path("/home/ada")
