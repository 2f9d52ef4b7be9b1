"""What a killed committer left is settled by the next, and nobody's newer content is lost."""

import hashlib
import os
import shutil
import signal

import pytest

from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.workspace import Workspace, detect_resolution
from paddock.workspace.apply import Recovered, RecoveredSet, recover
from paddock.workspace.changes import Absent, RemoveFile, WriteFile
from paddock.workspace.listing import list_directory
from paddock.workspace.paths import unchecked_path as at
from paddock.workspace.targets import locked
from tests.support.changes import (
    File,
    Folder,
    Link,
    content,
    lay_out,
    model_of,
    open_bench,
    seen,
)
from tests.support.children import end_of

OLD = {
    "a": Folder(),
    "a/one": File(b"one"),
    "b": Folder(),
    "b/two": File(b"two"),
    "c": File(b"c"),
}
NEW = {
    "a": Folder(),
    "a/one": File(b"ONE"),
    "b": Folder(),
    "b/two": File(b"TWO"),
    "new": File(b"new"),
}
BEFORE_ALL, AFTER_ONE, AFTER_ALL = "exchange", "second exchange", "unlink"


@pytest.fixture
def crash(tmp_path):
    """Commit NEW over OLD and be killed at a step; how to go on."""

    def run(step: str) -> None:
        lay_out(tmp_path / "ws", OLD)
        counting = FaultyDisk()
        with open_bench(tmp_path, counting) as bench:
            bench.become(NEW)
        exchanges = [at for at, name in enumerate(counting.calls) if name == "exchange"]
        last_sync = len(counting.calls) - 1 - counting.calls[::-1].index("sync_file_system")
        number = {
            BEFORE_ALL: exchanges[0],
            AFTER_ONE: exchanges[1],
            AFTER_ALL: last_sync,
        }[step]
        lay_out(tmp_path / "ws", OLD)

        def die() -> None:
            with open_bench(tmp_path, FaultyDisk(Fault(number, How.BEFORE, "kill"))) as bench:
                bench.become(NEW)

        assert end_of(die) == -signal.SIGKILL

    return run


@pytest.fixture
def settle(tmp_path):
    def run() -> tuple[Recovered, ...]:
        Workspace.open(str(tmp_path / "ws")).close()
        with Journal(str(tmp_path / "journal"), Disk()) as journal:
            return recover(journal, Disk(), detect_resolution())

    return run


def entries(base) -> list[str]:
    return os.listdir(base / "journal")


@pytest.mark.parametrize("step", [BEFORE_ALL, AFTER_ONE, AFTER_ALL])
def test_a_committed_set_is_completed_and_told_of_once(tmp_path, crash, settle, step):
    crash(step)
    (entry,) = entries(tmp_path)
    root = os.path.realpath(tmp_path / "ws")
    assert settle() == (Recovered(entry, root, RecoveredSet.COMPLETED, "C-1"),)
    assert model_of(tmp_path / "ws") == NEW
    assert settle() == ()


def test_the_sweep_leaves_a_sets_temporaries_to_the_recovery(tmp_path, crash):
    crash(AFTER_ONE)
    before = model_of(tmp_path / "ws")
    Workspace.open(str(tmp_path / "ws")).close()
    assert model_of(tmp_path / "ws") == before
    assert [name for name in before if name.endswith(".set")]


def test_a_sets_temporaries_are_hidden_from_every_tool(tmp_path, crash):
    crash(AFTER_ONE)
    with Workspace.open(str(tmp_path / "ws")) as workspace:
        listed = list_directory(workspace, workspace.resolve_read("."), 5, 100).entries
    assert {entry.path.relative for entry in listed} <= OLD.keys() | NEW.keys()


def test_the_next_commit_settles_it_first(tmp_path, crash):
    crash(AFTER_ONE)
    with open_bench(tmp_path) as bench:
        bench.commit(WriteFile(at("x"), content(b"x"), Absent(), 0o644))
    assert model_of(tmp_path / "ws").keys() == NEW.keys() | {"x"}
    assert entries(tmp_path) == []


def test_a_path_that_was_changed_before_its_turn_undoes_the_set(tmp_path, crash, settle):
    crash(AFTER_ONE)
    (tmp_path / "ws/c").unlink()
    (tmp_path / "ws/c").symlink_to("theirs")
    (recovered,) = settle()
    assert (recovered.settled, recovered.changed_since) == (RecoveredSet.UNDONE, ())
    assert model_of(tmp_path / "ws") == OLD | {"c": Link("theirs")}
    assert entries(tmp_path) == []


def test_a_path_that_was_changed_after_its_turn_keeps_the_change(tmp_path, crash, settle):
    crash(AFTER_ONE)
    (tmp_path / "ws/a/one").unlink()
    (tmp_path / "ws/a/one").symlink_to("theirs")
    (recovered,) = settle()
    assert recovered.settled is RecoveredSet.COMPLETED
    assert model_of(tmp_path / "ws") == NEW | {"a/one": Link("theirs")}


def test_changes_on_both_sides_undo_what_can_be_undone_and_name_the_rest(tmp_path, crash, settle):
    crash(AFTER_ONE)
    for name in ("a/one", "c"):
        (tmp_path / "ws" / name).unlink()
        (tmp_path / "ws" / name).symlink_to("theirs")
    (recovered,) = settle()
    assert (recovered.settled, recovered.changed_since) == (RecoveredSet.UNDONE, (at("a/one"),))
    found = model_of(tmp_path / "ws")
    assert found == OLD | {"a/one": Link("theirs"), "c": Link("theirs")}


def test_what_was_edited_in_a_complete_set_is_not_touched(tmp_path, crash, settle):
    crash(AFTER_ALL)
    (tmp_path / "ws/new").unlink()
    (tmp_path / "ws/b/two").unlink()
    (tmp_path / "ws/b/two").symlink_to("theirs")
    assert [recovered.settled for recovered in settle()] == [RecoveredSet.COMPLETED]
    expected = {name: node for name, node in NEW.items() if name != "new"}
    assert model_of(tmp_path / "ws") == expected | {"b/two": Link("theirs")}


def test_a_directory_that_is_gone_takes_its_steps_with_it(tmp_path, crash, settle):
    crash(AFTER_ONE)
    shutil.rmtree(tmp_path / "ws/b")
    (recovered,) = settle()
    assert (recovered.settled, recovered.changed_since) == (RecoveredSet.COMPLETED, (at("b"),))
    expected = {name: node for name, node in NEW.items() if not name.startswith("b")}
    assert model_of(tmp_path / "ws") == expected
    assert entries(tmp_path) == []


def test_a_directory_that_became_a_link_is_not_followed(tmp_path, crash, settle):
    crash(AFTER_ONE)
    os.rename(tmp_path / "ws/b", tmp_path / "b")
    os.symlink(tmp_path / "b", tmp_path / "ws/b")
    outside = model_of(tmp_path / "b")
    (recovered,) = settle()
    assert (recovered.settled, recovered.changed_since) == (RecoveredSet.COMPLETED, (at("b"),))
    assert model_of(tmp_path / "b") == outside
    expected = {name: node for name, node in NEW.items() if not name.startswith("b")}
    assert model_of(tmp_path / "ws") == expected | {"b": Link(str(tmp_path / "b"))}


def test_a_root_that_is_away_is_waited_for(tmp_path, crash, settle):
    crash(AFTER_ONE)
    os.rename(tmp_path / "ws", tmp_path / "away")
    for other in (None, {"a": Folder()}):
        if other:
            lay_out(tmp_path / "ws", other)
        with Journal(str(tmp_path / "journal"), Disk()) as journal:
            (recovered,) = recover(journal, Disk(), detect_resolution())
        assert recovered.settled is RecoveredSet.WAITING
        assert recovered.why
    shutil.rmtree(tmp_path / "ws")
    os.rename(tmp_path / "away", tmp_path / "ws")
    assert [recovered.settled for recovered in settle()] == [RecoveredSet.COMPLETED]


def test_a_writer_that_does_not_let_go_is_not_waited_for_long(tmp_path, crash, settle):
    crash(AFTER_ONE)
    with (
        Workspace.open(str(tmp_path / "ws")) as workspace,
        locked(workspace.open_at, at("b")),
    ):
        (recovered,) = settle()
    assert recovered.settled is RecoveredSet.WAITING
    assert "locked by another write" in recovered.why
    assert [recovered.settled for recovered in settle()] == [RecoveredSet.COMPLETED]


def test_an_entry_that_makes_no_sense_stays_and_keeps_no_other_from_being_settled(
    tmp_path, crash, settle
):
    crash(AFTER_ONE)
    (entry,) = entries(tmp_path)
    text = (tmp_path / "journal" / entry).read_bytes()
    damaged = "0" * 32 + ".entry"
    (tmp_path / "journal" / damaged).write_bytes(text[:3])
    # Its first line was never whole: nothing was done because of it.
    outcomes = {recovered.entry: recovered.settled for recovered in settle()}
    assert outcomes == {damaged: RecoveredSet.NEVER_BEGUN, entry: RecoveredSet.COMPLETED}
    assert entries(tmp_path) == []
    assert model_of(tmp_path / "ws") == NEW


def test_a_set_whose_owner_lives_is_left_to_it(tmp_path, settle):
    lay_out(tmp_path / "ws", OLD)

    class Looking(Disk):
        def exchange(self, dir_fd, name, other):
            assert settle() == ()
            return super().exchange(dir_fd, name, other)

    with open_bench(tmp_path, Looking()) as bench:
        bench.become(NEW)
    assert model_of(tmp_path / "ws") == NEW


def test_pre_images_of_a_completed_set_are_in_the_store(tmp_path, crash, settle):
    crash(BEFORE_ALL)
    settle()
    with open_bench(tmp_path) as bench:
        for name, node in OLD.items():
            if isinstance(node, File) and NEW.get(name) != node:
                version = "sha256:" + hashlib.sha256(node.content).hexdigest()
                assert bench.objects.read(version) == node.content


def test_a_removal_that_could_not_be_undone_is_not_done_twice(tmp_path, settle):
    lay_out(tmp_path / "ws", OLD)
    with open_bench(tmp_path) as bench:
        bench.commit(RemoveFile(at("c"), seen(bench.root, "c")))
    assert settle() == ()
    assert "c" not in model_of(tmp_path / "ws")


def test_an_entry_that_cannot_be_opened_waits_and_keeps_no_set_from_being_made(tmp_path, settle):
    lay_out(tmp_path / "ws", OLD)
    (tmp_path / "journal").mkdir(0o700)
    name = "0" * 32 + ".entry"
    (tmp_path / "journal" / name).symlink_to("/nowhere")
    with open_bench(tmp_path) as bench:
        bench.become(NEW)
    assert model_of(tmp_path / "ws") == NEW
    (waiting,) = settle()
    assert (waiting.entry, waiting.settled, waiting.root) == (name, RecoveredSet.WAITING, "")
    assert f"belongs to user {os.getuid()}" in waiting.why
