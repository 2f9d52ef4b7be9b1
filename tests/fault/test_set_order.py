"""The order that makes a set whole: everything on the device, then the record, then the names."""

from pathlib import Path

import pytest

from paddock.errors import FileChangedError
from paddock.storage.disk import Disk
from paddock.testing.faulty_disk import FaultyDisk
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import Absent, MakeDirectory, RemoveFile, WriteFile
from paddock.workspace.paths import unchecked_path as at
from tests.support.changes import File, Folder, content, lay_out, open_bench, seen

OLD = {"a": Folder(), "a/old": File(b"old"), "gone": File(b"gone"), "z": File(b"z")}


def changes(root: Path) -> list:
    return [
        WriteFile(at("a/old"), content(b"new"), seen(root, "a/old")),
        RemoveFile(at("gone"), seen(root, "gone")),
        MakeDirectory(at("made"), Absent()),
        WriteFile(at("made/file"), content(b"new"), Absent()),
    ]


def test_there_is_one_sync_before_the_commit_record_and_one_before_the_end(tmp_path):
    lay_out(tmp_path / "ws", OLD)
    disk = FaultyDisk()
    with open_bench(tmp_path, disk) as bench:
        bench.commit(*changes(bench.root))
    record = ["write", "sync"]
    assert disk.calls == [
        *("create", "sync", *record),  # the entry, its name, its intent
        *("create", "set_mode", "write"),  # a/old
        *("make_directory", "create", "write"),  # made, made/file
        "sync_file_system",
        *record,  # the commit
        *("exchange", "move_new", "move_new"),
        "sync_file_system",
        *record,  # the end
        *("unlink", "unlink"),  # what was displaced
        "unlink",  # the entry
    ]


def test_a_set_that_is_put_back_says_so_before_it_does_and_syncs_before_it_ends(tmp_path):
    lay_out(tmp_path / "ws", OLD)

    class Meddled(FaultyDisk):
        def move_new(self, from_fd, name, to_fd, to):
            if name == "gone":
                (tmp_path / "ws/gone").unlink()
                (tmp_path / "ws/gone").symlink_to("theirs")
            super().move_new(from_fd, name, to_fd, to)

    disk = Meddled()
    with open_bench(tmp_path, disk) as bench, pytest.raises(FileChangedError):
        bench.commit(*changes(bench.root))
    record = ["write", "sync"]
    changed = disk.calls.index("exchange")
    assert disk.calls[changed:] == [
        *("exchange", "move_new"),
        *record,  # the undo
        *("move_new", "exchange"),
        "sync_file_system",
        *record,  # the end
        *("unlink", "unlink", "remove_directory"),  # what was built
        "unlink",  # the entry
    ]


class Watching(Disk):
    """Says which names appear, in which order."""

    def __init__(self) -> None:
        self.appeared: list[str] = []

    def move_new(self, from_fd, name, to_fd, to):
        super().move_new(from_fd, name, to_fd, to)
        self.appeared.append(to)


def test_names_appear_phase_by_phase_whatever_their_order_in_the_tree(tmp_path):
    lay_out(tmp_path / "ws", {".git": Folder(), ".git/objects": Folder(), ".git/refs": Folder()})
    disk = Watching()
    with open_bench(tmp_path, disk) as bench:
        objects = [
            WriteFile(at(".git/objects/y"), content(b"y"), Absent()),
            MakeDirectory(at(".git/objects/x"), Absent()),
            WriteFile(at(".git/objects/x/1"), content(b"1"), Absent()),
        ]
        refs = [WriteFile(at(".git/HEAD"), content(b"x"), Absent())]
        refs += [WriteFile(at(".git/refs/main"), content(b"x"), Absent())]
        commit_changes(bench.workspace, [objects, refs], bench.objects, bench.journal)
    assert disk.appeared == ["x", "y", "HEAD", "main"]
