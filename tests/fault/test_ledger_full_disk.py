"""No space left, for real: what was acknowledged stays, and with space again appending goes on."""

import contextlib
import os
import resource

import pytest

from paddock.errors import LedgerFullError
from tests.support.disks import mounted_tmpfs
from tests.support.ledgers import assert_holds, note, open_ledger

DISK_BYTES = 2_000_000


def fill(path: str, ledger, size: int) -> list[str]:
    """Append until there is no more space; the acknowledged notes."""
    acknowledged = []
    try:
        for number in range(10_000):
            ledger.append([note(f"{size} {number}", size)])
            acknowledged.append(f"{size} {number}")
    except LedgerFullError as full:
        assert "no space" in full.message
        return acknowledged
    raise AssertionError("the disk never became full")


def eat_all_space(path: str) -> None:
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    with mounted_tmpfs(place, f"size={DISK_BYTES}"):
        yield os.fspath(place)


@pytest.mark.needs("root")
@pytest.mark.parametrize("size", [300, 40_000, 700_000])
def test_a_full_disk_takes_nothing_that_was_acknowledged(small_disk, size):
    path = os.path.join(small_disk, "x.jsonl")
    other = os.path.join(small_disk, "other")
    with open(other, "wb") as file:
        file.write(bytes(300_000))
    ledger = open_ledger(path)
    acknowledged = fill(path, ledger, size)
    before = os.path.getsize(path)
    acknowledged += fill(path, ledger, 50)
    assert_holds(path, acknowledged)
    assert os.path.getsize(path) >= before

    os.unlink(other)

    ledger.append([note("after", size // 4)])
    ledger.close()
    assert_holds(path, [*acknowledged, "after"])
    with contextlib.closing(open_ledger(path)) as again:
        again.append([note("later")])
    assert_holds(path, [*acknowledged, "after", "later"])


@pytest.mark.needs("root")
def test_space_that_was_reserved_is_there_when_the_disk_is_full(small_disk):
    path = os.path.join(small_disk, "x.jsonl")
    ledger = open_ledger(path)
    reservation = ledger.reserve(60_000)
    acknowledged = fill(path, ledger, 3000)
    with pytest.raises(LedgerFullError):
        ledger.append([note("refused", 50_000)])

    ledger.append([note("result", 50_000)], reservation=reservation)

    assert_holds(path, [*acknowledged, "result"])
    with pytest.raises(LedgerFullError):
        ledger.reserve(500_000)
    ledger.close()


@pytest.mark.needs("root")
def test_a_ledger_cannot_be_made_on_a_full_disk_and_can_when_there_is_space(small_disk):
    path = os.path.join(small_disk, "x.jsonl")
    other = os.path.join(small_disk, "other")
    eat_all_space(other)

    with pytest.raises(LedgerFullError):
        open_ledger(path)

    os.unlink(other)
    with contextlib.closing(open_ledger(path)) as ledger:
        ledger.append([note("one")])
    assert_holds(path, ["one"])


def test_a_file_size_limit_takes_nothing_that_was_acknowledged(tmp_path):
    path = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        acknowledged = fill(path, ledger, 3000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    ledger.append([note("after")])
    assert len(acknowledged) > 5
    assert_holds(path, [*acknowledged, "after"])
