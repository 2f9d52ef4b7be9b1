import errno
import os
import time

import pytest

from paddock.errors import StorageFullError
from paddock.storage.objects import ObjectStore
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.values.entries import digest_of
from tests.support.stores import objects_in

CONTENTS = [os.urandom(600_000) for _ in range(3)]
ONE, TWO, THREE = map(digest_of, CONTENTS)


@pytest.fixture(autouse=True)
def full(store):
    """Over its bound, whichever of the three stays."""
    for content in CONTENTS:
        store.put_bytes(content)
    store.sync()


def names(*digests: str) -> set[str]:
    return {digest.removeprefix("sha256:") for digest in digests}


def left(place) -> set[str]:
    """What a pruning leaves of a store that may hold nothing."""
    with ObjectStore(str(place), bytes_max=0) as store:
        store.prune([])
    return set(objects_in(place))


def marks(place) -> list[str]:
    return os.listdir(place / "pins")


def test_pruning_spares_the_newest_though_the_store_is_over_its_bound(store, place):
    store.pin("newest", [ONE, TWO])
    assert left(place) == names(ONE, TWO)
    store.pin("newest", [TWO])
    assert left(place) == names(TWO)
    assert len(marks(place)) == 1


def test_without_one_everything_goes(place):
    assert left(place) == set()


def test_what_an_earlier_version_wrote_counts_until_a_newer_call_has_kept_something(store, place):
    store.pin("newest", [ONE])
    older = f"newest-{time.time_ns():020d}-0123456789abcdef"
    os.rename(place / "pins/newest", place / "pins" / older)
    assert (left(place), marks(place)) == (names(ONE), [older])
    store.put_bytes(CONTENTS[1])
    store.pin("newest", [TWO])
    assert (left(place), marks(place)) == (names(TWO), ["newest"])


def test_what_cannot_be_written_leaves_what_was_the_newest(place, store):
    store.pin("newest", [ONE])
    for step in (0, 1):
        disk = FaultyDisk(Fault(step, How.BEFORE, errno.ENOSPC))
        with (
            type(store)(str(place), bytes_max=1, disk=disk) as failing,
            pytest.raises(StorageFullError, match="No space"),
        ):
            failing.pin("newest", [TWO])
        assert disk.calls[: step + 1] == ["create", "write"][: step + 1]
    assert left(place) == names(ONE)
