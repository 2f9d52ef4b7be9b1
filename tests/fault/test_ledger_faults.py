"""Every system call of the ledger fails in every way: nothing acknowledged is lost.

The calls are not listed here but recorded from a run without faults, so that a
call that is added later is failed too.
"""

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Callable

import pytest

from paddock.errors import HostError, LedgerFullError, PaddockError
from paddock.ledger.append import LedgerFile
from paddock.testing.faulty_disk import Fault, FaultyDisk, How, SimulatedCrash
from tests.support.ledgers import QUICK, Pending, assert_holds, is_poisoned, note, open_ledger

OTHER_BOOT = b"another machine!"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where a sync costs nothing: the faults are ours, not the disk's."""

CRASHES = [Fault(0, how) for how in How]
ERRORS = [
    Fault(0, How.BEFORE, errno.EIO),
    Fault(0, How.AFTER, errno.EIO),
    Fault(0, How.HALF, errno.ENOSPC),
    Fault(0, How.BEFORE, errno.EINTR),
    Fault(0, How.HALF, is_silent=True),
]


def name(fault: Fault) -> str:
    error = errno.errorcode[fault.error] if fault.error else "crash"
    return f"{fault.how}-{'silent' if fault.is_silent else error}"


def at(fault: Fault, call: int) -> Fault:
    return Fault(call, fault.how, fault.error, fault.is_silent)


class Scene:
    """A ledger with two acknowledged notes, and what is done to it under faults."""

    def __init__(self, folder: str, act: Callable[["Scene", FaultyDisk], None]) -> None:
        self.template = os.path.join(folder, "template")
        self.folder = os.path.join(folder, "scene")
        self.path = os.path.join(self.folder, "x.jsonl")
        self._act = act
        self.acknowledged: list[str] = []
        os.makedirs(self.template)

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.template, self.folder)
        self.acknowledged = ["one", "two"] if os.path.exists(self.path) else []

    def count_calls(self) -> int:
        self.reset()
        disk = FaultyDisk()
        self._act(self, disk)
        disk.bury()
        assert_holds(self.path, self.acknowledged)
        return len(disk.calls)

    def run(self, fault: Fault) -> FaultyDisk:
        """Act with one fault; whatever comes out is ours, or the simulated end."""
        self.reset()
        disk = FaultyDisk(fault)
        try:
            self._act(self, disk)
        except PaddockError as error:
            assert error.message
        except SimulatedCrash:
            assert fault.error is None
        disk.bury()
        return disk


def fill(path: str) -> None:
    ledger = open_ledger(path)
    ledger.append([note("one")])
    ledger.append([note("two", 3000)])
    ledger.close()


def tear(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b'{"id":"LED-0123' + bytes(5000))


def act_append(scene: Scene, disk: FaultyDisk) -> None:
    ledger = open_ledger(scene.path, disk=disk, lock_timeout_s=QUICK)
    try:
        ledger.append([note("three"), note("four", 9000)])
        scene.acknowledged += ["three", "four"]
        ledger.append([note("five")])
        scene.acknowledged.append("five")
    finally:
        ledger.close()


def act_two_phase(scene: Scene, disk: FaultyDisk) -> None:
    ledger = open_ledger(scene.path, disk=disk, lock_timeout_s=QUICK)
    try:
        with_space = ledger.reserve(4000)
        ledger.write([note("three")])
        pending = Pending(ledger, [note("four")], reservation=with_space)
        pending.wait()
        scene.acknowledged += ["three", "four"]
    finally:
        ledger.close()


def act_go_on(scene: Scene, disk: FaultyDisk) -> None:
    """The process goes on after an error, as a server does."""
    ledger = open_ledger(scene.path, disk=disk, lock_timeout_s=QUICK)
    for text in ("three", "four", "five"):
        try:
            ledger.append([note(text, 5000)])
        except PaddockError:
            continue
        scene.acknowledged.append(text)
    ledger.close()


def act_rotate(scene: Scene, disk: FaultyDisk) -> None:
    """As `act_go_on`, each entry in a file of its own."""
    ledger = open_ledger(scene.path, disk=disk, lock_timeout_s=QUICK, segment_bytes=4000)
    for text in ("three", "four", "five"):
        try:
            ledger.append([note(text, 3500)])
        except PaddockError:
            continue
        scene.acknowledged.append(text)
    ledger.close()


ACTS = {"append": act_append, "two_phase": act_two_phase, "go_on": act_go_on, "rotate": act_rotate}
STARTS: dict[str, list[Callable[[str], None]]] = {
    "new": [],
    "whole": [fill],
    "torn": [fill, tear],
}


def case(part: object) -> str:
    return name(part) if isinstance(part, Fault) else str(part)


CASES = [(act, fault) for act in ACTS for fault in CRASHES] + [
    # A process that goes on after an error does all that one does that gives up.
    (act, fault)
    for act in ("two_phase", "go_on", "rotate")
    for fault in ERRORS
]


@pytest.mark.parametrize(("act", "fault"), CASES, ids=case)
@pytest.mark.parametrize("start", STARTS)
def test_no_acknowledged_entry_is_lost_whichever_call_fails(act, start, fault):
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        fail_each_call(Scene(folder, ACTS[act]), start, fault)


def fail_each_call(scene: Scene, start: str, fault: Fault) -> None:
    for prepare in STARTS[start]:
        prepare(os.path.join(scene.template, "x.jsonl"))

    for call in range(scene.count_calls()):
        disk = scene.run(at(fault, call))
        where = f"call {call}, {disk.calls[call] if call < len(disk.calls) else '-'}"

        ledger = reopen(scene, disk)
        ledger.append([note("after")])
        ledger.close()
        found = assert_holds(scene.path, [*scene.acknowledged, "after"])
        assert found.torn_bytes == 0, where
        if start == "torn":
            assert_quarantined(scene)


def reopen(scene: Scene, disk: FaultyDisk) -> LedgerFile:
    """As the next process does; where the disk failed a sync, as after the next boot."""
    create = None if scene.acknowledged or os.path.exists(scene.path) else ...
    ledger = open_again(scene.path, None, is_new=create is ...)
    if is_poisoned(scene.path):
        assert any(call == "fdatasync" for call in disk.calls)
        with pytest.raises(HostError, match="the disk failed"):
            ledger.append([note("refused")])
        ledger.close()
        ledger = open_again(scene.path, OTHER_BOOT, is_new=False)
        assert not is_poisoned(scene.path, OTHER_BOOT)
    return ledger


def open_again(path: str, boot: bytes | None, *, is_new: bool) -> LedgerFile:
    disk = FaultyDisk(boot=boot)
    return open_ledger(path, disk=disk) if is_new else open_ledger(path, create=None, disk=disk)


def assert_quarantined(scene: Scene) -> None:
    """The torn bytes are aside, whole, and an entry says so."""
    torn = os.path.join(scene.folder, "x.d", "torn")
    pieces = {name: os.path.getsize(os.path.join(torn, name)) for name in os.listdir(torn)}
    assert 5015 in {size for name, size in pieces.items() if not name.endswith(".pending")}
    assert not any(name.endswith(".pending") for name in pieces)
    text = ""
    for part in glob.glob(os.path.join(scene.folder, "x.*jsonl")):
        with open(part, encoding="utf-8") as file:
            text += file.read()
    for name in pieces:
        if name != "draft":
            assert name in text


@pytest.mark.parametrize("error", [errno.EIO, errno.EINTR, errno.ENOSPC])
@pytest.mark.parametrize("how", [How.BEFORE, How.AFTER])
def test_a_failed_sync_is_never_tried_again(tmp_path, error, how):
    path = os.path.join(tmp_path, "x.jsonl")
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk)
    other = open_ledger(path)
    ledger.append([note("one")])
    disk.fault = Fault("fdatasync", how, error)

    with pytest.raises(HostError, match="the disk failed"):
        ledger.append([note("two")])
    syncs = disk.calls.count("fdatasync")
    for each in (ledger, other):
        with pytest.raises(HostError, match="the disk failed"):
            each.append([note("three")])

    assert disk.calls.count("fdatasync") == syncs
    assert is_poisoned(path)
    ledger.close()
    other.close()
    assert_holds(path, ["one"])


def test_a_waiting_entry_is_not_acknowledged_by_a_sync_that_failed_elsewhere(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    disk = FaultyDisk()
    failing, waiting = open_ledger(path, disk=disk), open_ledger(path)
    pending = Pending(waiting, [note("one")])
    failing.append([note("two")])
    pending.wait()
    pending = Pending(waiting, [note("three")])
    disk.fault = Fault("fdatasync", How.BEFORE, errno.EIO)
    with pytest.raises(HostError):
        failing.append([note("four")])

    with pytest.raises(HostError, match="the disk failed"):
        pending.wait()

    failing.close()
    waiting.close()


def test_a_full_disk_is_said_so_and_takes_nothing_back(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk)
    ledger.append([note("one")])
    before = os.path.getsize(path)
    disk.fault = Fault("write", How.HALF, errno.ENOSPC)

    with pytest.raises(LedgerFullError, match="no space"):
        ledger.append([note("three")])

    assert os.path.getsize(path) == before
    ledger.append([note("four")])
    ledger.close()
    assert_holds(path, ["one", "four"])
    assert not os.path.exists(os.path.join(tmp_path, "x.d", "torn"))


def test_reserved_space_is_used_where_the_disk_is_full(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk)
    reservation = ledger.reserve(4000)
    ledger.append([note("intent")])
    disk.calls.clear()
    disk.fault = Fault("write", How.HALF, errno.ENOSPC)

    ledger.append([note("result", 3000)], reservation=reservation)

    assert disk.calls.count("write") == 2
    ledger.close()
    assert_holds(path, ["result"])


def test_space_that_is_not_there_cannot_be_reserved(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk)
    ledger.reserve(100).release()
    disk.fault = Fault("allocate", How.BEFORE, errno.ENOSPC)

    with pytest.raises(LedgerFullError):
        ledger.reserve(1_000_000)

    ledger.append([note("one")])
    ledger.close()
    assert_holds(path, ["one"])
