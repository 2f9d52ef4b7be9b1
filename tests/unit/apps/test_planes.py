"""`paddock plane`: which planes there are, and taking one away."""

import shutil
from pathlib import Path

import pytest

from tests.unit.apps.conftest import User


@pytest.fixture
def plane(user):
    user.call("create_file", path="a", content="x")
    return user.run("where", "--json").json["plane"]


def listed(user) -> list[tuple[str, bool]]:
    rows = user.run("plane", "list", "--json").json["planes"]
    return [(row["root"], row["root_exists"]) for row in rows]


def test_it_is_listed_with_its_project(user, plane):
    assert listed(user) == [(str(user.project), True)]
    assert str(user.project) in user.run("plane", "list").out


def test_without_a_yes_it_stays(user, plane):
    ran = user.run("plane", "remove", ".")

    assert (ran.status, "--yes" in ran.err) == (2, True)
    assert listed(user) == [(str(user.project), True)]


def test_after_a_yes_it_is_gone_and_the_project_stands(user, plane):
    assert user.run("plane", "remove", ".", "--yes").status == 0

    assert listed(user) == []
    assert (user.project / "a").read_text() == "x"
    assert user.run("history", "--json").json["calls"] == []


def test_the_plane_of_a_project_that_is_gone_is_said_and_removed(user, plane):
    shutil.rmtree(user.project)
    other = User(user.home, user.project.parent)
    assert "the project is gone" in other.run("plane", "list").out

    assert other.run("plane", "remove", str(user.project), "--yes").status == 0
    assert other.run("plane", "list", "--json").json == {"planes": []}


def test_a_directory_without_a_plane_is_said(user, plane):
    ran = user.run("plane", "remove", "..", "--yes")

    assert (ran.status, "has no plane" in ran.err) == (2, True)
    assert listed(user) == [(str(user.project), True)]


def test_what_a_removal_left_half_done_goes_with_the_next(user, plane):
    left = user.home / ".local" / "state" / "paddock" / "planes" / ".removed-0123"
    left.mkdir()
    assert listed(user) == [(str(user.project), True)]

    assert user.run("plane", "remove", ".", "--yes").status == 0
    assert not left.exists()


def test_an_empty_name_is_no_directory_and_removes_nothing(user, plane):
    # Threat: `paddock plane remove "$OLD" --yes` where the variable is not set.
    ran = user.run("plane", "remove", "", "--yes")

    assert (ran.status, "DIR is empty: expected a directory" in ran.err) == (2, True)
    assert Path(plane).is_dir()
