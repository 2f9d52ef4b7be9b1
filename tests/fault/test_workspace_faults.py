"""Every step of every change fails once, in every way; and the process dies at every step."""

import errno
import shutil
import signal
from collections.abc import Callable

import pytest
from msgspec import Struct

from paddock.errors import HostError, PaddockError, StorageFullError
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.tools.replace import Patch
from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import delete_entry, edit_file, move_entry, write_file
from tests.support.children import end_of
from tests.support.disks import FaultyNamedOnlyDisk, temporaries, tree


class Shout:
    def apply(self, content: bytes) -> Pieces:
        return content[:1].upper(), content[1:].upper()


class Change(Struct, frozen=True, dict=True):
    """One act, and what the tree is after it."""

    name: str
    act: Callable[[Workspace], object]
    changes: dict[str, object]
    removes: tuple[str, ...] = ()


BEFORE: dict[str, object] = {
    "a": None,
    "a/kept.txt": b"kept\n",
    "a/old.txt": b"old\n" * 1000,
    "b": None,
    "link": "-> a/old.txt",
}
HUNKS = b"@@\n-old\n+first\n@@\n-old\n+last\n*** End of File\n"
CHANGES = (
    Change(
        "create",
        lambda w: write_file(w, w.resolve_write("a/new.txt"), b"new\n"),
        {"a/new.txt": b"new\n"},
    ),
    Change(
        "create deep",
        lambda w: write_file(w, w.resolve_write("b/c/d/new.txt"), b"new\n"),
        {"b/c": None, "b/c/d": None, "b/c/d/new.txt": b"new\n"},
    ),
    Change(
        "overwrite",
        lambda w: write_file(w, w.resolve_write("a/old.txt"), b"new\n" * 500),
        {"a/old.txt": b"new\n" * 500},
    ),
    Change(
        "edit",
        lambda w: edit_file(w, w.resolve_write("a/old.txt"), Shout()),
        {"a/old.txt": b"OLD\n" * 1000},
    ),
    Change(
        "patch",
        lambda w: edit_file(
            w, w.resolve_write("a/old.txt"), Patch(name="a/old.txt", may_view=True, given=HUNKS)
        ),
        {"a/old.txt": b"first\n" + b"old\n" * 998 + b"last\n"},
    ),
    Change(
        "move",
        lambda w: move_entry(w, w.resolve_entry("a/old.txt"), w.resolve_write("b/c/moved.txt")),
        {"b/c": None, "b/c/moved.txt": b"old\n" * 1000},
        ("a/old.txt",),
    ),
    Change("delete", lambda w: delete_entry(w, w.resolve_entry("a/old.txt")), {}, ("a/old.txt",)),
    Change("delete link", lambda w: delete_entry(w, w.resolve_entry("link")), {}, ("link",)),
)
DISKS = (FaultyDisk, FaultyNamedOnlyDisk)


def after(change: Change) -> dict[str, object]:
    kept = {name: what for name, what in BEFORE.items() if name not in change.removes}
    return kept | change.changes


def lay_out(root) -> None:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name, what in BEFORE.items():
        if what is None:
            (root / name).mkdir()
        elif isinstance(what, bytes):
            (root / name).write_bytes(what)
        else:
            (root / name).symlink_to(str(what).removeprefix("-> "))


def steps_of(root, change: Change, disk_type: type[FaultyDisk]) -> list[str]:
    lay_out(root)
    disk = disk_type()
    with Workspace.open(str(root), disk=disk) as workspace:
        change.act(workspace)
    assert tree(root) == after(change)
    return disk.calls


def only_new_directories(found: dict[str, object], change: Change) -> bool:
    """Whether the tree is as before but for empty directories that the change makes."""
    extra = {name: what for name, what in found.items() if name not in BEFORE}
    return {name: what for name, what in found.items() if name in BEFORE} == BEFORE and all(
        what is None and name in change.changes for name, what in extra.items()
    )


@pytest.mark.parametrize("disk_type", DISKS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_failing_step_leaves_the_old_content_or_does_not_matter(
    tmp_path, change, disk_type, code
):
    root = tmp_path / "ws"
    steps = steps_of(root, change, disk_type)
    for step in range(len(steps)):
        for moment in How:
            lay_out(root)
            disk = disk_type(Fault(step, moment, code))
            told = None
            with Workspace.open(str(root), disk=disk) as workspace:
                try:
                    change.act(workspace)
                except PaddockError as refusal:
                    told = refusal
            where = f"step {step} ({steps[step]}) {moment}"
            Workspace.open(str(root)).close()
            if told is None:
                assert tree(root) == after(change), where
                # Only putting away may fail unnoticed: the change itself is done then.
                assert steps[step] == "unlink", where
            else:
                assert tree(root) == BEFORE, where
                expected = StorageFullError if code == errno.ENOSPC else HostError
                assert isinstance(told, expected), where


def die_at(root: str, change: Change, disk: FaultyDisk) -> int:
    return end_of(lambda: change.act(Workspace.open(root, disk=disk)))


@pytest.mark.parametrize("disk_type", DISKS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_death_at_any_step_leaves_old_or_new_and_nothing_else_after_the_next_open(
    tmp_path, change, disk_type
):
    root = tmp_path / "ws"
    steps = steps_of(root, change, disk_type)
    seen_left = 0
    for step in range(len(steps)):
        for moment in How:
            lay_out(root)
            killed = die_at(str(root), change, disk_type(Fault(step, moment, "kill")))
            where = f"step {step} ({steps[step]}) {moment}"
            assert killed == -signal.SIGKILL, where
            seen_left += len(temporaries(root))
            Workspace.open(str(root)).close()
            found = tree(root)
            assert found == after(change) or only_new_directories(found, change), where
    if change.name in {"overwrite", "edit", "delete"}:
        assert seen_left, "no death left a temporary: the sweep was not put to the test"


def test_a_write_whose_directory_cannot_be_synced_is_taken_back(tmp_path):
    root = tmp_path / "ws"
    overwrite = CHANGES[2]
    steps = steps_of(root, overwrite, FaultyDisk)
    last_sync = len(steps) - 1 - steps[::-1].index("sync")
    assert "exchange" in steps[:last_sync]
    lay_out(root)
    disk = FaultyDisk(Fault(last_sync, How.BEFORE, errno.EIO))
    with Workspace.open(str(root), disk=disk) as workspace:
        with pytest.raises(HostError):
            overwrite.act(workspace)
        assert tree(root) == BEFORE
