"""Writers are killed while they sign; `kill_checkpoints.py --rounds 200` does it by hand."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("kill_checkpoints.py")


def test_killed_writers_leave_checkpoints_that_agree_with_the_ledger():
    done = subprocess.run(
        [sys.executable, PROGRAM, "--rounds", "6"], capture_output=True, text=True, check=False
    )

    found = json.loads(done.stdout)
    assert (done.returncode, found["disagreements"], found["problems"]) == (0, [], 0)
    assert found["entries"] == found["signed"] > 6
