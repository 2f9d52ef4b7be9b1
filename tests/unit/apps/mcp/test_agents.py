"""Which runtime a call gets: the one at hand, or another when what governs has changed."""

import os
from collections.abc import Callable, Iterator

import pytest
from mcp_types import ElicitResult
from msgspec.structs import asdict, replace

from paddock.apps.mcp.agents import Agents, ServedAgent, settle_changes
from paddock.apps.mcp.elicitation import ReturnedAnswer, ReturningAsker
from paddock.assembly.inbox_answers import grant
from paddock.assembly.project_open import open_project
from paddock.errors import ConfigError, UsageError
from paddock.plane.discover import register_bare_plane
from paddock.plane.environment import read_environment
from paddock.runtime.inbox import Inbox, Parked
from paddock.runtime.prepared import FREE, Bounds
from paddock.runtime.question import InboxApprover
from tests.support.mcp_servers import McpPlace, make_place

TIGHTER = '[profiles.standard]\ndeny = ["tool:file:*"]\n'


@pytest.fixture
def place(tmp_path) -> McpPlace:
    made = make_place(tmp_path)
    made.govern('[profiles.standard]\nallow = ["tool:file:*"]\n')
    return made


@pytest.fixture
def agents(place) -> Iterator[Agents]:
    environment = read_environment(place.variables)
    opened = Agents(lambda: open_project(place.project, environment))
    yield opened
    opened.close()


def test_as_long_as_nothing_changes_it_is_the_same(agents):
    assert agents.get() is agents.get()


def test_a_file_that_is_made_in_the_workspace_changes_nothing(agents, place):
    before = agents.get()
    (place.project / "new.txt").write_text("new")

    assert agents.get().runtime is before.runtime
    assert agents.get() is agents.get()


def test_a_tighter_policy_means_the_next_call(agents, place):
    view = {"path": "README.md"}
    (place.project / "README.md").write_text("hello\n")
    before = agents.get()
    assert before.runtime.call("view", view).status == "ok"
    place.govern(TIGHTER)
    after = agents.get()

    assert after.runtime is not before.runtime
    assert after.runtime.call("view", view).status == "error"


def test_a_plane_that_comes_to_stand_in_the_workspace_means_the_next_call(agents, place):
    new = {"path": "plane/HOT/config/policy.toml", "content": "x"}
    agents.get()
    register_bare_plane(place.project / "plane", read_environment(place.variables))
    assert agents.get().runtime.call("create_file", new).refusal.code == "policy.protected"
    assert not (place.project / "plane").exists()
    assert agents.get().runtime.call("create_file", {**new, "path": "a"}).status == "ok"


def test_a_policy_that_does_not_load_serves_nothing(agents, place):
    agents.get()
    (place.project / "paddock.toml").write_text("[profiles")

    for _ in range(2):
        with pytest.raises(ConfigError):
            agents.get()
    place.govern(TIGHTER)
    assert agents.get().runtime.call("view", {"path": "README.md"}).status == "error"


def test_an_agents_first_call_is_judged_by_the_policy_of_now(agents, place):
    assert place.run("agent", "create", "reviewer").returncode == 0
    agents.get()
    place.govern(TIGHTER)

    assert agents.get("reviewer").runtime.call("ls", {"path": "."}).status == "error"


def test_another_directory_in_the_workspaces_place_is_the_one_that_is_served(agents, place):
    (place.project / "paddock.toml").unlink()
    before = agents.get()
    os.rename(place.project, place.base / "moved")
    place.project.mkdir()
    (place.project / "README.md").write_text("the new one")
    after = agents.get()

    assert not before.seen.is_current
    assert after.runtime.call("view", {"path": "README.md"}).content == "     1\tthe new one"


def test_what_was_asked_under_another_policy_does_not_count(agents, place):
    before = agents.get()
    (place.project / "new.txt").write_text("new")
    assert before.seen.is_current
    place.govern(TIGHTER)
    assert not before.seen.is_current


def test_a_directory_of_agents_that_others_can_write_serves_nothing(agents, place):
    agents.get()
    directory = agents.project.layout.agents
    directory.chmod(0o777)

    with pytest.raises(ConfigError):
        agents.get()
    directory.chmod(0o700)
    assert agents.get()


def test_a_plane_that_was_moved_is_looked_at_again(agents, place):
    agents.get()
    root = agents.project.layout.root
    os.rename(root, place.project / "plane")

    with pytest.raises(UsageError, match="no agent is named"):
        agents.get()


SHOWN = """
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:shell:*"]
[shell]
approve = "diff"
"""
COMMAND = {"command": "date +%s%N > stamp"}
YES = ElicitResult(action="accept", content={"approve": True})


class BetweenLooks(Inbox, frozen=True):
    """An inbox in which something else happens as soon as a request has been looked up."""

    happens: Callable[[], object] = lambda: None

    def find(self, wanted: str) -> Parked:
        found = super().find(wanted)
        self.happens()
        return found


def asked_about(served: ServedAgent) -> Parked:
    """A command whose changes wait for the answer of a client that makes its call again."""
    asker = ReturningAsker(served.inbox, None, "client x")
    bounds = Bounds(approver=InboxApprover(asker, lambda: served.inbox))
    served.runtime.call("run_shell", COMMAND, bounds=bounds)
    (parked,) = served.inbox.list_all()
    return parked


@pytest.mark.needs("stage")
def test_of_a_clients_yes_and_an_operators_at_the_same_moment_one_counts(agents, place):
    place.govern(SHOWN)
    served = agents.get()
    parked = asked_about(served)

    def grant_elsewhere() -> None:
        grant(served.project, parked.id, "operator")

    inbox = BetweenLooks(**asdict(served.inbox), happens=grant_elsewhere)
    returned = ReturnedAnswer(parked.id, parked.request.digest, YES)
    asker = ReturningAsker(inbox, returned, "client x")
    result = settle_changes(replace(served, inbox=inbox), asker, "run_shell", COMMAND, FREE)

    assert result is not None
    assert result.refusal is not None
    assert result.refusal.code == "approval.expired"
    assert not (place.project / "stamp").exists()
    (waiting,) = served.inbox.list_all()
    assert (waiting.state, waiting.answered_by) == ("granted", "operator")


@pytest.mark.needs("stage")
def test_a_clients_yes_alone_brings_the_changes_in(agents, place):
    place.govern(SHOWN)
    served = agents.get()
    parked = asked_about(served)
    returned = ReturnedAnswer(parked.id, parked.request.digest, YES)
    asker = ReturningAsker(served.inbox, returned, "client x")

    result = settle_changes(served, asker, "run_shell", COMMAND, FREE)

    assert result is not None
    assert result.status == "ok"
    assert (place.project / "stamp").exists()
