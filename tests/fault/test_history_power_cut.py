"""A few rounds of what `history_power_cut.py` does by hand for as long as one likes."""

import pytest

from tests.support.programs import require_rounds


@pytest.mark.needs("root", "loop_device")
def test_a_power_cut_loses_nothing_that_was_replaced():
    require_rounds(__file__, "5")
