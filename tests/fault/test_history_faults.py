"""Every step of keeping and replacing fails once, and the process dies at every step.

What stood there before is in its place or in the store, whatever happens; and a call that
was killed is found by its note, with what is needed to take it back.
"""

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.errors import HostError, PaddockError, StorageFullError
from paddock.storage.history import History
from paddock.storage.notes import CallMark, read_notes
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import delete_entry, edit_file, move_entry, write_file
from tests.support.children import end_of
from tests.support.disks import FaultyNamedOnlyDisk, temporaries, tree

SMALL, LARGE = b"old\n" * 1000, os.urandom(300_000)
MARK = CallMark("CALL-1", "tool", "main", "SES-1")


class Shout:
    def apply(self, content: bytes) -> Pieces:
        return content[:1].upper(), content[1:].upper()


class Change(Struct, frozen=True, dict=True):
    """One act, what it replaces, and how its note begins."""

    name: str
    act: Callable[[Workspace], object]
    replaced: bytes | None
    path: str


CHANGES = (
    Change("create", lambda w: write_file(w, w.resolve_write("b/new"), b"new\n"), None, "b/new"),
    Change(
        "overwrite", lambda w: write_file(w, w.resolve_write("a/small"), b"new\n"), SMALL, "a/small"
    ),
    Change(
        "overwrite large",
        lambda w: write_file(w, w.resolve_write("a/large"), b"new\n"),
        LARGE,
        "a/large",
    ),
    Change("edit", lambda w: edit_file(w, w.resolve_write("a/small"), Shout()), SMALL, "a/small"),
    Change(
        "move",
        lambda w: move_entry(w, w.resolve_entry("a/small"), w.resolve_write("a/moved")),
        None,
        "a/small",
    ),
    Change("delete", lambda w: delete_entry(w, w.resolve_entry("a/small")), SMALL, "a/small"),
    Change("delete large", lambda w: delete_entry(w, w.resolve_entry("a/large")), LARGE, "a/large"),
    Change("delete link", lambda w: delete_entry(w, w.resolve_entry("link")), b"a/small", "link"),
)
EACH = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
KINDS = pytest.mark.parametrize(
    "disk_type", [FaultyDisk, FaultyNamedOnlyDisk], ids=["whole", "named-only"]
)
MOMENTS = pytest.mark.parametrize(
    "moment", [How.BEFORE, How.AFTER], ids=lambda moment: moment.value
)


@pytest.fixture
def base():
    """In memory where there is such a directory: hundreds of acts, and no power is cut."""
    usable = os.access("/dev/shm", os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if usable else None) as name:
        yield Path(name, "base")


def lay_out(base) -> dict[str, object]:
    shutil.rmtree(base, ignore_errors=True)
    root = base / "ws"
    (root / "a").mkdir(parents=True)
    (root / "a/small").write_bytes(SMALL)
    (root / "a/large").write_bytes(LARGE)
    (root / "link").symlink_to("a/small")
    return tree(root)


def play(base, change: Change, disk: FaultyDisk) -> None:
    """The act of a call, as a dispatcher has it done, without the record of its result."""
    history = History(str(base / "objects"), bytes_max=1 << 30, disk=disk)
    try:
        with (
            Workspace.open(str(base / "ws"), disk=disk, keeper=history.keeper()) as workspace,
            history.running(MARK),
        ):
            change.act(workspace)
    finally:
        history.close()


def opened_again(base) -> tuple[History, dict[str, object]]:
    """As the next user finds it."""
    Workspace.open(str(base / "ws")).close()
    history = History(str(base / "objects"), bytes_max=1 << 30)
    history.store.recover()
    return history, tree(base / "ws")


def assert_nothing_lost(base, change: Change, before: dict[str, object], after) -> None:
    history, found = opened_again(base)
    try:
        assert temporaries(base / "ws") == []
        assert os.listdir(base / "objects/incoming") == []
        left = {name: what for name, what in found.items() if name != "b" or "b/new" in found}
        if left == before:
            return
        assert found == after, change.name
        if change.replaced is not None:
            assert history.store.read(digest_of(change.replaced)) == change.replaced
        (note,) = read_notes(history.store)
        assert (note.call, note.doing.path) == (MARK, change.path)
        if change.replaced is not None:
            assert note.doing.before == digest_of(change.replaced)
    finally:
        history.close()


def rehearse(base, change: Change, disk_type):
    before, disk = lay_out(base), disk_type()
    play(base, change, disk)
    after = tree(base / "ws")
    assert after != before
    assert_nothing_lost(base, change, before, after)
    return before, after, len(disk.calls)


@EACH
@KINDS
@MOMENTS
def test_killed_at_any_step_nothing_is_lost(base, change, disk_type, moment):
    before, after, count = rehearse(base, change, disk_type)
    for index in range(count):
        lay_out(base)
        disk = disk_type(Fault(index, moment, "kill"))
        code = end_of(lambda disk=disk: play(base, change, disk))
        assert code == -signal.SIGKILL, index
        assert_nothing_lost(base, change, before, after)


@EACH
@KINDS
@MOMENTS
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_failing_step_changes_nothing_or_does_not_matter(base, change, disk_type, moment, code):
    before, after, count = rehearse(base, change, disk_type)
    expected = StorageFullError if code == errno.ENOSPC else HostError
    for index in range(count):
        lay_out(base)
        disk = disk_type(Fault(index, moment, code))
        told = None
        try:
            play(base, change, disk)
        except PaddockError as error:
            told = error
        step = disk.calls[index]
        found = {n: w for n, w in tree(base / "ws").items() if ".paddock-" not in n}
        if told is None or (isinstance(told, HostError) and "close" in told.message):
            assert found == after, (index, step)
        else:
            assert isinstance(told, expected), (index, step, told)
            assert found == before, (index, step)
        assert_nothing_lost(base, change, before, after)
