"""Kill a writing process with SIGKILL at random moments, and look at what it left.

    python tests/fault/kill_writer.py --rounds 1000

Each round a child creates, overwrites, edits, moves and deletes without pause until it
is killed. Then the workspace is opened as the next user would, and everything in it is
looked at: each file must be whole, a file that was only ever replaced must be there,
and no temporary name may stand anywhere. Prints one JSON object; exit code 1 if a round
left anything wrong.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]

from paddock.workspace import Workspace
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import delete_entry, edit_file, move_entry, write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.children import kill_after, start
from tests.support.disks import DISKS, temporaries, tree

SIZES = (10, 5_000, 400_000)
LIFE_S = (0.0005, 0.02)


def sealed(body: bytes) -> bytes:
    """Content that shows by itself whether it is whole."""
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def is_whole(content: bytes) -> bool:
    seal, _, body = content.partition(b"\n")
    return seal == hashlib.sha256(body).hexdigest().encode()


class Longer:
    """An edit that keeps the seal right."""

    def apply(self, content: bytes) -> Pieces:
        body = content.partition(b"\n")[2]
        return (sealed(body[: len(body) // 2] + b"more" * 20),)


def write_for_ever(workspace: Workspace, seed: int) -> None:
    """One act after the other; some replace, some come and go."""
    chance = random.Random(seed)
    while True:
        turn = chance.randrange(1 << 30)
        body = chance.randbytes(16) * (chance.choice(SIZES) // 16 + 1)
        target = workspace.resolve_write
        write_file(workspace, target(f"a/b/always{turn % 2}"), sealed(body))
        edit_file(workspace, target("a/edited"), Longer())
        write_file(workspace, target("top"), sealed(body))
        fresh, moved = f"new{turn % 9}/deep/file{turn}", f"moved/file{turn}"
        write_file(workspace, target(fresh), sealed(body))
        move_entry(workspace, workspace.resolve_entry(fresh), target(moved))
        delete_entry(workspace, workspace.resolve_entry(moved))


class Rounds:
    """The rounds and what they came to."""

    ALWAYS = ("a/b/always0", "a/b/always1", "a/edited", "top")

    def __init__(self, root: str, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.left_before_open = 0
        self.wrong: list[str] = []
        with Workspace.open(root) as workspace:
            for name in self.ALWAYS:
                write_file(workspace, workspace.resolve_write(name), sealed(b"first"))

    def play(self, number: int) -> None:
        resolution = (Openat2Resolution, WalkResolution)[number % 2]()
        disk = tuple(DISKS.values())[number % len(DISKS)]()
        child = start(lambda _: write_for_ever(Workspace.open(self.root, resolution, disk), number))
        kill_after([child], self.chance.uniform(*LIFE_S))
        code, _ = child.end()
        if code != -signal.SIGKILL:
            self.wrong.append(f"round {number}: the writer ended by itself with {code}")
        self.left_before_open += len(temporaries(self.root))
        Workspace.open(self.root).close()
        self.look(number)

    def look(self, number: int) -> None:
        found = tree(self.root)
        missing = [name for name in self.ALWAYS if name not in found]
        broken = [n for n, what in found.items() if isinstance(what, bytes) and not is_whole(what)]
        stray = [name for name in found if ".paddock-" in name]
        if missing or broken or stray:
            self.wrong.append(f"round {number}: {missing=} {broken=} {stray=}")
        # What came and was not yet gone when the child died is whole, and not needed any more.
        for name in os.listdir(self.root):
            if name.startswith(("new", "moved")):
                shutil.rmtree(os.path.join(self.root, name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kill-writer-", dir=options.where) as root:
        rounds = Rounds(root, options.seed)
        for number in range(options.rounds):
            rounds.play(number)
    report = {
        "rounds": options.rounds,
        "temporaries_before_next_open": rounds.left_before_open,
        "wrong": rounds.wrong,
    }
    print(json.dumps(report))
    return 1 if rounds.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
