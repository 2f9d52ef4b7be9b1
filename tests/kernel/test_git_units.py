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
KEY = "it is one unit with all changes of the repository '.git': 'key.pem'"


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
    "a commit of its own": "git checkout -q --detach other",
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
    yard.write({".env": "SECRET=1\n", "private/x": "x\n"})
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


@pytest.fixture
def unseen(terminal: Terminal) -> Terminal:
    """With a file in the index that a command does not see: it is too large to be shown."""
    yard = terminal.yard
    yard.write({"private/x": "x\n" * 2_100_000})
    yard.git("add", "-f", "private/x")
    yard.git("commit", "-qm", "private")
    return terminal


UNSEEN = {
    "commit of all": "echo x > a; git commit -qam x",
    "add of all": "echo x > a; git add -A",
    "removal": "git rm -qf private/x",
    "out of the index": "git rm -q --cached private/x",
    "another content": "echo evil > e; git update-index --cacheinfo"
    " 100644,$(git hash-object -w e),private/x; git commit -qm e",
    "a commit made by hand": "git update-ref HEAD $(git commit-tree -m e"
    " $(git ls-tree HEAD -- a | git mktree))",
    "another name below": "echo e > e; git update-index --add --cacheinfo"
    " 100644,$(git hash-object -w e),private/y",
    "reset": "git reset -q --soft HEAD~1",
    "beside a packed index": "git update-index --index-version 4; git commit -qam x",
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_commit_changes_no_file_that_the_command_was_not_shown(unseen: Terminal, name: str):
    yard = unseen.yard
    before = state(yard)
    said = unseen.sneak(f"{UNSEEN[name]}; echo u > untracked")

    rules = {path: rule for path, rule in refused(said).items() if path.startswith(".git/")}
    assert rules, said
    # To remove the file itself is refused before anybody asks what was shown.
    why = "private/x" if name == "removal" else "not shown"
    assert all("'private/" in rule and why in rule for rule in rules.values()), said
    assert "untracked" in said["files_changed"], said
    assert not [path for path in said["files_changed"] if path.startswith(".git")]
    for path in ("untracked", "e"):
        (yard.root / path).unlink(missing_ok=True)
    assert state(yard) == before


SEEN = {
    "what was staged before": "git commit -qm staged",
    "a commit of the rest": "echo x > a; git add a; git commit -qm x a",
    "a branch": "git checkout -qb x",
    "status": "echo x > a; git status --short",
    "a commit beside it": "git commit -q --allow-empty -m e",
}


@pytest.mark.parametrize("name", SEEN)
def test_a_commit_beside_a_file_that_was_not_shown_lands(unseen: Terminal, name: str):
    yard = unseen.yard
    if name == "what was staged before":
        yard.write({"private/x": "y\n", "private/n": "n\n"})
        yard.git("add", "-f", "private")
        yard.git("rm", "-q", "--cached", "dir/b")
    said = unseen.sneak(SEEN[name])

    assert refused(said) == {}, said
    assert said["exit_code"] == 0, said
    assert yard.git("ls-files", "private") == yard.git(
        "ls-tree", "-r", "--name-only", "HEAD", "private"
    )
    assert yard.git("fsck", "--strict") is not None


def submodule(yard: Yard) -> None:
    """`lib`, with its git directory in the superproject's, and a protected file."""
    far = yard.base / "far"
    yard.git("init", "-q", "-b", "main", str(far))
    (far / "l").write_text("l\n")
    (far / "l.pem").write_text("one\n")
    yard.git("add", ".", where=str(far))
    yard.git("commit", "-qm", "far", where=str(far))
    yard.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(far), "lib")
    yard.git("commit", "-qm", "with lib")


def test_a_submodule_and_its_superproject_land_together(terminal: Terminal):
    submodule(terminal.yard)
    said = terminal.sneak("cd lib; echo x > l; git commit -qam l; cd ..; git commit -qam bump")

    assert refused(said) == {}, said
    assert terminal.yard.git("status", "--porcelain") == ""
    assert terminal.yard.git("log", "-1", "--format=%s") == "bump\n"
    assert terminal.yard.git("log", "-1", "--format=%s", where="lib") == "l\n"


def test_what_holds_a_submodule_up_holds_its_new_commit_in_the_superproject_up(terminal: Terminal):
    submodule(terminal.yard)
    before = state(terminal.yard), state(terminal.yard, "lib")
    said = terminal.sneak("cd lib; echo x > l.pem; git commit -qam l; cd ..; git commit -qam bump")

    assert (said["files_changed"], len(held(said)) > 4) == ([], True), said
    assert (state(terminal.yard), state(terminal.yard, "lib")) == before


def test_a_submodule_whose_commit_stays_is_a_unit_of_its_own(terminal: Terminal):
    yard = terminal.yard
    submodule(yard)
    before = state(yard, "lib")
    said = terminal.sneak(
        "cd lib; echo x > l.pem; git add .; cd ..; echo x > a; git commit -qm a a"
    )

    assert "a" in said["files_changed"], said
    assert {
        path for path in held(said) if not path.startswith((".git/modules/lib", "lib/"))
    } == set()
    assert state(yard, "lib") == before
    assert yard.git("log", "-1", "--format=%s") == "a\n"


def test_a_new_worktree_leaves_nothing_behind(terminal: Terminal):
    before = state(terminal.yard)
    said = terminal.sneak("git worktree add -q w/f -b f; echo n > n")

    assert said["files_changed"] == ["n"], said
    (terminal.yard.root / "n").unlink()
    assert state(terminal.yard) == before
    assert not (terminal.yard.root / "w").exists()


def test_a_worktree_is_one_unit_with_its_repository(terminal: Terminal):
    yard = terminal.yard
    yard.git("worktree", "add", "-q", "-b", "f", "w/f")
    said = terminal.sneak("cd w/f; echo x > a; git commit -qam x")
    assert refused(said) == {}, said
    assert yard.git("log", "-1", "--format=%s", where="w/f") == "x\n"

    before = state(yard, "w/f")
    said = terminal.sneak("cd w/f; echo x > key.pem; echo y > a; git commit -qam x")
    assert said["files_changed"] == [], said
    assert state(yard, "w/f") == before


def test_a_clone_lands_whole_or_not_at_all(terminal: Terminal):
    said = terminal.sneak("git clone -q --no-hardlinks . copy")

    assert said["files_changed"] == [], said
    assert "copy/key.pem" in refused(said)["copy/.git/HEAD"]
    assert not (terminal.yard.root / "copy").exists()


def test_a_configuration_that_is_refused_holds_up_a_commit(terminal: Terminal):
    before = state(terminal.yard)
    said = terminal.sneak("git config user.name evil; echo x > a; git commit -qam x")

    assert said["files_changed"] == [], said
    assert "'.git/config' is not committed" in refused(said)["a"]
    # An object that git only touched is left aside, here too.
    lost = {row["path"] for row in said["changes_refused"] if "aside" not in row}
    assert lost >= {"a", ".git/config", ".git/index"}
    assert state(terminal.yard) == before


def test_an_upstream_is_left_out_and_the_branch_lands(terminal: Terminal):
    yard = terminal.yard
    yard.git("remote", "add", "origin", str(yard.root))
    yard.git("update-ref", "refs/remotes/origin/topic", "HEAD")
    said = terminal.sneak("git switch -q topic; echo x > a; git commit -qam x")

    assert list(refused(said)) == [".git/config"], said
    assert said["changes_refused"][0]["aside"] is True
    assert state(yard)[0] == "refs/heads/topic\n"
    assert yard.git("log", "-1", "--format=%s") == "x\n"


def test_a_pure_edit_is_no_unit(terminal: Terminal):
    said = terminal.sneak("echo x > key.pem; echo x > a; git status --short; git diff --stat")

    assert [path for path in said["files_changed"] if path != ".git/index"] == ["a"], said
    assert list(refused(said)) == ["key.pem"]


def test_a_file_that_only_has_another_time_holds_nothing_up(terminal: Terminal):
    said = terminal.sneak("touch key.pem; echo x > a; git commit -qam x")

    assert list(refused(said)) == ["key.pem"], said
    assert terminal.yard.git("log", "-1", "--format=%s") == "x\n"


def test_a_lock_that_is_left_holds_everything_up(terminal: Terminal):
    before = state(terminal.yard)
    said = terminal.sneak("echo x > a; git commit -qam x; touch .git/index.lock")

    assert said["files_changed"] == [], said
    assert state(terminal.yard) == before


@pytest.mark.parametrize("preset", ["read-only", "none"])
def test_a_checkout_lands_nothing_where_no_git_directory_may_change(tmp_path: Path, preset: str):
    yard = Yard(tmp_path, f'{POLICY}[shell]\ngit = "{preset}"\n').make()
    yard.git("init", "-q", "-b", "main", ".")
    yard.write({"a": "a\n"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    branch(yard, "other", {"a": "other\n", "b": "b\n"})
    before = state(yard)
    with yard.opened() as terminal:
        said = terminal.sneak("git checkout -q other; echo u > u")
        assert said["files_changed"] == ["u"], said
        (yard.root / "u").unlink()
        assert state(yard) == before
        said = terminal.sneak("echo x > a; touch b; git status --short")
        assert said["files_changed"] == ["a", "b"], said


def test_a_question_holds_a_unit_up(tmp_path: Path):
    rule = '[[profiles.standard.rules]]\naction = "tool:file:create a"\noutcome = "ask"\n'
    yard = Yard(tmp_path, f"{POLICY}{rule}").make()
    yard.git("init", "-q", "-b", "main", ".")
    yard.write({"a": "a\n", "b": "b\n"})
    yard.git("add", ".")
    yard.git("commit", "-qm", "first")
    before = state(yard)
    with yard.opened() as terminal:
        said = terminal.sneak("echo x > a; echo x > b; git commit -qam x")
    assert said["files_changed"] == [], said
    assert "policy asks first" in refused(said)["b"]
    assert state(yard) == before


SMUGGLING = {
    "a hook in the index": (
        (
            "mkdir h; echo evil > h/pre-commit; git add h; git commit -qm h;"
            " cp h/pre-commit .git/hooks/pre-commit"
        ),
        ".git/hooks/pre-commit",
    ),
    "a secret in the index": (
        "echo evil > .env; git add -f .env; git commit -qm e",
        ".env",
    ),
    "a gitlink out of the workspace": (
        (
            "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),../out;"
            " echo x > key.pem; git add .; git commit -qm x"
        ),
        "../out",
    ),
    "a git file that leads to the repository": (
        "mkdir s; echo 'gitdir: ../.git' > s/.git; echo x > s/key.pem; cd s; git add -A",
        "s/.git",
    ),
    "another spelling": ("mkdir .GIT; cp -r .git/* .GIT/; echo x > .GIT/config", ".GIT/config"),
    "a work tree elsewhere": (
        "git --work-tree=dir --git-dir=.git add -A; git config core.worktree dir; git commit -qm x",
        "dir/key.pem",
    ),
    "an index that is no index": ("echo x > key.pem; echo x > .git/index", "x"),
    "objects elsewhere": (
        "echo ../../../far > .git/objects/info/alternates; echo x > key.pem; git add key.pem",
        ".git/objects/info/alternates",
    ),
    "a forged tree": (
        (
            "echo x > key.pem; t=$(git rev-parse HEAD^{tree}); f=.git/objects/${t:0:2}/${t:2};"
            " e=$(git mktree < /dev/null); cp .git/objects/${e:0:2}/${e:2} $f.n; mv -f $f.n $f;"
            " git update-index --force-remove key.pem"
        ),
        "x",
    ),
}


@pytest.mark.parametrize("name", SMUGGLING)
def test_a_unit_lets_nothing_through(terminal: Terminal, name: str):
    yard = terminal.yard
    yard.write({".env": "SECRET=1\n", "private/x": "x\n"})
    before = state(yard)
    line, planted = SMUGGLING[name]
    said = terminal.sneak(f"{line}; true")

    assert not [path for path in said["files_changed"] if path.startswith(".git")], said
    assert (yard.root / ".env").read_text() == "SECRET=1\n"
    assert (yard.root / "key.pem").read_text() == "one\n"
    assert planted == ".env" or not (yard.root / planted).exists()
    yard.git("clean", "-qfd", "-e", ".env", "-e", "private")
    yard.git("checkout", "-q", "--", ".")
    assert state(yard) == before
    assert yard.git("fsck", "--strict") is not None
