"""Undoing calls that changed many paths at once, as a command's changes are committed."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.errors import FileChangedError, PathNotFoundError, ReadOnlyPathError
from paddock.history.journal import Journal
from paddock.history.keeping import History
from paddock.history.notes import CallMark
from paddock.runtime.past import PastCall
from paddock.runtime.undo import Undo, UndoArguments
from paddock.tools.effects import change_of_path
from paddock.tools.spec import Change, Ports
from paddock.workspace import Workspace, WorkspacePath
from paddock.workspace.changes import (
    Absent,
    MakeDirectory,
    MakeLink,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
)
from paddock.workspace.disk import Disk
from paddock.workspace.metadata import status_from
from tests.support.disks import temporaries, tree
from tests.support.shown import Shows
from tests.support.stores import NoSyncStoreDisk


@dataclass
class Bench:
    root: Path
    workspace: Workspace
    history: History
    journal: Journal

    def path(self, name: str) -> WorkspacePath:
        return self.workspace.resolve_entry(name).path

    def seen(self, name: str) -> Seen:
        return Seen(status_from(os.lstat(self.root / name)))

    def content(self, text: bytes) -> StoredContent:
        digest = self.history.store.put_bytes(text)
        self.history.store.sync()
        return StoredContent(digest)

    def command(self, *staged: StagedChange, tool: str = "run_shell") -> PastCall:
        """A call whose command made these changes."""
        receipt = self.workspace.commit([staged], self.history.store, self.journal)
        changes = tuple(change_of_path(row) for row in receipt.changes)
        return past_call(changes, tool)

    def undo(self, call: PastCall) -> PastCall:
        """The undo, as a call that can be undone in its turn."""
        ports = Ports(self.workspace, Shows())
        undo = Undo(call, self.history, self.journal)
        plan = undo.resolve(UndoArguments(call=call.call_id, agent="main"), ports)
        with self.history.running(CallMark("UNDO", "undo", "(operator)", "SES-2")) as running:
            output = undo.run(plan, ports)
            noted = {note.doing.path for note in self.history.notes.read_all()}
            assert noted >= {change.path for change in output.changes if change.kind != "moved"}
        self.history.recorded(running)
        return past_call(output.changes, call.tool)

    def tree(self) -> dict[str, object]:
        return {
            name: (what, os.lstat(self.root / name).st_mode & 0o777)
            for name, what in tree(self.root).items()
        }


def past_call(changes: Sequence[Change], tool: str) -> PastCall:
    return PastCall("CALL", "LED", "now", "main", "main", "SES", tool, "done", tuple(changes))


@pytest.fixture
def bench(tmp_path):
    root = tmp_path / "ws"
    (root / "dir/sub").mkdir(parents=True)
    (root / "dir/sub").chmod(0o711)
    (root / "dir/one").write_bytes(b"one\n")
    (root / "dir/sub/two").write_bytes(b"two\n")
    (root / "dir/sub/two").chmod(0o640)
    (root / "file").write_bytes(b"file\n")
    (root / "link").symlink_to(b"dir/one\xff")
    history = History(str(tmp_path / "objects"), bytes_max=1 << 30, disk=NoSyncStoreDisk())
    history.store.recover()
    with (
        Workspace.open(str(root), keeper=history.keeper()) as workspace,
        Journal.open(str(tmp_path / "objects/journal"), Disk()) as journal,
    ):
        yield Bench(root, workspace, history, journal)
    history.close()


def new_tree(b: Bench) -> list[StagedChange]:
    return [
        MakeDirectory(b.path("new"), Absent(), 0o750),
        MakeDirectory(b.path("new/deep"), Absent()),
        WriteFile(b.path("new/deep/file"), b.content(b"new\n"), Absent(), 0o755),
        MakeLink(b.path("new/link"), "../file", Absent()),
    ]


def whole_tree_gone(b: Bench) -> list[StagedChange]:
    return [
        RemoveFile(b.path("dir/one"), b.seen("dir/one")),
        RemoveFile(b.path("dir/sub/two"), b.seen("dir/sub/two")),
        RemoveDirectory(b.path("dir/sub"), b.seen("dir/sub")),
        RemoveDirectory(b.path("dir"), b.seen("dir")),
    ]


def contents(b: Bench) -> list[StagedChange]:
    return [
        WriteFile(b.path("dir/one"), b.content(b"uno\n"), b.seen("dir/one")),
        WriteFile(b.path("dir/sub/two"), b.content(b"due\n"), b.seen("dir/sub/two"), 0o600),
        RemoveFile(b.path("link"), b.seen("link")),
    ]


def kinds(b: Bench) -> list[StagedChange]:
    return [
        MakeLink(b.path("file"), "dir", b.seen("file")),
        WriteFile(b.path("link"), b.content(b"no link\n"), b.seen("link")),
        MakeDirectory(b.path("dir/one"), b.seen("dir/one")),
    ]


def modes(b: Bench) -> list[StagedChange]:
    return [
        SetMetadata(b.path("file"), b.seen("file"), 0o755),
        SetMetadata(b.path("dir/sub"), b.seen("dir/sub"), 0o755),
    ]


SETS = {f.__name__: f for f in (new_tree, whole_tree_gone, contents, kinds, modes)}


@pytest.mark.parametrize("changes", SETS.values(), ids=SETS)
def test_all_paths_of_a_call_come_back_and_go_again(bench, changes):
    before = bench.tree()
    call = bench.command(*changes(bench))
    after = bench.tree()
    assert after != before
    undo = bench.undo(call)
    assert bench.tree() == before
    undo_of_undo = bench.undo(undo)
    assert bench.tree() == after
    bench.undo(undo_of_undo)
    assert bench.tree() == before
    assert temporaries(bench.root) == []


MEDDLED = {
    "new_tree": lambda root: (root / "new/deep/mine").write_text("mine"),
    "whole_tree_gone": lambda root: (root / "dir").mkdir(),
    "contents": lambda root: (root / "dir/sub/two").write_text("mine"),
    "kinds": lambda root: (root / "link").unlink(),
    "modes": lambda root: (root / "file").unlink(),
}


@pytest.mark.parametrize("name", SETS)
def test_one_path_that_changed_since_leaves_all_as_they_are(bench, name):
    call = bench.command(*SETS[name](bench))
    MEDDLED[name](bench.root)
    before = bench.tree()
    with pytest.raises(FileChangedError):
        bench.undo(call)
    assert bench.tree() == before


def test_one_content_that_is_not_kept_leaves_all_as_they_are(bench, tmp_path):
    call = bench.command(*contents(bench))
    lost = next(change for change in call.changes if change.path == "dir/one")
    (tmp_path / "objects" / lost.before.removeprefix("sha256:")).unlink()
    before = bench.tree()
    with pytest.raises(PathNotFoundError, match="'dir/one'"):
        bench.undo(call)
    assert bench.tree() == before


def test_what_was_not_kept_for_policy_is_told(bench):
    staged = RemoveFile(bench.path("file"), bench.seen("file"), keeps_old=False)
    call = bench.command(staged)
    with pytest.raises(PathNotFoundError, match="'file'"):
        bench.undo(call)


@pytest.mark.parametrize(("tool", "is_undone"), [("run_shell", True), ("create_file", False)])
def test_a_file_without_write_bits_is_undone_where_a_command_made_it(bench, tool, is_undone):
    before = bench.tree()
    staged = WriteFile(bench.path("locked"), bench.content(b"x"), Absent(), 0o444)
    call = bench.command(staged, tool=tool)
    if is_undone:
        bench.undo(call)
        assert bench.tree() == before
    else:
        with pytest.raises(ReadOnlyPathError):
            bench.undo(call)


def test_a_call_without_changes_on_record_is_told(bench):
    with pytest.raises(PathNotFoundError, match="no change"):
        bench.undo(past_call((), "run_shell"))
