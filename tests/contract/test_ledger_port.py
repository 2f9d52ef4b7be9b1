"""What every ledger promises the runtime: the file and the fake alike."""

import os
import threading
import time

import pytest

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.append import Ledger
from paddock.ledger.checkpoint import USUAL_PACE, AutoCheckpoint
from paddock.ledger.format.lines import EntryRefusedError, parse_line
from paddock.ledger.read import find_genesis
from paddock.ledger.verify import verify
from paddock.testing.memory_ledger import MemoryLedger
from paddock.values.entries import Entry
from tests.support.ledgers import GENESIS, INTENT, RESULT, note, open_ledger
from tests.support.sealed import seal_ledger


class OnDisk:
    genesis = GENESIS

    def __init__(self, folder):
        self.ledger: Ledger = open_ledger(os.path.join(folder, "x.jsonl"))

    def text(self):
        with open(self.ledger.path, "rb") as file:
            return file.read()


class Sealed:
    """The ledger file with its checkpoints, as everything but the hook opens it."""

    def __init__(self, folder):
        made = seal_ledger(folder, 1)
        file = open_ledger(made.path, create=None)
        self.genesis = find_genesis(made.path)
        keeper = AutoCheckpoint(
            made.checkpointer, _Nowhere(), time.monotonic, USUAL_PACE, time.time
        )
        file.keeper = keeper
        self.ledger: Ledger = file

    def text(self):
        with open(self.ledger.path, "rb") as file:
            return file.read()


class _Nowhere:
    def take(self, signed):
        pass


class InMemory:
    def __init__(self, _):
        self.ledger: Ledger = MemoryLedger()
        self.genesis = self.ledger.genesis

    def text(self):
        return self.ledger.text


@pytest.fixture(params=[OnDisk, Sealed, InMemory])
def kind(request, tmp_path):
    return request.param(tmp_path)


@pytest.fixture
def ledger(kind):
    return kind.ledger


def stored(kind):
    return [parse_line(line) for line in kind.text().split(b"\n")[:-1]]


def test_entries_stand_in_the_order_of_their_appends(kind, ledger):
    ledger.append([INTENT])
    ledger.append([RESULT, note("x")])

    assert [each.entry for each in stored(kind)][1:] == [INTENT, RESULT, note("x")]


def test_a_receipt_says_where_the_entries_stand(kind, ledger):
    first = ledger.append([INTENT])
    second = ledger.append([RESULT, note("x")])

    lines = stored(kind)
    assert (first.first_seq, second.first_seq) == (1, 2)
    assert (*first.ids, *second.ids) == tuple(each.id for each in lines[1:])
    assert (second.head.seq, second.head.hash) == (3, lines[3].leaf)


def test_what_is_written_verifies(kind, ledger, tmp_path):
    for number in range(20):
        ledger.append([note(str(number), number * 50)])

    path = tmp_path / "copy"
    path.write_bytes(kind.text())
    found = verify(os.fspath(path))
    assert (found.problems, found.entries) == ((), 21)
    assert found.genesis == kind.genesis


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [note("x")] * (limits.ledger_batch_entries_max + 1),
        [note("x"), Entry("NOTE", reason="\0")],
        [note("x"), Entry("lower")],
    ],
)
def test_what_cannot_be_written_is_refused_whole(kind, ledger, entries):
    with pytest.raises(EntryRefusedError):
        ledger.append(entries)

    assert len(stored(kind)) == 1
    assert ledger.append([note("x")]).first_seq == 1


def test_reserved_space_can_be_used_or_given_back(kind, ledger):
    used, unused = ledger.reserve(5000), ledger.reserve(100)

    ledger.append([note("x")], reservation=used)
    unused.release()
    unused.release()
    used.release()

    assert len(stored(kind)) == 2


def test_threads_lose_nothing(kind, ledger):
    def work(name):
        for number in range(20):
            ledger.append([note(f"{name}{number}")])

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    lines = stored(kind)
    assert sorted(each.entry.reason for each in lines[1:]) == sorted(
        f"{name}{number}" for name in "abc" for number in range(20)
    )
    assert [each.prev for each in lines[1:]] == [each.leaf for each in lines[:-1]]
    assert len({each.id for each in lines}) == 61


def test_a_closed_ledger_refuses(kind, ledger):
    ledger.close()
    ledger.close()

    with pytest.raises(HostError, match="closed"):
        ledger.append([note("x")])
    with pytest.raises(HostError, match="closed"):
        ledger.reserve(1)
    assert len(stored(kind)) == 1


class TestFake:
    """What the fake does on purpose, to show what the others do by accident."""

    def test_a_failure_is_raised_once_and_writes_nothing(self):
        ledger = MemoryLedger()
        ledger.fail_with(HostError("the disk is gone"))

        with pytest.raises(HostError, match="the disk is gone"):
            ledger.append([note("x")])

        assert ledger.append([note("y")]).first_seq == 1
        assert [each.entry for each in ledger.entries] == [note("y")]

    def test_a_poisoned_fake_acknowledges_nothing(self):
        ledger = MemoryLedger()
        ledger.poison()

        with pytest.raises(HostError, match="the disk failed"):
            ledger.append([note("y")])
        assert ledger.entries == ()
