"""SIGKILL at random moments; `kill_history.py --rounds 200` does it by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROUNDS = os.environ.get("PADDOCK_KILL_ROUNDS", "50")
PROGRAM = Path(__file__).with_name("kill_history.py")


def test_a_killed_agent_leaves_everything_it_replaced_in_place_or_in_the_history(tmp_path):
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), f"--rounds={ROUNDS}", f"--where={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout, ran.stderr
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["wrong"]) == (0, [])
    # The rounds met what they are about.
    assert found["calls"] > 0
