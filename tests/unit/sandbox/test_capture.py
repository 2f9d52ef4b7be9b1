"""Output under a cap: what is kept, what is counted, what is saved."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.sandbox.streams import Capture, Spool
from paddock.sandbox.values import Captured
from paddock.values.entries import digest_of


def capture_of(chunks: list[bytes], bytes_max: int, spool: Spool | None = None) -> Captured:
    read_end, write_end = os.pipe()
    capture = Capture(read_end, bytes_max, spool)
    for chunk in chunks:
        os.write(write_end, chunk)
        if chunk:
            taken = capture.total_bytes
            while capture.total_bytes - taken < len(chunk):
                assert capture.read()
    os.close(write_end)
    assert not capture.read()
    capture.close()
    return capture.captured()


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 300))
def test_both_ends_are_kept_and_the_whole_is_counted(chunks, bytes_max):
    whole = b"".join(chunks)

    kept = capture_of(chunks, bytes_max)

    if len(whole) <= bytes_max:
        assert kept.head + kept.tail == whole
        assert kept.missing_bytes == 0
    else:
        assert kept.head == whole[: bytes_max // 2]
        assert kept.tail == whole[len(whole) - (bytes_max - bytes_max // 2) :]
        assert kept.missing_bytes == len(whole) - bytes_max
    assert kept.total_bytes == len(whole)


@given(st.lists(st.binary(max_size=100), max_size=10), st.integers(0, 400))
def test_a_spool_takes_the_whole_up_to_its_cap(chunks, cap):
    whole = b"".join(chunks)
    fd = os.memfd_create("spool")
    try:
        spool = Spool(lambda: fd, cap)
        capture_of(chunks, 10, spool)

        assert os.pread(fd, 2000, 0) == whole[:cap]
        assert spool.size_bytes == min(cap, len(whole))
        assert spool.digest == digest_of(whole[:cap])
    finally:
        os.close(fd)


def test_a_spool_that_cannot_be_written_is_an_error():
    fd = os.open("/dev/full", os.O_WRONLY)
    read_end, write_end = os.pipe()
    capture = Capture(read_end, 10, Spool(lambda: fd, 100))
    os.write(write_end, b"x")
    os.close(write_end)

    with pytest.raises(OSError, match="No space"):
        capture.read()
    capture.close()
    os.close(fd)


def test_memory_stays_the_same_for_a_long_stream():
    read_end, write_end = os.pipe()

    def pour() -> None:
        chunk = b"0123456789abcdef" * 4096
        for _ in range(640):
            os.write(write_end, chunk)
        os.close(write_end)

    def resident_kb() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    capture = Capture(read_end, 50_000)
    pouring = threading.Thread(target=pour)
    before = resident_kb()
    pouring.start()
    while capture.read():
        continue
    pouring.join()
    capture.close()

    assert capture.captured().total_bytes == 640 * 65536
    assert resident_kb() - before < 5 * 1024


def test_where_nothing_is_there_a_read_does_not_wait_unless_it_is_told_to():
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    capture = Capture(read_end, 10)

    assert [capture.read(), capture.read(), capture.total_bytes] == [True, True, 0]
    os.write(write_end, b"now")
    assert (capture.read(), capture.total_bytes) == (True, 3)
    os.close(write_end)
    assert not capture.read()
    capture.close()
