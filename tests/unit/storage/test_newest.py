import errno
import os
import time

import pytest

from paddock.storage.prune import mark_newest, newest
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.values.entries import digest_of
from tests.support.stores import objects_in

ONE, TWO = digest_of(b"one"), digest_of(b"two")


def names(*digests: str) -> set[str]:
    return {digest.removeprefix("sha256:") for digest in digests}


def test_of_calls_one_after_the_other_the_last_is_the_newest(store, place):
    assert newest(store.shelf) == set()
    mark_newest(store.shelf, [ONE, TWO])
    assert newest(store.shelf) == names(ONE, TWO)
    mark_newest(store.shelf, [TWO])
    assert (newest(store.shelf), len(os.listdir(place / "newest"))) == (names(TWO), 1)


def test_whoever_writes_late_takes_nothing_from_a_newer_call(store, place):
    mark_newest(store.shelf, [ONE])
    (own,) = os.listdir(place / "newest")
    newer = f"{time.time_ns() + 3_600_000_000_000:020d}-{own.partition('-')[2]}"
    os.rename(place / "newest" / own, place / "newest" / newer)
    mark_newest(store.shelf, [TWO])
    assert newest(store.shelf) == names(ONE, TWO)


def test_what_cannot_be_written_leaves_what_was_the_newest(place, store):
    mark_newest(store.shelf, [ONE])
    for step in (0, 1):
        disk = FaultyDisk(Fault(step, How.BEFORE, errno.ENOSPC))
        with (
            type(store).open(str(place), bytes_max=1, disk=disk) as failing,
            pytest.raises(OSError, match="No space"),
        ):
            mark_newest(failing.shelf, [TWO])
        assert disk.calls == ["create", "write"][: step + 1]
        assert newest(store.shelf) == names(ONE)


def test_pruning_spares_the_newest_though_the_store_is_over_its_bound(place, disk, store):
    contents = [os.urandom(600_000) for _ in range(3)]
    digests = [store.put_bytes(content) for content in contents]
    store.sync()
    mark_newest(store.shelf, digests[:2])
    store.prune([])
    assert set(objects_in(place)) == names(*digests[:2])
    mark_newest(store.shelf, digests[1:2])
    store.prune([])
    assert set(objects_in(place)) == names(digests[1])
