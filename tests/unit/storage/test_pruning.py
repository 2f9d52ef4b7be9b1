import hashlib
import os
import zlib

import pytest

from paddock.storage.objects import ObjectStore
from tests.support.stores import NoSyncDisk


def text(number: int) -> bytes:
    """Ten thousand bytes that pack well."""
    return (b"line %06d of a text\n" % number) * 455


def noise(number: int) -> bytes:
    """Ten thousand bytes that do not pack."""
    blocks = (hashlib.sha256(b"%d %d" % (number, block)).digest() for block in range(313))
    return b"".join(blocks)[:10_000]


@pytest.fixture
def open_store(place):
    def opened(bytes_max: int) -> ObjectStore:
        return ObjectStore(str(place), bytes_max=bytes_max, disk=NoSyncDisk())

    return opened


def fill(store, place, contents) -> list[str]:
    """Contents kept one after the other, each clearly newer than the one before."""
    digests = []
    for age, content in enumerate(contents):
        digests.append(store.put_bytes(content))
        store.sync()
        name = digests[-1].removeprefix("sha256:")
        os.utime(place / name, (age, age))
    return digests


def test_a_store_within_its_size_is_left_alone(open_store, place):
    with open_store(100_000) as store:
        digests = fill(store, place, map(noise, range(10)))
        assert (store.is_over(), store.prune([])) == (False, 0)
        assert [store.read(digest) for digest in digests] == [noise(n) for n in range(10)]


def test_the_oldest_go_first_until_the_size_is_kept(open_store, place):
    with open_store(50_000) as store:
        digests = fill(store, place, map(noise, range(10)))
        assert store.prune([]) == 60_000
        assert [store.has(digest) for digest in digests] == [False] * 6 + [True] * 4
        assert store.usage_bytes() == 40_000
        assert store.prune([]) == 0


def test_what_an_earlier_version_packed_goes_by_its_age_and_counts_as_it_lies_there(
    open_store, place
):
    with open_store(25_000) as store:
        digests = fill(store, place, [text(0), noise(1), text(2), noise(3), noise(4)])
        for age in (0, 2):
            file = place / digests[age].removeprefix("sha256:")
            packed = file.with_name(file.name + ".z")
            packed.write_bytes(zlib.compress(text(age), 6))
            os.utime(packed, (age, age))
            file.unlink()
        assert store.prune([digests[0]]) == 10_000
        assert [store.has(digest) for digest in digests] == [True, False, True, True, True]
        assert [store.read(digests[age]) for age in (0, 2)] == [text(0), text(2)]


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_what_is_to_be_kept_stays_whatever_the_size(open_store, place):
    with open_store(20_000) as store:
        digests = fill(store, place, map(noise, range(6)))
        keep = digests[:3]
        store.prune(keep)
        assert [store.has(digest) for digest in digests] == [True] * 3 + [False] * 3


def test_what_is_kept_anew_counts_as_new(open_store, place):
    with open_store(50_000) as store:
        digests = fill(store, place, map(noise, range(10)))
        store.put_bytes(noise(0))
        store.sync()
        store.prune([])
        assert [store.has(digest) for digest in digests] == [True] + [False] * 6 + [True] * 3


def test_a_content_larger_than_the_bound_is_kept_until_something_newer_is(open_store, place):
    with open_store(5_000) as store:
        (large,) = fill(store, place, [noise(1)])
        store.prune([large])
        assert store.read(large) == noise(1)
        small = store.put_bytes(b"newer")
        store.sync()
        store.prune([small])
        assert (store.has(large), store.has(small)) == (False, True)


def test_nothing_is_pruned_while_somebody_keeps(open_store, place):
    with open_store(10_000) as store, open_store(10_000) as other:
        fill(store, place, map(noise, range(4)))
        with other.held():
            assert store.prune([]) == 0
        other.put_bytes(b"not yet named")
        assert store.prune([]) == 0
        other.sync()
        assert store.prune([]) > 0


def test_the_count_is_made_anew_by_pruning_and_where_it_is_lost(open_store, place):
    with open_store(100_000) as store:
        fill(store, place, map(noise, range(5)))
        (place / "usage").unlink()
        assert store.usage_bytes() == 50_000
        (place / "usage").write_text("not a number")
        assert store.usage_bytes() == 50_000
        (place / "usage").write_bytes(b"%020d\n" % 999_999)
        store.prune([])
        assert store.usage_bytes() == 50_000
