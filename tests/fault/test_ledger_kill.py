"""A few rounds of what `ledger_kill.py` does by hand in hundreds."""

import pytest

from tests.support.programs import report_beside

KINDS = {
    "small": ["--sizes", "small"],
    "mixed": ["--sizes", "mixed"],
    "small-rotating": ["--sizes", "small", "--segment-bytes", "3000"],
    "mixed-rotating": ["--sizes", "mixed", "--segment-bytes", "50000"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(tmp_path, kind):
    options = ["--rounds", "4", *KINDS[kind], "--folder", str(tmp_path)]

    code, found = report_beside(__file__, *options)

    assert code == 0, found
    assert (found["lost"], found["bad_lines"], found["unreported_tails"]) == (0, 0, 0)
    assert found["acknowledged"] > 0
    assert (found["segments"] > 3) == ("rotating" in kind)
