import os
import shutil
import stat
import subprocess
import sys
import threading

import pytest

from paddock import limits
from paddock.errors import HostError, LedgerBusyError, LedgerDamagedError
from paddock.ledger.format.lines import EntryRefusedError
from paddock.ledger.query import Filter, query
from paddock.ledger.read import find_genesis, read_head
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import verify
from paddock.storage.disk import Disk
from paddock.values.entries import Entry
from tests.support.children import end_of, start
from tests.support.ledgers import (
    GENESIS,
    INTENT,
    QUICK,
    RESULT,
    Pending,
    assert_holds,
    counting_ids,
    note,
    open_ledger,
    reasons,
)


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def test_a_new_ledger_holds_genesis_alone(path):
    ledger = open_ledger(path, randomness=counting_ids())

    with open(path, "rb") as file:
        text = file.read()
    assert text == (
        b'{"id":"LED-00000000000000000000000000000001",'
        b'"timestamp":"1970-01-01T00:00:00.000000Z","event_type":"GENESIS","submission_id":"",'
        b'"decision":"","reason":"","session_id":"","agent":"","call_id":"","metadata":{'
        b'"format":1,"origin":"paddock.test/ledger","tier":"HOT","public_key":"'
        + GENESIS.public_key.encode()
        + b'","parent_checkpoint":null},"seq":0,"prev":"'
        + b"0" * 64
        + b'"}\n'
    )
    assert find_genesis(path) == GENESIS
    assert ledger.append([INTENT]).first_seq == 1
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.splitext(path)[0] + ".d").st_mode) == 0o700


def test_a_ledger_that_is_there_keeps_its_own_genesis(path):
    open_ledger(path).close()

    open_ledger(path, create=type(GENESIS)("other", "HO1", GENESIS.public_key))

    assert find_genesis(path) == GENESIS


def test_a_ledger_that_is_not_there_is_not_made_unasked(tmp_path, path):
    with pytest.raises(HostError, match="ledger not found"):
        open_ledger(path, create=None)

    assert os.listdir(tmp_path) == []


def test_an_append_answers_with_its_place(path):
    ledger = open_ledger(path, randomness=counting_ids())

    receipt = ledger.append([INTENT, RESULT])

    stored = query(path, Filter()).entries
    assert receipt.first_seq == 1
    assert receipt.ids == tuple(each.id for each in stored[1:])
    assert (receipt.head.seq, receipt.head.hash) == (2, stored[2].leaf)
    assert [each.entry for each in stored[1:]] == [INTENT, RESULT]


def test_entries_that_are_written_become_durable_together(path):
    syncs = []

    class Noting(Disk):
        def fdatasync(self, descriptor, /):
            syncs.append(os.path.getsize(path))
            os.fdatasync(descriptor)

    ledger = open_ledger(path, disk=Noting())
    syncs.clear()

    pending = [Pending(ledger, [note(str(number))]) for number in range(5)]
    assert syncs == []
    receipts = [each.wait() for each in reversed(pending)]

    assert syncs == [os.path.getsize(path)]
    assert [each.first_seq for each in receipts] == [5, 4, 3, 2, 1]
    assert pending[0].wait() == pending[0].receipt


@pytest.mark.parametrize("count", [0, limits.ledger_batch_entries_max + 1])
def test_a_batch_has_bounds(path, count):
    ledger = open_ledger(path)

    with pytest.raises(EntryRefusedError, match=f"{count} entries"):
        ledger.append([note("x")] * count)

    assert ledger.append([note("x")] * limits.ledger_batch_entries_max).first_seq == 1


def test_one_bad_entry_refuses_its_whole_batch(path):
    ledger = open_ledger(path)

    with pytest.raises(EntryRefusedError):
        ledger.append([note("good"), Entry("NOTE", metadata={"x": float("nan")})])

    assert reasons(path) == []
    ledger.append([note("after")])
    assert_holds(path, ["after"])


def test_two_open_ledgers_follow_each_other(path):
    first, second = open_ledger(path), open_ledger(path)

    for number in range(3):
        first.append([note(f"first {number}")])
        second.append([note(f"second {number}")])

    assert_holds(path, [f"{who} {n}" for n in range(3) for who in ("first", "second")])


def test_processes_that_share_one_ledger_lose_nothing(path):
    inherited = open_ledger(path)

    def work(name):
        for number in range(25):
            inherited.append([note(f"{name} {number}", 100 * number)])

    children = [start(lambda _, name=name: work(name)) for name in "abcd"]

    assert [child.end()[0] for child in children] == [0, 0, 0, 0]

    inherited.append([note("parent")])
    found = reasons(path)
    for name in "abcd":
        assert [each for each in found if each[0] == name] == [f"{name} {n}" for n in range(25)]
    assert verify(path).entries == 102


def test_a_fork_while_a_thread_holds_the_lock_does_not_stop_the_child(path):
    ledger = open_ledger(path, lock_timeout_s=QUICK)
    locked, done = threading.Event(), threading.Event()

    def hold():
        ledger._files.lock.acquire()
        locked.set()
        done.wait()
        ledger._files.lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()

    def append_too_early():
        with pytest.raises(LedgerBusyError):
            ledger.append([note("too early")])

    assert end_of(append_too_early) == 0
    done.set()
    thread.join()

    assert end_of(lambda: ledger.append([note("child")])) == 0
    ledger.append([note("parent")])
    assert_holds(path, ["child", "parent"])


def test_no_descriptor_outlives_an_exec(path):
    ledger = open_ledger(path)
    ledger.reserve(100)

    shown = subprocess.run(
        [sys.executable, "-c", "import os; print(os.listdir('/proc/self/fd'))"],
        capture_output=True,
        text=True,
        check=True,
        close_fds=False,
    )

    assert str(ledger._files.active.descriptor) not in eval(shown.stdout)[3:]


def test_a_closed_ledger_appends_nothing(path):
    ledger = open_ledger(path)
    pending = Pending(ledger, [note("one")])
    ledger.close()
    ledger.close()

    for act in (lambda: ledger.append([note("two")]), pending.wait, lambda: ledger.reserve(1)):
        with pytest.raises(HostError, match="closed"):
            act()
    assert_holds(path, ["one"])


def test_a_ledger_that_was_replaced_while_open_acknowledges_nothing(path):
    ledger = open_ledger(path)
    ledger.append([note("one")])
    os.rename(path, path + ".aside")

    with pytest.raises(LedgerDamagedError, match="removed or replaced"):
        ledger.append([note("two")])
    with open(path, "wb") as file:
        file.write(b"other")
    with pytest.raises(LedgerDamagedError, match="replaced"):
        ledger.append([note("three")])


def test_a_link_is_no_ledger(tmp_path, path):
    open_ledger(path).close()
    os.symlink("x.jsonl", tmp_path / "y.jsonl")

    with pytest.raises(HostError, match="cannot be opened"):
        open_ledger(tmp_path / "y.jsonl")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_no_ledger(path, make):
    make(path)

    with pytest.raises(HostError):
        open_ledger(path)


def test_a_reservation_ends_once_and_with_its_entries(path):
    ledger = open_ledger(path)
    held, used = ledger.reserve(10_000), ledger.reserve(10_000)

    held.release()
    held.release()
    ledger.append([note("x")], reservation=used)

    assert used.allocated_bytes == 0
    assert ledger._files.ballast._reserved == 0


def test_reserved_space_costs_a_system_call_only_when_it_grows(path):
    grown = []

    class Noting(Disk):
        def allocate(self, descriptor, size_bytes):
            grown.append(size_bytes)
            os.posix_fallocate(descriptor, 0, size_bytes)

    ledger = open_ledger(path, disk=Noting())
    for _ in range(100):
        ledger.reserve(2000).release()
    held = [ledger.reserve(50_000) for _ in range(3)]

    assert grown == [8_192, 57_344, 114_688, 172_032]
    assert len(held) == 3


def test_nothing_of_a_reservation_has_a_name(tmp_path, path):
    ledger = open_ledger(path)
    ledger.reserve(10_000)

    assert sorted(os.listdir(tmp_path / "x.d")) == ["head", "lock", "slock"]


def test_a_file_without_the_usual_ending_has_its_folder_beside_it(tmp_path):
    open_ledger(tmp_path / "log").close()

    assert sorted(os.listdir(tmp_path)) == ["log", "log.d"]


def test_a_ledger_that_was_copied_as_a_whole_is_taken_as_it_is(path, tmp_path):
    with_entries = open_ledger(path)
    with_entries.append([note("one")])
    with_entries.close()
    copy = tmp_path / "copy"
    shutil.copytree(os.path.dirname(path), copy)
    copied = open_ledger(str(copy / os.path.basename(path)))
    opened = read_head(LedgerPaths(copied.path).head)

    copied.append([note("two")])

    assert opened.durable == opened.newest
    assert_holds(copied.path, ["one", "two"])
