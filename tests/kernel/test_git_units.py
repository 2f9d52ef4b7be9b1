"""What a command changed of one repository lands whole, or not at all."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.shells import OPEN, Terminal, Yard, refused

pytestmark = [
    pytest.mark.needs("stage"),
    pytest.mark.needs("git"),
]
POLICY = f'[paths]\nprotected = [".git/", "*.pem"]\nsecret = [".env", "private/"]\n{OPEN}'
KEY = "it is one unit with all that changed of the repository '.git': 'key.pem'"


@pytest.fixture
def terminal(tmp_path: Path):
    yard = Yard(tmp_path, POLICY)
    yard.make()
    (yard.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.org\n")
    yard.git("init", "-q", "-b", "main", ".")
    yard.write({"a": "a\n", "key.pem": "one\n", "dir/b": "b\n", ".gitignore": "ignored\n"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    with yard.opened() as made:
        yield made


def branch(yard: Yard, name: str, files: dict[str, str], *gone: str) -> None:
    """A branch beside `main` in which these files are others."""
    yard.git("checkout", "-q", "-b", name)
    yard.write(files)
    for path in gone:
        (yard.root / path).unlink()
    yard.git("add", "-A")
    yard.git("commit", "-qm", name)
    yard.git("checkout", "-q", "main")


def state(yard: Yard, where: str = ".") -> tuple[str, str, str]:
    return (
        yard.git("rev-parse", "--symbolic-full-name", "HEAD", where=where),
        yard.git("log", "--all", "--format=%H %D", where=where),
        yard.git("status", "--porcelain", "--ignored", where=where),
    )


def held(said: dict[str, Any]) -> set[str]:
    return {path for path, rule in refused(said).items() if rule.startswith("it is one unit")}


OTHER = {"a": "other\n", "key.pem": "two\n", "new/c": "c\n"}
HALF_REFUSED = {
    "checkout": "git checkout -q other",
    "switch after an edit": "echo n > n; git add n; git commit -qm n; git switch -q other",
    "merge": "git merge -q other",
    "merge with conflict": "echo mine > a; git commit -qam mine; git merge -q other || true",
    "rebase": "echo m > m; git add m; git commit -qm m; git rebase -q other",
    "cherry-pick": "git cherry-pick other",
    "reset": "git reset -q --hard other",
    "commit": "echo two > key.pem; echo two > a; git commit -qam two",
    "a commit of what is taken out": "git rm -q key.pem a; git commit -qm gone",
    "move": "git mv key.pem lock.pem",
    "move out": "git mv key.pem key.txt",
    "stash": "echo two > key.pem; echo two > a; git stash -q; git stash pop -q",
    "restore and stage": "git restore --source other --staged --worktree .",
    "add": "echo two > key.pem; git add key.pem",
    "read-tree": "git read-tree -u --reset other",
    "bisect": "git bisect start -q other main",
}


@pytest.mark.parametrize("name", HALF_REFUSED)
def test_a_refused_file_holds_up_its_whole_repository(terminal: Terminal, name: str):
    branch(terminal.yard, "other", OTHER)
    before = state(terminal.yard)
    said = terminal.sneak(f"{HALF_REFUSED[name]}; echo u > untracked")

    if True:
        assert ".git/index" in held(said), said
        assert any(rule.startswith(KEY) for rule in refused(said).values()), said
        assert said["files_changed"] == ["untracked"], said
        (terminal.yard.root / "untracked").unlink()
        assert state(terminal.yard) == before
    assert (terminal.yard.root / "key.pem").read_text() == "one\n"
    assert terminal.yard.git("fsck", "--strict") is not None
