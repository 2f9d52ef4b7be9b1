import errno
import os
import struct
import sys
import threading

import pytest

from paddock.kernel.futex import FutexWord

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="futex(2) is Linux")

OFFSET = 2048
FOR_EVER_S = 3600.0


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "word", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(4096), 0)
    yield descriptor
    os.close(descriptor)


def store(file, value):
    os.pwrite(file, struct.pack("=I", value), OFFSET)


def test_a_word_that_is_another_by_now_is_not_slept_on(file):
    word = FutexWord(file, OFFSET)
    store(file, 7)

    assert word.wait(6, FOR_EVER_S) is None


def test_sleep_has_an_end_when_nobody_wakes(file):
    assert FutexWord(file, OFFSET).wait(0, 0.001) is None


def test_another_process_wakes_who_sleeps(file):
    child = os.fork()
    if child == 0:
        FutexWord(file, OFFSET).wait(0, FOR_EVER_S)
        os._exit(0)
    word = FutexWord(file, OFFSET)
    store(file, 1)
    word.wake()

    assert os.waitpid(child, 0) == (child, 0)


def test_all_threads_that_share_a_word_are_woken(file):
    word = FutexWord(file, OFFSET)
    threads = [threading.Thread(target=word.wait, args=(0, FOR_EVER_S)) for _ in range(3)]
    for thread in threads:
        thread.start()
    store(file, 1)
    while any(thread.is_alive() for thread in threads):
        word.wake()


def test_a_word_is_of_use_after_its_descriptor_is_closed(tmp_path):
    descriptor = os.open(tmp_path / "word", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, bytes(4096), 0)
    word = FutexWord(descriptor, OFFSET)
    store(descriptor, 9)
    os.close(descriptor)

    word.wait(0, FOR_EVER_S)
    word.wake()


def test_a_file_that_was_cut_is_an_error_and_no_signal(file):
    word = FutexWord(file, OFFSET)
    os.truncate(file, 0)

    for act in (lambda: word.wait(0, FOR_EVER_S), word.wake):
        with pytest.raises(OSError, match="Bad address") as caught:
            act()
        assert caught.value.errno == errno.EFAULT


def test_a_file_that_is_too_short_has_no_word(file):
    os.truncate(file, 4095)

    with pytest.raises(ValueError, match="length"):
        FutexWord(file, OFFSET)
