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
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.errors import HostError, PaddockError, StorageFullError
from paddock.history.disk import StoreDisk
from paddock.history.keeping import History
from paddock.history.notes import CallMark
from paddock.values.entries import digest_of
from paddock.workspace import Pieces, Workspace
from paddock.workspace.disk import Disk
from tests.support.children import end_of
from tests.support.disks import NamedOnlyDisk, temporaries, tree
from tests.support.stores import (
    STORE_STEPS,
    WORKSPACE_STEPS,
    NamedOnlyStoreDisk,
    Steps,
)

SMALL, LARGE = b"old\n" * 1000, os.urandom(300_000)
MARK = CallMark("CALL-1", "tool", "main", "SES-1")


class Shout:
    def apply(self, content: bytes) -> Pieces:
        return content[:1].upper(), content[1:].upper()


@dataclass(frozen=True)
class Change:
    """One act, what it replaces, and how its note begins."""

    name: str
    act: Callable[[Workspace], object]
    replaced: bytes | None
    path: str


CHANGES = (
    Change("create", lambda w: w.write_file(w.resolve_write("b/new"), b"new\n"), None, "b/new"),
    Change(
        "overwrite", lambda w: w.write_file(w.resolve_write("a/small"), b"new\n"), SMALL, "a/small"
    ),
    Change(
        "overwrite large",
        lambda w: w.write_file(w.resolve_write("a/large"), b"new\n"),
        LARGE,
        "a/large",
    ),
    Change("edit", lambda w: w.edit_file(w.resolve_write("a/small"), Shout()), SMALL, "a/small"),
    Change(
        "move",
        lambda w: w.move(w.resolve_entry("a/small"), w.resolve_write("a/moved")),
        None,
        "a/small",
    ),
    Change("delete", lambda w: w.delete(w.resolve_entry("a/small")), SMALL, "a/small"),
    Change("delete large", lambda w: w.delete(w.resolve_entry("a/large")), LARGE, "a/large"),
    Change("delete link", lambda w: w.delete(w.resolve_entry("link")), b"a/small", "link"),
)
EACH = pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
KINDS = pytest.mark.parametrize(
    ("disk_type", "store_type"),
    [(Disk, StoreDisk), (NamedOnlyDisk, NamedOnlyStoreDisk)],
    ids=["whole", "named-only"],
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


def play(base, change: Change, steps: Steps, disk_type, store_type) -> None:
    """The act of a call, as a dispatcher has it done, without the record of its result."""
    store_disk = steps.disk(store_type, STORE_STEPS)
    history = History(str(base / "objects"), bytes_max=1 << 30, disk=store_disk)
    disk = steps.disk(disk_type, WORKSPACE_STEPS)
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
        (note,) = history.notes.read_all()
        assert (note.call, note.doing.path) == (MARK, change.path)
        if change.replaced is not None:
            assert note.doing.before == digest_of(change.replaced)
    finally:
        history.close()


def rehearse(base, change: Change, disk_type, store_type):
    before, steps = lay_out(base), Steps()
    play(base, change, steps, disk_type, store_type)
    after = tree(base / "ws")
    assert after != before
    assert_nothing_lost(base, change, before, after)
    return before, after, len(steps.taken)


@EACH
@KINDS
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_killed_at_any_step_nothing_is_lost(base, change, disk_type, store_type, is_after):
    before, after, count = rehearse(base, change, disk_type, store_type)
    for index in range(count):
        lay_out(base)
        die = Steps(index, lambda: os.kill(os.getpid(), signal.SIGKILL), is_after=is_after)
        code = end_of(lambda die=die: play(base, change, die, disk_type, store_type))
        assert code == -signal.SIGKILL, index
        assert_nothing_lost(base, change, before, after)


@EACH
@KINDS
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_failing_step_changes_nothing_or_does_not_matter(
    base, change, disk_type, store_type, is_after, code
):
    before, after, count = rehearse(base, change, disk_type, store_type)
    expected = StorageFullError if code == errno.ENOSPC else HostError

    def strike() -> None:
        raise OSError(code, os.strerror(code))

    for index in range(count):
        lay_out(base)
        steps = Steps(index, strike, is_after=is_after)
        told = None
        try:
            play(base, change, steps, disk_type, store_type)
        except PaddockError as error:
            told = error
        step = steps.taken[index]
        found = {n: w for n, w in tree(base / "ws").items() if ".paddock-" not in n}
        if told is None or (isinstance(told, HostError) and "close" in told.message):
            assert found == after, (index, step)
        else:
            assert isinstance(told, expected), (index, step, told)
            assert found == before, (index, step)
        assert_nothing_lost(base, change, before, after)
