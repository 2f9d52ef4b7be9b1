"""Writers are killed while they sign; `kill_checkpoints.py --rounds 200` does it by hand."""

from tests.support.programs import report_beside


def test_killed_writers_leave_checkpoints_that_agree_with_the_ledger():
    code, found = report_beside(__file__, "--rounds", "6")

    assert (code, found["disagreements"], found["problems"]) == (0, [], 0)
    assert found["entries"] == found["signed"] > 6
