"""Kill writers that checkpoint as they append, and look whether ledger and checkpoints agree.

    python tests/fault/kill_checkpoints.py --rounds 200

Each round forks the writers, lets them append for a moment with a checkpoint every few
entries, carried to an anchor, and kills them one after the other. Then the ledger is
verified against what its signer remembers and what the anchor holds, by the package's
verifier and by the independent one, and the next checkpoint has to be signed. Prints one
JSON object; exit code 1 if anything does not agree.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.ledger.anchors import DirectoryAnchor
from paddock.ledger.append import LedgerFile
from paddock.ledger.checkpoint import AutoCheckpoint, Pace
from paddock.ledger.verify import Held, verify
from tests.support.children import kill_after, start
from tests.support.ledgers import note
from tests.support.sealed import Sealed, load_verifier, seal_ledger

WRITERS = 4
LIFE_S = (0.02, 0.15)
SEGMENT_BYTES = 60_000


class Carried:
    """To an anchor, as the highest ledger's are."""

    def __init__(self, anchor: DirectoryAnchor) -> None:
        self.take = anchor.store


def open_kept(sealed: Sealed, anchor: DirectoryAnchor) -> LedgerFile:
    ledger = LedgerFile(
        sealed.path,
        create=None,
        clock=time.time,
        randomness=os.urandom,
        segment_bytes=SEGMENT_BYTES,
    )
    keeper = AutoCheckpoint(
        sealed.checkpointer, Carried(anchor), time.monotonic, Pace(8, 0.01), time.time
    )
    ledger.keeper = keeper
    return ledger


def write_for_ever(sealed: Sealed, anchor: DirectoryAnchor) -> NoReturn:
    ledger = open_kept(sealed, anchor)
    while True:
        ledger.append([note("x", random.choice((10, 300, 5_000)))])


def run_round(sealed: Sealed, anchor: DirectoryAnchor) -> None:
    children = [start(lambda _: write_for_ever(sealed, anchor)) for _ in range(WRITERS)]
    for child in children:
        kill_after([child], random.uniform(*LIFE_S))
        child.end_killed()


def disagreements(sealed: Sealed, anchor: DirectoryAnchor) -> list[str]:
    """What is not as it has to be, now that the next process opens the ledger."""
    ledger = open_kept(sealed, anchor)
    last = sealed.signer.last()
    kept = [] if last is None else [last.note]
    held = [Held("kept", each) for each in [*kept, *anchor.read()]]
    found = [each.detail for each in verify(sealed.path, held=held).problems]
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for number, each in enumerate(held):
            files.append(f"{directory}/{number}")
            Path(files[-1]).write_text(each.note, encoding="utf-8")
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            out, sys.stdout = sys.stdout, nowhere
            try:
                found += [what for _, what in load_verifier().verify_ledger(sealed.path, files)[0]]
            finally:
                sys.stdout = out
    signed = ledger.seal().checkpoint
    if last is not None and signed.size < last.checkpoint.size:
        found.append("the next checkpoint covers less")
    ledger.close()
    return found


def run(rounds: int, folder: Path) -> dict[str, object]:
    sealed = seal_ledger(folder, 1)
    anchor = DirectoryAnchor(folder / "anchor")
    found: list[str] = []
    for _ in range(rounds):
        run_round(sealed, anchor)
        found += disagreements(sealed, anchor)
    report = verify(sealed.path)
    last = sealed.signer.last()
    return {
        "rounds": rounds,
        "entries": report.entries,
        "signed": None if last is None else last.checkpoint.size,
        "problems": len(report.problems),
        "disagreements": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        result = run(options.rounds, Path(directory))
    print(json.dumps(result))
    return 1 if result["disagreements"] or result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
