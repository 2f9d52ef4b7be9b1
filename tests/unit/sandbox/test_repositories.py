"""Which git directories are touched, found without walking the workspace."""

import os
from pathlib import Path

import pytest

from paddock.sandbox.git_rules import GitDirectory
from paddock.sandbox.repositories import Touched, find_repositories


def lay(root: Path, *names: str) -> int:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_text("x")
    return os.open(root, os.O_PATH | os.O_DIRECTORY)


def find(fd: int, *present: str, gone: tuple[str, ...] = ()) -> tuple[GitDirectory, ...]:
    try:
        return find_repositories(fd, Touched(frozenset(present), frozenset(gone)))
    finally:
        os.close(fd)


def test_a_git_directory_is_found_at_any_depth_and_only_where_touched(tmp_path: Path):
    fd = lay(tmp_path, ".git/HEAD", "a/b/.git/HEAD", "c/.git/HEAD")

    assert find(fd, "x", "a/b/.git/refs/heads/m") == (GitDirectory("a/b/.git"),)


def test_submodules_and_worktrees_that_stood_there_are_nested(tmp_path: Path):
    module, tree = ".git/modules/lib", ".git/worktrees/fix"
    fd = lay(
        tmp_path,
        *(f"{module}/HEAD", f"{module}/objects/", f"{module}/refs/"),
        *(f"{tree}/HEAD", f"{tree}/commondir", f"{tree}/gitdir"),
    )
    found = find(fd, f"{module}/refs/heads/m", f"{tree}/index", ".git/modules/new/HEAD")

    assert found == (GitDirectory(".git", frozenset({"modules/lib", "worktrees/fix"})),)


@pytest.mark.parametrize(
    ("standing", "made", "is_bare"),
    [
        (("s/HEAD", "s/objects/", "s/refs/"), ("s/config",), True),
        ((), ("s/HEAD", "s/objects", "s/refs", "s/config"), True),
        (("s/HEAD", "s/objects/"), ("s/refs", "s/config"), True),
        (("s/HEAD",), ("s/config",), False),
        ((), ("s/config",), False),
    ],
)
def test_a_bare_repository_is_one_before_or_after(tmp_path: Path, standing, made, is_bare):
    fd = lay(tmp_path, "other", *standing)

    assert find(fd, *made) == ((GitDirectory("s"),) if is_bare else ())


def test_what_is_taken_apart_was_a_repository_before(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/refs/")

    assert find(fd, "s/config", gone=("s/HEAD",)) == (GitDirectory("s"),)


def test_a_link_is_not_followed(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/refs/")
    os.symlink("s", tmp_path / "l")

    assert find(fd, "l/config") == ()
