"""Calls run in threads of their own, so many at once, and end when nobody waits for them."""

import threading
from functools import partial

import anyio
import pytest

from paddock.apps.mcp.server import Calls
from paddock.providers.failures import CancelToken
from paddock.sandbox.streams import LastLine


class Session:
    """A client's session that hears of progress."""

    def __init__(self) -> None:
        self.heard = anyio.Event()

    async def report_progress(self, progress: float, *, message: str) -> None:
        self.said = (progress, message)
        self.heard.set()


def test_a_slow_call_holds_no_other():
    release = threading.Event()

    async def run() -> None:
        calls, session = Calls(2), Session()

        async def slow() -> None:
            assert await calls.run(release.wait, CancelToken(), session) is True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            for number in range(5):
                assert await calls.run(partial(int, number), CancelToken(), session) == number
            release.set()

    anyio.run(run)


def test_no_more_calls_run_than_there_are_places():
    running, most = 0, 0
    lock, both = threading.Lock(), threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        both.wait(10)
        with lock:
            running -= 1

    async def run() -> None:
        calls = Calls(2)
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(calls.run, work, CancelToken(), Session())

    anyio.run(run)
    assert most == 2


def test_a_cancelled_call_is_told_to_stop_and_its_end_is_waited_for():
    cancel, ended, started = CancelToken(), threading.Event(), threading.Event()

    def work() -> None:
        stop = threading.Event()
        cancel.on_cancel(stop.set)
        started.set()
        stop.wait(30)
        ended.set()

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Calls(1).run, work, cancel, Session())
            await anyio.to_thread.run_sync(started.wait)
            tasks.cancel_scope.cancel()

    anyio.run(run)
    assert (cancel.is_cancelled, ended.is_set()) == (True, True)


def test_a_client_hears_that_a_call_still_runs():
    release = threading.Event()

    async def run() -> Session:
        session = Session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Calls(1).run, release.wait, CancelToken(), session)
            await session.heard.wait()
            release.set()
        return session

    assert anyio.run(run).said == (1.0, "running for 1 s")


def test_a_client_hears_the_last_line_of_a_command_that_still_runs():
    release, printed = threading.Event(), LastLine()
    printed("stdout", b"one\ntwo \x1b[31m\n\n")

    async def run() -> Session:
        session = Session()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                partial(Calls(1).run, release.wait, CancelToken(), session, printed=printed)
            )
            await session.heard.wait()
            release.set()
        return session

    assert anyio.run(run).said == (1.0, "running for 1 s: two \\x1b[31m")


def test_what_a_call_raises_ends_it_and_gives_its_place_back():
    def fails() -> None:
        raise ZeroDivisionError

    async def run() -> None:
        calls = Calls(1)
        with pytest.raises(ExceptionGroup):
            await calls.run(fails, CancelToken(), Session())
        assert await calls.run(lambda: 1, CancelToken(), Session()) == 1

    anyio.run(run)
