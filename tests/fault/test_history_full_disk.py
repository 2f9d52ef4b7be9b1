"""No space left for what would be replaced, for real: nothing is replaced."""

import os

import pytest

from paddock.errors import StorageFullError
from paddock.storage.history import History
from paddock.storage.notes import CallMark, read_notes
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.single_change import delete_entry, write_file
from tests.support.disks import mounted_tmpfs, tree

OLD = os.urandom(200_000)
LARGE = os.urandom(400_000)
MARK = CallMark("CALL-1", "create_file", "main", "SES-1")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own for the history, of 256 kB."""
    place = tmp_path / "plane"
    place.mkdir()
    with mounted_tmpfs(place, "size=256k,mode=0755") as disk:
        yield disk


@pytest.mark.needs("root")
@pytest.mark.parametrize("act", ["overwrite", "delete"])
@pytest.mark.parametrize("name", ["old", "large"])
def test_what_has_no_room_in_the_history_is_not_replaced(small_disk, tmp_path, act, name):
    root = tmp_path / "ws"
    root.mkdir()
    (root / "old").write_bytes(OLD)
    (root / "large").write_bytes(LARGE)
    (small_disk / "filler").write_bytes(bytes(150_000))
    before = tree(root)
    history = History(str(small_disk / "objects"), bytes_max=1 << 30)
    with (
        Workspace.open(str(root), keeper=history.keeper()) as workspace,
        history.running(MARK),
    ):

        def do() -> None:
            if act == "delete":
                delete_entry(workspace, workspace.resolve_entry(name))
            else:
                write_file(workspace, workspace.resolve_write(name), b"new")

        with pytest.raises(StorageFullError, match="no space"):
            do()
        assert tree(root) == before
        assert read_notes(history.store) == ()
        (small_disk / "filler").unlink()
        if name == "old":
            # The same act succeeds where there is room.
            do()
            assert history.store.read(digest_of(OLD)) == OLD
            assert tree(root) != before
    history.close()
