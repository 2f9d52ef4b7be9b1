"""Nothing is acknowledged but by a sync of one's own, with the files in their places after it."""

import errno
import os
import shutil
import threading

import pytest

from paddock.errors import HostError, LedgerBusyError, LedgerDamagedError
from paddock.ledger.files import FileLock, open_head
from paddock.ledger.read import read_head
from paddock.storage.disk import Disk
from tests.support.children import start
from tests.support.ledgers import QUICK, Pending, assert_holds, changed, note, open_ledger

WRITERS = 4
APPENDS = 25


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def beside(path, name):
    return os.path.join(os.path.dirname(path), "x.d", name)


def marks(path):
    return read_head(beside(path, "head"))


def append_all(ledger, writer):
    for number in range(APPENDS):
        ledger.append([note(f"{writer}.{number}")])


def wanted(writer):
    return [f"{writer}.{number}" for number in range(APPENDS)]


def test_every_process_gets_its_entries_durable(path):
    open_ledger(path).close()

    children = [
        start(lambda _, each=each: append_all(open_ledger(path), each)) for each in range(WRITERS)
    ]

    assert [child.end()[0] for child in children] == [0] * WRITERS
    for writer in range(WRITERS):
        assert_holds(path, wanted(writer))
    assert marks(path).durable.entries == 1 + WRITERS * APPENDS


def test_every_thread_of_a_process_gets_its_entries_durable(path):
    ledger = open_ledger(path)
    threads = [threading.Thread(target=append_all, args=(ledger, each)) for each in range(WRITERS)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for writer in range(WRITERS):
        assert_holds(path, wanted(writer))


class Syncs(Disk):
    """Keeps which files were synced, and how long they were; something may happen at a sync."""

    def __init__(self):
        self.synced = []
        self.before = self.after = lambda: None

    def fdatasync(self, descriptor, /):
        before, self.before = self.before, lambda: None
        before()
        self.synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        os.fdatasync(descriptor)
        after, self.after = self.after, lambda: None
        after()


def test_each_writer_syncs_for_itself_although_others_have_synced_further(path):
    disk = Syncs()
    mine = open_ledger(path, disk=disk)
    pending = Pending(mine, [note("mine")])
    open_ledger(path).append([note("others")])
    disk.synced.clear()

    pending.wait()

    assert disk.synced == [(os.stat(path).st_ino, os.path.getsize(path))]
    assert marks(path).durable.entries == 3


def test_threads_that_come_during_a_sync_share_the_next_one(path):
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    first = Pending(ledger, [note("first")])
    threads = []

    def come():
        for number in range(WRITERS):
            pending = Pending(ledger, [note(f"{number}")])
            threads.append(threading.Thread(target=pending.wait))
            threads[-1].start()

    disk.synced.clear()
    disk.after = come
    first.wait()
    for thread in threads:
        thread.join()

    assert len(disk.synced) == 2
    assert_holds(path, ["first", *map(str, range(WRITERS))])


def test_what_was_synced_further_is_not_taken_back(path):
    early, late = open_ledger(path), open_ledger(path)
    first = Pending(early, [note("one")])
    late.append([note("two")])

    first.wait()

    assert marks(path).durable.entries == 3


def restore(path):
    shutil.copyfile(f"{path}.backup", f"{path}.new")
    os.rename(f"{path}.new", path)


def remove_folder(path):
    shutil.rmtree(os.path.join(os.path.dirname(path), "x.d"))


def copy_over(path):
    shutil.copyfile(path, f"{path}.copy")
    os.rename(f"{path}.copy", path)


def lead_in(path, **options):
    """Another writer appends, and makes all that there is durable."""
    open_ledger(path, **options).append([note("led")])


def copied(path):
    """Whoever copied the ledger had no lock."""
    copy_over(path)
    lead_in(path)


def without(name):
    def act(path):
        os.remove(beside(path, name))
        lead_in(path)

    return act


ACTS = {
    "restored": restore,
    "no folder": remove_folder,
    "copied": copied,
    "no lock": without("lock"),
    "no commit lock": without("slock"),
    "no head": without("head"),
}


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("act", ACTS)
def test_nobody_is_acknowledged_whose_files_are_replaced_around_the_sync(path, act, moment):
    open_ledger(path).close()
    shutil.copyfile(path, f"{path}.backup")
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    setattr(disk, moment, lambda: ACTS[act](path))

    with pytest.raises(LedgerDamagedError, match="replaced"):
        ledger.append([note("mine")])


@pytest.mark.parametrize("act", ACTS)
def test_nobody_is_acknowledged_who_waits_after_the_files_were_replaced(path, act):
    open_ledger(path).close()
    shutil.copyfile(path, f"{path}.backup")
    ledger = open_ledger(path)
    early, late = Pending(ledger, [note("one")]), Pending(ledger, [note("two")])
    late.wait()
    ACTS[act](path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        early.wait()


def test_a_file_that_was_put_back_is_acknowledged_by_a_sync_of_it_alone(path):
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    own = os.stat(path).st_ino
    pending = Pending(ledger, [note("mine")])
    os.link(path, f"{path}.aside")
    copied(path)
    os.replace(f"{path}.aside", path)
    disk.synced.clear()

    pending.wait()

    assert [file for file, _ in disk.synced] == [own]


def test_a_ledger_that_was_replaced_leaves_the_durable_mark_where_it_was(path):
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    mine = Pending(ledger, [note("mine")])
    durable = marks(path).durable
    disk.after = lambda: copy_over(path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        mine.wait()

    assert marks(path).durable == durable


@pytest.mark.parametrize("is_put_back", [True, False])
def test_what_another_thread_has_open_meanwhile_is_not_what_was_written_to(path, is_put_back):
    ledger = open_ledger(path)
    mine = Pending(ledger, [note("mine")])

    def go_on_elsewhere():
        os.link(path, f"{path}.aside")
        copy_over(path)
        lead_in(path, segment_bytes=500)
        lead_in(path, segment_bytes=500)
        ledger.write([note("follows")])
        lead_in(path)

    other = threading.Thread(target=go_on_elsewhere)
    other.start()
    other.join()
    if is_put_back:
        os.replace(f"{path}.aside", path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        mine.wait()


def test_an_entry_in_a_file_that_was_sealed_since_is_acknowledged(path):
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    mine = Pending(ledger, [note("mine")])
    lead_in(path, segment_bytes=500)
    ledger.append([note("follows")])
    disk.synced.clear()

    mine.wait()

    assert disk.synced == []
    assert_holds(path, ["mine", "led", "follows"])


def test_a_sealed_file_is_not_closed_under_a_sync_of_it(path):
    disk = Syncs()
    ledger = open_ledger(path, disk=disk)
    own = os.stat(path).st_ino
    mine = Pending(ledger, [note("mine")])
    follower = threading.Thread(target=ledger.append, args=([note("follows")],))

    def rotate():
        lead_in(path, segment_bytes=500)
        follower.start()

    disk.synced.clear()
    disk.before = rotate
    mine.wait()
    follower.join()

    assert [file for file, _ in disk.synced] == [own, os.stat(path).st_ino]
    assert_holds(path, ["mine", "led", "follows"])


def test_a_mark_that_no_writer_makes_is_passed_over(path):
    ledger = open_ledger(path)
    pending = Pending(ledger, [note("one")])
    head = open_head(Disk(), beside(path, "head"))
    page = head.read()
    # Of the same number and not as far.
    beyond = changed(page.durable, generation=page.newest.generation)
    head.store_durable(beyond, 0)

    pending.wait()

    assert head.read().durable.entries == 2
    os.close(head.descriptor)


@pytest.mark.parametrize("size", [0, 10, 1024, 1100, 1700, 2100, 2571])
def test_an_append_makes_a_head_file_that_was_cut_whole_again(path, size):
    ledger = open_ledger(path)
    ledger.append([note("one")])
    os.truncate(beside(path, "head"), size)

    ledger.append([note("two")])

    assert marks(path).durable.entries == 3
    assert_holds(path, ["one", "two"])


def test_a_head_file_that_is_cut_while_one_waits_is_no_failure(path):
    ledger = open_ledger(path)
    pending = Pending(ledger, [note("one")])
    os.truncate(beside(path, "head"), 1100)

    pending.wait()

    assert marks(path).durable.entries == 2
    assert_holds(path, ["one"])


def test_a_mark_that_is_held_up_is_waited_for_and_nothing_acknowledged(path):
    ledger = open_ledger(path, lock_timeout_s=QUICK)
    pending = Pending(ledger, [note("one")])
    lock = FileLock(Disk(), beside(path, "slock"), 1.0)
    lock.acquire()

    with pytest.raises(LedgerBusyError, match=f"locked by process {os.getpid()}"):
        pending.wait()

    lock.release()
    assert pending.wait() == pending.receipt


def test_a_sync_that_fails_in_another_process_meanwhile_is_not_outrun(path):
    class Failing(Disk):
        def fdatasync(self, descriptor, /):
            raise OSError(errno.EIO, "Input/output error")

    open_ledger(path).close()
    failing, disk = open_ledger(path, disk=Failing()), Syncs()
    ledger = open_ledger(path, disk=disk)

    def fail():
        with pytest.raises(HostError, match="the disk failed"):
            failing.append([note("lost")])

    disk.after = fail

    with pytest.raises(HostError, match="the disk failed"):
        ledger.append([note("mine")])
