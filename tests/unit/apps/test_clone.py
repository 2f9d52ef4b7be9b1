"""A clone of a real repository, on a machine where nobody has set anything up."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.apps.cli.main import main
from paddock.apps.console import Console
from tests.support.users import give_to_plain_user, run_as_plain_user

PADDOCK = Path(sys.executable).parent / "paddock"
EDIT = ("call", "str_replace", '{"path": "README.md", "old_str": "teh", "new_str": "the"}')


def environment(home: Path) -> dict[str, str]:
    """A fresh home, and nothing of the user who runs the tests."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }


def git(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def status_of(home: Path, clone: Path) -> str:
    """What git sees, ignored files too."""
    return git(home, "-C", str(clone), "status", "--porcelain", "--ignored", "-uall")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    return made


@pytest.fixture
def clone(tmp_path: Path, home: Path) -> Path:
    origin, copy = tmp_path / "origin", tmp_path / "clone"
    git(home, "init", "-q", str(origin))
    (origin / "src").mkdir()
    (origin / "README.md").write_bytes(b"# Widgets\r\nhello teh world")
    (origin / "src" / "a.py").write_bytes(b"x = 1\n")
    git(home, "-C", str(origin), "add", ".")
    git(home, "-C", str(origin), "commit", "-q", "-m", "first")
    git(home, "clone", "-q", str(origin), str(copy))
    assert status_of(home, copy) == ""
    return copy


@pytest.mark.needs("git")
def test_git_sees_the_edit_in_a_clone_and_nothing_else(home: Path, clone: Path):
    done = subprocess.run(
        [PADDOCK, *EDIT],
        cwd=clone / "src",
        env=environment(home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stdout
    # Paths are the workspace's, wherever in the clone the person stands.
    assert status_of(home, clone) == " M README.md\n"
    assert (clone / "README.md").read_bytes() == b"# Widgets\r\nhello the world"
    assert json.loads(done.stdout)["status"] == "ok"


def edit_in_this_process(home: Path, project: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(io.StringIO(), out, err, environment(home), project)
    assert (main(list(EDIT), console), err.getvalue()) == (0, ""), out.getvalue()


@pytest.mark.needs("git", "root")
def test_a_plain_user_needs_no_rights_for_it(tmp_path: Path, home: Path, clone: Path):
    other = tmp_path / "other"
    git(home, "clone", "-q", str(clone), str(other))
    # What a call imports is loaded before the rights are given up.
    edit_in_this_process(tmp_path / "other-home", other)
    give_to_plain_user(tmp_path)

    def act() -> None:
        edit_in_this_process(home, clone)
        assert status_of(home, clone) == " M README.md\n"
        assert (home / ".local" / "state" / "paddock").stat().st_uid == os.geteuid() != 0

    run_as_plain_user(act)
