"""A set of changes over two roots: whole in both or in neither, whatever happens on the way."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.errors import FileChangedError, PathTraversalError
from paddock.storage.disk import Disk
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes, recover
from paddock.workspace.changes import Absent, AtVersion, RemoveFile, WriteFile
from paddock.workspace.paths import unchecked_path
from paddock.workspace.read import version_of
from paddock.workspace.workspace import PASS_DIRECTORY, Beside, detect_resolution
from tests.support.changes import content, memory_directory, open_bench
from tests.support.dying import run_until

BEFORE = {"ws/a": "a", "ws/.git": "gitdir: elsewhere\n", "git/HEAD": "old", "git/refs/gone": "g"}
AFTER = {"ws/a": "b", "ws/.git": "gitdir: elsewhere\n", "git/HEAD": "new", "git/refs/made": "m"}


def lay_out(base: Path) -> None:
    for name, text in BEFORE.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stands(base: Path) -> dict[str, str]:
    return {
        str(path.relative_to(base)): path.read_text()
        for root in ("ws", "git")
        for path in (base / root).rglob("*")
        if path.is_file()
    }


def change(base: Path) -> None:
    at = unchecked_path
    with open_bench(base) as bench:
        fd = os.open(base / "git", PASS_DIRECTORY)
        with bench.workspace.with_beside(Beside(".git", str(base / "git"), fd)) as both:
            commit_changes(
                both,
                [
                    [WriteFile(at("a"), content(b"b"), AtVersion(version_of(b"a")))],
                    [WriteFile(at(".git/refs/made"), content(b"m"), Absent())],
                    [WriteFile(at(".git/HEAD"), content(b"new"), AtVersion(version_of(b"old")))],
                    [RemoveFile(at(".git/refs/gone"), AtVersion(version_of(b"g")))],
                ],
                bench.objects,
                bench.journal,
                label="C-1",
            )
        os.close(fd)


def in_a_copy(act: Callable[[Path], None]) -> None:
    with memory_directory() as base:
        lay_out(base)
        act(base)


def test_both_roots_change_together():
    def act(base: Path) -> None:
        change(base)
        assert stands(base) == AFTER

    in_a_copy(act)


def test_a_process_that_dies_anywhere_leaves_all_of_it_or_nothing():
    steps: list[int] = []
    in_a_copy(lambda base: steps.append(run_until(None, lambda: change(base)) or 0))
    seen: set[bool] = set()
    for dies_at in range(steps[0]):

        def act(base: Path, dies_at: int = dies_at) -> None:
            run_until(dies_at, lambda: change(base))
            with open_bench(base) as bench:
                recover(bench.journal, Disk(), detect_resolution())
                assert bench.entries() == []
            now = stands(base)
            assert now in (BEFORE, AFTER), dies_at
            seen.add(now == AFTER)

        in_a_copy(act)
    assert seen == {True, False}


def test_somebody_elses_change_in_one_root_keeps_the_other_as_it_was():
    def act(base: Path) -> None:
        (base / "git/HEAD").write_text("theirs")
        with pytest.raises(FileChangedError, match="HEAD"):
            change(base)
        assert stands(base) == BEFORE | {"git/HEAD": "theirs"}

    in_a_copy(act)


def half_done(base: Path) -> Path:
    """A place in which a process died when some of the names had changed."""
    lay_out(base / "whole")
    steps = run_until(None, lambda: change(base / "whole")) or 0
    for dies_at in range(steps):
        place = base / str(dies_at)
        lay_out(place)
        run_until(dies_at, lambda place=place: change(place))
        if stands(place) not in (BEFORE, AFTER) and (place / "ws/a").read_text() == "b":
            return place
    raise AssertionError("no step leaves it half done")


def test_what_a_killed_process_left_waits_where_another_directory_stands_now():
    def act(base: Path) -> None:
        place = half_done(base)
        (place / "git").rename(place / "moved")
        (place / "git").mkdir()
        with open_bench(place) as bench:
            settled = recover(bench.journal, Disk(), detect_resolution())
            assert [each.settled.value for each in settled] == ["waiting"]
        assert os.listdir(place / "git") == []

    in_a_copy(act)


def test_names_in_the_other_root_are_found_and_none_above_it(tmp_path: Path):
    lay_out(tmp_path)
    (tmp_path / "git/out").symlink_to("../ws/a")
    fd = os.open(tmp_path / "git", PASS_DIRECTORY)
    with (
        Workspace.open(str(tmp_path / "ws")) as workspace,
        workspace.with_beside(Beside(".git", str(tmp_path / "git"), fd)) as both,
    ):
        assert both.resolve_entry(".git/HEAD").path.relative == ".git/HEAD"
        assert both.resolve_entry(".git/refs/none").exists is False
        assert both.read_all(unchecked_path(".git/HEAD"), 10) == b"old"
        for name in (".git/../a", ".git/out"):
            with pytest.raises(PathTraversalError):
                both.resolve_read(name)
        assert workspace.read_all(unchecked_path(".git"), 99) == b"gitdir: elsewhere\n"
    os.close(fd)
