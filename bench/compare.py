"""Paddock and its peers on the same hostile files and the same work.

    python bench/compare.py [--write docs/comparison.md] [--only WORD] [--skip-speed]

Peers are installed by name from their registries into the temporary directory, once;
one that cannot be installed is said. Each is a process that answers one line of JSON
with another, ours too, so that all pay the same for being asked; each case starts it
anew on files of its own, and looks at the disk, not at what it says. Nothing on the
page is typed by hand.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from page import describe_machine
from peers.cases import CASES, SECRET, Ground
from peers.party import Peer, Running, gather

INTRODUCTION = """\
# Comparison

Made by `python bench/compare.py --write docs/comparison.md`, which runs every case of
`bench/peers/cases.py` against every set of tools and looks at the disk afterwards.
`–`: not offered.
"""
SPEED = """\
## The same work

Milliseconds, medians of rounds in turns; beside them how many times Paddock's. Each answer
passes one pipe as a line of JSON. Paddock's figures include the decision, two ledger entries
that are durable before the answer, and for edits the keeping of what was replaced.
"""
ROUNDS = 9


@dataclass(frozen=True)
class Work:
    """One thing to time: what to prepare, and what to ask."""

    title: str
    op: str
    prepare: Callable[[Path], None]
    ask: Callable[[Running, int], object]


def fill(root: Path) -> None:
    """5,000 small files in 100 directories."""
    for folder in range(100):
        place = root / f"package{folder}"
        place.mkdir(parents=True)
        for number in range(50):
            body = "".join(f"value_{line} = {line * number}\n" for line in range(40))
            (place / f"module{number}.py").write_text(body)
    (root / "package7" / "setup.cfg").write_text("[needle]\n")


def lines(root: Path) -> None:
    with (root / "long.txt").open("w") as file:
        for number in range(1_000_000):
            file.write(f"line {number} of a long file\n")
    os.utime(root / "long.txt", (1_700_000_000, 1_700_000_000))


def text_of(size: int) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / "text.txt").write_text("counter 0\n" + "a line of text\n" * (size // 15))

    return write


def edit(tools: Running, number: int) -> object:
    old, new = f"counter {number}\n", f"counter {number + 1}\n"
    return tools.ask("edit", 60, path="text.txt", old=old, new=new)


WORK = (
    Work(
        "find one name among 5,000 files",
        "find",
        fill,
        lambda t, _: t.ask("find", 60, pattern="**/setup.cfg"),
    ),
    Work(
        "search 5,000 files for a rare word",
        "grep",
        fill,
        lambda t, _: t.ask("grep", 60, pattern="needle"),
    ),
    Work(
        "read 20 lines at line 900,000",
        "read",
        lines,
        lambda t, _: t.ask("read", 60, path="long.txt", first=900_000, count=20),
    ),
    Work("edit a file of 10 kB", "edit", text_of(10_000), edit),
    Work("edit a file of 1 MB", "edit", text_of(1_000_000), edit),
)


def on_ground(peer: Peer, act: Callable[[Ground], str]) -> str:
    """Run a case on files of its own."""
    with tempfile.TemporaryDirectory(prefix="paddock-compare-") as place:
        root, outside = Path(place, "root"), Path(place, "outside")
        root.mkdir()
        outside.mkdir()
        (outside / "secret.txt").write_text(SECRET)
        return act(Ground(peer, root, outside))


def table_of_cases(peers: list[Peer], word: str) -> str:
    rows = [
        "| | " + " | ".join(peer.name for peer in peers) + " |",
        "| --- |" + " --- |" * len(peers),
    ]
    for title, act in CASES.items():
        if word not in title:
            continue
        told = [on_ground(peer, act) for peer in peers]
        rows.append(f"| {title} | " + " | ".join(told) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows) + "\n"


def timed(work: Work, peers: list[Peer]) -> list[float | None]:
    """Medians in milliseconds, the peers taking turns; None where it is not offered or fails."""
    found: list[list[float]] = [[] for _ in peers]
    places = [Path(tempfile.mkdtemp(prefix="paddock-compare-")) for _ in peers]
    running = []
    try:
        for peer, place in zip(peers, places, strict=True):
            work.prepare(place)
            running.append(peer.start(place))
        for number in range(ROUNDS):
            for taken, tools in zip(found, running, strict=True):
                started = time.perf_counter()
                answer = work.ask(tools, number) if work.op not in tools.peer.lacks else None
                if answer is not None and answer.ok and number:
                    taken.append((time.perf_counter() - started) * 1e3)
    finally:
        for tools in running:
            tools.end()
        for place in places:
            shutil.rmtree(place)
    return [statistics.median(taken) if taken else None for taken in found]


def table_of_speed(peers: list[Peer]) -> str:
    rows = [
        "| | " + " | ".join(peer.name for peer in peers) + " |",
        "| --- |" + " ---: |" * len(peers),
    ]
    for work in WORK:
        medians = timed(work, peers)
        ours = medians[0]
        told = [
            "–"
            if found is None
            else f"{found:.1f}" + ("" if index == 0 else f" ({found / ours:.1f}x)")
            for index, found in enumerate(medians)
        ]
        rows.append(f"| {work.title} | " + " | ".join(told) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    return "\n".join(rows) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, default=None, help="where the page goes")
    parser.add_argument("--only", default="", help="cases whose title holds this")
    parser.add_argument("--skip-speed", action="store_true")
    arguments = parser.parse_args()
    peers, away = gather()
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in peers)
    pieces = [INTRODUCTION, f"{versions}. {describe_machine()}.\n"]
    pieces += [f"Not installed here: {who}.\n" for who in away]
    pieces += ["## The same hostile files\n", table_of_cases(peers, arguments.only)]
    if not arguments.skip_speed:
        pieces += [SPEED, table_of_speed(peers)]
    page = "\n".join(pieces)
    if arguments.write is None:
        print(page)
    else:
        arguments.write.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
