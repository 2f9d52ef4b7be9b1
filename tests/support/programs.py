"""Programs beside their tests, `x.py` beside `test_x.py`: their command line, and how they are run."""

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run_beside(
    test: str, *options: str, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """The program beside this file of tests."""
    program = Path(test).with_name(Path(test).name.removeprefix("test_"))
    return subprocess.run(
        [sys.executable, str(program), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def report_beside(test: str, *options: str, timeout_s: float | None = None) -> tuple[int, Any]:
    """Its exit status, and the JSON that it printed."""
    ran = run_beside(test, *options, timeout_s=timeout_s)
    assert ran.stdout, ran.stderr
    return ran.returncode, json.loads(ran.stdout)


def require_rounds(test: str, rounds: str) -> None:
    """It goes through so many rounds and finds nothing broken."""
    ran = run_beside(test, "--rounds", rounds)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{rounds} rounds")


def run_rounds(said: str, run: Callable[[int, int], str]) -> int:
    """A program's command line: `run` takes the rounds and a seed, and says what came of them.

    The exit status: 1, with what broke, where something that must hold did not.
    """
    parser = argparse.ArgumentParser(description=said.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    options = parser.parse_args()
    try:
        found = run(options.rounds, options.seed)
    except AssertionError as broken:
        print(f"BROKEN (seed {options.seed}): {broken}")
        return 1
    print(f"{options.rounds} rounds (seed {options.seed}): {found}")
    return 0
