"""Every step of a commit and of its recovery fails once, and dies once: old tree or new tree."""

import errno
import itertools
import os
import signal
from pathlib import Path

import pytest

from paddock.errors import FileChangedError, HostError, PaddockError, StorageFullError
from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.workspace import Workspace, detect_resolution
from paddock.workspace.apply import RecoveredSet, recover
from tests.support.changes import (
    File,
    Folder,
    Link,
    lay_out,
    memory_directory,
    model_of,
    open_bench,
)
from tests.support.children import end_of

OLD = {
    "a": Folder(),
    "a/kept.txt": File(b"kept\n"),
    "a/old.txt": File(b"old\n" * 100),
    "gone": Folder(),
    "gone/under": File(b"under\n"),
    "mode": File(b"mode\n", 0o644, 5),
    "link": Link("a"),
}
NEW = {
    "a": Folder(),
    "a/kept.txt": File(b"kept\n"),
    "a/old.txt": File(b"new\n" * 100, 0o600, 3),
    "a/created.txt": File(b"created\n"),
    "gone": File(b"a file now\n"),
    "made": Folder(0o750),
    "made/under": File(b"under\n"),
    "mode": File(b"mode\n", 0o755, 7),
}


class FaultyPlainDisk(FaultyDisk):
    """One that knows no flag of renameat2: an exchange is two renames, each of two calls."""

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        return False

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        self.move_new_by_link(from_fd, name, to_fd, to)


DISKS = (FaultyDisk, FaultyPlainDisk)


@pytest.fixture
def tmp_path():
    """In memory: what is looked at here is the order of steps, not the device."""
    with memory_directory() as directory:
        yield directory


def commit(base: Path, disk: Disk) -> None:
    with open_bench(base, disk) as bench:
        bench.become(NEW)


def settle(base: Path, disk: Disk | None = None):
    """As whoever opens the plane next: sweep, then recover."""
    used = disk or Disk()
    with (
        Workspace.open(str(base / "ws"), disk=used),
        Journal(str(base / "journal"), used) as journal,
    ):
        return recover(journal, used, detect_resolution())


def steps_of(base: Path, disk_type: type[FaultyDisk]) -> list[str]:
    lay_out(base / "ws", OLD)
    disk = disk_type()
    commit(base, disk)
    assert model_of(base / "ws") == NEW
    return disk.calls


def require_settled(base: Path, where: str) -> dict:
    found = model_of(base / "ws")
    assert found in (OLD, NEW), where
    assert os.listdir(base / "journal") == [], where
    return found


@pytest.mark.parametrize("disk_type", DISKS)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_a_failing_step_leaves_the_old_tree_or_comes_after_the_set(tmp_path, disk_type, code):
    steps = steps_of(tmp_path, disk_type)
    for number, moment in itertools.product(range(len(steps)), How):
        lay_out(tmp_path / "ws", OLD)
        where, told = f"step {number} ({steps[number]}) {moment}", None
        try:
            commit(tmp_path, disk_type(Fault(number, moment, code)))
        except PaddockError as refusal:
            told = refusal
        found = model_of(tmp_path / "ws")
        named = {name: node for name, node in found.items() if ".paddock-" not in name}
        assert named == (NEW if told is None else OLD), where
        assert told is None or isinstance(
            told, StorageFullError if code == errno.ENOSPC else HostError
        ), where
        settle(tmp_path)
        assert require_settled(tmp_path, where) == named, where


@pytest.mark.parametrize("disk_type", DISKS)
def test_death_at_any_step_leaves_one_of_the_two_trees_after_the_recovery(tmp_path, disk_type):
    steps = steps_of(tmp_path, disk_type)
    outcomes = set()
    for number, moment in itertools.product(range(len(steps)), How):
        lay_out(tmp_path / "ws", OLD)
        where = f"step {number} ({steps[number]}) {moment}"
        death = disk_type(Fault(number, moment, "kill"))
        assert end_of(lambda death=death: commit(tmp_path, death)) == -signal.SIGKILL, where
        outcomes |= {recovered.settled for recovered in settle(tmp_path)}
        require_settled(tmp_path, where)
    assert outcomes == {RecoveredSet.NEVER_BEGUN, RecoveredSet.COMPLETED, RecoveredSet.ENDED}


def killed_before_step(base: Path, name: str, which: int, disk_type=FaultyDisk) -> None:
    """The tree as it is when the committer dies at the `which`-th call of that name."""
    steps = steps_of(base, disk_type)
    number = [at for at, step in enumerate(steps) if step == name][which]
    lay_out(base / "ws", OLD)
    assert (
        end_of(lambda: commit(base, disk_type(Fault(number, How.BEFORE, "kill"))))
        == -signal.SIGKILL
    )


@pytest.mark.parametrize(
    ("name", "which", "settled"),
    [
        ("sync_file_system", 0, RecoveredSet.NEVER_BEGUN),
        ("exchange", 0, RecoveredSet.COMPLETED),
        ("exchange", 1, RecoveredSet.COMPLETED),
        ("sync_file_system", 1, RecoveredSet.COMPLETED),
    ],
)
def test_a_recovery_that_dies_at_any_step_is_done_again(tmp_path, name, which, settled):
    killed_before_step(tmp_path, name, which)
    counting = FaultyDisk()
    assert [recovered.settled for recovered in settle(tmp_path, counting)] == [settled]
    expected = require_settled(tmp_path, "undisturbed")
    for number, moment in itertools.product(range(len(counting.calls)), How):
        where = f"step {number} ({counting.calls[number]}) {moment}"
        killed_before_step(tmp_path, name, which)
        death = FaultyDisk(Fault(number, moment, "kill"))
        assert end_of(lambda death=death: settle(tmp_path, death)) == -signal.SIGKILL, where
        settle(tmp_path)
        assert require_settled(tmp_path, where) == expected, where


def test_a_recovery_that_fails_at_any_step_says_so_or_is_done_and_succeeds_later(tmp_path):
    killed_before_step(tmp_path, "exchange", 1)
    counting = FaultyDisk()
    settle(tmp_path, counting)
    for number, moment in itertools.product(range(len(counting.calls)), How):
        where = f"step {number} ({counting.calls[number]}) {moment}"
        killed_before_step(tmp_path, "exchange", 1)
        (recovered,) = settle(tmp_path, FaultyDisk(Fault(number, moment, errno.EIO)))
        if recovered.settled is RecoveredSet.WAITING:
            assert recovered.why, where
        settle(tmp_path)
        assert require_settled(tmp_path, where) == NEW, where


class MeddledDisk(FaultyDisk):
    """A stranger replaces a file of the set before its exchange; then the committer dies."""

    def __init__(self, trouble, file: Path) -> None:
        super().__init__(trouble)
        self.file = file
        self.visits = 0

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        self.visits += other == self.file.name
        if other == self.file.name and self.visits == 1:
            self.file.unlink()
            self.file.symlink_to("theirs")
        return super().exchange(dir_fd, name, other)


def test_death_while_a_refused_set_is_put_back_leaves_the_old_tree_and_theirs(tmp_path):
    expected = OLD | {"a/old.txt": Link("theirs")}
    file = tmp_path / "ws/a/old.txt"
    lay_out(tmp_path / "ws", OLD)
    counting = MeddledDisk(None, file)
    with pytest.raises(FileChangedError):
        commit(tmp_path, counting)
    assert model_of(tmp_path / "ws") == expected
    first = counting.calls.index("exchange")
    for number, moment in itertools.product(range(first, len(counting.calls)), How):
        where = f"step {number} ({counting.calls[number]}) {moment}"
        lay_out(tmp_path / "ws", OLD)
        disk = MeddledDisk(Fault(number, moment, "kill"), file)
        assert end_of(lambda disk=disk: commit(tmp_path, disk)) == -signal.SIGKILL, where
        settle(tmp_path)
        found = model_of(tmp_path / "ws")
        # Before the stranger came nothing was in the way.
        assert found == expected or (found == NEW and number <= first), where
        assert os.listdir(tmp_path / "journal") == [], where


def test_whatever_part_of_the_renames_a_power_cut_keeps_the_set_is_completed(tmp_path):
    """The order in which renames reach the device is not promised: every subset can be there."""
    steps = steps_of(tmp_path, FaultyDisk)
    first = next(at for at, step in enumerate(steps) if step in {"exchange", "move_new"})
    # Until the set is on the device; what follows moves what it displaced out of the way.
    last = len(steps) - 1 - steps[::-1].index("sync_file_system")
    count = sum(steps[first:last].count(name) for name in ("exchange", "move_new"))
    assert count >= 5
    for subset in itertools.product([False, True], repeat=count):
        lay_out(tmp_path / "ws", OLD)
        assert (
            end_of(lambda: commit(tmp_path, FaultyDisk(Fault(first, How.BEFORE, "kill"))))
            == -signal.SIGKILL
        )
        apply_some(tmp_path, subset)
        assert [recovered.settled for recovered in settle(tmp_path)] == [RecoveredSet.COMPLETED]
        assert require_settled(tmp_path, str(subset)) == NEW


def apply_some(base: Path, wanted) -> None:
    """Do the chosen swaps of the one entry that is in the journal."""
    from paddock.storage.journal import SwapStep, decode
    from paddock.workspace.paths import set_name

    (name,) = os.listdir(base / "journal")
    records = decode(name, (base / "journal" / name).read_bytes())[0]
    swaps = [step for step in records.steps if isinstance(step, SwapStep)]
    for step, chosen in zip(swaps, wanted, strict=True):
        if not chosen:
            continue
        folder = os.open(base / "ws" / step.directory, os.O_RDONLY)
        draft = set_name(records.intent.token, 2 * step.number)
        if step.old is None:
            Disk().move_new(folder, draft, folder, step.name)
        elif step.new is None:
            Disk().move_new(folder, step.name, folder, draft)
        else:
            Disk().exchange(folder, draft, step.name)
        os.close(folder)
