"""What every day of work is checked against, whatever door it went through."""

import faulthandler
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import run_command
from tests.work.doors import Said
from tests.work.sites import PROGRAMS, SITES, Site

SECONDS = int(os.environ.get("PADDOCK_WORK_SECONDS", "1"))
KINDS = [
    pytest.param(kind, marks=[pytest.mark.needs(PROGRAMS[kind])] if kind in PROGRAMS else [])
    for kind in SITES
]
SHOWN = "certs/test.key"
"""Secret by its name, and tracked: shown as the repository has it."""


@pytest.fixture
def base() -> Iterator[Path]:
    # A day starts a hundred processes: it is longer than another test may be before it hangs.
    faulthandler.dump_traceback_later(600 + 4 * SECONDS, exit=True)
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
