"""Break each guarantee on purpose and see its tests fail. `make mutants` runs this.

A mutant is a TOML file here: `file` with `find` standing in it exactly once,
`replace` to put there instead, and `breaks`, what no longer holds. It is applied
to a copy of the repository; a mutant that its guarantee's tests survive is a
guarantee that they do not prove.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.guarantees import GUARANTEES  # noqa: E402  # the path has to be there first


@dataclass(frozen=True)
class Mutant:
    """One edit that breaks one guarantee."""

    file: str
    find: str
    replace: str
    breaks: str

    @classmethod
    def read(cls, name: str) -> "Mutant":
        """The mutant of that file name; `TypeError` for a missing or unknown key."""
        return cls(**tomllib.loads((ROOT / "tests" / "mutants" / name).read_text(encoding="utf-8")))


def survivors(guarantee: str) -> Iterator[str]:
    """The guarantee's mutants that its tests did not notice."""
    for name in GUARANTEES[guarantee].mutants:
        code, output = tests_with(Mutant.read(name), GUARANTEES[guarantee].tests)
        print(f"{'ok  ' if code == 1 else 'FAIL'} {guarantee} {name}", flush=True)
        # 1 is a failing test; anything else is a pass or a run that did not come to testing.
        if code != 1:
            print(output)
            yield f"{guarantee} {name}"


def tests_with(mutant: Mutant, tests: tuple[str, ...]) -> tuple[int, str]:
    """pytest's exit code and output for these tests on a copy with the mutant in it."""
    with tempfile.TemporaryDirectory(prefix="paddock-mutant-") as directory:
        copy = Path(directory)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        broken = copy / mutant.file
        broken.write_text(
            broken.read_text(encoding="utf-8").replace(mutant.find, mutant.replace),
            encoding="utf-8",
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def main(wanted: list[str]) -> int:
    """Exit code 1 when a mutant survives."""
    alive = [name for guarantee in wanted or GUARANTEES for name in survivors(guarantee)]
    print(f"{len(alive)} survived" if alive else "every mutant was noticed")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
