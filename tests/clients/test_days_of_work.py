"""The day of work of `tests/work`, through the real Claude Code with its hook."""

from pathlib import Path

import pytest

from tests.work.days import KINDS, base, check, work
from tests.work.doors import claude

__all__ = ["base"]
pytestmark = [pytest.mark.loopback, pytest.mark.needs("stage", "git", "bash", "claude")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_day_of_work_through_the_real_claude_code(base: Path, kind: str):
    site = work(base, kind)
    check(site, claude(site))
