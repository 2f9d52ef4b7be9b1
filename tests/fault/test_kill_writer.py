"""SIGKILL at random moments; `kill_writer.py --rounds 1000` does it by hand."""

import os

from tests.support.programs import report_beside

ROUNDS = os.environ.get("PADDOCK_KILL_ROUNDS", "50")


def test_a_killed_writer_leaves_whole_files_and_no_temporary_after_the_next_open(tmp_path):
    code, found = report_beside(__file__, f"--rounds={ROUNDS}", f"--where={tmp_path}")
    assert (code, found["wrong"]) == (0, [])
    # The rounds met what they are about.
    assert found["temporaries_before_next_open"] > 0
