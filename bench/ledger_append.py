"""What an append costs: by one writer without a sync, and by eight with group commit.

    python bench/ledger_append.py [--folder DIR] [--rounds 5] [--seconds 1.0] [--slower-ms 5]
                                  [--beside 2]

The yardsticks of the second part are the same store with the sync inside the
lock, once with this store's own lock and once with the obvious one, a blocking
flock(2), in rounds that alternate with ours: machines and disks differ, so look
at the ratios. Each of them looks, before it acknowledges an entry, whether the file
that has it is the one at the ledger's path. `--slower-ms` adds so much to every
sync, as a slower disk would; `--beside` lets so many programs compute besides:
whoever waits by yielding to these waits for their time slices.
"""

import argparse
import fcntl
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis, VerifierKey
from paddock.ledger.read import Segment
from paddock.ledger.tail import Mark
from paddock.storage.disk import Disk
from paddock.values.entries import Entry

WRITERS = 8
ORIGIN = "paddock.bench/ledger"
GENESIS = Genesis(ORIGIN, "HO1", str(VerifierKey(ORIGIN, bytes(32))))
# As the runtime records a call (runtime/records.py).
INTENT = Entry(
    "TOOL_INTENT",
    decision="allow",
    session_id="SES-0123456789abcdef",
    agent="main",
    call_id="call-1",
    metadata={
        "tool": "view_file",
        "arguments": {"path": "src/app/main.py", "view_range": [1, 40]},
        "actions": ["tool:file:view src/app/main.py"],
        "outcome": "allow",
        "rule": {"text": "tool:file:view **", "file": "built-in", "line": 0},
        "source": "rule",
        "policy_digest": "sha256:" + "ab12" * 16,
        "agents": [{"name": "main", "profile": "standard"}],
    },
)
RESULT = Entry(
    "TOOL_RESULT",
    session_id="SES-0123456789abcdef",
    agent="main",
    call_id="call-1",
    metadata={
        "tool": "view_file",
        "status": "ok",
        "effects": [],
        "bytes_written": 0,
        "duration_us": 3000,
        "result_digest": "sha256:" + "ab12" * 16,
    },
)


class SlowerDisk(Disk):
    """A disk that takes longer to sync."""

    def __init__(self, slower_s: float) -> None:
        self._slower_s = slower_s

    def fdatasync(self, descriptor: int, /) -> None:
        os.fdatasync(descriptor)
        if self._slower_s:
            time.sleep(self._slower_s)


class SyncInsideLock(SlowerDisk):
    """Nobody else appends until the disk has the line."""

    def write(self, descriptor: int, data: bytes) -> int:
        """Write, then sync, while the append lock is held."""
        written = os.write(descriptor, data)
        self.fdatasync(descriptor)
        return written


class BlockingLock(SyncInsideLock):
    """The obvious way: also wait for the lock in the kernel, for as long as it takes."""

    def lock(self, descriptor: int, operation: int, /) -> None:
        """As flock(2), which sleeps until the lock is free."""
        fcntl.flock(descriptor, operation & ~fcntl.LOCK_NB)


class SyncedWhenWritten(LedgerFile):
    """The same store where a disk syncs inside the lock: there is nothing left to commit."""

    def commit(self, mark: Mark, segment: Segment) -> None:
        """See that the entries are in the file at the ledger's path."""
        self._live().verify_in_place(segment)


def open_ledger(path: str, disk: Disk | None = None) -> LedgerFile:
    kind = SyncedWhenWritten if isinstance(disk, SyncInsideLock) else LedgerFile
    return kind(path, create=GENESIS, clock=time.time, randomness=os.urandom, disk=disk)


def per_call_us(ledger: LedgerFile, entries: list[Entry], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        ledger.write(entries)
    return (time.perf_counter() - started) / calls * 1e6


def one_writer(folder: str, rounds: int) -> None:
    ledger = open_ledger(f"{folder}/one.jsonl")
    for name, entries in (("one entry", [INTENT]), ("two entries", [INTENT, RESULT])):
        found = [per_call_us(ledger, entries, 5_000) for _ in range(rounds)]
        print(
            f"write without sync, {name}: median {statistics.median(found):.1f} us, "
            f"best {min(found):.1f} us"
        )
    started = time.perf_counter()
    for _ in range(1_000):
        ledger.append([INTENT, RESULT])
    print(f"append, durable, two entries: {(time.perf_counter() - started) * 1e3:.0f} us")
    ledger.close()


def count_appends(ledger: LedgerFile, end: float) -> int:
    """Append until `end`, durably."""
    count = 0
    while time.monotonic() < end:
        ledger.append([INTENT])
        count += 1
    return count


def work(path: str, seconds: float, disk: SlowerDisk, told: int, go: int) -> None:
    """One writer: open, say so, wait for the others, append, report."""
    ledger = open_ledger(path, disk)
    os.write(told, b"r")
    os.read(go, 1)
    end = time.monotonic() + seconds
    os.write(told, f"{count_appends(ledger, end)}\n".encode())


def eight_writers(path: str, seconds: float, disk: SlowerDisk) -> list[int]:
    """Durable appends per writer, all of them at work for the same time."""
    told_read, told = os.pipe()
    go_read, go = os.pipe()
    children: list[int] = []
    for _ in range(WRITERS):
        child = os.fork()
        if child == 0:
            work(path, seconds, disk, told, go_read)
            os._exit(0)
        children.append(child)
    for _ in children:
        os.read(told_read, 1)
    os.write(go, b"g" * WRITERS)
    for child in children:
        os.waitpid(child, 0)
    counts = [int(line) for line in os.read(told_read, 4096).split()]
    for descriptor in (told_read, told, go_read, go):
        os.close(descriptor)
    return counts


INSIDE, BLOCKING, GROUP = "sync inside the lock", "sync inside a blocking lock", "group commit"
WAYS = {INSIDE: SyncInsideLock, BLOCKING: BlockingLock, GROUP: SlowerDisk}


def compare(folder: str, rounds: int, seconds: float, slower_s: float) -> None:
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    fairness: list[float] = []
    for number in range(rounds):
        for name, disk in WAYS.items():
            path = f"{folder}/{name}{number}.jsonl"
            open_ledger(path).close()
            counts = eight_writers(path, seconds, disk(slower_s))
            rates[name].append(sum(counts) / seconds)
            if name == GROUP:
                fairness.append(min(counts) / max(counts))
    for name, found in rates.items():
        print(
            f"eight writers, {name}: median {statistics.median(found):.0f} durable entries/s "
            f"[{min(found):.0f} to {max(found):.0f}]"
        )
    for name in (INSIDE, BLOCKING):
        pairs = zip(rates[GROUP], rates[name], strict=True)
        ratios = [ours / theirs for ours, theirs in pairs]
        print(
            f"{GROUP} to {name}: median {statistics.median(ratios):.1f} "
            f"[{min(ratios):.1f} to {max(ratios):.1f}]"
        )
    print(f"slowest to fastest writer: {statistics.median(fairness):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", default=None, help="a directory on the disk to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--slower-ms", type=float, default=0.0)
    parser.add_argument("--beside", type=int, default=0)
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="bench-ledger-", dir=arguments.folder)
    busy = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    computing = [subprocess.Popen(busy) for _ in range(arguments.beside)]
    try:
        one_writer(folder, arguments.rounds)
        compare(folder, arguments.rounds, arguments.seconds, arguments.slower_ms / 1e3)
    finally:
        for each in computing:
            each.kill()
            each.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
