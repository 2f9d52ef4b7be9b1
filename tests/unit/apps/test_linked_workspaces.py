"""An agent's workspace, and a link that somebody who works around it puts in its place."""

import pytest

from paddock.assembly.history import open_workspace_of
from paddock.errors import ConfigError
from paddock.plane.agents import AgentStore
from paddock.plane.create import open_plane
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import read_environment
from paddock.values.decisions import PlaneKind


@pytest.fixture
def place(user):
    """The workspace of the agent `x`, below that of `main`; beside both is what it shall not get."""
    place = user.project / "work"
    place.mkdir()
    made = user.run("agent", "create", "x", "--profile", "open", "--workspace", str(place))
    assert made.status == 0, made.err
    secret = user.project.parent / "secret"
    secret.mkdir()
    (secret / "token").write_bytes(b"hunter2\n")
    return place


def test_an_agent_works_in_its_directory_and_nowhere_that_a_link_leads(user, place):
    (place / "token").write_bytes(b"its own\n")
    assert "its own" in user.call("view", "--agent", "x", path="token").out
    place.rename(user.project / "aside")
    place.symlink_to(user.project.parent / "secret")
    for tool, arguments in (
        ("view", {"path": "token"}),
        ("create_file", {"path": "new", "content": "x"}),
    ):
        ran = user.call(tool, "--agent", "x", **arguments)
        assert ran.status != 0
        assert "error[config.invalid]: the workspace" in ran.err
        assert "is reached through a link" in ran.err
        assert "hunter2" not in ran.out + ran.err
    assert [each.name for each in (user.project.parent / "secret").iterdir()] == ["token"]
    place.unlink()
    (user.project / "aside").rename(place)
    assert "its own" in user.call("view", "--agent", "x", path="token").out


def test_a_link_that_comes_after_the_look_at_the_agent_opens_nothing(user, place):
    environment = read_environment({"HOME": str(user.home)})
    layout = open_plane(ProjectRoot(user.project, PlaneKind.PROJECT), environment).layout
    record = AgentStore(layout, environment).read("x")
    with open_workspace_of(record) as workspace:
        assert workspace.real_root == str(place)
    place.rmdir()
    place.symlink_to(user.project.parent / "secret")
    with pytest.raises(ConfigError, match="is reached through a link"):
        open_workspace_of(record)
