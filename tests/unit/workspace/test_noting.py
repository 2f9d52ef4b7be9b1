"""What is noted of a set of changes before it happens."""

from functools import partial

import pytest

from paddock.storage.disk import Disk
from paddock.storage.history import History
from paddock.storage.journal import Journal
from paddock.storage.notes import CallMark, Doing, read_notes
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes, note_changes
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    ChangedPath,
    ChangeReceipt,
    EntryState,
    MakeDirectory,
    MakeLink,
    RemoveFile,
    StoredContent,
    WriteFile,
    doing_of_path,
)
from paddock.workspace.paths import EntryKind, unchecked_path
from tests.support.stores import NoSyncDisk

MARK = CallMark("CALL-1", "run_shell", "main", "SES-1")
ONE, NEW = digest_of(b"one"), digest_of(b"new")


@pytest.fixture
def history(tmp_path):
    history = History(str(tmp_path / "objects"), bytes_max=1 << 30, disk=NoSyncDisk())
    history.store.recover()
    history.store.put_bytes(b"new")
    yield history
    history.close()


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "ws"
    root.mkdir()
    for name in ("kept", "gone", "lock"):
        (root / name).write_bytes(b"one")
        (root / name).chmod(0o644)
    (root / "link").symlink_to("kept")
    with Workspace.open(str(root)) as workspace:
        yield workspace


def commit(tmp_path, workspace: Workspace, history: History) -> ChangeReceipt:
    """Over `lock` and `gone` nothing is kept: only commands write them."""

    def path(name: str):
        return workspace.resolve_entry(name).path

    changes = [
        WriteFile(path("kept"), StoredContent(NEW), AtVersion(ONE), 0o600),
        WriteFile(path("lock"), StoredContent(NEW), AtVersion(ONE), keeps_old=False),
        RemoveFile(path("gone"), AtVersion(ONE), keeps_old=False),
        MakeLink(path("link"), "lock", AtVersion(digest_of(b"kept"))),
        MakeDirectory(path("made"), Absent(), 0o755),
    ]
    with Journal(str(tmp_path / "objects/journal"), Disk()) as journal:
        witness = partial(note_changes, history)
        return commit_changes(workspace, [changes], history.store, journal, witness=witness)


def test_a_note_says_of_each_path_whether_what_stood_there_is_kept(tmp_path, workspace, history):
    with history.running(MARK):
        commit(tmp_path, workspace, history)

    assert [note.doing for note in read_notes(history.store)] == [
        Doing("gone", "deleted", before=ONE, mode=0o644, is_kept=False),
        Doing("kept", "overwritten", before=ONE, after=NEW, mode=0o644, mode_after=0o600),
        Doing("link", "overwritten", "link", before=digest_of(b"kept"), after=digest_of(b"lock")),
        Doing("lock", "overwritten", before=ONE, after=NEW, mode_after=0o644, is_kept=False),
        Doing("made", "created", "directory", mode_after=0o755),
    ]


@pytest.mark.parametrize(
    ("after", "noted"),
    [
        (EntryState(EntryKind.DIRECTORY, 0o700, None), 0o700),
        (EntryState(EntryKind.LINK, 0o700, NEW), 0o700),
        (EntryState(EntryKind.FILE, 0o700, NEW), None),
        (EntryState(EntryKind.FILE, 0o600, NEW), 0o700),
        (None, 0o700),
    ],
)
def test_permissions_are_noted_where_they_or_the_kind_of_an_entry_change(after, noted):
    before = EntryState(EntryKind.FILE, 0o700, ONE)
    doing = doing_of_path(ChangedPath(unchecked_path("a"), before, after, kept=True))

    assert doing is not None
    assert (doing.entry, doing.mode) == ("file", noted)


def test_what_no_call_commits_leaves_no_note(tmp_path, workspace, history):
    receipt = commit(tmp_path, workspace, history)

    assert len(receipt.changes) == 5
    assert read_notes(history.store) == ()
