"""A few rounds of what `ledger_kill.py` does by hand in hundreds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("ledger_kill.py")


KINDS = {
    "small": ["--sizes", "small"],
    "mixed": ["--sizes", "mixed"],
    "small-rotating": ["--sizes", "small", "--segment-bytes", "3000"],
    "mixed-rotating": ["--sizes", "mixed", "--segment-bytes", "100000"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path, kind):
    done = subprocess.run(
        [sys.executable, PROGRAM, "--rounds", "4", *KINDS[kind], "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )

    found = json.loads(done.stdout)
    assert done.returncode == 0, found
    assert (found["lost"], found["bad_lines"], found["unreported_tails"]) == (0, 0, 0)
    assert found["acknowledged"] > 0
    assert (found["segments"] > 3) == ("rotating" in kind)
