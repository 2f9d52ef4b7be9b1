"""Eight callers killed at random; `kill_callers.py --rounds 200` does it by hand."""

import os

from tests.support.programs import require_rounds

ROUNDS = os.environ.get("PADDOCK_KILL_CALLERS_ROUNDS", "4")


def test_every_acknowledged_call_of_killed_callers_is_on_record():
    require_rounds(__file__, ROUNDS)
