"""A grant counts for the paths that were shown: not for those that a link or a name comes to later."""

import json
import os

import pytest

ASKING = b"""
[profiles.standard]
ask = ["tool:file:*", "tool:search:*", "tool:output:*"]
"""
ACTIONS_CHANGED = "the actions of the call have changed since it was asked about"
TARGET_CHANGED = "the target of the call has changed since it was asked about"


def ask(user, tool, **arguments):
    return user.call(tool, "--no-input", **arguments).json


def granted(user, tool, **arguments):
    """The id of a request for this call, which an operator has granted."""
    kept = ask(user, tool, **arguments)["approval"]
    ran = user.run("approvals", "grant", kept)
    assert ran.status == 0, ran.err
    return kept


def outdated(user, kept):
    """What a list says of it: as text, and why."""
    (row,) = [r for r in user.run("approvals", "list", "--json").json if r["id"] == kept]
    (line,) = [r for r in user.run("approvals", "list").out.splitlines() if r.startswith(kept)]
    return line.split()[1], row["outdated"]


def point(user, name, target):
    """The link `name` leads to `target` from now on."""
    path = user.project / name
    if path.is_symlink():
        path.unlink()
    path.symlink_to(target)


# --- links ----------------------------------------------------------------------------


@pytest.fixture(params=["files", "nothing"])
def linked(asking, request):
    """`l` leads to `staging`; `production` has the same content, or neither exists."""
    if request.param == "files":
        for name in ("staging", "production"):
            (asking.project / name).write_bytes(b"same")
    point(asking, "l", "staging")
    return asking


CREATE = {"path": "l", "content": "new"}


def test_a_grant_for_a_link_counts_while_it_leads_where_it_led(linked):
    kept = granted(linked, "create_file", **CREATE)
    assert outdated(linked, kept) == ("granted", "")
    # Made again, it is the same link.
    point(linked, "l", "staging")
    assert ask(linked, "create_file", **CREATE)["status"] == "ok"
    assert (linked.project / "staging").read_bytes() == b"new"


def test_a_grant_for_a_link_does_not_count_once_it_leads_elsewhere(linked):
    kept = granted(linked, "create_file", **CREATE)
    point(linked, "l", "production")
    before = linked.files()
    assert outdated(linked, kept) == ("outdated", ACTIONS_CHANGED)
    assert ask(linked, "create_file", **CREATE)["code"] == "approval.unavailable"
    assert linked.files() == before


@pytest.mark.parametrize("more", [[], ["--resume"]], ids=["grant", "resume"])
def test_a_request_is_not_granted_once_the_link_leads_elsewhere(linked, more):
    kept = ask(linked, "create_file", **CREATE)["approval"]
    point(linked, "l", "production")
    before = linked.files()
    ran = linked.run("approvals", "grant", kept, *more)
    assert (ran.status, f"would count for no call: {ACTIONS_CHANGED}" in ran.err) == (1, True)
    assert linked.files() == before


def test_a_request_for_a_link_that_leads_where_it_led_is_resumed(linked):
    kept = ask(linked, "create_file", **CREATE)["approval"]
    assert linked.run("approvals", "grant", kept, "--resume").status == 0
    assert (linked.project / "staging").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("tool", "more"), [("view", {}), ("ls", {}), ("grep", {"pattern": "x"})], ids=str
)
def test_a_grant_for_a_link_to_a_directory_is_for_that_directory(asking, tool, more):
    for name in ("d1", "d2"):
        (asking.project / name).mkdir()
        (asking.project / name / "f").write_bytes(b"x")
    point(asking, "cur", "d1")
    kept = granted(asking, tool, path="cur", **more)
    point(asking, "cur", "d2")
    assert outdated(asking, kept) == ("outdated", ACTIONS_CHANGED)
    assert ask(asking, tool, path="cur", **more)["code"] == "approval.unavailable"
    point(asking, "cur", "d1")
    assert outdated(asking, kept) == ("granted", "")
    assert ask(asking, tool, path="cur", **more)["status"] == "ok"


# --- names that are chosen ------------------------------------------------------------


def test_a_grant_for_an_output_counts_while_its_name_is_free(asking):
    kept = granted(asking, "write_output", name="r", content="x")
    (asking.project / "outputs").mkdir()
    (asking.project / "outputs/other.md").write_bytes(b"other")
    assert outdated(asking, kept) == ("granted", "")
    assert ask(asking, "write_output", name="r", content="x")["path"] == "outputs/r.md"


def test_a_grant_for_an_output_does_not_count_for_the_next_free_name(asking):
    kept = granted(asking, "write_output", name="r", content="x")
    (asking.project / "outputs").mkdir()
    (asking.project / "outputs/r.md").write_bytes(b"other")
    before = asking.files()
    assert outdated(asking, kept) == ("outdated", ACTIONS_CHANGED)
    assert ask(asking, "write_output", name="r", content="x")["code"] == "approval.unavailable"
    assert asking.files() == before


# --- kinds ----------------------------------------------------------------------------

TAKING = [("delete_file", {"path": "sw"}), ("move_file", {"path": "sw", "to": "there"})]


@pytest.mark.parametrize(("tool", "arguments"), TAKING, ids=["delete", "move"])
def test_a_grant_for_a_file_does_not_count_for_a_link_with_its_content_as_text(
    asking, tool, arguments
):
    (asking.project / "sw").write_bytes(b"victim")
    kept = granted(asking, tool, **arguments)
    assert outdated(asking, kept) == ("granted", "")
    os.unlink(asking.project / "sw")
    point(asking, "sw", "victim")
    assert outdated(asking, kept) == ("outdated", TARGET_CHANGED)
    assert ask(asking, tool, **arguments)["code"] == "approval.unavailable"
    assert os.readlink(asking.project / "sw") == "victim"


@pytest.mark.parametrize(("tool", "arguments"), TAKING, ids=["delete", "move"])
@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_grant_counts_for_what_is_still_of_its_kind(asking, tool, arguments, kind):
    make = {
        "file": lambda path: path.write_bytes(b"victim"),
        "link": lambda path: path.symlink_to("victim"),
        "directory": lambda path: path.mkdir(),
    }
    make[kind](asking.project / "sw")
    granted(asking, tool, **arguments)
    assert ask(asking, tool, **arguments)["status"] == "ok"
    assert not os.path.lexists(asking.project / "sw")


# --- files of an older version ----------------------------------------------------------


def test_a_request_that_binds_no_actions_is_not_granted_and_is_asked_about_again(asking):
    """As an older version wrote it: its digest is over less."""
    kept = ask(asking, "create_file", path="a", content="x")["approval"]
    (file,) = asking.home.rglob(f"{kept}.*.json")
    members = json.loads(file.read_bytes())
    del members["filled"]
    members["digest"] = "sha256:" + "0" * 64
    file.unlink()
    file.with_name(f"{kept}.{'0' * 32}.json").write_text(json.dumps(members))
    os.chmod(file.with_name(f"{kept}.{'0' * 32}.json"), 0o600)
    assert outdated(asking, kept)[0] == "outdated"
    assert asking.run("approvals", "grant", kept).status == 1
    again = ask(asking, "create_file", path="a", content="x")
    assert (again["code"], again["approval"] != kept) == ("approval.unavailable", True)
    assert not (asking.project / "a").exists()
