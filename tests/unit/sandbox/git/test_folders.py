"""An index where the workspace is a folder of the work tree, held against git's own reading."""

import os
import subprocess
from pathlib import Path

import pytest

from paddock.sandbox.git.index import (
    Landing,
    is_harmless_index,
    land_folder,
    show_folder,
    sparse_pattern,
)

pytestmark = pytest.mark.needs("git")

SHA1, SHA256 = 20, 32


class Repository:
    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main", *options, ".")
        for name in ("a/one", "a/two", "ab/not-in-a", "b/x", "b/deep/y", "top", "a.b"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{name}\n")
        self.git("add", ".")

    def git(self, *arguments: str, index: bytes | None = None) -> str:
        where = self.root / ".git/index"
        if index is not None:
            where = self.root / ".git/tried"
            where.write_bytes(index)
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_INDEX_FILE": str(where)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    @property
    def index(self) -> bytes:
        return (self.root / ".git/index").read_bytes()

    @property
    def written_ns(self) -> int:
        return (self.root / ".git/index").stat().st_mtime_ns

    def changed(self, shown: bytes, *arguments: str) -> bytes:
        """What git makes of an index."""
        self.git("update-index", *arguments, index=shown)
        return (self.root / ".git/tried").read_bytes()


@pytest.fixture(params=["2", "3", "4", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "sha256":
        return Repository(tmp_path / "r", "--object-format=sha256"), SHA256
    made = Repository(tmp_path / "r")
    made.git("update-index", "--index-version", request.param)
    if request.param == "3":
        made.git("update-index", "--skip-worktree", "top", "a/two")
    return made, SHA1


def test_all_but_the_folder_is_not_expected_on_disk(repository):
    made, size = repository
    shown = show_folder(made.index, size, "a")
    rows = made.git("ls-files", "-t", index=shown).splitlines()
    expected = {"H a/one", "S ab/not-in-a", "S b/x", "S b/deep/y", "S top", "S a.b"}
    assert expected <= set(rows)
    assert made.git("ls-files", "-s", index=shown) == made.git("ls-files", "-s")
    assert is_harmless_index(shown, size)


def test_what_comes_back_unchanged_says_what_stood_there(repository):
    made, size = repository
    landed = land_folder(show_folder(made.index, size, "a"), made.index, size, "a", 1 << 62)
    assert made.git("ls-files", "-st", index=landed.content) == made.git("ls-files", "-st")
    assert is_harmless_index(landed.content, size)
    # Nothing was entered in the tick of the index: then it is the same, byte for byte.
    assert land_folder(made.index, made.index, size, "a", 1 << 62).changed == ()


def test_a_change_in_the_folder_lands_and_all_else_keeps_times_and_flags(repository):
    made, size = repository
    (made.root / "a/one").write_text("changed\n")
    (made.root / "a/new").write_text("new\n")
    after = made.changed(show_folder(made.index, size, "a"), "--add", "a/one", "a/new")
    landed = land_folder(after, made.index, size, "a", 1 << 62)
    before = made.git("ls-files", "--debug", "-st", "top", "b", "ab")
    assert made.git("ls-files", "--debug", "-st", "top", "b", "ab", index=landed.content) == before
    assert "a/new" in made.git("ls-files", index=landed.content).splitlines()
    assert made.git("diff-files", "--name-only", index=landed.content) == ""


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("--force-remove", "top"), ("top",)),
        (("--force-remove", "b/x", "ab/not-in-a"), ("ab/not-in-a", "b/x")),
        (("--chmod=+x", "b/deep/y"), ("b/deep/y",)),
        (("--add", "a.c"), ("a.c",)),
    ],
)
def test_a_change_outside_of_the_folder_lands_not(repository, arguments, changed):
    made, size = repository
    (made.root / "a.c").write_text("beside\n")
    after = made.changed(show_folder(made.index, size, "a"), *arguments)
    assert land_folder(after, made.index, size, "a", 0) == Landing(b"", changed)


def test_a_time_of_the_tick_of_the_index_is_taken_back(repository):
    made, size = repository
    landed = land_folder(show_folder(made.index, size, "a"), made.index, size, "a", 0)
    times = made.git("ls-files", "--debug", "top", index=landed.content)
    assert "mtime: 0:0" in times
    assert "mtime: 0:0" not in made.git("ls-files", "--debug", "a/one", index=landed.content)


def test_an_index_that_is_split_or_sparse_or_none_is_refused(tmp_path: Path):
    made = Repository(tmp_path / "r")
    whole = made.index
    made.git("update-index", "--split-index")
    for content in (made.index, whole[:-1], b"", whole[:40] + b"x" + whole[41:]):
        with pytest.raises(ValueError, match="index"):
            show_folder(content, SHA1, "a")
        if content:
            with pytest.raises(ValueError, match="index"):
                land_folder(whole, content, SHA1, "a", 0)


def test_a_folder_is_named_as_git_reads_patterns():
    assert sparse_pattern("packages/a") == b"/packages/a/\n"
    assert sparse_pattern("a[1]*?\\") == b"/a\\[1]\\*\\?\\\\/\n"
    with pytest.raises(ValueError, match="control"):
        sparse_pattern("a\nb")
