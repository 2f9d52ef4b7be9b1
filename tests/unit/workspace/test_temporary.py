"""Temporary names: hidden, guarded, and gone after the next open."""

import fcntl
import os

import pytest

from paddock.workspace import Workspace
from paddock.workspace import targets as module
from paddock.workspace.paths import ROOT, is_temporary_name, unchecked_path
from paddock.workspace.targets import temporary_name
from tests.support.disks import tree

TOKEN = "0123456789abcdef" * 2
NAME, RECORD = f".paddock-{TOKEN}.tmp", f".paddock-{TOKEN}.at"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        (NAME, True),
        (RECORD, True),
        (NAME.upper(), True),
        (NAME + "x", False),
        ("x" + NAME, False),
        (".paddock-short.tmp", False),
        (".paddock", False),
        (f".paddock-{TOKEN}.txt", False),
        (f".paddock-{TOKEN}.tmp\n", False),
    ],
)
def test_a_temporary_name_is_told_by_its_pattern(name, ours):
    assert is_temporary_name(name) == ours


def reopened(ground) -> None:
    Workspace.open(str(ground.root), ground.workspace.resolution).close()


@pytest.mark.parametrize("folder", ["deep/er", "."])
def test_what_a_dead_writer_left_is_gone_after_the_next_open(ground, folder):
    (ground.root / "deep/er").mkdir(parents=True)
    (ground.root / folder / NAME).write_bytes(b"draft")
    if folder != ".":
        (ground.root / RECORD).symlink_to(folder)
    (ground.root / "kept").write_bytes(b"kept")
    reopened(ground)
    assert tree(ground.root) == {"deep": None, "deep/er": None, "kept": b"kept"}


def test_a_temporary_that_was_a_link_is_removed_and_not_followed(ground):
    (ground.root / "dir").mkdir()
    (ground.root / "dir" / NAME).symlink_to("../../outside/file")
    (ground.root / RECORD).symlink_to("dir")
    reopened(ground)
    assert tree(ground.root) == {"dir": None}
    assert tree(ground.outside)["file"] == b"outside\n"


@pytest.mark.parametrize(
    "text", ["../outside", "/tmp", "dir/../../outside", "out", "nothing", "file", "a//b", "\udcff"]
)
def test_a_planted_record_reaches_nothing_but_our_own_names_inside(ground, text):
    (ground.outside / NAME).write_bytes(b"bait")
    (ground.root / "file").write_bytes(b"kept")
    (ground.root / "dir").mkdir()
    (ground.root / "out").symlink_to("../outside")
    os.symlink(text, ground.root / RECORD)
    before = tree(ground.outside)
    reopened(ground)
    assert tree(ground.outside) == before
    assert tree(ground.root) == {"dir": None, "file": b"kept", "out": "-> ../outside"}


def test_a_record_that_is_no_link_and_a_temporary_that_is_a_directory_do_not_stop_an_open(ground):
    (ground.root / RECORD).write_bytes(b"planted")
    (ground.root / NAME.replace("0", "1")).mkdir()
    reopened(ground)
    assert RECORD not in tree(ground.root)


def test_a_temporary_of_a_living_writer_is_left_alone(ground, monkeypatch):
    monkeypatch.setattr(module, "_SWEEP_WAIT_S", 0.0)
    (ground.root / "dir").mkdir()
    (ground.root / "dir" / NAME).write_bytes(b"draft")
    (ground.root / RECORD).symlink_to("dir")
    writer = os.open(ground.root / "dir", os.O_RDONLY)
    fcntl.flock(writer, fcntl.LOCK_EX)
    before = tree(ground.root)
    reopened(ground)
    assert tree(ground.root) == before
    os.close(writer)
    reopened(ground)
    assert tree(ground.root) == {"dir": None}


@pytest.mark.parametrize("folder", ["deep/er", "."])
def test_a_name_is_recorded_while_it_may_stand_and_removed_whatever_stands_there(ground, folder):
    (ground.root / "deep/er").mkdir(parents=True)
    directory = ROOT if folder == "." else unchecked_path(folder)
    dir_fd = os.open(ground.root / folder, os.O_PATH)
    with temporary_name(ground.workspace, directory, dir_fd) as name:
        assert is_temporary_name(name)
        record = name.replace(".tmp", ".at")
        expected = {} if folder == "." else {record: f"-> {folder}"}
        assert tree(ground.root) == {"deep": None, "deep/er": None, **expected}
        (ground.root / folder / name).write_bytes(b"left over")
    assert tree(ground.root) == {"deep": None, "deep/er": None}
    os.close(dir_fd)


def test_two_names_are_never_the_same(ground):
    names = set()
    for _ in range(100):
        with temporary_name(ground.workspace, ROOT, ground.workspace.root_fd) as name:
            names.add(name)
    assert len(names) == 100
