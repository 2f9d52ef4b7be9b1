"""Eight callers killed at random; `kill_callers.py --rounds 200` does it by hand."""

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = os.environ.get("PADDOCK_KILL_CALLERS_ROUNDS", "4")
PROGRAM = Path(__file__).with_name("kill_callers.py")


def test_every_acknowledged_call_of_killed_callers_is_on_record():
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), "--rounds", ROUNDS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{ROUNDS} rounds")
