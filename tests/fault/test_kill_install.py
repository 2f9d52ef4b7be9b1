"""Operators and recoverers killed at random; `kill_install.py --rounds 200` does it by hand."""

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = os.environ.get("PADDOCK_KILL_INSTALL_ROUNDS", "6")
PROGRAM = Path(__file__).with_name("kill_install.py")


def test_every_killed_change_of_packages_is_complete_or_undone_as_a_whole():
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), "--rounds", ROUNDS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{ROUNDS} rounds")
