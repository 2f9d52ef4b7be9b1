"""Undoing calls that changed many paths at once, as a command's changes are committed."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    FileChangedError,
    PathNotFoundError,
    PathThroughLinkError,
    PathTraversalError,
    ReadOnlyPathError,
)
from paddock.runtime.changes import PastCall
from paddock.runtime.undo import Undo, UndoArguments
from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.journal import Journal
from paddock.storage.notes import CallMark, read_notes
from paddock.tools.effects import change_of_path
from paddock.tools.spec import Change, Ports
from paddock.workspace import Workspace, WorkspacePath
from paddock.workspace.apply import commit_changes
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
from paddock.workspace.metadata import status_from
from tests.support.disks import temporaries, tree
from tests.support.shown import Shows
from tests.support.stores import NoSyncDisk


class Bench(Struct, dict=True):
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
        receipt = commit_changes(self.workspace, [staged], self.history.store, self.journal)
        changes = tuple(change_of_path(row) for row in receipt.changes)
        return past_call(changes, tool)

    def undo(self, call: PastCall) -> PastCall:
        """The undo, as a call that can be undone in its turn."""
        ports = Ports(self.workspace, Shows())
        undo = Undo(call, self.history, self.journal)
        plan = undo.resolve(UndoArguments(call=call.call_id, agent="main"), ports)
        with self.history.running(CallMark("UNDO", "undo", "(operator)", "SES-2")) as running:
            output = undo.run(plan, ports)
            noted = {note.doing.path for note in read_notes(self.history.store)}
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
    history = History(str(tmp_path / "objects"), bytes_max=1 << 30, disk=NoSyncDisk())
    history.store.recover()
    with (
        Workspace.open(str(root), keeper=history.keeper()) as workspace,
        Journal(str(tmp_path / "objects/journal"), Disk()) as journal,
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


def link_to_another(b: Bench) -> list[StagedChange]:
    return [*whole_tree_gone(b), MakeLink(b.path("dir"), "other", Absent())]


def link_to_itself(b: Bench) -> list[StagedChange]:
    return [*whole_tree_gone(b), MakeLink(b.path("dir"), "dir", Absent())]


def link_out_of_the_workspace(b: Bench) -> list[StagedChange]:
    return [*whole_tree_gone(b), MakeLink(b.path("dir"), "/usr", Absent())]


def file_for_directory(b: Bench) -> list[StagedChange]:
    return [*whole_tree_gone(b), WriteFile(b.path("dir"), b.content(b"flat\n"), Absent())]


def moved_and_linked(b: Bench) -> list[StagedChange]:
    return [
        *whole_tree_gone(b),
        MakeDirectory(b.path("moved"), Absent()),
        WriteFile(b.path("moved/one"), b.content(b"one\n"), Absent()),
        MakeDirectory(b.path("moved/sub"), Absent(), 0o711),
        WriteFile(b.path("moved/sub/two"), b.content(b"two\n"), Absent(), 0o640),
        MakeLink(b.path("dir"), "moved", Absent()),
    ]


REPLACED = {
    f.__name__: f
    for f in (
        link_to_another,
        link_to_itself,
        link_out_of_the_workspace,
        file_for_directory,
        moved_and_linked,
    )
}
"""A directory with all that it holds gives way to a link or to a file."""
SETS = {f.__name__: f for f in (new_tree, whole_tree_gone, contents, kinds, modes)} | REPLACED


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
    "link_to_another": lambda root: link_anew(root / "dir", "moved"),
    "link_to_itself": lambda root: (root / "dir").unlink(),
    "link_out_of_the_workspace": lambda root: link_anew(root / "dir", "/usr/lib"),
    "file_for_directory": lambda root: (root / "dir").write_text("mine"),
    "moved_and_linked": lambda root: (root / "moved/one").write_text("mine"),
}


def link_anew(path: Path, text: str) -> None:
    path.unlink()
    path.symlink_to(text)


@pytest.mark.parametrize("name", SETS)
def test_one_path_that_changed_since_leaves_all_as_they_are(bench, name):
    call = bench.command(*SETS[name](bench))
    MEDDLED[name](bench.root)
    before = bench.tree()
    with pytest.raises(FileChangedError):
        bench.undo(call)
    assert bench.tree() == before


@pytest.mark.parametrize("name", REPLACED)
def test_a_directory_that_somebody_put_back_by_hand_is_not_touched(bench, name):
    call = bench.command(*REPLACED[name](bench))
    (bench.root / "dir").unlink()
    (bench.root / "dir").mkdir()
    (bench.root / "dir/one").write_text("mine")
    before = bench.tree()
    with pytest.raises(FileChangedError, match="(?m)^'dir' changed since the call$"):
        bench.undo(call)
    assert bench.tree() == before


def test_a_link_that_somebody_else_put_in_a_directorys_place_is_not_passed(bench):
    (bench.root / "other").mkdir()
    call = bench.command(*whole_tree_gone(bench))
    (bench.root / "dir").symlink_to("other")
    before = bench.tree()
    with pytest.raises(PathThroughLinkError, match="'dir/one' passes a link"):
        bench.undo(call)
    assert bench.tree() == before


def test_what_lies_behind_a_link_that_the_call_left_is_not_looked_at(bench):
    (bench.root / "other").mkdir()
    (bench.root / "other/one").write_text("not the call's")
    before = bench.tree()
    call = bench.command(*link_to_another(bench))
    bench.undo(call)
    assert bench.tree() == before


def test_a_record_whose_path_climbs_out_below_a_link_is_refused(bench):
    call = bench.command(*link_to_another(bench))
    forged = [
        replace(change, path="dir/../../one") if change.path == "dir/one" else change
        for change in call.changes
    ]
    before = bench.tree()
    with pytest.raises(PathTraversalError):
        bench.undo(past_call(forged, "run_shell"))
    assert bench.tree() == before


def moded(b: Bench) -> list[StagedChange]:
    return [
        WriteFile(b.path("dir/one"), b.content(b"uno\n"), b.seen("dir/one")),
        WriteFile(b.path("dir/sub/two"), b.content(b"due\n"), b.seen("dir/sub/two"), 0o600),
        SetMetadata(b.path("file"), b.seen("file"), 0o755),
        MakeDirectory(b.path("new"), Absent(), 0o750),
        WriteFile(b.path("new/file"), b.content(b"new\n"), Absent(), 0o755),
        MakeLink(b.path("new/link"), "file", Absent()),
    ]


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("dir/one", 0o644),
        ("dir/sub/two", 0o600),
        ("file", 0o755),
        ("new", 0o750),
        ("new/file", 0o755),
    ],
)
def test_a_mode_that_somebody_set_since_is_not_overwritten(bench, path, left):
    unchanged = bench.tree()
    call = bench.command(*moded(bench))
    (bench.root / path).chmod(0o711)
    before = bench.tree()
    said = rf"^the mode of '{path}' \(0711, the call left {left:04o}\) changed since the call$"
    with pytest.raises(FileChangedError, match=f"(?m){said}"):
        bench.undo(call)
    assert bench.tree() == before
    (bench.root / path).chmod(left)
    bench.undo(call)
    assert bench.tree() == unchanged


def test_a_record_without_the_mode_that_was_left_is_undone_by_content_alone(bench):
    call = bench.command(SetMetadata(bench.path("file"), bench.seen("file"), 0o755))
    older = [replace(change, mode_after=None) for change in call.changes]
    (bench.root / "file").chmod(0o600)
    bench.undo(past_call(older, "run_shell"))
    assert bench.tree()["file"] == (b"file\n", 0o644)


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


@pytest.mark.parametrize(
    ("tool", "is_undone"),
    [("run_shell", True), ("commit_parked", True), ("create_file", False)],
)
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
