"""Committers and recoverers killed at random; `kill_commit.py --rounds 200` does it by hand."""

import os

from tests.support.programs import require_rounds

ROUNDS = os.environ.get("PADDOCK_KILL_COMMIT_ROUNDS", "8")


def test_every_killed_set_is_complete_or_undone_as_a_whole():
    require_rounds(__file__, ROUNDS)
