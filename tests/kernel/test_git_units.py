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

    assert any(rule.startswith(KEY) for rule in refused(said).values()), said
    assert said["files_changed"] == ["untracked"], said
    (terminal.yard.root / "untracked").unlink()
    assert state(terminal.yard) == before
    assert (terminal.yard.root / "key.pem").read_text() == "one\n"
    assert terminal.yard.git("fsck", "--strict") is not None


HONEST = {
    "checkout": ("git checkout -q side", ""),
    "checkout of one file": ("git checkout -q side -- a", "a"),
    "merge with conflict": (
        "echo mine > a; git commit -qam mine; git merge -q side || git status --short",
        "UU a",
    ),
    "merge with conflict, ended": (
        "echo mine > a; git commit -qam mine; git merge -q side || git merge --abort",
        "",
    ),
    "rebase": ("echo m > m; git add m; git commit -qm m; git rebase -q side", ""),
    "rebase that stops": ("echo mine > a; git commit -qam m; git rebase -q side || true", "UU a"),
    "reset": ("git reset -q --hard side", ""),
    "stash with untracked files": ("echo x > a; echo u > u; git stash -qu; git stash list", ""),
    "stash and back": ("echo x > a; echo u > u; git stash -qu; git stash pop -q", " M a\n?? u"),
    "clean": ("touch u ignored; git clean -qfdx", ""),
    "clean of what was there": ("git clean -qfdx", ""),
    "checkout of all": ("echo x > a; rm dir/b; git checkout -q -- .", ""),
    "commit": ("echo x > a; git commit -qam x", ""),
    "out of the index": ("git rm -q --cached a; git commit -qm untracked", "?? a"),
    "secret out of the index": ("git rm -q --cached key.pem; git commit -qm x", "?? key.pem"),
    "staged before": ("git commit -qm staged", ""),
    "removal": ("git rm -qr dir; git commit -qm gone", ""),
    "move": ("git mv dir moved; git commit -qm moved", ""),
    "branches": ("git branch x; git checkout -qb y; git branch -m y z; git branch -d x", ""),
    "amend": ("echo x > a; git commit -qa --amend -m amended", ""),
    "revert": ("echo x > a; git commit -qam x; git revert --no-edit HEAD", ""),
    "sequencer that stops": ("echo x > a; git commit -qam x; git cherry-pick side || true", "UU a"),
    "gc": ("echo x > a; git commit -qam x; git gc -q; git pack-refs --all", ""),
    "init again": ("git init -q .; echo x > a; git commit -qam x", ""),
    "new repository": (
        "git init -q -b main n; cd n; echo a > a; git add a; git commit -qm a",
        "?? n/",
    ),
    "clone": (
        "git clone -q --no-hardlinks lib copy; cd copy; git checkout -qb x; git rm -q l",
        "?? copy/",
    ),
    "of one that is secret, too": ("git checkout -qb secret; git commit -q --allow-empty -m e", ""),
}
SIDE = {"a": "side\n", "dir/b": "side\n", "new/c": "c\n"}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_operation_lands_whole(terminal: Terminal, name: str):
    line, expected = HONEST[name]
    yard = terminal.yard
    branch(yard, "side", SIDE)
    yard.write({".env": "SECRET=1\n", "private/x": "x\n", "key.pem": "one\n"})
    (yard.root / ".git/info/exclude").write_text(".env\nprivate/\npaddock.toml\n")
    if name == "clone":
        yard.git("init", "-q", "lib")
        yard.write({"lib/l": "l\n"})
        yard.git("add", "l", where="lib")
        yard.git("commit", "-qm", "l", where="lib")
    if name == "staged before":
        yard.write({"a": "staged\n"})
        yard.git("add", "a")
        yard.git("rm", "-q", "--cached", "dir/b")
        (yard.root / "dir/b").unlink()
    said = terminal.sneak(f'{line}; cd "$OLDPWD" 2> /dev/null; git status --porcelain')
    refusals = {path: rule for path, rule in refused(said).items() if not is_template(path)}

    assert refusals == {}, said
    assert said["exit_code"] == 0, said
    assert expected.strip() in said["stdout"]
    assert said["stdout"].endswith(yard.git("status", "--porcelain")), said
    assert (yard.root / ".env").read_text() == "SECRET=1\n"
    assert (yard.root / "private/x").read_text() == "x\n"
    assert (yard.root / "key.pem").read_text() == "one\n"
    assert yard.git("fsck", "--strict") is not None


def is_template(path: str) -> bool:
    """What `git init` makes and a command does not commit."""
    name = path.rpartition(".git/")[2]
    return name.startswith("hooks/") or name in {
        "branches",
        "config",
        "description",
        "hooks",
        "info/exclude",
    }
