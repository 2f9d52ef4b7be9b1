"""Which work trees a repository has, by its own files on both sides of a command."""

import pytest

from paddock.errors import HostError
from paddock.sandbox.git.layout import Read, WorkTree, find_work_trees
from paddock.sandbox.git.rules import GitDirectory

MAIN = GitDirectory(".git", frozenset({"modules/lib", "worktrees/fix"}))
STANDING = {
    ".git/config": "[core]\n\tbare = false\n",
    ".git/modules/lib/config": "[core]\n\tworktree = ../../../lib\n",
    ".git/worktrees/fix/commondir": "../..\n",
    ".git/worktrees/fix/gitdir": "/w/trees/fix/.git\n",
}


def reads(files: dict[str, str]) -> Read:
    return lambda path: files[path].encode() if path in files else None


def find(directory: GitDirectory, before: dict[str, str], made: dict[str, str] | None = None):
    after = {**before, **(made or {})}
    return find_work_trees([directory], made or {}, (reads(before), reads(after)), "/w")


def tree(git: str, common: str, root: str | None, place: str = "", *, is_sure: bool = True):
    return WorkTree(place or git, git, common, root, 20, is_sure)


def test_submodules_are_repositories_and_worktrees_belong_to_one():
    assert find(MAIN, STANDING) == (
        tree(".git", ".git", "."),
        tree(".git/modules/lib", ".git/modules/lib", "lib"),
        tree(".git/worktrees/fix", ".git", "trees/fix"),
    )


def test_what_the_command_made_belongs_to_the_repository_that_it_lies_in():
    made = {
        ".git/worktrees/new/commondir": "../..\n",
        ".git/worktrees/new/gitdir": "/w/new/.git\n",
        ".git/modules/a/b/config": "[core]\n\tworktree = ../../../../c\n",
    }
    assert find(GitDirectory(".git"), {}, made) == (
        tree(".git", ".git", "."),
        tree(".git/modules/a/b", ".git", "c"),
        tree(".git/worktrees/new", ".git", "new"),
    )


def test_what_stood_there_is_believed_as_it_stood():
    made = {".git/worktrees/fix/gitdir": "/elsewhere/.git\n"}
    assert find(MAIN, STANDING, made) == find(MAIN, STANDING)


def test_a_file_that_leads_to_a_git_directory_is_one_with_it():
    files = {**STANDING, "lib/.git": "gitdir: ../.git/modules/lib\n"}
    lib = ".git/modules/lib"
    assert find(GitDirectory("lib/.git"), files) == (tree(lib, lib, "lib", "lib/.git"),)


@pytest.mark.parametrize("text", ["gitdir: ../../elsewhere\n", "gitdir: /x\n", "", "x"])
def test_a_file_that_leads_nowhere_here_is_its_own(text: str):
    said = find(GitDirectory("lib/.git"), {"lib/.git": text})
    assert said == (tree("lib/.git", "lib/.git", "lib"),)


@pytest.mark.parametrize(
    ("value", "root", "is_sure"),
    [
        ("../../../lib", "lib", True),
        ("/w/lib", "lib", True),
        ("../../..", ".", True),
        ("/elsewhere", None, True),
        ("../../../..", None, True),
        ('"../../../l b"', ".", False),
        ("../../../lib # x", ".", False),
    ],
)
def test_where_a_work_tree_stands_is_read_plainly_or_is_anywhere(value, root, is_sure):
    files = {**STANDING, ".git/modules/lib/config": f"[core]\n\tworktree = {value}\n"}
    said = next(each for each in find(MAIN, files) if each.git == ".git/modules/lib")
    assert (said.root, said.is_sure) == (root, is_sure)


def test_a_bare_repository_has_none():
    assert find(GitDirectory("store"), {}) == (tree("store", "store", None),)


def test_what_cannot_be_read_is_anywhere():
    def read(_path: str) -> bytes | None:
        raise HostError("closed")

    said = find_work_trees([GitDirectory("s/.git")], (), (read, read), "/w")
    assert said == (tree("s/.git", "s/.git", ".", is_sure=False),)
