"""Which workspace a call worked on: by the declarations that were in force then."""

from pathlib import Path

import pytest

from paddock.assembly.undo import PastWorkspaces, past_workspaces
from paddock.ledger.format.lines import StoredEntry
from paddock.plane.agents import AgentRecord
from paddock.runtime.changes import PastCall
from paddock.values.decisions import Agent
from paddock.values.entries import Entry


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}.000000Z"


def declared(second: int, workspace: str) -> StoredEntry:
    metadata = {"workspace": workspace, "digest": f"sha256:{workspace}"}
    entry = Entry("AGENT_CREATED", agent="kid", metadata=metadata)
    return StoredEntry(second, "", f"LED-{second}", at(second), entry, b"")


def call(second: int, session: str = "SES-1") -> PastCall:
    return PastCall("c", "e", at(second), "kid", "kid", session, "edit", "done", ())


def now(workspace: str, digest: str = "") -> AgentRecord:
    agent = Agent("kid", "standard")
    return AgentRecord(
        agent, Path(workspace), False, Path("agent.json"), digest or f"sha256:{workspace}"
    )


BOTH = {"kid": (declared(10, "/one"), declared(20, "/two"))}


@pytest.mark.parametrize(
    ("second", "left"),
    [
        (15, "/one"),
        (25, ""),
        (5, ""),  # nothing tells what it was before the first declaration
    ],
)
def test_a_call_worked_on_what_was_declared_last_before_it(second, left):
    assert PastWorkspaces(BOTH, {}).left_since(call(second), now("/two")) == left


def test_an_agent_that_was_made_again_on_the_same_workspace_has_left_nothing():
    found = PastWorkspaces({"kid": (*BOTH["kid"], declared(30, "/one"))}, {})
    assert [found.left_since(call(n), now("/one")) for n in (15, 25, 35)] == ["", "/two", ""]


def test_a_session_keeps_the_workspace_with_which_it_began(tmp_path):
    calls = (call(15), call(25), call(26, "SES-2"))
    found = PastWorkspaces(BOTH, past_workspaces(tmp_path / "none", calls).began)
    assert [found.left_since(each, now("/two")) for each in calls] == ["/one", "/one", ""]


def test_a_plane_that_was_moved_as_a_whole_is_no_other_workspace():
    found = PastWorkspaces({"kid": (declared(10, "/one"),)}, {})
    assert found.left_since(call(15), now("/elsewhere/one", digest="sha256:/one")) == ""


def test_a_declaration_that_was_edited_by_hand_counts_before_it_is_on_record():
    found = PastWorkspaces({"kid": (declared(10, "/one"),)}, {})
    assert found.left_since(call(15), now("/three")) == "/one"
    assert found.left_since(call(15), now("/one", digest="sha256:other profile")) == ""


def test_where_nothing_is_on_record_nothing_is_known(tmp_path):
    assert past_workspaces(tmp_path / "none", (call(15),)).left_since(call(15), now("/two")) == ""
