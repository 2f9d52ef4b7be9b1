"""A process that is stopped, not dead, keeps what it holds: others wait no longer than they said."""

import fcntl
import os
import signal

import pytest

from paddock.errors import LedgerBusyError
from tests.support.ledgers import QUICK, Pending, assert_holds, note, open_ledger


def stop_holding(path: str) -> int:
    """A child that takes a lock file and is stopped with it."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(told, b"x")
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.read(ready, 1)
    os.close(ready)
    os.close(told)
    os.waitid(os.P_PID, child, os.WSTOPPED)
    return child


def go_on(child: int) -> None:
    os.kill(child, signal.SIGCONT)
    os.waitpid(child, 0)


ACTS = {
    "append": lambda ledger: ledger.append([note("two")]),
    "open": lambda ledger: open_ledger(ledger.path, lock_timeout_s=QUICK),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_stopped_holder_of_the_append_lock_is_named(tmp_path, act):
    path = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(path, lock_timeout_s=QUICK)
    ledger.append([note("one")])
    child = stop_holding(os.path.join(tmp_path, "x.d", "lock"))

    try:
        with pytest.raises(LedgerBusyError, match=f"locked by process {child}; waited 0.05 s"):
            ACTS[act](ledger)
    finally:
        go_on(child)

    ledger.append([note("three")])
    assert_holds(path, ["one", "three"])


def test_a_stopped_holder_of_the_commit_lock_is_named_and_nothing_is_acknowledged(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(path, lock_timeout_s=QUICK)
    child = stop_holding(os.path.join(tmp_path, "x.d", "slock"))
    pending = Pending(ledger, [note("one")])

    try:
        with pytest.raises(LedgerBusyError, match=f"locked by process {child}"):
            pending.wait()
    finally:
        go_on(child)

    assert pending.wait() == pending.receipt
    assert_holds(path, ["one"])


def test_a_holder_that_is_killed_frees_its_lock(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(path, lock_timeout_s=QUICK)
    child = stop_holding(os.path.join(tmp_path, "x.d", "lock"))

    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    ledger.append([note("one")])
    assert_holds(path, ["one"])
