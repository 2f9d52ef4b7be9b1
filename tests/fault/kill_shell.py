"""Kill a runtime while its commands run and commit, and look at the tree.

    python tests/fault/kill_shell.py --rounds 100

A process opens a project and runs one command after the other; each leads all of the
workspace from one state to the next: contents, kinds, modes, a git commit. It says the
number of the state only after the call returned. It is killed with SIGKILL at a random
moment. Then the project is opened again, and:

  * the tree is in one state as a whole: the one that was acknowledged last, or the next;
  * nothing is left under a temporary name, in the journal, or of the killed launcher;
  * `git fsck` finds nothing;
  * the next command works.

Prints one line of totals; exits 1 with the first thing that does not hold.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.disks import temporaries
from tests.support.programs import run_rounds
from tests.support.shells import OPEN, Yard

POLICY = (
    "[paths]\nprotected = []\ngenerated = []\nsecret = []\n" + OPEN + '[shell]\ncommit = "all"\n'
)
FILES = 24
LIFE_S = (0.0, 0.5)


def line_to(state: int) -> str:
    """What leads from any state to this one."""
    kind = "rm -rf k && mkdir k && echo {0} > k/in" if state % 2 else "rm -rf k && echo {0} > k"
    return (
        f"mkdir -p d/e && for i in $(seq {FILES}); do echo {state} > d/f$i; echo {state} > d/e/g$i; done; "
        f"rm -rf new-* && mkdir new-{state} && echo {state} > new-{state}/x; {kind.format(state)}; "
        f"ln -sfn {state} link; chmod {'755' if state % 2 else '644'} mode; "
        f"git add -A . && git commit -qm {state}"
    )


def state_of(root: Path) -> set[str]:
    """The states that parts of the tree are in: one, if all is well."""
    found = {(root / "d" / f"f{n}").read_text().strip() for n in range(1, FILES + 1)}
    found |= {(root / "d/e" / f"g{n}").read_text().strip() for n in range(1, FILES + 1)}
    found |= {path.name.removeprefix("new-") for path in root.glob("new-*")}
    found |= {path.read_text().strip() for path in root.glob("new-*/x")}
    found.add(os.readlink(root / "link"))
    kept = root / "k"
    found.add((kept / "in" if kept.is_dir() else kept).read_text().strip())
    is_odd = (root / "mode").stat().st_mode & 0o100
    return {
        name if bool(int(name) % 2) == bool(is_odd) else f"{name} with another mode"
        for name in found
    }


def work(base: Path) -> None:
    """Until somebody kills us."""
    yard = Yard(base, POLICY)
    state = int(next(iter(state_of(yard.root))))
    with yard.opened() as terminal:
        while True:
            state += 1
            said = terminal.run(line_to(state))
            assert (said["exit_code"], said["changes_refused"]) == (0, []), said
            os.write(1, b"%d\n" % state)


def check(yard: Yard, acknowledged: int, before: int) -> int:
    """What the tree is in by now; raises AssertionError."""
    with yard.opened() as terminal:
        states = state_of(yard.root)
        assert len(states) == 1, f"half of it: {sorted(states)}"
        (state,) = (int(name) for name in states)
        assert state in {acknowledged, acknowledged + 1}, (state, acknowledged, before)
        assert temporaries(yard.root) == []
        log = yard.git("log", "-1", "--format=%s").strip()
        assert log == str(state), (log, state)
        assert yard.git("status", "--porcelain") == ""
        yard.git("fsck", "--strict")
        assert terminal.run("echo works")["stdout"] == "works\n"
    (plane,) = (yard.home / ".local/state/paddock/planes").iterdir()
    assert list((plane / "objects/journal").iterdir()) == []
    staging = yard.home / ".local/state/paddock/staging"
    assert list(staging.iterdir()) == [], list(staging.iterdir())
    return state


def rounds(count: int, seed: int) -> str:
    rng = random.Random(seed)
    moved = 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        yard = Yard(base, POLICY).make()
        (yard.home / ".gitconfig").write_text("[user]\n\tname = U\n\temail = u@example.org\n")
        yard.write({"mode": "mode\n"})
        yard.git("init", "-q", ".")
        with yard.opened() as terminal:
            assert terminal.run(line_to(1))["exit_code"] == 0
        state = 1
        for _ in range(count):
            with subprocess.Popen(
                [sys.executable, __file__, "--work", name], stdout=subprocess.PIPE
            ) as worker:
                first = worker.stdout.readline()
                time.sleep(rng.uniform(*LIFE_S))
                os.kill(worker.pid, signal.SIGKILL)
                said = [*first.split(), *worker.stdout.read().split()]
            acknowledged = int(said[-1]) if said else state
            now = check(yard, acknowledged, state)
            moved += now - acknowledged
            state = now
    return f"{state} states, {moved} completed after the kill"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]))
    sys.exit(run_rounds(__doc__, rounds))
