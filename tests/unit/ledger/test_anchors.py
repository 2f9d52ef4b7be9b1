"""Anchors keep what a plane cannot take back: a directory, a git repository, a command."""

import os
import shutil
import subprocess
import sys

import pytest

from paddock.errors import HostError
from paddock.ledger.anchors import CommandAnchor, DirectoryAnchor, GitAnchor
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint

ORIGIN = "paddock.test/ledger"
HOST_PATH = os.environ["PATH"]
ENVIRONMENT = (("PATH", HOST_PATH),)

KEEPER = """
import pathlib, sys
place = pathlib.Path(sys.argv[1])
act, origin = sys.argv[2:]
kept = place / origin.replace("/", "_")
if act == "read":
    sys.stdout.write(kept.read_text() if kept.exists() else "")
elif act in ("store", "accept-rollback"):
    kept.write_text(sys.stdin.read())
else:
    sys.exit(3)
"""


def signed(size):
    return SignedCheckpoint(Checkpoint(ORIGIN, size, bytes(32)), f"{ORIGIN}\n{size}\nroot\n\nsig\n")


def directory(tmp_path):
    return DirectoryAnchor(tmp_path / "anchors" / "plane")


def run_git(repository, *arguments):
    """What the user's own git prints in a repository."""
    who = ("-c", "user.name=me", "-c", "user.email=me@here")
    return subprocess.run(
        ["git", "-C", repository, *who, *arguments],
        check=True,
        env={"PATH": HOST_PATH, "HOME": "/"},
        capture_output=True,
        text=True,
    ).stdout


def made_repository(tmp_path):
    if shutil.which("git", path=HOST_PATH) is None:
        pytest.skip("there is no git here")
    repository = tmp_path / "repository"
    repository.mkdir()
    run_git(repository, "init", "--quiet", "--initial-branch=kept")
    return repository


def git(tmp_path):
    return GitAnchor(made_repository(tmp_path), "plane.governance", ENVIRONMENT)


def git_in_a_subdirectory(tmp_path):
    folder = made_repository(tmp_path) / "audit" / "anchors"
    folder.mkdir(parents=True)
    return GitAnchor(folder, "plane.governance", ENVIRONMENT)


def command(tmp_path):
    program = tmp_path / "keeper.py"
    program.write_text(KEEPER, encoding="utf-8")
    kept = tmp_path / "kept"
    kept.mkdir()
    return CommandAnchor([sys.executable, str(program), str(kept)], ORIGIN, ENVIRONMENT)


@pytest.mark.parametrize("make", [directory, git, git_in_a_subdirectory, command])
def test_an_anchor_gives_back_the_newest_note(tmp_path, make):
    anchor = make(tmp_path)
    assert anchor.read() == []

    anchor.store(signed(5))
    anchor.store(signed(5))
    anchor.store(signed(9))

    assert anchor.read()[-1] == signed(9).note


@pytest.mark.parametrize("make", [directory, git, git_in_a_subdirectory, command])
def test_what_was_accepted_as_going_back_is_the_newest(tmp_path, make):
    anchor = make(tmp_path)
    anchor.store(signed(9))

    anchor.accept_rollback(signed(4))

    assert anchor.read() == [signed(4).note]


def test_a_directory_keeps_what_is_no_more_under_another_name(tmp_path):
    anchor = directory(tmp_path)
    anchor.store(signed(9))
    anchor.accept_rollback(signed(4))

    kept = tmp_path / "anchors" / "plane"
    assert sorted(each.name for each in kept.iterdir()) == ["4", "9.before-rollback"]


def test_git_commits_the_note_alone_and_runs_nothing_of_the_repository(tmp_path):
    anchor = git(tmp_path)
    repository = tmp_path / "repository"
    ran = f"touch {tmp_path}/ran"
    (repository / "mine").write_text("x", encoding="utf-8")
    # Added long ago: of what was added just now git compares the content, through filters.
    os.utime(repository / "mine", (1, 1))
    run_git(repository, "add", "mine")
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{ran}\n", encoding="utf-8")
    hook.chmod(0o755)
    run_git(repository, "config", "filter.changing.clean", f"{ran}; tr a-z A-Z")
    (repository / ".git" / "info" / "attributes").write_text("* filter=changing\n", "utf-8")

    anchor.store(signed(5))
    # What lies in the work tree does not count; what is committed does.
    (repository / "paddock" / "plane.governance.checkpoint").write_text("no", encoding="utf-8")

    assert run_git(repository, "show", "--name-only", "--format=%s").split("\n") == [
        f"Checkpoint 5 of {ORIGIN}",
        "",
        "paddock/plane.governance.checkpoint",
        "",
    ]
    assert anchor.read() == [signed(5).note]
    assert not (tmp_path / "ran").exists()


def test_what_the_user_commits_next_keeps_the_note(tmp_path):
    anchor = git(tmp_path)
    repository = tmp_path / "repository"
    anchor.store(signed(5))
    assert run_git(repository, "status", "--porcelain") == ""

    (repository / "mine").write_text("x", encoding="utf-8")
    run_git(repository, "add", "mine")
    run_git(repository, "commit", "--quiet", "--message", "mine")

    assert anchor.read() == [signed(5).note]


def lose_the_branch(repository):
    (repository / ".git" / "refs" / "heads" / "kept").write_bytes(b"")


def lose_the_branch_and_its_past(repository):
    lose_the_branch(repository)
    shutil.rmtree(repository / ".git" / "logs")


def take_the_branch_away(repository):
    (repository / ".git" / "refs" / "heads" / "kept").unlink()


def lose_an_object(repository):
    tree = run_git(repository, "rev-parse", "HEAD:./paddock").strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()


def check_out_a_branch_without_commits(repository):
    run_git(repository, "checkout", "--quiet", "--orphan", "other")


@pytest.mark.parametrize(
    "attack",
    [
        lose_the_branch,
        lose_the_branch_and_its_past,
        take_the_branch_away,
        lose_an_object,
        check_out_a_branch_without_commits,
    ],
)
def test_a_repository_that_lost_the_note_does_not_read_as_a_new_one(tmp_path, attack):
    anchor = git(tmp_path)
    anchor.store(signed(5))
    assert anchor.read() == [signed(5).note]

    attack(tmp_path / "repository")

    with pytest.raises(HostError, match=r"exit status|has no commit, and the repository"):
        anchor.read()


def test_a_branch_that_holds_other_files_has_no_note(tmp_path):
    anchor = git(tmp_path)
    repository = tmp_path / "repository"
    (repository / "mine").write_text("x", encoding="utf-8")
    run_git(repository, "add", "mine")
    run_git(repository, "commit", "--quiet", "--message", "mine")

    assert anchor.read() == []
    anchor.store(signed(5))
    assert run_git(repository, "ls-files").split() == [
        "mine",
        "paddock/plane.governance.checkpoint",
    ]


def test_an_anchor_that_fails_is_said_so(tmp_path):
    nowhere = GitAnchor(tmp_path / "nowhere", "x", ENVIRONMENT)
    missing = CommandAnchor([str(tmp_path / "missing")], ORIGIN, ENVIRONMENT)
    failing = CommandAnchor(
        [sys.executable, "-c", "import sys; sys.exit('no\\x1b room')"], ORIGIN, ENVIRONMENT
    )

    for anchor, said in (
        (nowhere, "exit status 128"),
        (missing, "cannot be run: No such file"),
        (failing, r"exit status 1: 'no\\x1b room'"),
    ):
        with pytest.raises(HostError, match=said):
            anchor.read()
        with pytest.raises(HostError):
            anchor.store(signed(5))


def test_a_command_that_does_not_end_is_stopped(monkeypatch):
    monkeypatch.setattr("paddock.limits.anchor_timeout_s", 0.2)
    sleeping = CommandAnchor(
        [sys.executable, "-c", "import time; time.sleep(60)"], ORIGIN, ENVIRONMENT
    )

    with pytest.raises(HostError, match=r"did not answer within 0.2 s"):
        sleeping.read()
