"""Paddock and its peers on the same hostile files and commands, and the same work.

    python bench/compare.py [--write docs/comparison.md] [--only WORD] [--skip-speed]
    python bench/compare.py --speed     # that table alone, as docs/performance.md has it

Peers are installed by name from their registries into the temporary directory, once;
one that cannot be installed is said. Each is a process that answers one line of JSON
with another, ours too, so that all pay the same for being asked; each case starts it
anew on files of its own, and looks at the disk, not at what it says. Nothing on the
page is typed by hand.
"""

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import describe_machine
from msgspec import Struct
from peers.cases import CASES, SECRET, Ground
from peers.commands import HONEST, HOSTILE, Fence, Yard
from peers.fences import gather as gather_fences
from peers.party import Peer, bare_commands, gather

INTRODUCTION = """\
# Comparison

Made by `python bench/compare.py --write docs/comparison.md`. It runs every case of
`bench/peers/cases.py` with every set of tools, and every case of `bench/peers/commands.py` in
every command sandbox, and then inspects the disk. `–`: not offered.
"""
WORSE = """\
Cases below that Paddock fails and another product passes, and times where another is faster.
"""
COMMANDS = """\
Each sandbox is set up as its own documentation shows first: Paddock's `run_shell` with no policy
file; the npm sandbox runtime, on which Claude Code's sandbox is built, with the settings of its
page; `codex sandbox` in workspace mode; bubblewrap with a readable system and a writable
workspace; a Docker container for each command, with the workspace mounted (as Inspect's Docker
sandbox and most agent containers do it); and the shells of frameworks, which confine nothing and
say so. OpenShell was not tested.
"""
SPEED = """\
Median times in milliseconds over alternating rounds, and in brackets the ratio to Paddock's. Each
answer passes through one pipe as a line of JSON. Paddock's figures include the decision, two ledger
entries that are durable before the answer, and for edits a copy of the replaced content. The last
column is not a set of tools: ripgrep, sed, ls, and a file written in place. `–`: not offered, or
the answer did not contain what was asked for.
"""
QUICKEST = "Paddock's time divided by the time of the fastest other set of tools:\n"
ROUNDS = 9


class Work(Struct, frozen=True, dict=True):
    """One thing to time: what to prepare, and what to ask."""

    title: str
    op: str
    prepare: Callable[[Path], None]
    given: Callable[[int], dict[str, object]]
    """The arguments of the round with this number."""
    holds: str = ""
    """What an answer has to contain to be counted."""


def fill(root: Path) -> None:
    """5,000 small files in 100 directories."""
    for folder in range(100):
        place = root / f"package{folder}"
        place.mkdir(parents=True)
        for number in range(50):
            body = "".join(f"value_{line} = {line * number}\n" for line in range(40))
            (place / f"module{number}.py").write_text(body)
    (root / "package7" / "setup.cfg").write_text("[needle]\n")


def entries(root: Path) -> None:
    (root / "folder").mkdir()
    for number in range(1_000):
        (root / "folder" / f"entry{number}.txt").touch()


def lines(root: Path) -> None:
    with (root / "long.txt").open("w") as file:
        for number in range(1_000_000):
            file.write(f"line {number} of a long file\n")
    os.utime(root / "long.txt", (1_700_000_000, 1_700_000_000))


def text_of(size: int) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / "text.txt").write_text("counter 0\n" + "a line of text\n" * (size // 15))

    return write


def edit(number: int) -> dict[str, object]:
    return {"path": "text.txt", "old": f"counter {number}\n", "new": f"counter {number + 1}\n"}


def same(**given: object) -> Callable[[int], dict[str, object]]:
    return lambda _: given


NAME, WORD = same(pattern="**/setup.cfg"), same(pattern="needle")
DEEP = same(path="long.txt", first=900_000, count=20)
WORK = (
    Work("find one name among 5,000 files", "find", fill, NAME, "setup.cfg"),
    Work("search 5,000 files for a rare word", "grep", fill, WORD, "needle"),
    Work("list a directory of 1,000 files", "ls", entries, same(path="folder"), "entry999.txt"),
    Work("read 20 lines at line 900,000", "read", lines, DEEP, "line 900010 of"),
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


def in_yard(fence: Fence, act: Callable[[Fence, Yard], str]) -> str:
    """Run a command's case in a yard of its own; not where every fence lets everybody write."""
    with tempfile.TemporaryDirectory(prefix="paddock-compare-", dir="/var/tmp") as place:
        yard = Yard(Path(place))
        yard.make()
        return act(fence, yard)


class Table(Struct, frozen=True, dict=True):
    """Cases, and how well each of those compared did."""

    names: list[str]
    rows: list[tuple[str, list[str]]]

    def __str__(self) -> str:
        head = ["| | " + " | ".join(self.names) + " |", "| --- |" + " --- |" * len(self.names)]
        return "\n".join([*head, *(row_of(title, told) for title, told in self.rows)]) + "\n"

    def worse(self) -> list[str]:
        """What Paddock does not do, and somebody else does."""
        found = []
        for title, (ours, *others) in self.rows:
            better = [name for name, told in zip(self.names[1:], others, strict=True) if yes(told)]
            if not yes(ours) and better:
                found.append(f"- {title}: {ours} here; yes: {', '.join(better)}")
        return found


def yes(told: str) -> bool:
    return told.startswith("yes")


def row_of(title: str, told: list[str]) -> str:
    return f"| {title} | " + " | ".join(told) + " |"


def table_of(
    each: Sequence[Any], cases: Mapping[str, Any], run: Callable[[Any, Any], str], word: str
) -> Table:
    """Run the cases whose title holds a word."""
    rows = []
    for title, act in cases.items():
        if word in title:
            rows.append((title, [run(one, act) for one in each]))
            print(row_of(*rows[-1]), file=sys.stderr, flush=True)
    return Table([one.name for one in each], rows)


def timed(work: Work, peers: list[Peer], rounds: int) -> list[float | None]:
    """Medians in milliseconds, the peers taking turns; None where it is not offered or fails."""
    found: list[list[float]] = [[] for _ in peers]
    # Those who only read share one place, and with it what the machine remembers of it.
    count = len(peers) if work.op == "edit" else 1
    places = [Path(tempfile.mkdtemp(prefix="paddock-compare-")) for _ in range(count)]
    running = []
    try:
        for place in places:
            work.prepare(place)
        for number, peer in enumerate(peers):
            running.append(peer.start(places[number % count]))
        for number in range(rounds + 1):
            for taken, tools in zip(found, running, strict=True):
                # Or who waits for the disk would wait for what those before have written.
                os.sync()
                started = time.perf_counter()
                answer = tools.ask(work.op, 60, **work.given(number))
                took = (time.perf_counter() - started) * 1e3
                # The first round is for warming up.
                if answer.ok and work.holds in answer.text and number:
                    taken.append(took)
    finally:
        for tools in running:
            tools.end()
        for place in places:
            shutil.rmtree(place)
    return [statistics.median(taken) if len(taken) == rounds else None for taken in found]


def speed(peers: list[Peer], rounds: int) -> list[str]:
    """The section, with who was timed."""
    timed_ones = [*peers, bare_commands()]
    return [f"{SPEED}\n{versions_of(timed_ones)}.\n", table_of_speed(timed_ones, rounds)]


def versions_of(each: Sequence[Any]) -> str:
    return ", ".join(f"{one.name} {one.version}" for one in each)


def slower(page: str) -> list[str]:
    """Of the shares at the end of the table of speed, those above one."""
    shares = re.findall(r"^- (.+): ([\d.]+)$", page, re.MULTILINE)
    return [
        f"- {work}: {share} times the fastest other set of tools"
        for work, share in shares
        if float(share) > 1
    ]


def table_of_speed(peers: list[Peer], rounds: int) -> str:
    """A row a work, and after the table Paddock's share of the fastest other set of tools."""
    rows = [
        "| | " + " | ".join(peer.name for peer in peers) + " |",
        "| --- |" + " ---: |" * len(peers),
    ]
    shares: list[str] = []
    for work in WORK:
        ours, *others = timed(work, peers, rounds)
        if ours is None:
            raise SystemExit(f"Paddock did not: {work.title}")
        told = ["–" if found is None else f"{found:.1f} ({found / ours:.1f}x)" for found in others]
        rows.append(f"| {work.title} | {ours:.1f} | " + " | ".join(told) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
        shares.append(share(work, ours, others[:-1]))
    return "\n".join([*rows, "", QUICKEST, *shares]) + "\n"


def share(work: Work, ours: float, others: Sequence[float | None]) -> str:
    """Return Paddock's time divided by the fastest other set of tools'."""
    offered = [found for found in others if found is not None]
    return f"- {work.title}: " + (f"{ours / min(offered):.2f}" if offered else "not offered by others")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, default=None, help="where the page goes")
    parser.add_argument("--only", default="", help="cases whose title holds this")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--speed", action="store_true", help="the table of speed alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    peers, away = gather()
    absent = [f"Not installed here: {who}.\n" for who in away]
    if arguments.speed:
        pieces = speed(peers, arguments.rounds) + absent
    else:
        fences, without = gather_fences()
        absent += [f"Not installed here: {who}.\n" for who in without]
        word = arguments.only
        tables = [
            table_of(peers, CASES, on_ground, word),
            table_of(fences, HOSTILE, in_yard, word),
            table_of(fences, HONEST, in_yard, word),
        ]
        timed_work = [] if arguments.skip_speed else speed(peers, arguments.rounds)
        worse = [row for table in tables for row in table.worse()]
        worse += slower("\n".join(timed_work))
        pieces = [INTRODUCTION, f"{versions_of(peers)}. {describe_machine()}.\n", *absent]
        pieces += ["## What is worse\n", WORSE, "\n".join(worse) + "\n"]
        pieces += ["## The same hostile files\n", str(tables[0])]
        pieces += ["## The same hostile commands\n", COMMANDS, f"{versions_of(fences)}.\n"]
        pieces += [str(tables[1]), "## The same honest commands\n", str(tables[2])]
        if timed_work:
            pieces += ["## The same work\n", *timed_work]
    page = "\n".join(pieces)
    if arguments.write is None:
        print(page)
    else:
        arguments.write.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
