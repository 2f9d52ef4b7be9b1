"""SIGKILL at random moments; `kill_history.py --rounds 200` does it by hand."""

import os

from tests.support.programs import report_beside

ROUNDS = os.environ.get("PADDOCK_KILL_ROUNDS", "50")


def test_a_killed_agent_leaves_everything_it_replaced_in_place_or_in_the_history(tmp_path):
    code, found = report_beside(__file__, f"--rounds={ROUNDS}", f"--where={tmp_path}")
    assert (code, found["wrong"]) == (0, [])
    # The rounds met what they are about.
    assert found["calls"] > 0
