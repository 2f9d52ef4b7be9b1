import errno
import os
import time

import pytest
from msgspec.structs import replace

from paddock.errors import StorageFullError
from paddock.storage.notes import CallMark, Doing, Notes, read_notes
from paddock.storage.objects import ObjectStore
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from tests.support.children import end_of

CALL = CallMark("CALL-1", "str_replace", "main", "SES-1")
OTHER = CallMark("CALL-2", "delete_file", "main", "SES-1")
EDIT = Doing("src/a.py", "edited", before="sha256:" + "1" * 64, after="sha256:" + "2" * 64)
DELETE = Doing("odd\udcff\nname", "deleted", before="sha256:" + "3" * 64, mode=0o640)
CREATE = Doing("a/b/c", "created", after="sha256:" + "4" * 64, made=("a", "a/b"))


@pytest.fixture
def notes(store):
    notes = Notes(store)
    yield notes
    notes.close()


def files(place) -> list[str]:
    return os.listdir(place / "notes")


def test_a_note_is_found_by_others_as_it_was_written(store, notes):
    before = time.time()
    notes.write(CALL, EDIT)
    notes.write(OTHER, DELETE, CREATE)
    other = Notes(store)
    found = read_notes(store)
    other.close()
    assert [(note.call, note.doing) for note in found] == [
        (CALL, EDIT),
        (OTHER, DELETE),
        (OTHER, CREATE),
    ]
    assert all(before <= note.written_s <= time.time() for note in found)


def test_a_note_that_is_over_is_found_no_more(store, notes):
    (first,) = notes.write(CALL, EDIT)
    rest = notes.write(OTHER, DELETE, CREATE)
    notes.over([first, rest[1]])
    assert [note.doing for note in read_notes(store)] == [DELETE]


def test_a_process_whose_notes_are_over_leaves_no_file(store, place):
    notes = Notes(store)
    notes.over(notes.write(CALL, EDIT))
    assert len(files(place)) == 1
    notes.close()
    assert files(place) == []


def test_a_process_that_only_reads_makes_no_file(store, notes, place):
    assert (read_notes(store), (place / "notes").exists()) == ((), False)


def test_a_note_that_is_needed_outlives_its_process(store, place):
    notes = Notes(store)
    notes.write(CALL, EDIT)
    notes.close()
    after = Notes(store)
    assert [note.doing for note in read_notes(store)] == [EDIT]
    after.close()


def test_the_file_does_not_grow_for_ever(store, notes, place):
    for _ in range(500):
        notes.over(notes.write(CALL, EDIT))
    assert os.stat(place / "notes" / files(place)[0]).st_size < 200_000
    numbers = notes.write(OTHER, DELETE)
    assert [note.doing for note in read_notes(store)] == [DELETE]
    notes.over(numbers)


def test_a_torn_note_and_what_is_none_are_passed_over(store, notes, place):
    notes.write(CALL, EDIT)
    with (place / "notes" / files(place)[0]).open("ab") as file:
        for line in (b"[]\n", b'{"note":7}\n', b"\xff\xfe\n", b'{"over":3}\n', b'{"note":8,"at'):
            file.write(line)
    assert [note.doing for note in read_notes(store)] == [EDIT]


def test_the_digests_of_calls_at_work_are_needed_and_those_of_old_ones_are_not(notes, place):
    numbers = notes.write(CALL, EDIT, CREATE)
    assert notes.needed() == {EDIT.before}
    file = place / "notes" / files(place)[0]
    at = b'"at":'
    text = file.read_bytes()
    file.write_bytes(b"\n".join(old(line, at) for line in text.splitlines()) + b"\n")
    assert notes.needed() == frozenset()
    notes.over(numbers)


def old(line: bytes, at: bytes) -> bytes:
    front, _, back = line.partition(at)
    return front + at + b"1.5," + back.partition(b",")[2]


def test_a_forked_child_writes_a_file_of_its_own(store, notes, place):
    notes.write(CALL, EDIT)
    assert end_of(lambda: notes.write(OTHER, DELETE)) == 0
    notes.write(CALL, CREATE)
    assert [note.doing for note in read_notes(store)] == [EDIT, DELETE, CREATE]
    assert len(files(place)) == 2


def test_a_file_is_removed_once_its_process_is_gone_and_not_before(store, notes, place):
    notes.write(CALL, EDIT)
    (name,) = files(place)
    other = Notes(store)
    ended = read_notes(store)
    other.tidy(ended)
    assert files(place) == [name]
    # What was noted since is not among what has ended.
    notes.write(OTHER, DELETE)
    notes.close()
    other.tidy(ended)
    assert files(place) == [name]
    other.tidy(read_notes(store))
    assert files(place) == []
    other.close()
    notes.__init__(store)


def test_a_note_that_cannot_be_written_is_told_and_swallows_no_later_one(tmp_path):
    disk = FaultyDisk()
    with ObjectStore(str(tmp_path / "objects"), bytes_max=10, disk=disk) as store:
        notes = Notes(store)
        notes.write(CALL, EDIT)
        for step, name in enumerate(["write", "fdatasync"]):
            disk.fault = Fault(len(disk.calls) + step, How.BEFORE, errno.ENOSPC)
            with pytest.raises(StorageFullError):
                notes.write(OTHER, DELETE)
            assert disk.calls[-1] == name
        notes.write(OTHER, CREATE)
        assert [note.doing for note in read_notes(store)] == [EDIT, CREATE]
        notes.close()


def lines_in(place) -> int:
    """How many bytes of lines stand in the one file, without the room behind them."""
    return len((place / "notes" / files(place)[0]).read_bytes().rstrip(b"\0"))


def test_of_too_many_notes_the_newest_are_read(store, notes, place, monkeypatch):
    numbers = notes.write(CALL, EDIT)
    numbers += notes.write(OTHER, CREATE)
    last = lines_in(place)
    numbers += notes.write(OTHER, DELETE)
    size = lines_in(place)
    for read, found in ((size - last, [DELETE]), (size - last + 1, [DELETE])):
        monkeypatch.setattr("paddock.storage.notes._FILE_BYTES_MAX", read)
        assert [note.doing for note in read_notes(store)] == found
    monkeypatch.setattr("paddock.storage.notes._FILE_BYTES_MAX", size)
    assert [note.doing for note in read_notes(store)] == [EDIT, CREATE, DELETE]
    notes.over(numbers)


def test_a_line_is_written_into_room_that_is_there(store, notes, place):
    """So that its sync waits for no change of the file's size."""
    notes.over(notes.write(CALL, EDIT))
    file = place / "notes" / files(place)[0]
    size = file.stat().st_size
    for _ in range(5):
        notes.over(notes.write(CALL, EDIT))
    assert file.stat().st_size == size > lines_in(place)
    numbers = notes.write(CALL, *[replace(EDIT, path="x" * 400)] * 50)
    assert file.stat().st_size > size
    assert len(read_notes(store)) == 50
    notes.over(numbers)


def test_a_note_of_a_version_without_modes_after_is_read_and_one_of_no_version_is_not(
    store, notes, place
):
    changed = replace(EDIT, mode_after=0o640)
    numbers = notes.write(CALL, changed)
    assert [note.doing for note in read_notes(store)] == [changed]
    file = place / "notes" / files(place)[0]
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b",true,416]", b",true]"))
    assert [note.doing for note in read_notes(store)] == [EDIT]
    for cut in (b"]", b",true,416,0]"):
        file.write_bytes(whole.replace(b",true,416]", cut))
        assert read_notes(store) == ()
    notes.over(numbers)


def test_a_note_of_a_version_without_intents_is_read(store, notes, place):
    numbers = notes.write(CALL, EDIT)
    file = place / "notes" / files(place)[0]
    file.write_bytes(file.read_bytes().replace(b'"SES-1",""]', b'"SES-1"]'))
    assert [note.call for note in read_notes(store)] == [CALL]
    notes.over(numbers)
