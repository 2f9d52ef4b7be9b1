import os
from pathlib import Path

import pytest

from paddock.storage.history import History, Keeper
from paddock.storage.notes import CallMark, read_notes
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.listing import list_directory
from paddock.workspace.single_change import delete_entry, write_file
from tests.support.stores import NoSyncDisk, objects_in

MARK = CallMark("CALL-1", "create_file", "main", "SES-1")


def is_generated(path: str) -> bool:
    return path.startswith("generated/")


class Kept:
    """A workspace with its history."""

    def __init__(self, base: Path, bytes_max: int = 1 << 30) -> None:
        self.root, self.place = base / "ws", base / "objects"
        self.root.mkdir(exist_ok=True)
        self.history = History(str(self.place), bytes_max=bytes_max, disk=NoSyncDisk())
        self.workspace = Workspace.open(str(self.root), keeper=self.history.keeper(is_generated))

    def write(self, path: str, content: bytes, mark: CallMark = MARK) -> None:
        with self.history.running(mark) as running:
            write_file(
                self.workspace,
                self.workspace.resolve_write(path),
                content,
            )
        self.history.recorded(running)

    def delete(self, path: str) -> None:
        delete_entry(self.workspace, self.workspace.resolve_entry(path))

    def close(self) -> None:
        self.workspace.close()
        self.history.close()


@pytest.fixture
def kept(tmp_path):
    kept = Kept(tmp_path)
    yield kept
    kept.close()


def test_what_is_overwritten_edited_and_deleted_is_in_the_store(kept):
    kept.write("a", b"one")
    kept.write("a", b"two")
    kept.delete("a")
    store = kept.history.store
    assert [store.read(digest_of(content)) for content in (b"one", b"two")] == [b"one", b"two"]


def test_a_link_that_is_deleted_is_kept_by_its_text(kept):
    os.symlink(b"some/where\xff", kept.root / "link")
    kept.delete("link")
    assert kept.history.store.read(digest_of(b"some/where\xff")) == b"some/where\xff"


def test_what_only_commands_write_is_not_kept(kept):
    kept.write("generated/lock", b"one")
    kept.write("generated/lock", b"two")
    kept.write("other", b"three")
    kept.write("other", b"four")
    assert objects_in(kept.place) == [digest_of(b"three").removeprefix("sha256:")]


def test_the_notes_of_a_recorded_call_are_over_and_those_of_others_are_not(kept):
    kept.write("a", b"one")
    assert read_notes(kept.history.store) == ()
    with kept.history.running(MARK):
        write_file(kept.workspace, kept.workspace.resolve_write("b"), b"killed before the record")
    (note,) = read_notes(kept.history.store)
    assert (note.call, note.doing.path, note.doing.kind) == (MARK, "b", "created")
    assert note.doing.after == digest_of(b"killed before the record")


def test_what_no_call_does_is_kept_and_leaves_no_note(kept):
    path = kept.workspace.resolve_write("a")
    write_file(kept.workspace, path, b"one")
    write_file(kept.workspace, path, b"two")
    assert kept.history.store.read(digest_of(b"one")) == b"one"
    assert read_notes(kept.history.store) == ()


def test_the_store_keeps_to_its_size_and_never_forgets_what_the_call_itself_replaced(tmp_path):
    kept = Kept(tmp_path, bytes_max=100_000)
    contents = [os.urandom(30_000) for _ in range(12)]
    for content in contents:
        kept.write("a", content)
        if kept.history.store.usage_bytes() > 120_000:
            kept.history.close()
    kept.close()
    assert sum(os.stat(tmp_path / "objects" / n).st_size for n in objects_in(kept.place)) <= 100_000
    again = Kept(tmp_path, bytes_max=1)
    again.write("a", b"last")
    again.close()
    # Alone larger than the bound: kept until something newer is.
    assert objects_in(kept.place) == [digest_of(contents[-1]).removeprefix("sha256:")]


SIZE, BOUND = 40_000, 100_000
"""Of one content that does not pack, and of the store: two fit."""


def noise(count: int = 1) -> list[bytes]:
    return [os.urandom(SIZE) for _ in range(count)]


def replaced_at_once(kept: Kept, contents: list[bytes], mark: CallMark = MARK) -> None:
    """One call that deletes these."""
    for number, content in enumerate(contents):
        (kept.root / f"f{number}").write_bytes(content)
    with kept.history.running(mark) as running:
        for number in range(len(contents)):
            kept.delete(f"f{number}")
    kept.history.recorded(running)


def stored(kept: Kept, contents: list[bytes]) -> list[bool]:
    """Which of them the store has."""
    names = objects_in(kept.place)
    return [digest_of(content).removeprefix("sha256:") in names for content in contents]


def size_bytes(kept: Kept) -> int:
    return sum((kept.place / name).stat().st_size for name in objects_in(kept.place))


def after_one_call_that_replaced_more_than_the_bound(base: Path) -> tuple[Kept, list[bytes]]:
    contents = noise(4)
    kept = Kept(base, BOUND)
    replaced_at_once(kept, contents)
    kept.close()
    assert stored(kept, contents) == [True] * 4
    return Kept(base, BOUND), contents


def test_a_process_that_records_nothing_prunes_nothing(tmp_path):
    again, contents = after_one_call_that_replaced_more_than_the_bound(tmp_path)
    assert again.history.store.usage_bytes() == 4 * SIZE
    again.close()
    assert stored(again, contents) == [True] * 4


def test_what_the_newest_call_replaced_outlives_calls_that_keep_nothing(tmp_path):
    again, contents = after_one_call_that_replaced_more_than_the_bound(tmp_path)
    again.write("new", b"created")
    again.write("generated/lock", b"one")
    again.write("generated/lock", b"two")
    again.close()
    assert stored(again, contents) == [True] * 4


def test_whoever_prunes_late_takes_nothing_from_the_newest_call(tmp_path):
    again, contents = after_one_call_that_replaced_more_than_the_bound(tmp_path)
    again.history.store.prune(again.history.notes.needed())
    again.close()
    assert stored(again, contents) == [True] * 4


def test_once_a_newer_call_has_kept_something_the_bound_holds_again(tmp_path):
    again, contents = after_one_call_that_replaced_more_than_the_bound(tmp_path)
    (newer,) = noise()
    replaced_at_once(again, [newer])
    again.close()
    assert stored(again, [newer]) == [True]
    assert stored(again, contents).count(True) == 1
    assert size_bytes(again) <= BOUND


def test_a_process_that_ends_late_takes_nothing_from_a_newer_call_of_another(tmp_path):
    early, late = Kept(tmp_path, BOUND), Kept(tmp_path, BOUND)
    older, newer = noise(4), noise(4)
    replaced_at_once(early, older)
    replaced_at_once(late, newer, CallMark("CALL-2", "delete_file", "main", "SES-2"))
    late.close()
    early.close()
    assert (stored(early, older), stored(early, newer)) == ([False] * 4, [True] * 4)


def test_reading_alone_makes_no_store(kept):
    with kept.history.running(MARK) as running:
        list_directory(kept.workspace, kept.workspace.resolve_read(".").real, 1, 10)
    kept.history.recorded(running)
    assert not kept.place.exists()


def test_without_a_history_nothing_is_kept_and_nothing_fails(tmp_path):
    with Workspace.open(str(tmp_path), keeper=Keeper()) as workspace, History.running(MARK):
        write_file(workspace, workspace.resolve_write("a"), b"one")
    assert os.listdir(tmp_path) == ["a"]
