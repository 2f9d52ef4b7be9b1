"""Which git directory outside of a workspace commands may have: found with its proof, or not."""

import os
import subprocess
from pathlib import Path

import pytest

from paddock.sandbox.git_config import find_distrust, settings_for, variables_for
from paddock.sandbox.host.git import find_git_outside
from paddock.sandbox.host.host_facts import Closed, GitOutside, HostFacts

pytestmark = pytest.mark.needs("git")


def git(where: Path, *arguments: str) -> None:
    identity = {
        f"GIT_{who}_{what}": "u@e" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    subprocess.run(
        ["git", *arguments],
        cwd=where,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **identity},
        check=True,
        capture_output=True,
    )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path))
    (root / "main/packages/a").mkdir(parents=True)
    git(root / "main", "init", "-q", "-b", "main", ".")
    git(root / "main", "commit", "-q", "--allow-empty", "-m", "first")
    git(root / "main", "worktree", "add", "-q", "../wt", "-b", "wt")
    return root


def test_a_worktree_a_folder_and_a_folder_of_a_worktree_are_found(base: Path):
    common = f"{base}/main/.git"
    (base / "wt/in/it").mkdir(parents=True)
    assert find_git_outside(str(base / "wt")) == GitOutside(common, "worktrees/wt")
    assert find_git_outside(str(base / "main/packages/a")) == GitOutside(
        common, folder="packages/a"
    )
    assert find_git_outside(str(base / "wt/in/it")) == GitOutside(
        common, "worktrees/wt", "in/it", f"{base}/wt/.git"
    )


def test_an_ordinary_repository_has_nothing_outside(base: Path):
    assert find_git_outside(str(base / "main")) is None
    assert find_git_outside(str(base)) is None


def test_links_on_the_way_are_told(base: Path):
    (base / "linked").symlink_to("main")
    (base / "wt/.git").write_text(f"gitdir: {base}/linked/.git/worktrees/wt\n")
    found = find_git_outside(str(base / "wt"))
    assert found == GitOutside(
        f"{base}/main/.git", "worktrees/wt", links=((f"{base}/linked", "main"),)
    )


def test_a_submodule_says_where_its_work_tree_is(base: Path):
    module = base / "main/.git/modules/sub"
    git(base, "clone", "-q", "--bare", "main", str(module))
    (base / "main/sub").mkdir()
    (base / "main/sub/.git").write_text("gitdir: ../.git/modules/sub\n")
    assert find_git_outside(str(base / "main/sub")) is None
    git(module, "config", "core.worktree", "../../../sub")
    assert find_git_outside(str(base / "main/sub")) == GitOutside(str(module))


REFUSED = {
    "no such directory": lambda base: "gitdir: /nowhere\n",
    "no line of git's": lambda base: f"{base}/main/.git/worktrees/wt\n",
    "more than a line": lambda base: f"gitdir: {base}/main/.git/worktrees/wt\nmore\n",
    "another's worktree": lambda base: f"gitdir: {base}/main/.git/worktrees/other\n",
    "a repository that knows nothing of it": lambda base: f"gitdir: {base}/main/.git\n",
    "a file": lambda base: f"gitdir: {base}/main/.git/HEAD\n",
    "itself": lambda base: "gitdir: .\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_a_git_file_is_not_believed(text, base: Path):
    git(base / "main", "worktree", "add", "-q", "../other", "-b", "other")
    (base / "wt/.git").write_text(text(base))
    assert find_git_outside(str(base / "wt")) is None


def test_what_the_repository_says_of_the_worktree_counts(base: Path):
    own = base / "main/.git/worktrees/wt"
    for name, text in (
        ("gitdir", f"{base}/elsewhere/.git\n"),
        ("gitdir", f"{base}/wt\n"),
        ("commondir", "/etc\n"),
        ("commondir", ".\n"),
    ):
        before = (own / name).read_text()
        (own / name).write_text(text)
        assert find_git_outside(str(base / "wt")) is None, (name, text)
        (own / name).write_text(before)
    assert find_git_outside(str(base / "wt")) is not None


@pytest.mark.parametrize("name", [".git", "main/.git/worktrees/wt/gitdir"])
def test_a_link_or_a_fifo_is_nobodys_word(name: str, base: Path):
    path = base / "wt/.git" if name == ".git" else base / name
    path.rename(base / "kept")
    path.symlink_to(base / "kept")
    assert find_git_outside(str(base / "wt")) is None
    path.unlink()
    os.mkfifo(path)
    assert find_git_outside(str(base / "wt")) is None


@pytest.mark.needs("root")
@pytest.mark.parametrize("whose", ["main/.git", "main/.git/worktrees/wt", "wt/.git", "wt"])
def test_what_has_another_owner_is_not_opened(whose: str, base: Path):
    os.chown(base / whose, 12345, 12345)
    assert find_git_outside(str(base / "wt")) is None


FACTS = HostFacts("/w/project", "/home/u")
HERE = GitOutside("/w/main/.git", "worktrees/project")


def test_what_nobody_closed_is_trusted():
    beside = (Closed("/w/mainly", "the plane"),)
    assert find_distrust(HERE, HostFacts("/w/project", "/home/u", closed=beside)) == ""


@pytest.mark.parametrize("path", ["/w/main", "/w", "/w/main/.git", "/w/main/.git/worktrees"])
def test_what_lies_in_the_plane_or_where_others_work_is_not(path: str):
    closed = HostFacts("/w/project", "/home/u", closed=(Closed(path, "the plane"),))
    assert "the plane" in find_distrust(HERE, closed)
    changeable = HostFacts("/w/project", "/home/u", changeable=(path,))
    assert "commands can change" in find_distrust(HERE, changeable)


def test_a_link_that_commands_can_change_a_home_and_a_sparse_checkout_are_not():
    led = GitOutside("/w/main/.git", "worktrees/x", links=(("/w/project/link", "/w/main"),))
    assert "link" in find_distrust(led, FACTS)
    home = GitOutside("/home/u/.git", folder="code/x")
    assert "home" in find_distrust(home, HostFacts("/home/u/code/x", "/home/u"))
    sparse = GitOutside("/w/main/.git", folder="a", is_sparse=True)
    assert "sparse" in find_distrust(sparse, HostFacts("/w/main/a", "/home/u"))


def test_git_is_told_what_it_cannot_find_out():
    folder = GitOutside("/w/main/.git", folder="a")
    assert (settings_for(None), variables_for(None), variables_for(HERE)) == ((), (), ())
    assert settings_for(HERE) == (("gc.worktreePruneExpire", "never"),)
    assert dict(settings_for(folder))["core.sparseCheckout"] == "true"
    assert variables_for(folder) == (("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),)
