"""What a question to a ledger costs: from its index, and by reading the lines.

    python bench/ledger_query.py [--entries 1000 100000] [--folder DIR] [--rounds 20]

For each size a ledger is written in a temporary directory (half a gigabyte for each million
entries), asked, and removed. Machines differ, so look at the ratios: opening, and the ten
newest entries of a type, should cost the same whatever the ledger holds. At the sizes that
matter: --entries 1000 100000 10000000.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec import Struct

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis, VerifierKey
from paddock.ledger.query import Filter, LedgerSearch, query
from paddock.ledger.read import LedgerReader
from paddock.values.entries import Entry

ORIGIN = "paddock.bench/ledger"
GENESIS = Genesis(ORIGIN, "HO1", str(VerifierKey(ORIGIN, bytes(32))))
BATCH = 1_000
RARE_EVERY = 100
CALLS_PER_SESSION = 5_000
INTENT = {
    "tool": "view_file",
    "arguments": {"path": "src/app/main.py", "view_range": [1, 40]},
    "outcome": "allow",
    "rule": {"text": "tool:file:view **", "file": "built-in", "line": 0},
}
RESULT = {"status": "ok", "effects": [], "bytes": 1200, "digest": "sha256:" + "ab12" * 16}


class Question(Struct, frozen=True, dict=True):
    """What is asked, and how many of the newest."""

    name: str
    wanted: Filter
    last: int | None = 10


QUESTIONS = (
    Question("ten newest, every second entry", Filter("TOOL_INTENT")),
    Question("ten newest, one in a hundred", Filter("TOOL_DENIED")),
    Question("a type that there is not", Filter("NEVER")),
    Question("all of the first call", Filter(call_id="call-1"), None),
    Question("ten newest, first session", Filter(session_id="SES-0")),
    Question("ten newest, type and session", Filter("TOOL_DENIED", session_id="SES-0")),
)


def make_entry(number: int) -> Entry:
    """Intents and results in turn, and now and then a denial."""
    call = number // 2
    kind, metadata = ("TOOL_RESULT", RESULT) if number % 2 else ("TOOL_INTENT", INTENT)
    if number % RARE_EVERY == 0:
        kind = "TOOL_DENIED"
    return Entry(
        kind,
        decision="allow",
        session_id=f"SES-{call // CALLS_PER_SESSION}",
        agent="main",
        call_id=f"call-{call}",
        metadata=metadata,
    )


def open_ledger(path: str) -> LedgerFile:
    return LedgerFile(path, create=GENESIS, clock=time.time, randomness=os.urandom)


def write_ledger(path: str, entries: int) -> float:
    started = time.perf_counter()
    ledger = open_ledger(path)
    for first in range(0, entries, BATCH):
        numbers = range(first, min(first + BATCH, entries))
        _, *end = ledger.write([make_entry(number) for number in numbers])
    ledger.commit(*end)
    ledger.close()
    return time.perf_counter() - started


def median_ms(act: Callable[[], object], rounds: int) -> float:
    found: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        act()
        found.append(time.perf_counter() - started)
    return statistics.median(found) * 1e3


def read_lines(path: str, needle: bytes) -> float:
    """How long it takes to look at every line, as a search without an index does."""
    started = time.perf_counter()
    with LedgerReader(path) as reader:
        for _, line in reader.lines_backwards(reader.whole_bytes(reader.size())):
            if needle in line:
                raise SystemExit("a type that there is not")
    return (time.perf_counter() - started) * 1e3


def index_all(path: str) -> tuple[int, float]:
    """Ask until everything is indexed: how often, and for how long in all."""
    started = time.perf_counter()
    asked, before = 0, -1
    index = Path(path).with_suffix(".d") / "index.sqlite"
    while (found := index.stat().st_size if index.exists() else 0) != before:
        before = found
        query(path, Filter("NEVER"))
        asked += 1
    return asked, time.perf_counter() - started


def measure(folder: str, entries: int, rounds: int) -> dict[str, float]:
    """One ledger of so many entries: milliseconds by what was done."""
    path = f"{folder}/x.jsonl"
    wrote_s = write_ledger(path, entries)
    size = sum(each.stat().st_size for each in Path(folder).glob("x*.jsonl"))
    files = len(list(Path(folder).glob("x*.jsonl")))
    print(
        f"\n{entries:,} entries, {size / 1e6:,.0f} MB in {files} files, written in {wrote_s:.1f} s"
    )
    found = {"open to append": median_ms(lambda: open_ledger(path).close(), rounds)}
    by_lines = read_lines(path, b'"event_type":"NEVER"')
    asked, indexed_s = index_all(path)
    indexed = sum(each.stat().st_size for each in Path(folder).glob("x.d/index.sqlite"))
    print(
        f"indexed on the way of {asked} questions: {indexed_s:.2f} s, "
        f"{indexed_s / entries * 1e6:.2f} us an entry, {indexed / entries:.1f} bytes an entry"
    )
    found["open to ask"] = median_ms(lambda: LedgerSearch(path).close(), rounds)
    with closing(LedgerSearch(path)) as search:
        for question in QUESTIONS:
            wanted, last = question.wanted, question.last
            search.query(wanted, last=last)
            found[question.name] = median_ms(lambda: search.query(wanted, last=last), rounds)  # noqa: B023 - called in this turn
    found["open, ten newest, close"] = median_ms(
        lambda: query(path, Filter("TOOL_DENIED"), last=10), rounds
    )
    for name, took in found.items():
        print(f"  {name:<34} {took:9.3f} ms")
    absent = found["a type that there is not"]
    print(
        f"  {'reading every line':<34} {by_lines:9.1f} ms: {by_lines / absent:,.0f} times as long"
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--folder", default=None, help="a directory on the disk to measure")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    results: dict[int, dict[str, float]] = {}
    for entries in arguments.entries:
        folder = tempfile.mkdtemp(prefix="bench-ledger-", dir=arguments.folder)
        try:
            results[entries] = measure(folder, entries, arguments.rounds)
        finally:
            shutil.rmtree(folder)
    smallest, largest = min(results), max(results)
    if smallest != largest:
        print(f"\n{largest:,} entries to {smallest:,}:")
        for name, took in results[largest].items():
            print(f"  {name:<34} {took / results[smallest][name]:9.2f} times")


if __name__ == "__main__":
    main()
