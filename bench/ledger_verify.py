"""What verifying a ledger costs, beside hashing each of its lines once.

    python bench/ledger_verify.py [--entries 1000000] [--rounds 3] [--folder DIR]

Both read the same files, in rounds that alternate, so look at the ratio. The whole
ledger is verified: links, tree, checkpoints. Must: 3. Also printed: what a proof costs.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from paddock.ledger.append import LedgerFile
from paddock.ledger.checkpoint import Checkpointer
from paddock.ledger.format.lines import Genesis
from paddock.ledger.signing import KeySigner, create_key
from paddock.ledger.tree import prove_inclusion
from paddock.ledger.verify import Held, verify
from paddock.values.entries import Entry

MUST = 3.0
BATCH = 1000
ORIGIN = "paddock.bench/ho1m"
CALLER = {"session_id": "SES-0123456789abcdef", "agent": "main"}


def call(number: int) -> list[Entry]:
    """What a call leaves: some 470 bytes an entry."""
    intent = Entry(
        "TOOL_INTENT",
        decision="allow",
        call_id=f"CALL-{number:016x}",
        metadata={
            "tool": "view_file",
            "arguments": {"path": "src/app/main.py", "view_range": [1, 40]},
            "actions": ["tool:file:view src/app/main.py"],
            "policy_digest": "sha256:" + "ab12" * 16,
        },
        **CALLER,
    )
    result = Entry(
        "TOOL_RESULT",
        decision="allow",
        call_id=f"CALL-{number:016x}",
        metadata={"status": "ok", "effects": [], "result_digest": "sha256:" + "ab12" * 16},
        **CALLER,
    )
    return [intent, result]


def make(folder: Path, entries: int) -> tuple[str, KeySigner]:
    key = folder / "ho1m.key"
    verifier = create_key(str(key), ORIGIN, os.urandom).verifier
    path = str(folder / "ho1m.jsonl")
    genesis = Genesis(ORIGIN, "HO1", str(verifier))
    ledger = LedgerFile(path, create=genesis, clock=time.time, randomness=os.urandom)
    written = 1
    while written < entries:
        batch = [each for number in range(BATCH // 2) for each in call(written + number)]
        _, *end = ledger.write(batch)
        written += len(batch)
    ledger.commit(*end)
    ledger.close()
    return path, KeySigner(key)


def hash_lines(path: str) -> int:
    """Each line hashed once: what no verification can do without."""
    count = 0
    for name in Path(path).parent.glob("ho1m*.jsonl"):
        with name.open("rb") as file:
            for line in file:
                sha256(b"\0" + line[:-1]).digest()
                count += 1
    return count


def seconds(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as directory:
        path, signer = make(Path(directory), options.entries)
        checkpointer = Checkpointer(path, lambda: signer)
        first = seconds(checkpointer.make)
        held = [Held("bench", checkpointer.make().note)]
        hashed: list[float] = []
        verified: list[float] = []
        for _ in range(options.rounds):
            hashed.append(seconds(lambda: hash_lines(path)))
            started = time.perf_counter()
            found = verify(path, held=held)
            verified.append(time.perf_counter() - started)
            assert found.is_whole
            assert found.covered_entries == found.entries
            assert found.entries == hash_lines(path)
        started = time.perf_counter()
        again = verify(path, held=held, since=found.memory)
        quick = time.perf_counter() - started
        signed = signer.last()
        assert signed is not None
        proofs = [
            seconds(lambda at=at: prove_inclusion(path, at, signed))
            for at in range(1, options.entries, options.entries // 50)
        ]
    ratio = statistics.median(a / b for a, b in zip(verified, hashed, strict=True))
    print(f"entries                 {found.entries:12,}")
    print(f"hashing each line       {statistics.median(hashed):12.2f} s")
    print(f"verifying the whole     {statistics.median(verified):12.2f} s")
    print(f"ratio                   {ratio:12.2f}    (must {MUST})")
    print(f"fast, {again.unread_entries:10,} unread {quick:12.2f} s")
    print(f"first tree, checkpoint  {first:12.2f} s")
    print(f"one proof               {statistics.median(proofs) * 1000:12.2f} ms")
    return 0 if ratio <= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
