"""Scratch folders: made under today's date, cleaned by their names, links never followed."""

import json
import os
import subprocess
import sys
from datetime import date, datetime, timedelta

import pytest

from paddock.plane.scratch import clean, remove_empty_folder
from tests.support.disks import tree
from tests.support.hooks import Client
from tests.support.places import Ran

TODAY = date(2026, 11, 20)


def test_a_new_topic_has_a_folder_that_is_safe_and_ignored(client: Client):
    ran = client.place.run("scratch", "new", "parser", "--json")
    made = ran.json["path"]

    assert ran.status == 0
    assert os.path.isdir(made)
    assert made.endswith("/parser")
    assert "agent_sandbox/20" in made
    assert (client.place.project / "agent_sandbox/.gitignore").read_text() == "*\n"
    assert client.ask("Write", tool_input={"file_path": f"{made}/a"}).raw == b""
    assert client.place.run("scratch", "new", "parser", "--json").json["path"] == made


def call(client: Client, tool: str, **arguments: str) -> Ran:
    return client.place.run("call", tool, json.dumps(arguments), "--yes")


def untracked(client: Client) -> str:
    """What git would add of the project."""
    where = ["git", "-C", str(client.place.project)]
    subprocess.run([*where, "init", "-q"], check=True)
    status = [*where, "status", "--porcelain", "--untracked-files=all"]
    return subprocess.run(status, check=True, capture_output=True, text=True).stdout


COMMAND = "mkdir -p agent_sandbox/x; echo hello > agent_sandbox/x/a.txt"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("create_file", {"path": "agent_sandbox/2026-11-20/x/a.txt", "content": "hello"}),
        ("move_file", {"path": "README.md", "to": "agent_sandbox/README.md"}),
        pytest.param("run_shell", {"command": COMMAND}, marks=pytest.mark.needs("stage")),
    ],
)
def test_git_ignores_what_a_call_puts_into_a_new_scratch_folder(tool, arguments, client: Client):
    ran = call(client, tool, **arguments)

    assert (ran.status, ran.err) == (0, "")
    assert (client.place.project / "agent_sandbox/.gitignore").read_text() == "*\n"
    assert "agent_sandbox" not in untracked(client)


@pytest.mark.parametrize("path", ["docs/a.txt", "src/agent_sandbox/a.txt", "agent_sandbox.txt"])
def test_a_write_anywhere_else_makes_no_scratch_folder(path, client: Client):
    assert call(client, "create_file", path=path, content="x").status == 0

    assert not (client.place.project / "agent_sandbox").exists()
    assert path in untracked(client)


def test_a_refused_write_makes_no_scratch_folder(client: Client):
    (client.place.project / "paddock.toml").write_text('[agents.main]\nprofile = "locked"\n')
    assert client.place.run("trust", "--yes").status == 0

    assert call(client, "create_file", path="agent_sandbox/x/a.txt", content="x").status == 1
    assert not (client.place.project / "agent_sandbox").exists()


def test_a_scratch_folder_that_is_there_stays_as_its_people_made_it(client: Client):
    (client.place.project / "agent_sandbox").mkdir()

    assert call(client, "create_file", path="agent_sandbox/a.txt", content="x").status == 0
    assert os.listdir(client.place.project / "agent_sandbox") == ["a.txt"]


def test_a_project_that_wants_scratch_work_tracked_has_it_tracked(client: Client):
    (client.place.project / "paddock.toml").write_text("[hook]\nsandbox_ignored = false\n")
    assert client.place.run("trust", "--yes").status == 0

    assert call(client, "create_file", path="agent_sandbox/a.txt", content="x").status == 0
    assert "agent_sandbox/a.txt" in untracked(client)


@pytest.mark.parametrize("topic", ["..", "a/b", ".hidden", "-x", "", "a b", "x" * 65, "a\n"])
def test_a_topic_that_is_no_name_is_refused(topic, client: Client):
    assert client.place.run("scratch", "new", "--", topic).status == 2
    assert not (client.place.project / "agent_sandbox").exists()


@pytest.mark.parametrize(
    "link", ["agent_sandbox", "agent_sandbox/{today}", "agent_sandbox/{today}/x"]
)
def test_a_link_on_the_way_is_not_followed(link, client: Client):
    today = datetime.now().astimezone().date().isoformat()
    path = client.place.project / link.format(today=today)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(client.place.outside)
    before = tree(client.place.outside)

    assert client.place.run("scratch", "new", "x").status == 3
    assert tree(client.place.outside) == before


def test_a_folder_too_deep_to_be_removed_is_kept_and_the_others_go(tmp_path):
    old = tmp_path / "agent_sandbox"
    (old / "2026-01-02/x").mkdir(parents=True)
    (old / "2026-01-01").mkdir()
    here = os.open(old / "2026-01-01", os.O_RDONLY)
    for _ in range(1400):
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    done = clean(tmp_path, 7, TODAY, dry_run=False)

    # From 3.13 on Python removes it, however deep it is.
    kept = ("2026-01-01",) if sys.version_info < (3, 13) else ()
    assert set(done.removed) == {"2026-01-01", "2026-01-02"}.difference(kept)
    assert (done.kept, tuple(os.listdir(old))) == (kept, kept)
    subprocess.run(["rm", "-rf", old], check=True)


@pytest.mark.parametrize("odd", ["fifo", "link", "other", "ours", "none"])
def test_an_empty_folder_goes_unless_its_ignore_file_is_not_ours(tmp_path, odd):
    (tmp_path / "agent_sandbox").mkdir()
    file = tmp_path / "agent_sandbox" / ".gitignore"
    if odd == "fifo":
        os.mkfifo(file)  # an agent's: whoever reads it would wait for ever
    elif odd == "link":
        (tmp_path / "elsewhere").write_text("*\n")
        file.symlink_to(tmp_path / "elsewhere")
    elif odd != "none":
        file.write_text("*\n" if odd == "ours" else "*\n!kept\n")

    remove_empty_folder(tmp_path)

    assert (tmp_path / "agent_sandbox").exists() is (odd in ("fifo", "link", "other"))


def test_clean_removes_old_dates_and_nothing_else(client: Client):
    folder = client.place.project / "agent_sandbox"
    names = [
        "2026-11-01",
        "2026-11-12",
        "2026-11-13",
        "2026-11-20",
        "2026-12-01",
        "2026-13-01",
        "notes",
        "2026-11-1",
    ]
    for name in names:
        (folder / name / "topic").mkdir(parents=True)
        (folder / name / "topic" / "out").symlink_to(client.place.outside)
    (folder / "2020-01-01").write_text("a file")
    (folder / "2020-01-02").symlink_to(client.place.outside)
    before = tree(client.place.outside)

    planned = clean(client.place.project, 7, TODAY, dry_run=True)
    assert planned.removed == ("2026-11-01", "2026-11-12")
    assert (folder / "2026-11-01").exists()
    assert clean(client.place.project, 7, TODAY, dry_run=False) == planned
    assert sorted(os.listdir(folder)) == sorted([*names[2:], "2020-01-01", "2020-01-02"])
    assert tree(client.place.outside) == before


def test_clean_does_not_follow_a_link_in_the_place_of_the_folder(client: Client):
    old = client.place.outside / "2020-01-01"
    old.mkdir()
    (client.place.project / "agent_sandbox").symlink_to(client.place.outside)

    assert client.place.run("scratch", "clean", "--older-than", "7d").status == 3
    assert old.exists()


def test_clean_says_what_it_did(client: Client):
    old = (datetime.now().astimezone().date() - timedelta(days=30)).isoformat()
    (client.place.project / "agent_sandbox" / old).mkdir(parents=True)

    would = client.place.run("scratch", "clean", "--older-than", "7d", "--dry-run", "--json")
    did = client.place.run("scratch", "clean", "--older-than", "7d", "--json")
    again = client.place.run("scratch", "clean", "--older-than", "7d", "--json")

    assert [ran.json["removed"] for ran in (would, did, again)] == [[old], [old], []]


@pytest.mark.parametrize("age", ["7", "d", "7h", "-7d", "1e3d", ""])
def test_an_age_that_is_none_is_refused(age, client: Client):
    assert client.place.run("scratch", "clean", f"--older-than={age}").status == 2


def test_without_a_folder_nothing_is_cleaned_or_made(client: Client):
    assert client.place.run("scratch", "clean", "--older-than", "7d").status == 0
    assert not (client.place.project / "agent_sandbox").exists()
