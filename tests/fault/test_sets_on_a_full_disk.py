"""No space left, for real, in the workspace or in the plane: the whole set is refused."""

import contextlib
import os

import pytest

from paddock.errors import StorageFullError
from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import Absent, MakeDirectory, WriteFile
from paddock.workspace.paths import unchecked_path as at
from tests.support.changes import File, content, lay_out, model_of, seen
from tests.support.disks import mounted_tmpfs

OLD = {"old": File(b"x" * 200_000), "small": File(b"small")}
BIG = content(b"y" * 2_000_000)
SMALL = content(b"z")


@contextlib.contextmanager
def one_megabyte(directory):
    directory.mkdir()
    with mounted_tmpfs(directory, "size=1m,mode=0700"):
        yield directory


@contextlib.contextmanager
def opened(tree, plane):
    with (
        Workspace.open(str(tree)) as workspace,
        ObjectStore(str(plane / "objects"), bytes_max=10**9) as objects,
        Journal(str(plane / "journal"), Disk()) as journal,
    ):
        yield lambda *changes: commit_changes(workspace, [changes], objects, journal)


@pytest.mark.needs("root")
def test_a_set_without_room_in_the_workspace_leaves_nothing_behind(tmp_path):
    (tmp_path / "plane").mkdir(mode=0o700)
    with one_megabyte(tmp_path / "disk") as disk, opened_tree(disk) as tree:
        free = os.statvfs(disk).f_bfree
        with opened(tree, tmp_path / "plane") as commit:
            with pytest.raises(StorageFullError, match="no space"):
                commit(
                    WriteFile(at("small"), SMALL, seen(tree, "small")),
                    MakeDirectory(at("new"), Absent()),
                    WriteFile(at("new/file"), BIG, Absent()),
                )
            assert model_of(tree) == OLD
            assert os.statvfs(disk).f_bfree == free
            assert os.listdir(tmp_path / "plane/journal") == []
            commit(WriteFile(at("small"), SMALL, seen(tree, "small")))
        assert (tree / "small").read_bytes() == b"z"


@contextlib.contextmanager
def opened_tree(directory):
    lay_out(directory / "ws", OLD)
    yield directory / "ws"


@pytest.mark.needs("root")
def test_a_set_without_room_in_the_plane_happens_as_a_whole_or_not_at_all(tmp_path):
    tree = tmp_path / "ws"
    outcomes = []
    for free_pages in range(8):
        lay_out(tree, OLD)
        with one_megabyte(tmp_path / f"plane{free_pages}") as plane, opened(tree, plane) as commit:
            fill_but(plane, free_pages * 4096)
            try:
                commit(WriteFile(at("small"), SMALL, seen(tree, "small"), 0o644, 1))
                assert model_of(tree) == OLD | {"small": File(b"z", 0o644, 1)}
                outcomes.append("done")
            except StorageFullError:
                assert model_of(tree) == OLD
                outcomes.append("refused")
            assert os.listdir(plane / "journal") == []
            os.unlink(plane / "filler")
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"refused", "done"}


def fill_but(directory, free_bytes):
    with (directory / "filler").open("wb", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while filler.write(b"f" * 4096):
                continue
        filler.truncate(filler.tell() - free_bytes)
