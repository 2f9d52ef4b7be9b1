"""What grows with the size of things, and what does not.

    python bench/growth.py                          # in a minute; a ledger of 10^5 entries
    python bench/growth.py --largest --write FILE   # of 10^7: five gigabytes, some minutes

The same act at several sizes, and the last beside the first: 1 where it costs the same.
Searching has to look at every file and a first view at every line, so ripgrep and sed stand
beside them with the same work; opening a ledger, asking it and adding to it, seeing a
file again, and deciding have no such reason to grow.
"""

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger_query import index_all, make_entry, median_ms, open_ledger, write_ledger
from machine import describe_machine
from msgspec import Struct
from policy import judged_us, paths, patterns
from search import Desk, bare, listed
from view import Contestants

from paddock.ledger.query import Filter, LedgerSearch, query
from paddock.policy.decide import ChainJudge
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.decisions import Action, Agent

Costs = dict[str, float]
"""Milliseconds by what was done."""
ROUNDS = 15
OPENINGS = 200
APPENDS = 200
FILES_IN_FOLDER = 100


class Subject(Struct, frozen=True, dict=True):
    """Something that comes in sizes, and what each of them costs."""

    things: str
    sizes: tuple[int, ...]
    measure: Callable[[Sequence[int]], list[Costs]]


def one_by_one(measure: Callable[[int], Costs]) -> Callable[[Sequence[int]], list[Costs]]:
    """One size after the other."""
    return lambda sizes: [measure(size) for size in sizes]


def ledgers(sizes: Sequence[int]) -> list[Costs]:
    """Of ledgers with so many entries, all of them indexed; in turns, as they are compared."""
    with tempfile.TemporaryDirectory(prefix="paddock-growth-") as folder:
        paths = [f"{folder}/{size}/x.jsonl" for size in sizes]
        for path, size in zip(paths, sizes, strict=True):
            Path(path).parent.mkdir()
            write_ledger(path, size)
            index_all(path)
        # What was written is not still on its way to the disk while others are measured.
        os.sync()
        openings: list[dict[str, Callable[[], object]]] = [
            {
                "ledger, open to append": lambda path=path: open_ledger(path).close(),
                "ledger, open to ask": lambda path=path: LedgerSearch(path).close(),
                "ledger, ten newest of a type, opening and all": lambda path=path: query(
                    path, Filter("TOOL_DENIED"), last=10
                ),
            }
            for path in paths
        ]
        costs = all_in_turns(openings, OPENINGS)
        writers = [open_ledger(path) for path in paths]
        appends: list[dict[str, Callable[[], object]]] = [
            {
                "ledger, an entry, durable": lambda writer=writer: writer.append([make_entry(1)]),
                "ledger, an entry, its sync apart": lambda writer=writer: writer.write(
                    [make_entry(1)]
                ),
            }
            for writer in writers
        ]
        for cost, more in zip(costs, all_in_turns(appends, APPENDS), strict=True):
            cost.update(more)
        for writer in writers:
            writer.close()
        return costs


def all_in_turns(things: Sequence[dict[str, Callable[[], object]]], rounds: int) -> list[Costs]:
    """What each act costs on each thing; in every round each act has its turn on each thing."""
    taken = [{name: list[float]() for name in acts} for acts in things]
    for _ in range(rounds):
        for name in things[0]:
            for acts, found in zip(things, taken, strict=True):
                found[name].append(median_ms(acts[name], 1))
    return [{name: statistics.median(each) for name, each in found.items()} for found in taken]


def files(count: int) -> Costs:
    """Of a tree with so many files; it stays in the temporary directory."""
    root = Path(tempfile.gettempdir(), "paddock-bench-growth", str(count))
    if not root.is_dir():
        make_tree(root, count)
    desk = Desk(root)
    acts: dict[str, Callable[[], object]] = {
        "find one name": lambda: desk.call("find", pattern="needle.cfg"),
        "  rg --files": lambda: listed(["rg", "--files", "-g", "needle.cfg"], str(root)),
        "grep a rare word": lambda: desk.call("grep", pattern="zqxj_here"),
        "  rg": lambda: bare(["rg", "-nH", "zqxj_here", "."], str(root)),
    }
    return in_turns(acts, 3 if count > 10_000 else ROUNDS)


def make_tree(root: Path, count: int) -> None:
    """Whole or not at all."""
    fresh = root.with_name(f"{root.name}.{os.getpid()}")
    (fresh / ".git").mkdir(parents=True)
    for number in range(count - 1):
        folder = fresh / f"part{number // FILES_IN_FOLDER}"
        if number % FILES_IN_FOLDER == 0:
            folder.mkdir()
        (folder / f"module{number}.py").write_text(f"value = {number}\n" * 20, encoding="utf-8")
    (fresh / "part0" / "needle.cfg").write_text("zqxj_here\n", encoding="utf-8")
    fresh.rename(root)


def rules(count: int) -> Costs:
    """Of a policy with so many rules, all but one of which match little or nothing."""
    denied = ", ".join(f'"tool:file:* {rule}"' for rule in patterns(count - 1))
    text = f'[profiles.standard]\nallow = ["tool:file:*"]\ndeny = [{denied}]\n'
    policy = load_policy(PolicySource("paddock.toml", text.encode()))
    actions = [Action("file", "create", path) for path in paths()]
    gc.disable()
    # Nothing is remembered from one round to the next.
    taken = [
        judged_us(ChainJudge(policy, (Agent("main", "standard"),)), actions) for _ in range(ROUNDS)
    ]
    gc.enable()
    return {"a decision": statistics.median(taken) / 1e3}


def lines(count: int) -> Costs:
    """Of a file with so many lines, shown nine tenths down."""
    with tempfile.TemporaryDirectory(prefix="paddock-growth-") as folder:
        file = Path(folder) / "long.txt"
        with file.open("wb") as target:
            target.writelines(b"line %09d of a long file\n" % number for number in range(count))
        # Nothing is remembered of a file that changed within the last second.
        os.utime(file, (1_700_000_000, 1_700_000_000))
        time.sleep(1.1)
        ways = Contestants(folder, file.name, count * 9 // 10)
        ways.again()
        acts: dict[str, Callable[[], object]] = {
            "view, the first of a file": ways.with_version,
            "  sed": ways.sed,
            "view, again": ways.again,
        }
        return in_turns(acts, 5 if count > 1_000_000 else ROUNDS)


def in_turns(acts: dict[str, Callable[[], object]], rounds: int) -> Costs:
    for act in acts.values():
        act()
    return all_in_turns([acts], rounds)[0]


def subjects(*, is_largest: bool) -> list[Subject]:
    """What is measured: policy has a limit of 10,000 rules."""
    entries = (1_000, 100_000, 10_000_000) if is_largest else (1_000, 100_000)
    return [
        Subject("entries", entries, ledgers),
        Subject("files", (1_000, 100_000), one_by_one(files)),
        Subject("rules", (10, 1_000, 10_000), one_by_one(rules)),
        Subject("lines", (1_000, 100_000, 10_000_000), one_by_one(lines)),
    ]


def show(subject: Subject, costs: Sequence[Costs]) -> str:
    """The subject's rows."""
    head = "".join(f"{f'{size:,}':>14}" for size in subject.sizes)
    found = [f"{subject.things + ', ms':46}{head}{'last to first':>16}"]
    for name in costs[0]:
        each = [cost[name] for cost in costs]
        figures = "".join(f"{figure:14.3f}" for figure in each)
        found.append(f"{name:46}{figures}{each[-1] / each[0]:16.2f}")
    return "\n".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--largest", action="store_true", help="a ledger of 10^7 entries too")
    parser.add_argument("--write", type=Path, default=None, help="where it goes, with the machine")
    parser.add_argument("--only", default="", help="things whose name holds this")
    options = parser.parse_args()
    told = []
    for subject in subjects(is_largest=options.largest):
        if options.only in subject.things:
            told.append(show(subject, subject.measure(subject.sizes)))
            print(told[-1], end="\n\n", flush=True)
    if options.write is not None:
        pieces = [describe_machine(), *told]
        options.write.write_text("\n\n".join(pieces) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
