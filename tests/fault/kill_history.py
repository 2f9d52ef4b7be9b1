"""Kill an agent's process with SIGKILL at random moments, and look for what it replaced.

    python tests/fault/kill_history.py --rounds 200

Each round a child creates, overwrites, edits and deletes one file through the one door,
without pause, until it is killed; each content has its number in it. Then every content
that ever stood in the file must stand there or in the history, the last call must be found,
and undoing it must bring back what it replaced. Prints one JSON object; exit code 1 if a
round left anything wrong.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.assembly.undo import open_past
from paddock.plane.environment import read_environment
from paddock.runtime.approvals import NoApprover
from tests.support.children import kill_after, start
from tests.support.disks import temporaries

SIZES = (10, 20_000, 600_000)
LIFE_S = (0.001, 0.04)


def content(number: int) -> str:
    """What the call with this number writes."""
    return f"{number}\n" + f"line of {number}\n" * (SIZES[number % len(SIZES)] // 16)


def version(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


class Rounds:
    """The rounds and what they came to."""

    def __init__(self, base: str, seed: int) -> None:
        self.root, self.home = Path(base, "project"), Path(base, "home")
        self.root.mkdir()
        self.home.mkdir()
        self.progress = Path(base, "progress")
        self.progress.write_text("0")
        self.file = self.root / "file"
        self.file.write_text(content(0))
        self.project = open_project(self.root, read_environment({"HOME": str(self.home)}))
        open_runtime(self.project, agent=None, approver=NoApprover()).close()
        self.objects = self.project.layout.objects
        self.chance = random.Random(seed)
        self.found_by_note = 0
        self.wrong: list[str] = []

    def write_for_ever(self) -> None:
        """One call after the other; its number is written down before it begins."""
        number = int(self.progress.read_text())
        runtime = open_runtime(self.project, agent=None, approver=NoApprover())
        fd = os.open(self.progress, os.O_WRONLY)
        while True:
            number += 1
            os.pwrite(fd, f"{number}".encode(), 0)
            if number % 5 == 0 and self.file.exists():
                runtime.call("delete_file", {"path": "file"})
            runtime.call("create_file", {"path": "file", "content": content(number)})

    def play(self, number: int) -> None:
        child = start(lambda _: self.write_for_ever())
        kill_after([child], self.chance.uniform(*LIFE_S))
        code, _ = child.end()
        if code != -signal.SIGKILL:
            self.wrong.append(f"round {number}: the writer ended by itself with {code}")
        self.look(number)

    def look(self, number: int) -> None:
        open_runtime(self.project, agent=None, approver=NoApprover()).close()
        present = self.file.read_text() if self.file.exists() else None
        with open_past(self.project) as past:
            lost = sorted(self.written(past) - self.whole(past, present))
            if lost or temporaries(self.root):
                self.wrong.append(f"round {number}: {lost=} {temporaries(self.root)=}")
            self.undo_last(number, past, present)

    @staticmethod
    def written(past) -> set[str]:
        """Every content that the ledger says stood in the file."""
        changes = [
            change for call in past.calls if call.outcome == "done" for change in call.changes
        ]
        return {v for change in changes for v in (change.before, change.after)} - {None}

    def whole(self, past, present: str | None) -> set[str]:
        """Every content that stands in the file or, read and checked, in the history."""
        past.history.store.recover()  # who only looks leaves what was held where it is
        names = [name for name in os.listdir(self.objects) if len(name) >= 64]
        found = {"sha256:" + name.removesuffix(".z") for name in names}
        for digest in found:
            past.history.store.verify(digest)
        return found if present is None else found | {version(present)}

    def undo_last(self, number: int, past, present: str | None) -> None:
        """The newest call that left what stands there: it can be undone, and that as well."""
        left = None if present is None else version(present)
        calls = [call for call in past.calls if call.changes[-1].after == left]
        if not calls:
            if present != content(0):
                self.wrong.append(f"round {number}: no call left what stands there")
            return
        last = calls[-1]
        self.found_by_note += last.outcome == "unknown"
        for wanted in (last.changes[0].before, left):
            result = past.undo(last).result
            now = version(self.file.read_text()) if self.file.exists() else None
            if result.refusal is not None or now != wanted:
                self.wrong.append(f"round {number}: {result.content} {now=} {wanted=}")
                return
            with open_past(self.project) as again:
                last = again.calls[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-history-", dir=options.where) as base:
        rounds = Rounds(base, options.seed)
        for number in range(options.rounds):
            rounds.play(number)
        calls = int(rounds.progress.read_text())
    report = {
        "rounds": options.rounds,
        "calls": calls,
        "found_by_note": rounds.found_by_note,
        "wrong": rounds.wrong,
    }
    print(json.dumps(report))
    return 1 if rounds.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
