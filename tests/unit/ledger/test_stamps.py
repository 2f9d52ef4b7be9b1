import itertools
import os
import threading

import pytest

from paddock.ledger.format.encoding import format_timestamp
from paddock.ledger.stamps import Stamps
from tests.support.children import end_of
from tests.support.ledgers import assert_holds, counting_ids, no_time, note, open_ledger


def numbers(ids):
    return [int(each.removeprefix("LED-"), 16) for each in ids]


def test_ids_come_in_the_order_of_their_random_bytes_and_never_twice():
    stamps = Stamps(no_time, counting_ids())

    taken = [stamps.ids(count) for count in (1, 2, 60, 5, 200, 1)]

    assert [len(each) for each in taken] == [1, 2, 60, 5, 200, 1]
    assert numbers(itertools.chain(*taken)) == list(range(1, 270))


def test_random_bytes_are_asked_for_many_ids_at_once():
    asked = []

    def randomness(size):
        asked.append(size)
        return os.urandom(size)

    stamps = Stamps(no_time, randomness)
    for _ in range(50):
        stamps.ids(2)

    assert asked == [1024, 1024]


def test_what_was_kept_is_not_given_after_a_fork():
    stamps = Stamps(no_time, counting_ids())
    stamps.ids(1)

    stamps.forget()

    assert numbers(stamps.ids(2)) == [65, 66]


def test_threads_never_get_the_same_id():
    stamps = Stamps(no_time, os.urandom)
    found = []

    def work():
        for _ in range(500):
            found.extend(stamps.ids(3))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == len(set(found)) == 6000


def test_a_forked_child_and_its_parent_give_different_ids(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(path)
    ledger.append([note("before")])
    assert end_of(lambda: ledger.append([note("child")])) == 0
    ledger.append([note("parent")])

    assert_holds(path, ["before", "child", "parent"])
    with open(path, encoding="utf-8") as file:
        ids = [line[:44] for line in file]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    "moments",
    [
        [0.0, 0.5, 0.999999, 1.0, 1.25, 0.25, 2.0],
        [1_700_000_000.25, 1_700_000_000.5, 1_700_000_001.0, 1_699_999_999.75, 1_700_000_000.25],
        [253_402_300_799.5, 253_402_300_800.0, -1.0, -0.5, 1e300, 5.5],
    ],
)
def test_times_are_the_same_as_if_made_anew(moments):
    moment = iter(moments)
    stamps = Stamps(lambda: next(moment), os.urandom)

    assert [stamps.time() for _ in moments] == [format_timestamp(each) for each in moments]


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
def test_a_broken_clock_stops_no_entry(broken):
    moment = iter([1_700_000_000.5, broken, 1_700_000_000.5])
    stamps = Stamps(lambda: next(moment), os.urandom)

    assert [stamps.time() for _ in range(3)] == [
        "2023-11-14T22:13:20.500000Z",
        "1970-01-01T00:00:00.000000Z",
        "2023-11-14T22:13:20.500000Z",
    ]
