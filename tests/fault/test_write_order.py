"""The order that makes a write whole: content on the device, then a name, never over a stranger."""

from pathlib import Path

import pytest

from paddock.errors import FileChangedError
from paddock.storage.disk import Disk
from paddock.testing.faulty_disk import FaultyDisk
from paddock.workspace import Workspace
from paddock.workspace.single_change import write_file
from tests.support.disks import FaultyNamedOnlyDisk, temporaries, tree

NAMING = {"link_open", "move_new", "exchange", "replace"}


class VisitedDisk(Disk):
    """Somebody replaces the file in the last moment before our exchange."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.visits = 0

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        if self.visits == 0:
            self.visits = 1
            theirs = self.file.with_name("theirs")
            theirs.write_bytes(b"theirs")
            theirs.replace(self.file)
        return super().exchange(dir_fd, name, other)


@pytest.mark.parametrize("disk_type", [FaultyDisk, FaultyNamedOnlyDisk])
@pytest.mark.parametrize("name", ["old.txt", "new.txt"])
def test_content_is_synced_before_it_has_a_name_and_the_name_before_success(
    tmp_path: Path, disk_type: type[FaultyDisk], name: str
):
    (tmp_path / "old.txt").write_bytes(b"old")
    disk = disk_type()
    with Workspace.open(str(tmp_path), disk=disk) as workspace:
        write_file(workspace, workspace.resolve_write(name), b"new")

    steps = [step for step in disk.calls if step in NAMING | {"write", "sync"}]
    named = [at for at, step in enumerate(steps) if step in NAMING]
    assert (tmp_path / name).read_bytes() == b"new"
    assert steps[: named[0]] == ["write", "sync"]
    assert steps[named[-1] + 1 :] == ["sync"]


def test_a_file_that_appeared_in_the_last_moment_is_put_back(tmp_path: Path):
    file = tmp_path / "file.txt"
    file.write_bytes(b"old")
    disk = VisitedDisk(file)
    with Workspace.open(str(tmp_path), disk=disk) as workspace:
        path = workspace.resolve_write("file.txt")

        with pytest.raises(FileChangedError):
            write_file(workspace, path, b"ours")
        assert tree(tmp_path) == {"file.txt": b"theirs"}

        write_file(workspace, path, b"ours")
    assert tree(tmp_path) == {"file.txt": b"ours"}
    assert temporaries(tmp_path) == []
