import os

import pytest

from paddock.errors import ConfigError, HostError, IntegrityError
from paddock.storage.notes import CallMark, Doing, Notes, read_notes
from paddock.storage.objects import StoreReader
from paddock.values.entries import digest_of

HELD = os.urandom(5000)
DOING = Doing("a", "created")


@pytest.fixture
def filled(store, tmp_path):
    """A store with a content, a note of a call at work, and a file that a process holds."""
    store.put_bytes(b"one")
    store.sync()
    notes = Notes(store)
    notes.write(CallMark("CALL-1", "create_file", "main", "SES-1"), DOING)
    path = tmp_path / "large"
    path.write_bytes(HELD)
    with path.open("rb") as file:
        held = store.hold_file(file.fileno(), digest_of(HELD))
        yield held
        held.release()
    notes.close()


def state(place) -> dict[str, tuple[int, int]]:
    """Everything there, by its size and when it was changed."""
    return {
        os.path.join(folder, name): (status.st_size, status.st_mtime_ns)
        for folder, folders, files in os.walk(place)
        for name in (".", *folders, *files)
        for status in [os.lstat(os.path.join(folder, name))]
    }


def test_all_of_a_store_is_seen_and_nothing_of_it_is_touched(filled, place):
    before = state(place)
    with StoreReader(str(place)) as seen:
        assert [note.doing for note in read_notes(seen)] == [DOING]
        for content in (b"one", HELD):
            digest = digest_of(content)
            assert (seen.has(digest), seen.read(digest)) == (True, content)
            assert seen.stored_bytes(digest) == len(content)
        assert not seen.has(digest_of(b"never kept"))
    assert state(place) == before


def test_what_is_no_more_held_is_read_where_it_went(filled, place):
    with StoreReader(str(place)) as seen:
        assert seen.has(digest_of(HELD))
        filled.settle()
        assert seen.read(digest_of(HELD)) == HELD


def test_what_was_held_and_let_go_is_there_no_more(filled, place):
    with StoreReader(str(place)) as seen:
        assert seen.has(digest_of(HELD))
        filled.release()
        assert not seen.has(digest_of(HELD))


def test_where_no_store_is_there_is_nothing_in_it_and_none_is_made(place):
    with StoreReader(str(place)) as seen:
        digest = digest_of(b"one")
        assert (read_notes(seen), seen.has(digest), seen.stored_bytes(digest)) == ((), False, 0)
        with pytest.raises(HostError, match="no longer has the content"):
            seen.read(digest)
    assert not place.exists()


def test_what_is_damaged_is_not_shown_as_whole(store, place):
    digest = store.put_bytes(b"one")
    store.sync()
    (place / digest.removeprefix("sha256:")).write_bytes(b"two")
    with StoreReader(str(place)) as seen, pytest.raises(IntegrityError, match="damaged"):
        seen.read(digest)


def test_a_store_into_which_others_write_is_not_looked_at(store, place):
    place.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by others"):
        StoreReader(str(place)).has(digest_of(b"one"))
