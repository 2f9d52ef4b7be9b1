"""What a file held before: told to those who work where it stood, and to nobody else."""

import json
from pathlib import Path

import pytest

from paddock.workspace import version_of
from tests.unit.apps.conftest import User

WAS = version_of(b"one\n")
NOT_KEPT = "[no diff: its earlier content is not stored; it has {} bytes now]"


def write(user: User, path: str, content: str, agent: str = "main") -> None:
    ran = user.call("create_file", "--agent", agent, path=path, content=content)
    assert ran.json["status"] == "ok", ran.out


def told(user: User, path: str, version: str = WAS, agent: str = "main") -> str:
    """What a refused deletion says of what changed."""
    ran = user.call("delete_file", "--agent", agent, path=path, if_version=version)
    assert ran.json["code"] == "text.changed"
    return ran.json["hint"].partition("what changed:\n")[2]


def agent(user: User, name: str, workspace: Path | None = None) -> None:
    where = () if workspace is None else ("--workspace", str(workspace))
    ran = user.run("agent", "create", name, "--profile", "standard", *where)
    assert ran.status == 0, ran.err


def test_what_a_call_replaced_is_in_the_difference(user):
    write(user, "v", "one\n")
    write(user, "v", "two\n")
    write(user, "v", "three\n")
    assert told(user, "v") == "--- a/v\n+++ b/v\n@@ -1 +1 @@\n-one\n+three"
    assert (user.project / "v").read_bytes() == b"three\n"


def test_a_moved_file_keeps_what_it_held_under_either_name(user):
    write(user, "v", "one\n")
    assert user.call("move_file", path="v", to="w").json["status"] == "ok"
    write(user, "w", "two\n")
    write(user, "v", "new\n")
    assert told(user, "w") == "--- a/w\n+++ b/w\n@@ -1 +1 @@\n-one\n+two"
    assert told(user, "v") == "--- a/v\n+++ b/v\n@@ -1 +1 @@\n-one\n+new"


def test_what_another_path_held_is_not_told_to_who_knows_its_digest(user):
    write(user, "v", "one\n")
    write(user, "v", "two\n")
    write(user, "w", "other\n")
    assert told(user, "w") == NOT_KEPT.format(6)


def test_who_shares_the_workspace_is_told_and_who_has_another_is_not(user):
    agent(user, "mate", user.project)
    agent(user, "stranger")
    write(user, "v", "one\n", "mate")
    write(user, "v", "two\n", "mate")
    write(user, "v", "strange\n", "stranger")
    assert told(user, "v") == "--- a/v\n+++ b/v\n@@ -1 +1 @@\n-one\n+two"
    assert told(user, "v", agent="stranger") == NOT_KEPT.format(8)


def test_who_once_worked_elsewhere_is_told_nothing(user):
    elsewhere = user.home / "elsewhere"
    elsewhere.mkdir()
    agent(user, "kid", elsewhere)
    write(user, "v", "one\n", "kid")
    write(user, "v", "two\n", "kid")
    assert told(user, "v", agent="kid") == "--- a/v\n+++ b/v\n@@ -1 +1 @@\n-one\n+two"
    assert user.run("agent", "remove", "kid").status == 0
    agent(user, "kid", user.project)
    write(user, "v", "here\n", "kid")
    assert told(user, "v", agent="kid") == NOT_KEPT.format(5)


@pytest.mark.parametrize("version", ["sha256:0", "../../etc/passwd", version_of(b"never")])
def test_a_version_that_never_was_is_not_kept(user, version):
    write(user, "v", "one\n")
    assert told(user, "v", version) == NOT_KEPT.format(4)


def test_a_damaged_content_is_not_shown(user):
    write(user, "v", "one\n")
    write(user, "v", "two\n")
    [kept] = user.home.rglob(WAS.removeprefix("sha256:"))
    kept.chmod(0o600)
    kept.write_bytes(b"forged\n")
    assert told(user, "v") == NOT_KEPT.format(4)


def test_no_difference_is_in_the_ledger(user):
    write(user, "v", "unforgettable\n")
    write(user, "v", "two\n")
    assert "unforgettable" in told(user, "v", version_of(b"unforgettable\n"))
    ledgers = {path.name: path.read_text() for path in user.home.rglob("*.jsonl")}
    assert "text.changed" in ledgers["ho1m.jsonl"]
    assert [name for name, text in ledgers.items() if "unforgettable" in text] == []
    assert json.loads(user.call("delete_file", path="v").out)["status"] == "ok"
