"""docs/reference/ is what the code says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "reference"
PAGES = ("cli.md", "errors.md", "policy.md", "tools.md")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, as a process of its own makes them now."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "make_reference.py"), "--into", str(folder)],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"},
        check=True,
    )
    return folder


def test_the_pages_are_these():
    assert tuple(sorted(path.name for path in FOLDER.iterdir())) == PAGES


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse words help differently")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_the_code_says(made: Path, page: str):
    assert (FOLDER / page).read_text("utf-8") == (made / page).read_text("utf-8"), "make reference"
