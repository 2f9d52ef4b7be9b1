"""Kill eight processes at random while they make governed calls, and look at what is left.

    python tests/fault/kill_callers.py --rounds 200

Each round forks eight callers on one project. They create, edit, view and delete
files of their own and one that they share, and say the id of each call only after
its result is in their hands. Then all are killed with SIGKILL at a random moment.
Afterwards, for the round:

  * every call that was acknowledged has its intent and its result in the ledger;
  * the ledger verifies;
  * every intent without result is reported as unknown, and nothing else is;
  * no stray temporary is left once the workspace is opened again;
  * the shared file is whole.

Prints one line of totals; exits 1 with the first thing that does not hold.
"""

import os
import random
import select
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

sys.path.insert(0, str(Path(__file__).parents[2]))

import paddock
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.plane.environment import read_environment
from paddock.workspace import Workspace
from tests.support.children import Broken, kill_after, start
from tests.support.programs import run_rounds

CALLERS = 8
ROUNDS_A_PROJECT = 20
LIFE_S = (0.005, 0.12)
SHARED = "shared.txt"
WHOLE = {b"a" * 5000, b"b" * 5000}


class Totals(Struct, dict=True):
    """What a run came to."""

    rounds: int = 0
    acknowledged: int = 0
    unknown: int = 0


def caller(root: Path, home: Path, number: int, told: int) -> None:
    """Call until killed; tell each id when its result is here."""
    os.environ["HOME"] = str(home)
    count = 0
    with paddock.open(root) as runtime:
        while True:
            count += 1
            own = f"dir{number}/file{count % 5}.txt"
            for tool, arguments in (
                ("create_file", {"path": own, "content": f"one {count}\n"}),
                ("str_replace", {"path": own, "old_str": "one", "new_str": "two"}),
                ("create_file", {"path": SHARED, "content": "ab"[count % 2] * 5000}),
                ("view", {"path": own}),
                ("delete_file", {"path": own}),
            ):
                call_id = f"C-{os.getpid()}-{count}-{tool}-{arguments['path'] == SHARED}"
                result = runtime.call(tool, arguments, call_id=call_id)
                # A lost race for the shared file is an answer too: it is on record.
                os.write(told, f"{call_id} {result.status}\n".encode())


def run_round(root: Path, home: Path, chance: random.Random) -> list[str]:
    """Eight callers, killed; what they told of each call that they acknowledged."""
    callers = [
        start(lambda told, number=number: caller(root, home, number, told))
        for number in range(CALLERS)
    ]
    # The clock starts when the first call is done, so that no round is spent on opening.
    select.select([child.reader for child in callers], [], [], 30)
    kill_after(chance.sample(callers, CALLERS), chance.uniform(*LIFE_S))
    # A line that was cut was not acknowledged.
    return [line for child in callers for line in child.end_killed().decode().split("\n")[:-1]]


def check(root: Path, home: Path, told: list[str]) -> int:
    """Everything that must hold; how many calls are of unknown outcome."""
    ledger = ledger_of(root, home)
    # The next one to open sets a torn tail aside, as any user of the ledger would.
    os.environ["HOME"] = str(home)
    with paddock.open(root) as runtime:
        runtime.call("view", {"path": "."}).unwrap()
    report = verify(ledger)
    if not report.is_whole:
        raise Broken(f"the ledger does not verify: {report.problems}")
    entries = [stored.entry for stored in query(ledger, Filter()).entries]
    intents = {e.call_id for e in entries if e.event_type == "TOOL_INTENT"}
    results = {e.call_id for e in entries if e.event_type == "TOOL_RESULT"}
    for line in told:
        call_id = line.split(" ")[0]
        if call_id not in intents or call_id not in results:
            raise Broken(f"acknowledged and not on record: {line}")
    unknown = {unanswered.call_id for unanswered in report.unanswered}
    if unknown != intents - results:
        raise Broken(f"unknown outcomes {unknown ^ (intents - results)} are not reported right")
    with Workspace.open(str(root)):
        strays = [path for path in root.rglob("*") if ".paddock-" in path.name]
    if strays:
        raise Broken(f"stray temporaries: {strays}")
    shared = root / SHARED
    if shared.exists() and shared.read_bytes() not in WHOLE:
        raise Broken("the shared file is a mixture")
    return len(unknown)


def ledger_of(root: Path, home: Path) -> str:
    """The path of the project's ledger of calls."""
    from paddock.assembly.project import find_project

    project = find_project(root, read_environment({"HOME": str(home)}), None)
    return str(project.layout.ledger_paths()["ho1m"])


def run(rounds: int, seed: int) -> str:
    """So many rounds, on a fresh project now and then."""
    chance = random.Random(seed)
    totals = Totals()
    while totals.rounds < rounds:
        with tempfile.TemporaryDirectory(prefix="kill-callers-") as directory:
            root, home = Path(directory, "project"), Path(directory, "home")
            root.mkdir()
            home.mkdir()
            unknown = 0
            for _ in range(min(ROUNDS_A_PROJECT, rounds - totals.rounds)):
                told = run_round(root, home, chance)
                unknown = check(root, home, told)
                totals.rounds += 1
                totals.acknowledged += len(told)
            totals.unknown += unknown
    return (
        f"{totals.acknowledged} acknowledged calls on record, "
        f"{totals.unknown} of unknown outcome reported"
    )


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__, run))
