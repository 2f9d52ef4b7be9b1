"""What is pinned is not pruned, whatever the size of the store, until its time is over."""

import errno
import os

import pytest

from paddock.errors import IntegrityError, InternalError, StorageFullError
from paddock.storage.history import NEWEST
from paddock.storage.objects import ObjectStore
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from tests.support.stores import objects_in


@pytest.fixture
def full(place):
    with ObjectStore(str(place), bytes_max=0) as store:
        yield store


def put(store, content: bytes) -> str:
    with store.held():
        digest = store.put_bytes(content)
        store.sync()
    return digest


def test_what_is_pinned_stays_and_the_rest_goes(full):
    kept, gone = put(full, b"kept"), put(full, b"gone")
    full.pin("parked-1", [kept])
    full.prune([])
    assert [full.has(digest) for digest in (kept, gone)] == [True, False]


def test_a_pin_holds_for_other_processes_too_and_after_a_packing(full, place):
    kept = put(full, b"a text that packs well\n" * 1000)
    full.pin("parked-1", [kept])
    with ObjectStore(str(place), bytes_max=0) as other:
        other.prune([])
        other.prune([])
        assert other.read(kept) == b"a text that packs well\n" * 1000


def test_what_is_unpinned_goes(full):
    kept = put(full, b"kept")
    full.pin("parked-1", [kept])
    full.unpin("parked-1")
    full.unpin("never-was")
    full.prune([])
    assert not full.has(kept)


def test_a_name_pins_anew_and_two_pins_of_one_content_are_two(full):
    one, two = put(full, b"one"), put(full, b"two")
    full.pin("a", [one])
    full.pin("a", [two])
    full.pin("b", [two])
    full.unpin("a")
    full.prune([])
    assert [full.has(one), full.has(two)] == [False, True]


@pytest.mark.parametrize(("until_s", "stays"), [(1.0, False), (4e9, True)])
def test_a_pin_counts_until_its_time_is_over(full, place, until_s, stays):
    kept = put(full, b"kept")
    full.pin("a", [kept], until_s=until_s)
    full.prune([])
    assert (full.has(kept), os.listdir(place / "pins")) == (stays, ["a"] if stays else [])


def test_what_was_put_and_not_synced_is_there_once_it_is_pinned(full, place):
    with full.held():
        full.pin("a", [full.put_bytes(b"new")])
    assert len(objects_in(place)) == 1


@pytest.mark.parametrize("name", ["", ".", "../a", "a/b", "a" * 101, "a.part"])
def test_a_name_that_is_no_name_is_refused(full, name):
    digest = put(full, b"kept")
    for act in (lambda: full.pin(name, [digest]), lambda: full.unpin(name)):
        with pytest.raises(InternalError):
            act()


def test_what_is_no_digest_is_not_pinned(full, place):
    with pytest.raises(IntegrityError):
        full.pin("a", ["../../etc/passwd"])
    assert not (place / "pins").exists()


def test_a_pin_with_rubbish_in_it_pins_what_it_names(full, place):
    kept = put(full, b"kept")
    full.pin("a", [kept])
    with (place / "pins/a").open("ab") as file:
        file.write(b"\xff\xfe\nnothing\n")
    full.prune([])
    assert full.has(kept)


def test_a_pin_that_cannot_be_written_is_told_and_leaves_the_old_one(place):
    disk = FaultyDisk()
    with ObjectStore(str(place), bytes_max=0, disk=disk) as store:
        one, two = put(store, b"one"), put(store, b"two")
        store.pin("a", [one])
        done = len(disk.calls)
        store.pin("a", [one])
        steps = disk.calls[done:]
        assert steps == ["create", "write", "sync", "replace", "sync"]
        for step in range(4):
            disk.fault = Fault(len(disk.calls) + step, How.BEFORE, errno.ENOSPC)
            with pytest.raises(StorageFullError):
                store.pin("a", [two])
            disk.fault = None
        store.prune([])
        assert [store.has(one), store.has(two)] == [True, False]


def test_a_newest_of_an_earlier_version_counts_until_a_newer_call_has_kept_something(full, place):
    one, two = put(full, b"one"), put(full, b"two")
    older = f"{NEWEST}-{'1' * 20}-0123456789abcdef"
    full.pin(older, [one])
    full.prune([])
    assert [full.has(one), full.has(two)] == [True, False]
    full.pin(NEWEST, [put(full, b"two")])
    full.prune([])
    assert [full.has(one), full.has(two)] == [False, True]
    assert os.listdir(place / "pins") == [NEWEST]
