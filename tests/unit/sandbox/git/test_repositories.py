"""Which git directories are touched, found without walking the workspace."""

import os
from pathlib import Path

import pytest

from paddock.sandbox.git.layout import Touched, find_repositories
from paddock.sandbox.git.rules import GitDirectory


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
        ".git/HEAD",
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
        ((), ("s/HEAD", "s/commondir", "s/config"), True),
        (("s/HEAD", "s/commondir"), ("s/hooks",), True),
        (("s/HEAD",), ("s/config",), False),
        (("s/objects/", "s/refs/"), ("s/config", "s/commondir"), False),
        ((), ("s/config",), False),
        ((), ("s/objects", "s/refs", "s/config"), False),
    ],
)
def test_a_bare_repository_is_one_before_or_after(tmp_path: Path, standing, made, is_bare):
    fd = lay(tmp_path, "other", *standing)

    is_new = not standing
    assert find(fd, *made) == ((GitDirectory("s", is_new=is_new),) if is_bare else ())


@pytest.mark.parametrize(
    ("standing", "made", "armed_by"),
    [
        (("s/HEAD", "s/objects/", "s/config"), "s/refs", "s/config"),
        (("s/HEAD", "s/objects/", "s/hooks/x"), "s/refs", "s/hooks"),
        (("s/HEAD", "s/refs/", "s/info/attributes"), "s/objects", "s/info/attributes"),
        (("s/HEAD", "s/refs/", "s/config.worktree"), "s/commondir", "s/config.worktree"),
        (("s/HEAD", "s/objects/info/alternates"), "s/refs", "s/objects/info/alternates"),
        (("s/objects/", "s/refs/", "s/index"), "s/HEAD", "s/index"),
        (("s/commondir",), "s/HEAD", "s/commondir"),
        (("s/HEAD", "s/objects/", "s/guide.md"), "s/refs", ""),
        (("s/HEAD", "s/objects/", "s/info/exclude"), "s/refs", ""),
        # What is one already is judged by what happens in it.
        (("s/HEAD", "s/objects/", "s/refs/", "s/config"), "s/HEAD", ""),
    ],
)
def test_what_completes_a_repository_is_told_with_what_stood_there(
    tmp_path: Path, standing, made, armed_by
):
    fd = lay(tmp_path, "other", *standing)

    assert find(fd, made) == (GitDirectory("s", armed_by=armed_by),)


def test_a_removal_that_may_be_refused_does_not_hide_what_is_completed(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/config")
    gone = ("s/HEAD", "s/config")

    assert find(fd, "s/refs", gone=gone) == (GitDirectory("s", armed_by="s/config"),)


def test_a_repository_inside_of_one_is_completed_too(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/refs/HEAD", "s/refs/objects/", "s/refs/config")

    assert find(fd, "s/refs/refs") == (GitDirectory("s", armed_by="s/refs/config"),)


@pytest.mark.parametrize(
    ("standing", "made", "found"),
    [
        ((), ("HEAD", "objects", "refs", "config"), (GitDirectory(".", is_new=True),)),
        (("HEAD", "objects/", "refs/"), ("hooks/x",), (GitDirectory("."),)),
        (("HEAD", "objects/", "config"), ("refs",), (GitDirectory(".", armed_by="config"),)),
        (("HEAD", "objects/", "refs/"), ("src/a", "README", "Cargo.lock"), ()),
        (("HEAD", "objects/", "refs/"), ("s/.git/index",), (GitDirectory("s/.git", is_new=True),)),
        (("HEAD",), ("config", "hooks/x"), ()),
        ((), ("objects/x", "refs/y", "config"), ()),
    ],
)
def test_the_workspace_itself_can_be_a_repository(tmp_path: Path, standing, made, found):
    fd = lay(tmp_path, "other", *standing)

    assert find(fd, *made) == found


def test_a_worktree_of_a_repository_that_the_workspace_is_stands_in_it(tmp_path: Path):
    tree = "worktrees/fix"
    fd = lay(
        tmp_path,
        *("HEAD", "objects/", "refs/", f"{tree}/HEAD", f"{tree}/commondir", f"{tree}/gitdir"),
    )

    assert find(fd, f"{tree}/index", "fix/src/a") == (GitDirectory(".", frozenset({tree})),)


@pytest.mark.parametrize(
    ("text", "hash_bytes"),
    [
        ("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n", 32),
        ('[Extensions] ObjectFormat="sha256"\n', 32),
        ("[extensions]\n\tobjectformat = sha1\n", 20),
        ("[extensions]\n\tcompatobjectformat = sha256\n", 20),
        ("", 20),
    ],
)
def test_the_configuration_that_stood_there_tells_how_long_names_are(
    tmp_path: Path, text: str, hash_bytes: int
):
    fd = lay(tmp_path, ".git/HEAD", ".git/config")
    (tmp_path / ".git/config").write_text(text)

    assert find(fd, ".git/index") == (GitDirectory(".git", hash_bytes=hash_bytes),)


def test_what_is_taken_apart_was_a_repository_before(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/refs/")

    assert find(fd, "s/config", gone=("s/HEAD",)) == (GitDirectory("s"),)


def test_a_link_is_not_followed(tmp_path: Path):
    fd = lay(tmp_path, "s/HEAD", "s/objects/", "s/refs/")
    os.symlink("s", tmp_path / "l")

    assert find(fd, "l/config") == ()
