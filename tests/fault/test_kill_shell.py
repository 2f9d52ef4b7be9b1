"""A runtime killed while its commands commit; `kill_shell.py --rounds 100` does it by hand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = os.environ.get("PADDOCK_KILL_SHELL_ROUNDS", "4")
PROGRAM = Path(__file__).with_name("kill_shell.py")
pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash"), pytest.mark.needs("git")]


def test_after_a_kill_the_tree_is_the_old_or_the_new_as_a_whole():
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), "--rounds", ROUNDS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"{ROUNDS} rounds")
