"""A day's work of an agent in projects of several kinds, through each door: nothing is lost.

It installs, builds, tests, branches, commits, merges with a conflict, stashes, rebases and
cleans, under the built-in policy, and is asked nothing. `PADDOCK_WORK_SECONDS=180` lets its
tests run for three minutes; `PADDOCK_WORK_PROJECTS` names real projects (`sites.py`).
"""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import run_command
from tests.work.doors import DOORS, Said, claude
from tests.work.sites import PROGRAMS, SITES, Site

pytestmark = [pytest.mark.needs("stage", "git", "bash")]
SECONDS = int(os.environ.get("PADDOCK_WORK_SECONDS", "2"))
KINDS = [
    pytest.param(kind, marks=[pytest.mark.needs(PROGRAMS[kind])] if kind in PROGRAMS else [])
    for kind in SITES
]
SHOWN = "certs/test.key"
"""Secret by its name, and tracked: shown as the repository has it."""


@pytest.fixture
def base() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="paddock-day-") as name:
        yield Path(name)


def work(base: Path, kind: str) -> Site:
    return SITES[kind](base, SECONDS)


def without_shown(status: str) -> list[str]:
    return [row for row in status.splitlines() if not row.endswith(SHOWN)]


def check(site: Site, said: list[Said]) -> None:
    for step, heard in zip(site.day, said, strict=True):
        assert step.status is None or heard.status == step.status, (step.line, heard)
        assert step.says in heard.text, (step.line, heard)
    for path, content in site.kept.items():
        assert path.read_bytes() == content, path
    for name in site.made:
        assert (site.root / name).exists(), name
    site.git("fsck", "--no-dangling")
    on_host = without_shown(site.git("status", "--short", "--branch"))
    assert all(row in said[-1].text for row in on_host), (on_host, said[-1])
    assert SHOWN in site.git("ls-files"), "the tracked key is still in the index"
    assert site.git("show", f"HEAD:./{SHOWN}") == "a key for tests, in the repository\n"
    waiting = run_command("approvals", "list", "--json", variables=site.variables, here=site.root)
    assert json.loads(waiting.out) == [], "nobody was asked"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_day_of_work_loses_nothing_and_asks_nothing(base: Path, kind: str, door: str):
    site = work(base, kind)
    check(site, DOORS[door](site))


@pytest.mark.loopback
@pytest.mark.needs("claude")
@pytest.mark.parametrize("kind", KINDS)
def test_a_day_of_work_through_the_real_claude_code(base: Path, kind: str):
    site = work(base, kind)
    check(site, claude(site))
