"""A token names one agent, until another is made."""

import os

import pytest

from paddock.errors import ConfigError
from paddock.plane.environment import read_environment
from paddock.plane.layout import PlaneLayout
from paddock.plane.tokens import Bearer, find_bearer, make_token, read_token, token_path
from paddock.values.decisions import PlaneKind


@pytest.fixture
def place(tmp_path):
    return PlaneLayout(tmp_path / "planes" / "p-1", PlaneKind.PROJECT), read_environment(
        {"HOME": str(tmp_path)}
    )


def test_a_token_is_found_and_names_its_agent(place):
    tokens = {agent: make_token(*place, agent) for agent in ("main", "other")}
    assert {agent: find_bearer(*place, token).agent for agent, token in tokens.items()} == {
        "main": "main",
        "other": "other",
    }
    assert read_token(*place, "main") == tokens["main"]


@pytest.mark.parametrize("given", ["", "\n", "paddock_", "é", "\udc80", "x" * 100_000])
def test_anything_else_is_nobody(place, given):
    assert find_bearer(*place, given).agent is None
    make_token(*place, "main")
    assert find_bearer(*place, given).agent is None


def test_part_of_a_token_is_none(place):
    token = make_token(*place, "main")
    assert [
        find_bearer(*place, part).agent for part in (token[:-1], token + "x", token.upper())
    ] == [
        None,
        None,
        None,
    ]


def test_a_new_token_voids_the_old_one(place):
    old, new = make_token(*place, "main"), make_token(*place, "main")
    assert (find_bearer(*place, old).agent, find_bearer(*place, new).agent) == (None, "main")


def test_an_empty_file_is_nobodys_token(place):
    make_token(*place, "main")
    token_path(*place, "main").write_bytes(b"\n")
    assert find_bearer(*place, "").agent is None


def test_tokens_are_private_and_lie_outside_the_plane(place):
    layout, environment = place
    make_token(*place, "main")
    file = token_path(*place, "main")
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert environment.config_home in file.parents
    assert layout.root not in file.parents


def test_a_directory_that_others_can_write_to_holds_no_tokens(place):
    token = make_token(*place, "main")
    os.chmod(token_path(*place, "main").parent, 0o777)
    with pytest.raises(ConfigError):
        find_bearer(*place, token)


@pytest.mark.parametrize("kind", ["link", "directory", "large"])
def test_a_file_that_does_not_load_is_nobodys_token_and_hides_no_other(place, tmp_path, kind):
    token = make_token(*place, "main")
    other = token_path(*place, "another")
    if kind == "link":
        (tmp_path / "elsewhere").write_text(token)
        other.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        other.mkdir()
    else:
        other.write_text("x" * 1_025)
    agent, (problem,) = find_bearer(*place, token)
    assert (agent, problem.where or str(other)) == ("main", str(other))
    assert find_bearer(*place, "x" * 1_025).agent is None
    other.rmdir() if kind == "directory" else other.unlink()
    assert find_bearer(*place, token) == Bearer("main")
