"""A stream that is read in a thread: to its end, to its error, or left alone."""

import os
import select

import pytest

from paddock.sandbox.capture import Capture, Spool
from paddock.sandbox.pump import Pump
from paddock.sandbox.values import Captured


def wait_for(pump: Pump) -> None:
    waiting = select.poll()
    waiting.register(pump.fileno(), select.POLLIN)
    assert waiting.poll(60_000), "the pump did not end"


def wait_until_closed(write_end: int) -> None:
    """A pipe that nobody can read any more is an error to poll for."""
    waiting = select.poll()
    waiting.register(write_end, 0)
    assert waiting.poll(60_000) == [(write_end, select.POLLERR)]


def test_a_stream_is_read_to_its_end():
    read_end, write_end = os.pipe()
    capture = Capture(read_end, 10)
    pump = Pump(capture)
    for _ in range(100):
        os.write(write_end, b"x" * 10_000 + b"\n")
    os.close(write_end)
    wait_for(pump)

    assert not pump.read()
    assert capture.captured() == Captured(b"xxxxx", b"xxxx\n", 1_000_100)
    pump.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read_end)


def test_what_cannot_be_saved_ends_it_with_the_error():
    read_end, write_end = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    pump = Pump(Capture(read_end, 10, Spool(full, 100)))
    os.write(write_end, b"x")
    os.close(write_end)
    wait_for(pump)

    with pytest.raises(OSError, match="No space"):
        pump.read()
    pump.close()
    os.close(full)


def test_after_it_was_left_nothing_more_is_taken_in():
    read_end, write_end = os.pipe()
    capture = Capture(read_end, 10)
    pump = Pump(capture)
    pump.leave()

    os.write(write_end, b"late")
    wait_for(pump)
    assert capture.captured() == Captured(b"", b"", 0)
    pump.close()
    os.close(write_end)


def test_a_pipe_that_somebody_still_waits_for_is_closed_when_the_wait_is_over():
    read_end, write_end = os.pipe()
    pump = Pump(Capture(read_end, 10))
    pump.close()

    os.fstat(read_end)
    os.write(write_end, b"late")
    wait_until_closed(write_end)
    os.close(write_end)


def test_without_a_thread_nothing_is_owned(monkeypatch):
    read_end, write_end = os.pipe()
    open_before = os.listdir("/proc/self/fd")

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(RuntimeError):
        Pump(Capture(read_end, 10))
    assert os.listdir("/proc/self/fd") == open_before
    os.close(read_end)
    os.close(write_end)
