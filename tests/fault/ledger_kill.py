"""Kill eight appending processes with SIGKILL at random moments, and look at the ledger.

    python tests/fault/ledger_kill.py --rounds 200

Each round forks the writers, lets them append lines of mixed sizes for a moment,
and kills them one after the other. With `--segment-bytes` the ledger goes on in a new file
every so many bytes, so that writers are killed in the middle of that too. A writer notes an entry's id in a file of
its own as soon as, and only if, `append` has returned. At the end of every
chapter of rounds the ledger is opened as the next process would, verified as a
whole, and compared with the notes. Prints one JSON object; exit code 1 if
anything acknowledged is missing or anything does not verify.
"""

import argparse
import glob
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import asdict

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock import limits
from paddock.errors import LedgerBusyError
from paddock.ledger.format.lines import parse_line
from paddock.ledger.verify import verify
from tests.support.ledgers import note, open_ledger

WRITERS = 8
LIFE_S = (0.01, 0.12)
ROUNDS_PER_CHAPTER = 10
SIZES = {"small": (250,), "mixed": (250, 250, 250, 250, 5_000, 40_000, 300_000, 1_000_000)}


class Totals(Struct, dict=True):
    """What was seen over all chapters."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    entries: int = 0
    bad_lines: int = 0
    torn_tails: int = 0
    torn_bytes: int = 0
    unreported_tails: int = 0
    busy: int = 0
    segments: int = 0


class Kind(Struct, frozen=True, dict=True):
    """What the writers write."""

    sizes: tuple[int, ...]
    segment_bytes: int


def append_for_ever(path: str, notes: str, seed: int, kind: Kind) -> NoReturn:
    """Append, note the id, append again; the end comes from outside."""
    chance = random.Random(seed)
    acknowledged = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        ledger = open_ledger(path, segment_bytes=kind.segment_bytes)
        while True:
            count = chance.choice((1, 1, 1, 2, 5))
            receipt = ledger.append([note("kill", chance.choice(kind.sizes)) for _ in range(count)])
            os.write(acknowledged, "".join(f"{entry}\n" for entry in receipt.ids).encode())
    except LedgerBusyError:
        os._exit(3)
    finally:
        os._exit(4)


def run_round(path: str, folder: str, chance: random.Random, kind: Kind) -> int:
    """One generation of writers; how many gave up on a busy ledger."""
    children = []
    for _ in range(WRITERS):
        seed = chance.getrandbits(60)
        child = os.fork()
        if child == 0:
            append_for_ever(path, os.path.join(folder, f"notes.{seed}"), seed, kind)
        children.append(child)
    time.sleep(chance.uniform(*LIFE_S))
    busy = 0
    chance.shuffle(children)
    for child in children:
        os.kill(child, signal.SIGKILL)
        time.sleep(chance.uniform(0, 0.002))
    for child in children:
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            if code != 3:
                raise SystemExit(f"a writer failed with code {code}")
            busy += 1
    return busy


def read_notes(folder: str) -> list[str]:
    """Every acknowledged id. A note that was cut by the kill counts as none."""
    found = []
    for file in Path(folder).glob("notes.*"):
        lines = file.read_text(encoding="ascii").split("\n")
        found += lines[:-1]
    return found


def run_chapter(folder: str, rounds: int, chance: random.Random, kind: Kind) -> Totals:
    """Some generations on one ledger, then a look at all of it."""
    path = os.path.join(folder, "x.jsonl")
    open_ledger(path).close()
    totals = Totals(rounds=rounds)
    for _ in range(rounds):
        totals.busy += run_round(path, folder, chance, kind)
    ledger = open_ledger(path, create=None)
    ledger.append([note("after")])
    ledger.close()
    found = verify(path)
    torn = os.path.join(folder, "x.d", "torn")
    stored = []
    parts = sorted(glob.glob(os.path.join(folder, "x.*jsonl")))
    for part in parts:
        with open(part, "rb") as file:
            stored += [parse_line(line.removesuffix(b"\n")) for line in file]
    there = {each.id for each in stored}
    reported = {
        os.path.basename(each.entry.metadata["file"])
        for each in stored
        if each.entry.event_type == "LEDGER_RECOVERED"
    }
    tails = {name for name in os.listdir(torn) if name != "draft"} if os.path.isdir(torn) else set()
    acknowledged = read_notes(folder)
    totals.acknowledged = len(acknowledged)
    totals.lost = sum(entry not in there for entry in acknowledged)
    totals.entries = found.entries
    totals.bad_lines = len(found.problems) + found.problems_omitted + bool(found.torn_bytes)
    totals.torn_tails = len(tails)
    totals.torn_bytes = sum(os.path.getsize(os.path.join(torn, name)) for name in tails)
    totals.segments = len(parts)
    totals.bad_lines += [each.seq for each in stored] != list(range(len(stored)))
    totals.unreported_tails = len(tails - reported)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--sizes", choices=SIZES, default="mixed")
    parser.add_argument("--segment-bytes", type=int, default=limits.ledger_segment_bytes)
    parser.add_argument("--folder", default=None, help="where the ledgers are made")
    arguments = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if arguments.seed is None else arguments.seed
    chance = random.Random(seed)
    totals = Totals()
    kind = Kind(SIZES[arguments.sizes], arguments.segment_bytes)
    left = arguments.rounds
    while left > 0:
        folder = tempfile.mkdtemp(prefix="ledger-kill-", dir=arguments.folder)
        chapter = run_chapter(folder, min(left, ROUNDS_PER_CHAPTER), chance, kind)
        left -= chapter.rounds
        for name, value in asdict(chapter).items():
            setattr(totals, name, getattr(totals, name) + value)
        if chapter.lost or chapter.bad_lines or chapter.unreported_tails:
            print(f"kept for a look: {folder}", file=sys.stderr)
            break
        shutil.rmtree(folder)
    print(json.dumps({"seed": seed, "sizes": arguments.sizes, **asdict(totals)}))
    return 1 if totals.lost or totals.bad_lines or totals.unreported_tails else 0


if __name__ == "__main__":
    sys.exit(main())
