"""What the file tools refuse is what no command can bring about: a sample.

`python -m tests.kernel.equivalence` tries thousands.
"""

import pytest

from tests.kernel.equivalence import try_all

pytestmark = [pytest.mark.needs("stage"), pytest.mark.needs("bash")]


def test_tools_and_commands_can_do_the_same():
    tally = try_all(120, seed=20_261)

    assert (tally.differ, tally.wrong) == ([], [])
    assert min(tally.shares) >= 0.3, tally.shares
