"""A day's work of an agent in projects of several kinds, through each door: nothing is lost.

It installs, builds, tests, branches, commits, merges with a conflict, stashes, rebases and
cleans, under the built-in policy, and is asked nothing. `PADDOCK_WORK_SECONDS=180` lets its
tests run for three minutes; `PADDOCK_WORK_PROJECTS` names real projects (`sites.py`).
"""

from pathlib import Path

import pytest

from tests.work.days import KINDS, base, check, work
from tests.work.doors import DOORS

__all__ = ["base"]
pytestmark = [pytest.mark.needs("stage", "git", "bash")]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_day_of_work_loses_nothing_and_asks_nothing(base: Path, kind: str, door: str):
    site = work(base, kind)
    check(site, DOORS[door](site))
