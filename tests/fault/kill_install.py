"""Kill processes while they install, upgrade and remove packages, and look at the plane.

    python tests/fault/kill_install.py --rounds 200

Two operators share one plane. Each goes round with packages of its own: install, upgrade
with acceptance commands, another package that depends on it, and both removed again.
Each says the number of the state that it reached only after the command returned. All are
killed with SIGKILL at a random moment, then recoverers are killed too; the last one may
finish. Afterwards, for the round:

  * each operator's packages are in the state that was acknowledged last, or in the one
    that was to follow, and every file of theirs is as its manifest says;
  * receipts and the packages ledger tell the same story, and the ledger verifies;
  * the gates G3 and G6 do not fail;
  * no file is there that no package brought, nothing is left in the journal, no draft and
    no record of a change.

Prints one line of totals; exits 1 with the first thing that does not hold.
"""

import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from msgspec import Struct, field

sys.path.insert(0, str(Path(__file__).parents[2]))

from paddock.gates.checks import CHECKS, run_gates
from paddock.gates.evidence import GateEvidence
from paddock.gates.results import G3, G6, Status
from paddock.ledger.append import LedgerFile
from paddock.ledger.format.lines import Genesis
from paddock.packages.change import changing
from paddock.packages.installed import read_installed
from tests.support.changes import memory_directory
from tests.support.children import Broken, await_first_words, kill_after, start
from tests.support.gates import NO_WITNESS
from tests.support.packages import KEY, PROGRAM, Bench, Runner, open_bench, require_whole
from tests.support.programs import run_rounds

OPERATORS = 2
STATES = 5
RECOVERERS = 3
ROUNDS_A_PLANE = 25
LIFE_S = (0.0, 0.25)
RECOVERY_S = (0.0, 0.03)
TESTED = [{"command": "pass", "timeout_s": 5}]


class Totals(Struct, dict=True):
    """What a run came to."""

    rounds: int = 0
    acknowledged: int = 0
    settled: Counter[str] = field(default_factory=Counter)


def base_id(operator: int) -> str:
    return f"PKG-BASE-{operator}"


def over_id(operator: int) -> str:
    return f"PKG-OVER-{operator}"


def files_of(operator: int, version: str) -> dict[str, bytes]:
    own = f"HOT/kernel/o{operator}"
    text = f"{operator} {version}\n".encode()
    found = {f"{own}/shared.txt": text, f"{own}/deep/er/x.txt": text * 50}
    found[f"HOT/scripts/run{operator}.sh"] = PROGRAM + text
    if version.endswith(".1.0"):
        del found[f"{own}/deep/er/x.txt"]
        found[f"{own}/new.txt"] = text
    return found


def packages_in(operator: int, state: int) -> dict[str, str]:
    """The operator's packages and their versions in one state."""
    turn, step = divmod(state, STATES)
    low, high = f"{turn}.0.0", f"{turn}.1.0"
    base, over = base_id(operator), over_id(operator)
    return [{}, {base: low}, {base: high}, {base: high, over: low}, {base: high}][step]


def advance(bench: Bench, operator: int, state: int) -> None:
    """From `state` to the next."""
    turn, step = divmod(state, STATES)
    base, over = base_id(operator), over_id(operator)
    if step in (0, 1):
        version = f"{turn}.{step}.0"
        tested = TESTED if step else []
        files = files_of(operator, version)
        bench.install(files, package_id=base, version=version, acceptance=tested)
    elif step == 2:
        bench.install(
            {f"HOT/kernel/o{operator}/over.txt": b"over\n"},
            package_id=over,
            version=f"{turn}.0.0",
            dependencies=[base],
            acceptance=TESTED if turn % 2 else [],
        )
    else:
        bench.uninstall(over if step == 3 else base)


def operate(root: Path, operator: int, state: int, told: int) -> None:
    """Go on and on until killed; tell each state when it is reached."""
    with open_bench(root, Runner()) as bench:
        os.write(told, b"?")
        while True:
            advance(bench, operator, state)
            state += 1
            os.write(told, b"%d\n" % state)


def recover(root: Path, told: int) -> None:
    """As the next command on the plane."""
    with open_bench(root, Runner()) as bench:
        os.write(told, b"?")
        with changing(bench.depot) as recovered:
            if recovered is not None:
                os.write(told, f"{recovered}\n".encode())


def run_round(root: Path, states: list[int], chance: random.Random, totals: Totals) -> list[int]:
    """One round; the states that the operators' packages are in afterwards."""
    children = [
        start(lambda told, operator=operator: operate(root, operator, states[operator], told))
        for operator in range(OPERATORS)
    ]
    await_first_words(children)
    kill_after(children, chance.uniform(*LIFE_S))
    acknowledged: list[int] = []
    for operator, child in enumerate(children):
        reached = child.end_killed().removeprefix(b"?").split(b"\n")[:-1]
        totals.acknowledged += len(reached)
        acknowledged.append(int(reached[-1]) if reached else states[operator])
    for _ in range(chance.randrange(RECOVERERS + 1)):
        child = start(lambda told: recover(root, told))
        await_first_words([child])
        kill_after([child], chance.uniform(*RECOVERY_S))
        _, said = child.end()
        totals.settled.update(said.decode().removeprefix("?").splitlines())
    code, said = start(lambda told: recover(root, told)).end()
    if code != 0:
        raise Broken(f"the last recovery ended with {code}: {said!r}")
    totals.settled.update(said.decode().removeprefix("?").splitlines())
    return check(root, acknowledged)


def make_governance(bench: Bench) -> None:
    """The ledger that every plane has, besides the one of its packages."""
    path = bench.layout.ledger_paths()["governance"]
    genesis = Genesis("test/governance", "HOT", str(KEY.verifier))
    LedgerFile(str(path), create=genesis, clock=time.time, randomness=os.urandom).close()


def require_gates(bench: Bench) -> None:
    """What the gates say of dependencies, and of ledgers and what is installed."""
    depot = bench.depot
    ground = GateEvidence(
        layout=bench.layout,
        workspace=depot.workspace,
        ledger=depot.ledger,
        acceptance=depot.acceptance,
        witness=NO_WITNESS,
        now=depot.clock(),
        plane_is_dev=True,
    )
    for result in run_gates((G3, G6), CHECKS, ground):
        if result.status is Status.FAIL:
            raise Broken(f"the gate {result.gate} fails: {result.failures}")


def check(root: Path, acknowledged: list[int]) -> list[int]:
    """Everything that must hold."""
    with open_bench(root, Runner()) as bench:
        require_whole(bench)
        require_gates(bench)
        installed = read_installed(bench.layout).packages
        found = {name: package.manifest.version for name, package in installed.items()}
    states: list[int] = []
    for operator, last in enumerate(acknowledged):
        own = {name: version for name, version in found.items() if name.endswith(f"-{operator}")}
        whole = [state for state in (last, last + 1) if own == packages_in(operator, state)]
        if not whole:
            raise Broken(f"operator {operator} is neither in state {last} nor in the next: {own}")
        states.append(whole[0])
    return states


def run(rounds: int, seed: int) -> str:
    """So many rounds, on a fresh plane now and then."""
    chance = random.Random(seed)
    totals = Totals()
    while totals.rounds < rounds:
        with memory_directory() as base:
            states = [0] * OPERATORS
            with open_bench(base / "plane") as bench:
                make_governance(bench)
            for _ in range(min(ROUNDS_A_PLANE, rounds - totals.rounds)):
                states = run_round(base / "plane", states, chance, totals)
                totals.rounds += 1
    settled = ", ".join(f"{count} {what}" for what, count in sorted(totals.settled.items()))
    return (
        f"{totals.acknowledged} acknowledged changes stand whole; recovered: {settled or 'nothing'}"
    )


if __name__ == "__main__":
    sys.exit(run_rounds(__doc__, run))
