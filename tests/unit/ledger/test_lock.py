import fcntl
import os
import threading

import pytest

from paddock.errors import LedgerBusyError
from paddock.ledger.files import FileLock, find_holder
from paddock.ledger.tail import wait_for_lock
from paddock.storage.disk import Disk

LOCKS = """\
1: POSIX  ADVISORY  WRITE 11 fe:00:2146939 0 EOF
2: FLOCK  ADVISORY  WRITE 6764 fe:00:2146939 0 EOF
2: -> FLOCK  ADVISORY  WRITE 7000 fe:00:2146939 0 EOF
3: FLOCK  ADVISORY  WRITE 0 fe:00:5 0 EOF
4: FLOCK
"""


def open_lock(tmp_path, timeout_s=0.01):
    return FileLock(Disk(), os.path.join(tmp_path, "lock"), timeout_s)


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


class Waited:
    """A lock that is held for so many seconds, by a clock that each yield and each sleep moves."""

    def __init__(self, held_s, yield_s=0.0):
        self.held_s, self.yield_s = held_s, yield_s
        self.now_s = 0.0
        self.tries = 0
        self.slept = []

    def lock(self, descriptor, operation):
        self.tries += 1
        if self.now_s < self.held_s:
            raise BlockingIOError

    def monotonic(self):
        self.now_s += self.yield_s
        return self.now_s

    def sleep(self, seconds):
        self.slept.append((self.tries, seconds))
        self.now_s += 1.0

    def takes(self, timeout_s):
        return wait_for_lock(self.lock, 0, timeout_s, self.monotonic, self.sleep)


@pytest.mark.parametrize(("yield_s", "tries"), [(10e-6, 20), (0.003, 1)])
def test_where_a_yield_takes_a_time_slice_the_lock_is_slept_for(yield_s, tries):
    waited = Waited(held_s=100.0, yield_s=yield_s)

    assert not waited.takes(0.5)
    assert waited.slept[0][0] == tries


def test_waiting_sleeps_longer_each_time_until_its_end_or_until_the_lock_is_free():
    waited = Waited(held_s=100.0)

    assert not waited.takes(5.0)
    assert len(waited.slept) == 5
    assert sorted(waited.slept) == waited.slept
    assert Waited(held_s=2.0).takes(5.0)


def test_waiting_for_a_thread_of_ones_own_has_an_end_too(tmp_path):
    lock = open_lock(tmp_path)
    lock.acquire()

    with pytest.raises(LedgerBusyError, match=f"process {os.getpid()}"):
        lock.acquire()

    lock.release()
    lock.acquire()


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
