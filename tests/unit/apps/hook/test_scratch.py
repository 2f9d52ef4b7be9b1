"""Scratch folders: made under today's date, cleaned by their names, links never followed."""

import os
import subprocess
from datetime import date, datetime, timedelta

import pytest

from paddock.apps.hook.scratch import Cleaned, clean
from tests.support.disks import tree
from tests.support.hooks import Client

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

    assert done == Cleaned(removed=("2026-01-02",), kept=("2026-01-01",))
    assert os.listdir(old) == ["2026-01-01"]
    subprocess.run(["rm", "-rf", old], check=True)


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
