"""Which closed names git tracks, each by the index of the repository that it lies in."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from paddock.sandbox.git.tracked import Tracked, TrackedNames, list_tracked

pytestmark = [pytest.mark.needs("linux"), pytest.mark.needs("git")]


def git(where: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=where,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(where)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "w"
    (made / "deep/er").mkdir(parents=True)
    for name in (".env", "deep/er/.env", "a.txt"):
        (made / name).write_text(name)
    git(made, "init", "-q")
    git(made, "add", "-f", ".")
    return made


@pytest.fixture
def root_fd(root: Path) -> Generator[int, None, None]:
    fd = os.open(root, os.O_PATH)
    yield fd
    os.close(fd)


def find(names: TrackedNames, root: Path, root_fd: int, *closed: str) -> Tracked:
    return names.find(root_fd, str(root), closed)


def paths(found: Tracked) -> list[str]:
    return [each.path for each in found.names]


def test_closed_names_are_found_with_their_objects(root: Path, root_fd: int):
    found = find(TrackedNames(), root, root_fd, ".env", "deep/er/.env", "x.key")
    assert paths(found) == [".env", "deep/er/.env"]
    assert found.names[0].object_id == git(root, "rev-parse", ":.env").strip()
    assert (found.names[0].mode, found.names[0].repository) == (0o100644, ".")


def test_an_index_that_has_not_changed_is_not_read_again(root: Path, root_fd: int):
    names = TrackedNames()
    first = find(names, root, root_fd, ".env")
    # Closed to us, it can be looked at and not read; the same entries come of it.
    assert find(names, root, root_fd, ".env") == first
    assert first.is_current()


def test_an_index_that_was_replaced_is_not_the_one_of_the_look(root: Path, root_fd: int):
    names = TrackedNames()
    before = find(names, root, root_fd, ".env")
    (root / ".env").write_text("new")
    git(root, "add", ".env")
    assert not before.is_current()
    after = find(names, root, root_fd, ".env")
    assert after.is_current()
    assert after.names[0].object_id != before.names[0].object_id
    (root / ".git/index").unlink()
    assert not after.is_current()


def test_a_linked_worktree_in_the_workspace_goes_by_its_own_index(root: Path, root_fd: int):
    git(root, "commit", "-qm", "first")
    git(root, "worktree", "add", "-q", "tree", "-b", "side")
    (root / "tree/.env").write_text("side")
    git(root / "tree", "add", "-f", ".env")
    found = find(TrackedNames(), root, root_fd, ".env", "tree/.env")
    assert [each.repository for each in found.names] == [".", "tree"]
    assert found.names[1].object_id == git(root / "tree", "rev-parse", ":.env").strip()


@pytest.mark.parametrize("lead", ["/etc", "../../elsewhere", "", "x" * 5000, "a\0b"])
def test_a_lead_out_of_the_workspace_is_not_followed(root: Path, root_fd: int, lead: str):
    (root / "deep/.git").write_text(f"gitdir: {lead}\n")
    found = find(TrackedNames(), root, root_fd, ".env", "deep/er/.env")
    assert paths(found) == [".env"]


def test_a_link_on_the_way_is_not_passed(root: Path, root_fd: int, tmp_path: Path):
    os.rename(root / ".git", tmp_path / "git")
    (root / ".git").symlink_to(tmp_path / "git")
    assert paths(find(TrackedNames(), root, root_fd, ".env")) == []
    (root / ".git").unlink()
    os.rename(tmp_path / "git", root / ".git")
    os.rename(root / ".git/index", tmp_path / "index")
    (root / ".git/index").symlink_to(tmp_path / "index")
    assert paths(find(TrackedNames(), root, root_fd, ".env")) == []


def test_what_git_does_not_expect_to_be_there_is_left_out(root: Path, root_fd: int):
    git(root, "update-index", "--skip-worktree", ".env")
    (root / "deep/er/.env").unlink()
    found = find(TrackedNames(), root, root_fd, ".env", "deep/er/.env")
    assert paths(found) == []


def test_what_is_below_a_closed_directory_is_found(root: Path, root_fd: int):
    assert paths(find(TrackedNames(), root, root_fd, "deep")) == ["deep/er/.env"]


def test_people_see_all_that_is_tracked_in_either_format(root: Path, tmp_path: Path):
    assert list_tracked(root) == (".env", "a.txt", "deep/er/.env")
    other = tmp_path / "sha256"
    other.mkdir()
    assert list_tracked(other) == ()
    git(other, "init", "-q", "--object-format=sha256")
    (other / ".env").write_text("x")
    git(other, "add", ".env")
    assert list_tracked(other) == (".env",)
