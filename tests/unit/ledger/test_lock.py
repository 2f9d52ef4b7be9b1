import fcntl
import os
import threading

import pytest

from paddock.errors import LedgerBusyError
from paddock.ledger.files import FileLock, Waiting, find_holder
from paddock.storage.disk import Disk

LOCKS = """\
1: POSIX  ADVISORY  WRITE 11 fe:00:2146939 0 EOF
2: FLOCK  ADVISORY  WRITE 6764 fe:00:2146939 0 EOF
2: -> FLOCK  ADVISORY  WRITE 7000 fe:00:2146939 0 EOF
3: FLOCK  ADVISORY  WRITE 0 fe:00:5 0 EOF
4: FLOCK
"""


def open_lock(tmp_path, timeout_s=0.01):
    return FileLock(Disk(), os.path.join(tmp_path, "lock"), Waiting(lock_timeout_s=timeout_s))


def takes(lock):
    try:
        lock.acquire()
    except LedgerBusyError:
        return False
    return True


def test_two_descriptions_exclude_each_other(tmp_path):
    first, second = open_lock(tmp_path), open_lock(tmp_path)

    assert takes(first)
    assert not takes(second)
    first.release()
    assert takes(second)


def test_threads_that_share_a_lock_exclude_each_other(tmp_path):
    lock = open_lock(tmp_path)
    taken = []
    lock.acquire()

    thread = threading.Thread(target=lambda: taken.append(takes(lock)))
    thread.start()
    thread.join()

    assert taken == [False]


def test_waiting_has_an_end_and_names_the_holder(tmp_path):
    first, second = open_lock(tmp_path), open_lock(tmp_path)
    first.acquire()

    with pytest.raises(LedgerBusyError, match=f"process {os.getpid()}; waited 0.01 s"):
        second.acquire()

    first.release()
    second.acquire()


class TriesCounted(Disk):
    """Says how often the lock was tried."""

    def __init__(self):
        self.tries = 0

    def lock(self, descriptor, operation):
        self.tries += 1
        fcntl.flock(descriptor, operation)


@pytest.mark.parametrize(("yield_s", "wanted"), [(10e-6, [20, 20]), (0.003, [1, 1])])
def test_where_a_yield_takes_a_time_slice_the_lock_is_slept_for(tmp_path, yield_s, wanted):
    now, slept, disk = [0.0], [], TriesCounted()

    def monotonic():
        now[0] += yield_s
        return now[0]

    def sleep(seconds):
        slept.append(disk.tries)
        now[0] += 1.0

    waiting = Waiting(monotonic=monotonic, sleep=sleep, lock_timeout_s=0.5)
    holder, lock = open_lock(tmp_path), FileLock(disk, os.path.join(tmp_path, "lock"), waiting)
    holder.acquire()
    tries = []
    for _ in range(2):
        disk.tries = 0
        slept.clear()
        with pytest.raises(LedgerBusyError):
            lock.acquire()
        tries += slept[:1]

    assert tries == wanted


def test_waiting_for_a_thread_of_ones_own_has_an_end_too(tmp_path):
    lock = open_lock(tmp_path)
    lock.acquire()

    with pytest.raises(LedgerBusyError, match=f"process {os.getpid()}"):
        lock.acquire()

    lock.release()
    lock.acquire()


def test_waiting_goes_by_the_clock_that_it_was_given(tmp_path):
    now = [0.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += 1.0

    waiting = Waiting(monotonic=lambda: now[0], sleep=sleep, lock_timeout_s=5.0)
    holder = open_lock(tmp_path)
    holder.acquire()
    lock = FileLock(Disk(), holder.path, waiting)

    with pytest.raises(LedgerBusyError, match="waited 5 s"):
        lock.acquire()

    assert len(slept) == 5
    assert sorted(slept) == slept


def test_the_lock_is_taken_when_its_holder_lets_go_while_we_wait(tmp_path):
    holder = open_lock(tmp_path)
    holder.acquire()
    waiting = Waiting(monotonic=lambda: 0.0, sleep=lambda _: holder.release(), lock_timeout_s=5.0)

    FileLock(Disk(), holder.path, waiting).acquire()

    assert not takes(holder)


def test_the_holder_is_read_from_the_list_of_locks():
    device = os.makedev(0xFE, 0)

    assert find_holder(LOCKS, device, 2146939) == 6764
    assert find_holder(LOCKS, device, 5) is None
    assert find_holder(LOCKS, device, 1) is None
    assert find_holder("", device, 1) is None


def test_a_lock_is_free_when_its_description_is_closed(tmp_path):
    first, second = open_lock(tmp_path), open_lock(tmp_path)
    first.acquire()
    os.close(first.descriptor)

    assert takes(second)
    fcntl.flock(second.descriptor, fcntl.LOCK_UN)
