"""Kill processes while they commit sets of changes, and while they recover, and look at the trees.

    python tests/fault/kill_commit.py --rounds 200

Three committers share one workspace, its directories and one journal. Each changes a
group of paths of its own from state to state: files, directories that become files,
links, modes, in the same directories as the others'. Each says the number of the state
that it reached only after the commit returned. All are killed with SIGKILL at a random
moment. Then recoverers are started and killed at random moments too; the last one may
finish. Afterwards, for the round:

  * each group is in one state as a whole: bytes, links, modes and times;
  * it is the state that was acknowledged last, or the one that was to follow;
  * nothing is left under a temporary name, and nothing in the journal.

Prints one line of totals; exits 1 with the first thing that does not hold.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).parents[2]))

from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.workspace import Workspace, detect_resolution
from paddock.workspace.apply import recover
from tests.support.changes import (
    File,
    Folder,
    Link,
    Node,
    changes_to,
    lay_out,
    memory_directory,
    model_of,
    open_bench,
)
from tests.support.children import Broken, await_first_words, kill_after, start
from tests.support.programs import run_rounds

GROUPS = 3
RECOVERERS = 3
ROUNDS_A_TREE = 25
LIFE_S = (0.0, 0.06)
RECOVERY_S = (0.0, 0.012)
SHARED = {"d": Folder(), "d/e": Folder(), "d/e/f": Folder()}


class Totals(Struct, dict=True):
    """What a run came to."""

    rounds: int = 0
    acknowledged: int = 0
    settled: Counter[str] = field(default_factory=Counter)


def state_of(group: int, state: int) -> dict[str, Node]:
    """All that a group has in one state; the kinds of its entries alternate."""
    mark, found, is_odd = f"g{group}-", {}, state % 2
    for folder in ("", "d/", "d/e/", "d/e/f/"):
        at = folder + mark
        for number in range(4):
            text = b"%d %d\n" % (state, number) * (50 * number + 1)
            found[f"{at}file{number}"] = File(text, 0o640 if is_odd else 0o600)
        found[f"{at}mode"] = File(b"mode\n", 0o755 if is_odd else 0o644, 5 + state)
        found[f"{at}only{is_odd}"] = Link(f"of {state}")
        name = f"{at}tree"
        if is_odd:
            found |= {name: Folder(0o750), f"{name}/x": File(b"x"), f"{name}/y": Folder()}
            found |= {f"{name}/y/z": Link("..")}
        else:
            found[name] = File(b"a file\n")
    return found


def is_of(group: int) -> Callable[[str], bool]:
    """Whether a name is a group's."""
    return lambda name: f"g{group}-" in name


def committer(base: Path, group: int, state: int, told: int) -> None:
    """Change the group again and again until killed; tell each state when it is reached."""
    with open_bench(base) as bench:
        os.write(told, b"?")
        while True:
            state += 1
            bench.commit(*changes_to(bench.root, state_of(group, state), is_of(group)))
            os.write(told, b"%d\n" % state)


def recoverer(base: Path, told: int) -> None:
    """Settle what is there, as the next to open the plane would."""
    disk = Disk()
    with (
        Workspace.open(str(base / "ws"), disk=disk),
        Journal(str(base / "journal"), disk) as journal,
    ):
        os.write(told, b"?")
        for recovered in recover(journal, disk, detect_resolution()):
            os.write(told, f" {recovered.settled.value}|{recovered.why}\n".encode())


def run_round(base: Path, states: list[int], chance: random.Random, totals: Totals) -> list[int]:
    """One round on a tree whose groups are in `states`; the states they are in afterwards."""
    children = [
        start(lambda told, group=group: committer(base, group, states[group], told))
        for group in range(GROUPS)
    ]
    await_first_words(children)
    kill_after(children, chance.uniform(*LIFE_S))
    acknowledged: list[int] = []
    for group, child in enumerate(children):
        reached = child.end_killed().removeprefix(b"?").split(b"\n")[:-1]
        totals.acknowledged += len(reached)
        acknowledged.append(int(reached[-1]) if reached else states[group])
    for _ in range(chance.randrange(RECOVERERS + 1)):
        child = start(lambda told: recoverer(base, told))
        await_first_words([child])
        kill_after([child], chance.uniform(*RECOVERY_S))
        child.end()
    code, said = start(lambda told: recoverer(base, told)).end()
    if code != 0 or b"waiting" in said:
        raise Broken(f"the last recovery ended with {code}: {said!r}")
    totals.settled.update(line.split("|")[0].strip() for line in said.decode()[1:].splitlines())
    return check(base, acknowledged)


def check(base: Path, acknowledged: list[int]) -> list[int]:
    """Everything that must hold; how often each group has changed."""
    if left := os.listdir(base / "journal"):
        raise Broken(f"left in the journal: {left}")
    found = model_of(base / "ws")
    if strays := [name for name in found if ".paddock-" in name]:
        raise Broken(f"stray temporaries: {strays}")
    states: list[int] = []
    for group, last in enumerate(acknowledged):
        own = {name: node for name, node in found.items() if is_of(group)(name)}
        whole = [state for state in (last, last + 1) if own == state_of(group, state)]
        if not whole:
            raise Broken(f"group {group} is neither in state {last} nor in the next: {own}")
        states += whole
    return states


def run(rounds: int, seed: int) -> str:
    """So many rounds, on a fresh tree now and then."""
    chance = random.Random(seed)
    totals = Totals()
    while totals.rounds < rounds:
        with memory_directory() as base:
            states = [0] * GROUPS
            model = dict(SHARED)
            for group in range(GROUPS):
                model |= state_of(group, 0)
            lay_out(base / "ws", model)
            with open_bench(base):
                pass  # the store and the journal, before several make them at once
            for _ in range(min(ROUNDS_A_TREE, rounds - totals.rounds)):
                states = run_round(base, states, chance, totals)
                totals.rounds += 1
    settled = ", ".join(f"{count} {what}" for what, count in sorted(totals.settled.items()))
    return f"{totals.acknowledged} acknowledged sets stand whole; recovered: {settled or 'nothing'}"


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__, run))
