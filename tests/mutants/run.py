"""Break each guarantee on purpose and see its tests fail. `make mutants` runs this.

A mutant is a TOML file here: `file` with `find` standing in it exactly once,
`replace` to put there instead, and `breaks`, what no longer holds. It is applied
to a copy of the repository. A guarantee's tests must pass without a mutant and
fail with each; what they let live, they do not prove.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.guarantees import GUARANTEES


class Mutant(Struct, frozen=True, dict=True):
    """One edit that breaks one guarantee."""

    file: str
    find: str
    replace: str
    breaks: str

    @classmethod
    def read(cls, name: str) -> "Mutant":
        """The mutant of that file name; `TypeError` for a missing or unknown key."""
        return cls(**tomllib.loads((ROOT / "tests" / "mutants" / name).read_text(encoding="utf-8")))


class Trial(Struct, frozen=True, dict=True):
    """One guarantee's tests, with one of its mutants in the code or (None) without."""

    guarantee: str
    mutant: str | None

    def run(self) -> "Verdict":
        """Without a mutant all tests pass; with one, at least one fails."""
        mutant = None if self.mutant is None else Mutant.read(self.mutant)
        code, output = tests_with(mutant, GUARANTEES[self.guarantee].tests)
        # 1 is a failing test; anything else is a run that did not come to its end.
        return Verdict(self, code == (0 if mutant is None else 1), output)


class Verdict(Struct, frozen=True, dict=True):
    """How a trial ended."""

    trial: Trial
    is_good: bool
    output: str

    def __str__(self) -> str:
        outcome = "ok  " if self.is_good else "FAIL"
        line = f"{outcome} {self.trial.guarantee} {self.trial.mutant or 'as it is'}"
        return line if self.is_good else f"{line}\n{self.output}"


def tests_with(mutant: Mutant | None, tests: tuple[str, ...]) -> tuple[int, str]:
    """pytest's exit code and output for these tests on a copy, with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="paddock-mutant-") as directory:
        copy = Path(directory)
        for name in ("docs", "scripts", "src", "tests"):
            # With what is compiled: that of the file with the mutant is older than it, and void.
            shutil.copytree(ROOT / name, copy / name)
        shutil.copy(ROOT / "pyproject.toml", copy)
        if mutant is not None:
            broken = copy / mutant.file
            text = broken.read_text(encoding="utf-8").replace(mutant.find, mutant.replace)
            broken.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def trials(wanted: list[str]) -> Iterator[Trial]:
    """For each guarantee its tests as they are, then with each mutant."""
    for guarantee in wanted or GUARANTEES:
        yield Trial(guarantee, None)
        for mutant in GUARANTEES[guarantee].mutants:
            yield Trial(guarantee, mutant)


def one_each() -> Iterator[Trial]:
    """For each guarantee its first mutant; the tests as they are run with all the others."""
    for guarantee, promised in GUARANTEES.items():
        yield Trial(guarantee, promised.mutants[0])


def main(wanted: list[str]) -> int:
    """Exit code 1 when a mutant survives, or when tests fail without one."""
    bad = 0
    # Two a core: what a test waits for is another's time to compute.
    with ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1)) as pool:
        chosen = one_each() if wanted == ["--one-each"] else trials(wanted)
        for verdict in pool.map(Trial.run, chosen):
            print(verdict, flush=True)
            bad += not verdict.is_good
    print(f"{bad} trials ended badly" if bad else "every mutant was noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
