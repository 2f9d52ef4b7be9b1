import hashlib
import os

import pytest

from paddock.storage.objects import ObjectStore
from tests.support.stores import NoSyncDisk, objects_in


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
        return ObjectStore.open(str(place), bytes_max=bytes_max, disk=NoSyncDisk())

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


def test_a_text_is_packed_before_anything_goes(open_store, place):
    contents = [text(number) for number in range(10)]
    with open_store(60_000) as store:
        digests = fill(store, place, contents)
        usage = store.usage_bytes()
        freed = store.prune([])
        assert freed > 0
        assert store.usage_bytes() == usage - freed <= 60_000
        assert [store.read(digest) for digest in digests] == contents
        assert any(name.endswith(".z") for name in objects_in(place))


def test_packing_does_not_make_a_content_younger(open_store, place):
    with open_store(60_000) as store:
        fill(store, place, map(text, range(10)))
        store.prune([])
        packed = [name for name in objects_in(place) if name.endswith(".z")]
        assert max(os.stat(place / name).st_mtime for name in packed) < 10


def test_what_does_not_pack_and_what_is_small_stays_as_it_is(open_store, place):
    with open_store(1_000) as store:
        fill(store, place, [noise(1), b"small"])
        store.prune([digest_of(noise(1)), digest_of(b"small")])
        assert not any(name.endswith(".z") for name in objects_in(place))


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


def test_a_damaged_object_is_not_packed_into_a_whole_one(open_store, place):
    with open_store(1) as store:
        (digest,) = fill(store, place, [text(1)])
        file = place / digest.removeprefix("sha256:")
        file.write_bytes(text(2))
        store.prune([digest])
        assert objects_in(place) == [file.name]


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
