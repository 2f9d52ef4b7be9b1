"""What governs does not load, or the project is gone: nothing is done, and all that was is told."""

import json
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.assembly.ledgers import HOOK_PACE, open_ledger
from paddock.assembly.project_open import open_project
from paddock.plane.environment import read_environment
from paddock.plane.layout import LedgerName
from paddock.values.entries import Entry
from tests.support.disks import tree

ASKED = {
    "query": ("query", "--ledger", "ho1m", "--agent", "main", "--json"),
    "verify": ("verify", "--json"),
    "export": ("export", "--ledger", "ho1m", "--agent", "main"),
    "checkpoint": ("checkpoint", "--json"),
    "proof": ("proof", "0", "--json"),
    "accept-rollback": ("accept-rollback", "--json"),
}


@pytest.fixture
def lived(user):
    """A project in which something happened, and whose ledgers are signed."""
    assert user.call("create_file", path="f", content="x").status == 0
    assert user.run("ledger", "checkpoint").status == 0
    return user


@pytest.fixture
def spoil(lived):
    def spoil() -> None:
        (lived.project / "paddock.toml").write_text("[broken")

    return spoil


@pytest.mark.parametrize("question", ASKED)
def test_ledgers_answer_as_before_where_the_policy_does_not_load(lived, spoil, question):
    before = lived.run("ledger", *ASKED[question])
    spoil()
    after = lived.run("ledger", *ASKED[question])
    assert before.status == 0
    assert (after.status, after.out, after.err) == (before.status, before.out, before.err)


def test_an_agent_that_never_acted_is_asked_for_in_vain_and_the_reason_is_said(lived, spoil):
    spoil()
    ran = lived.run("ledger", "query", "--agent", "nobody")
    assert (ran.status, ran.out) == (3, "")
    assert "paddock.toml" in ran.err


def test_the_places_are_said_and_then_what_does_not_load(lived, spoil):
    before = lived.run("where", "--json").json
    spoil()
    shown = lived.run("where", "--json")
    assert (shown.status, json.loads(shown.out)) == (3, {**before, "policy": None})
    assert shown.err.startswith("error[config")
    read = lived.run("where")
    assert (read.status, "policy   not known" in read.out) == (3, True)


def test_no_call_is_made_and_no_undo(lived, spoil):
    spoil()
    for ran in (lived.call("create_file", path="g", content="x"), lived.run("undo")):
        assert (ran.status, ran.out) == (3, "")
    assert not (lived.project / "g").exists()
    assert (lived.project / "f").read_text() == "x"


def test_a_bare_plane_is_audited_although_its_admin_is_not_configured(user, tmp_path):
    plane = tmp_path / "plane"
    assert user.run("init", "--bare", str(plane)).status == 0
    whole = user.run("--plane", str(plane), "ledger", "verify", "--json").json
    (plane / "HOT" / "config" / "admin_config.json").write_text("{")
    again = user.run("--plane", str(plane), "ledger", "verify", "--json")
    assert (again.status, again.json) == (0, whole)
    refused = user.run("--plane", str(plane), "gate", "--all")
    assert (refused.status, refused.out) == (3, "")
    assert "admin_config.json" in refused.err


def test_the_ledgers_of_a_project_that_was_moved_away_are_read_in_its_plane(lived):
    plane = lived.run("where", "--json").json["plane"]
    before = lived.run("ledger", "query", "--ledger", "ho1m", "--json").out
    moved = replace(lived, project=lived.project.rename(lived.project.with_name("moved")))
    read = moved.run("--plane", plane, "ledger", "query", "--ledger", "ho1m", "--json")
    assert (read.status, read.out) == (0, before)
    assert moved.run("--plane", plane, "ledger", "verify").status == 0
    refused = moved.run("--plane", plane, "call", "view", '{"path": "f"}')
    assert (refused.status, f"directory '{lived.project}' does not exist" in refused.err) == (
        2,
        True,
    )
    assert moved.run("history").out == ""


def test_a_copied_plane_is_read_where_it_is_and_nothing_else_is_done_with_it(lived, tmp_path):
    plane = Path(lived.run("where", "--json").json["plane"])
    before = lived.run("ledger", "query", "--ledger", "ho1m", "--json").out
    copy = shutil.copytree(plane, tmp_path / "evidence" / plane.name)
    shutil.rmtree(plane)
    (call,) = {json.loads(row)["call_id"] for row in before.splitlines()} - {""}

    read = lived.run("--plane", str(copy), "ledger", "query", "--ledger", "ho1m", "--json")
    assert (read.status, read.out) == (0, before)
    assert lived.run("--plane", str(copy), "ledger", "verify").status == 0
    explained = lived.run("--plane", str(copy), "policy", "explain", call)
    assert (explained.status, "create f" in explained.out) == (0, True)
    for words in (("history",), ("call", "view", '{"path": "f"}'), ("undo", call)):
        refused = lived.run("--plane", str(copy), *words)
        said = f"is a copy of the plane of '{lived.project}'"
        assert (refused.status, said in refused.err) == (2, True)
    assert not plane.exists()


def test_only_where_a_ledger_can_be_set_aside_does_verify_propose_it(lived, tmp_path):
    plane = Path(lived.run("where", "--json").json["plane"])
    ledger = plane / "HO1" / "ledger" / "ho1m.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"create", b"delete", 1))
    copy = shutil.copytree(plane, tmp_path / "evidence" / plane.name)

    copied = lived.run("--plane", str(copy), "ledger", "verify", "--ledger", "ho1m")
    own = lived.run("ledger", "verify", "--ledger", "ho1m")

    assert [(each.status, "DAMAGED" in each.out) for each in (copied, own)] == [(4, True)] * 2
    assert ("set-aside" in copied.out, "set-aside" in own.out) == (False, True)


@pytest.mark.parametrize("action", ["checkpoint", "accept-rollback", "set-aside"])
def test_in_a_copied_plane_no_ledger_is_written_and_nothing_is_signed(lived, tmp_path, action):
    plane = Path(lived.run("where", "--json").json["plane"])
    # Under the plane's own name: so its keys are found.
    copy = shutil.copytree(plane, tmp_path / "evidence" / plane.name)
    for each in (copy, plane):
        ledger = each / "HO1" / "ledger" / "ho1m.jsonl"
        if action != "checkpoint":
            ledger.unlink()
        if action == "accept-rollback":
            shutil.rmtree(ledger.with_suffix(".d"))
    words = ("ledger", action, "--ledger", "ho1m", *(("--yes",) * (action != "checkpoint")))
    before = tree(copy), tree(lived.home)

    refused = lived.run("--plane", str(copy), *words)

    said = f"is a copy of the plane of '{lived.project}'"
    assert (refused.status, said in refused.err, "name the project" in refused.err) == (
        2,
        True,
        True,
    )
    assert (tree(copy), tree(lived.home)) == before
    assert lived.run(*words).status == 0


def test_in_a_copied_plane_a_proof_is_of_what_was_signed_there(lived, tmp_path):
    plane = Path(lived.run("where", "--json").json["plane"])
    project = open_project(lived.project, read_environment({"HOME": str(lived.home)}))
    with closing(open_ledger(project, LedgerName.HO1M, HOOK_PACE)) as ledger:
        newest = ledger.append([Entry("TEST", reason="no checkpoint covers it yet")]).first_seq
    copy = shutil.copytree(plane, tmp_path / "evidence" / plane.name)
    before = tree(copy), tree(lived.home)

    proof = ("ledger", "proof", "--ledger", "ho1m")
    proved = lived.run("--plane", str(copy), *proof, "0")
    unsigned = lived.run("--plane", str(copy), *proof, str(newest))

    assert (proved.status, proved.out != "") == (0, True)
    assert (unsigned.status, unsigned.out) == (2, "")
    assert (tree(copy), tree(lived.home)) == before
    assert lived.run(*proof, str(newest)).status == 0


def test_a_damaged_copy_of_a_plane_does_not_verify(lived, tmp_path):
    plane = Path(lived.run("where", "--json").json["plane"])
    copy = shutil.copytree(plane, tmp_path / "copy")
    ledger = copy / "HO1" / "ledger" / "ho1m.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"create_file", b"delete_file"))

    ran = lived.run("--plane", str(copy), "ledger", "verify")
    assert (ran.status, "DAMAGED" in ran.out + ran.err) == (4, True)


def test_a_project_is_never_taken_for_a_copy(lived):
    (lived.project / "plane.json").write_text('{"format": 1, "root": "/elsewhere", "id": "0"}')
    (lived.project / "HOT" / "ledger").mkdir(parents=True)
    (lived.project / ".git").mkdir(exist_ok=True)

    ran = lived.run("--plane", str(lived.project), "call", "view", '{"path": "f"}')
    assert ran.status == 0


def test_a_call_is_explained_without_its_project(lived):
    plane = lived.run("where", "--json").json["plane"]
    rows = lived.run("ledger", "query", "--ledger", "ho1m", "--json").out.splitlines()
    (call,) = {json.loads(row)["call_id"] for row in rows} - {""}
    gone = replace(lived, project=lived.project.rename(lived.project.with_name("gone")))

    ran = gone.run("--plane", plane, "policy", "explain", call)
    assert (ran.status, "create f" in ran.out) == (0, True)
