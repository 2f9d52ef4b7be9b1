"""SIGKILL at random moments; `kill_writer.py --rounds 1000` does it by hand."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROUNDS = os.environ.get("PADDOCK_KILL_ROUNDS", "50")
PROGRAM = Path(__file__).with_name("kill_writer.py")


def test_a_killed_writer_leaves_whole_files_and_no_temporary_after_the_next_open(tmp_path):
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
    assert found["temporaries_before_next_open"] > 0
