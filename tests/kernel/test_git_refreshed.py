"""Who only looks at a repository writes its index anew: that is no change, and no conflict."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.test_git_outside import Place, folder, folder_of_worktree, working, worktree
from tests.support.shells import Terminal, Yard, start, while_running

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash"), pytest.mark.needs("git")]

COMMITS = "echo ours > ours && git add ours && git commit -qm ours"
LOOKS = "git status --short; [ ! -e go ] || { echo snap > snap; echo done; }"


@pytest.fixture
def terminal(tmp_path: Path):
    files = {"a": "a\n", ".gitignore": "flags\npaddock.toml\n"}
    with Yard(tmp_path).make().committed(files).opened() as made:
        yield made


def look(yard: Yard, where: str = "a", index: str = ".git/index", below: str = ".") -> None:
    """What a person's `git status` writes: the same names, with another time of one file."""
    os.utime(yard.root / where, (10**9, 10**9))
    before = (yard.root / index).stat().st_ino
    yard.git("status", "--short", where=below)
    assert (yard.root / index).stat().st_ino != before


def nest(terminal: Terminal, kind: str) -> str:
    """A repository in the workspace's, with one file `x`; returns where its index is."""
    yard = terminal.yard
    if kind == "repository":
        yard.git("init", "-q", "-b", "main", "sub")
        index = "sub/.git/index"
    elif kind == "submodule":
        other = yard.base / "other"
        other.mkdir()
        yard.git("init", "-q", "-b", "main", str(other))
        yard.git("commit", "-q", "--allow-empty", "-m", "none", where=str(other))
        allowed = ("-c", "protocol.file.allow=always")
        yard.git(*allowed, "submodule", "--quiet", "add", str(other), "sub")
        index = ".git/modules/sub/index"
    else:
        yard.git("worktree", "add", "-q", "sub", "-b", "side")
        index = ".git/worktrees/sub/index"
    yard.write({"sub/x": "x\n"})
    yard.git("add", "x", where="sub")
    yard.git("commit", "-qm", "first", where="sub")
    return index


def last_commit(yard: Yard) -> str:
    return yard.git("log", "--format=%s", "-1").strip()


def test_a_command_commits_while_a_person_looks(terminal: Terminal):
    yard = terminal.yard

    said = while_running(terminal, COMMITS, lambda: look(yard))

    assert "conflict" not in said
    assert (last_commit(yard), yard.git("status", "--porcelain")) == ("ours", "")


def test_so_it_does_in_a_worktree(tmp_path: Path):
    with working(worktree, tmp_path) as (place, terminal):
        index = f"{tmp_path}/main/.git/worktrees/project/index"

        said = while_running(terminal, COMMITS, lambda: look(place, "data", index))

        assert "conflict" not in said
        assert last_commit(place) == "ours"


@pytest.mark.parametrize("kind", ["repository", "submodule", "worktree"])
def test_so_it_does_in_a_repository_below(terminal: Terminal, kind: str):
    yard = terminal.yard
    index = nest(terminal, kind)

    line = f"cd sub; {COMMITS}"
    said = while_running(terminal, line, lambda: look(yard, "sub/x", index, "sub"))

    assert "conflict" not in said
    assert said["changes_refused"] == []
    assert yard.git("log", "--format=%s", "-1", where="sub").strip() == "ours"


@pytest.mark.parametrize("kind", ["repository", "submodule", "worktree"])
def test_what_a_person_stages_in_one_below_is_a_conflict(terminal: Terminal, kind: str):
    yard = terminal.yard
    index = nest(terminal, kind)
    yard.write({"sub/theirs": "theirs\n"})

    act = lambda: yard.git("add", "theirs", where="sub")  # noqa: E731 - as in the others
    said = while_running(terminal, f"cd sub; {COMMITS}", act)

    assert repr(index) in said["conflict"]


@pytest.mark.parametrize("make", [folder, folder_of_worktree])
def test_so_it_does_in_a_folder_of_a_repository(tmp_path: Path, make: Callable[[Path], Place]):
    with working(make, tmp_path) as (place, terminal):
        top = place.git("rev-parse", "--git-path", "index").strip()
        index = str((place.root / top).resolve())

        said = while_running(terminal, COMMITS, lambda: look(place, "data", index))

        assert "conflict" not in said
        assert said["changes_refused"] == []
        assert last_commit(place) == "ours"


@pytest.mark.parametrize(
    "arguments", [["add", "theirs"], ["update-index", "--skip-worktree", "a"], ["rm", "-q", "a"]]
)
def test_what_a_person_stages_or_marks_meanwhile_is_a_conflict(terminal: Terminal, arguments):
    yard = terminal.yard
    yard.write({"theirs": "theirs\n"})

    said = while_running(terminal, COMMITS, lambda: yard.git(*arguments))

    assert "'.git/index'" in said["conflict"]
    assert last_commit(yard) == "first"


def test_one_that_looks_again_and_again_sees_what_others_commit_and_its_own_lands(
    terminal: Terminal,
):
    yard = terminal.yard
    os.utime(yard.root / "a", (2 * 10**9, 2 * 10**9))
    process = start(terminal, f"while :; do {LOOKS}; echo up; sleep 0.1; done").until("up")

    terminal.run(COMMITS)
    look(yard)
    terminal.run("touch go")
    process.until("done")
    first = process.sync()
    look(yard)
    terminal.run("git add snap && git commit -qm snap")
    last = process.stop()

    assert "snap" in first["files_changed"]
    assert "conflict" not in first
    assert "conflict" not in last
    assert (last_commit(yard), yard.git("status", "--porcelain")) == ("snap", "?? go\n")


def test_what_one_staged_itself_before_somebody_else_commits_is_a_conflict(terminal: Terminal):
    process = start(terminal, "echo own > own; git add own; echo up; sleep 1000").until("up")

    terminal.run(COMMITS)

    assert "'.git/index'" in process.stop()["conflict"]
    assert last_commit(terminal.yard) == "ours"
