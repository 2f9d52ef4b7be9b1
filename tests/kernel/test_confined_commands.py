"""A command that policy confines runs unasked where it is held whole; what it could lose waits."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.mcp_servers import McpPlace, make_place

pytestmark = pytest.mark.needs("stage")

FEW = "[shell]\nconfine_max = { files = 3, deleted = 2 }\n"


def place_of(tmp_path: Path, text: str) -> McpPlace:
    place = make_place(tmp_path, text)
    for number in range(5):
        (place.project / f"f{number}").write_text(f"{number}\n")
    return place


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return place_of(tmp_path, FEW)


def run(place: McpPlace, command: str, **more) -> dict:
    ran = place.run("call", "run_shell", json.dumps({"command": command, **more}), "--no-input")
    return json.loads(ran.stdout)


def names(place: McpPlace) -> set[str]:
    return {name for name in os.listdir(place.project) if name.startswith("f")}


def intents(place: McpPlace) -> list[dict]:
    rows = place.run("ledger", "query", "--ledger", "ho1m", "--json", "--last", "50").stdout
    found = [json.loads(row) for row in rows.splitlines()]
    return [each["metadata"] for each in found if each["event_type"] == "TOOL_INTENT"]


def test_a_command_that_is_held_whole_runs_unasked_and_its_entry_says_so(place: McpPlace) -> None:
    done = run(place, "echo more >> f0 && rm f1")
    assert done["status"] == "ok", done
    assert "pending" not in done
    assert (place.project / "f0").read_text() == "0\nmore\n"
    assert names(place) == {"f0", "f2", "f3", "f4"}
    (intent,) = intents(place)
    assert (intent["outcome"], intent["enforcement"]) == ("confine", "full")
    assert "approval" not in intent


@pytest.mark.parametrize(
    "command", ["rm f?", "for f in f?; do echo x > $f; done", "find . -name 'f?' -delete"]
)
def test_what_could_lose_too_much_waits_for_a_person_and_is_committed_by_a_yes(
    place: McpPlace, command: str
) -> None:
    before = {name: (place.project / name).read_text() for name in names(place)}
    waits = run(place, command)
    assert waits["status"] == "ok", waits
    (kept,) = place.waiting()
    assert waits["pending"] == kept["id"]
    said = f"5 changes wait for a person ({kept['id']}); nothing was changed."
    assert f"{said} Do not repeat the command." in waits["content"]
    assert {name: (place.project / name).read_text() for name in names(place)} == before
    # The same once more waits as the same.
    assert run(place, command)["pending"] == kept["id"]
    granted = json.loads(place.run("approvals", "grant", kept["id"], "--json").stdout)
    assert granted["status"] == "ok", granted
    after = {name: (place.project / name).read_text() for name in names(place)}
    assert after == ({} if "echo" not in command else dict.fromkeys(before, "x\n"))


def test_what_waits_does_not_land_over_what_somebody_changed_since(place: McpPlace) -> None:
    pending = run(place, "rm f?")["pending"]
    (place.project / "f4").write_text("mine\n")
    place.run("approvals", "grant", pending, "--json")
    assert names(place) == {"f0", "f1", "f2", "f3", "f4"}
    assert (place.project / "f4").read_text() == "mine\n"


def test_a_dry_run_waits_for_nobody(place: McpPlace) -> None:
    shown = run(place, "rm f?", dry_run=True)
    assert shown["status"] == "ok", shown
    assert "pending" not in shown
    assert place.waiting() == []


@pytest.mark.parametrize("folder", ["node_modules", ".venv/lib/python3.11/site-packages", ".tox"])
def test_what_is_made_again_is_no_loss(place: McpPlace, folder: str) -> None:
    below = place.project / folder
    below.mkdir(parents=True)
    for number in range(9):
        (below / f"m{number}.py").write_text("x")
    done = run(place, f"rm {folder}/m*.py")
    assert "pending" not in done, done
    assert list(below.iterdir()) == []


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_git_ignores_or_has_in_its_index_is_no_loss(place: McpPlace) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(("git", *identity, *words), cwd=place.project, check=True)

    git("init", "-q")
    (place.project / ".gitignore").write_text("build/\n")
    git("add", "f0", "f1", "f2", "f3", "f4", ".gitignore")
    git("commit", "-qm", "x")
    (place.project / "build").mkdir()
    for number in range(9):
        (place.project / f"build/{number}.o").write_text("x")
    assert "pending" not in run(place, "rm build/*.o")
    assert os.listdir(place.project / "build") == []
    # A step of git loses nothing that its index has; one that git has no part in may.
    assert "pending" in run(place, "rm f?")
    removed = run(place, "git rm -q f0 f1 f2 f3 f4")
    assert "pending" not in removed, removed
    assert names(place) == set()


def test_what_is_to_be_shown_as_a_diff_waits(tmp_path: Path) -> None:
    place = place_of(tmp_path, '[shell]\napprove = "diff"\n')
    waits = run(place, "echo x > f0")
    (kept,) = place.waiting()
    assert waits["pending"] == kept["id"]
    assert (place.project / "f0").read_text() == "0\n"
    assert "pending" not in run(place, "true")


ASKS_ABOUT_DELETING = """[shell]
approve = "diff"
[profiles.standard]
extends = "standard"
ask = ["tool:file:delete **"]
deny = ["tool:file:create f2"]
"""


@pytest.mark.parametrize(("command", "count"), [("rm f0", 1), ("rm f0; echo x > f1", 2)])
def test_a_change_that_a_rule_asks_about_waits_as_well_and_lands_after_a_yes(
    tmp_path: Path, command: str, count: int
) -> None:
    place = place_of(tmp_path, ASKS_ABOUT_DELETING)
    waits = run(place, command)
    noun = "change waits" if count == 1 else "changes wait"
    assert f"{count} {noun} for a person" in waits["content"]
    assert "f0" in names(place)
    assert place.run("approvals", "grant", waits["pending"], "--resume").returncode == 0
    assert "f0" not in names(place)
    command_id = place.entries("ho1m", "--type", "TOOL_INTENT")[0]["call_id"]
    told = json.loads(place.run("policy", "explain", command_id, "--json").stdout)["waited"]
    assert (told["request"], told["answer"]) == (waits["pending"], "granted")
    landed = {row["call_id"] for row in place.entries("ho1m", "--path", "f0")}
    assert told["landed_by"] in landed


def test_what_is_denied_waits_for_nobody(tmp_path: Path) -> None:
    place = place_of(tmp_path, ASKS_ABOUT_DELETING)
    said = run(place, 'python3 -c \'open("f2", "w").write("x")\'')
    assert ("pending" in said, [each["path"] for each in said["changes_refused"]]) == (
        False,
        ["f2"],
    )
    assert (place.project / "f2").read_text() == "2\n"


def test_refused_changes_are_found_and_no_rule_for_their_command_is_proposed(tmp_path):
    place = place_of(
        tmp_path, '[profiles.standard]\nextends = "standard"\ndeny = ["tool:file:delete f?"]\n'
    )
    run(place, "rm f0")
    (row,) = place.run("ledger", "query", "--ledger", "ho1m", "--path", "f0").stdout.splitlines()
    assert "run_shell f0  exit 0, 1 change refused: f0" in row
    run(place, "rm f?")
    newest = place.run("ledger", "query", "--ledger", "ho1m", "--last", "1").stdout
    assert "5 changes refused: f0, f1, f2, and 2 more" in newest
    call_id = place.entries("ho1m")[-1]["call_id"]
    told = json.loads(place.run("policy", "explain", call_id, "--json").stdout)
    changes = [change["text"] for each in told["now"]["actions"] for change in each["changes"]]
    assert changes == [
        "the command ran, and only changes were refused: edit the rules named at `refused`"
    ]


def test_under_the_hosts_network_a_command_is_asked_about_unless_a_rule_names_it(
    tmp_path: Path,
) -> None:
    text = (
        '[profiles.standard]\nallow = ["tool:file:*"]\nconfine = ["tool:shell:run touch *"]\n'
        'otherwise = { "tool:shell:*" = "confine" }\n[shell]\nnetwork = "host"\n'
    )
    place = place_of(tmp_path, text)
    asked = run(place, "rm f0")
    assert asked["code"] == "approval.unavailable", asked
    assert "f0" in names(place)
    assert run(place, "touch f9")["status"] == "ok"
    assert "f9" in names(place)
