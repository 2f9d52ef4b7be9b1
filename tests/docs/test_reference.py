"""docs/reference/ is what the code says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.tools.toolsets import all_tools
from paddock.values.decisions import OPERATIONS
from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "reference"
PAGES = ("cli.md", "errors.md", "paddock.1", "policy.md", "python.md", "tools.md")


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


def test_every_action_and_every_tool_stands_in_the_table_of_actions():
    page = (FOLDER / "policy.md").read_text("utf-8")
    table = page.split("## Actions\n")[1].split("## Patterns\n")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `tool:")]
    heads = {row[0].removeprefix("| ").strip("`") for row in rows}
    known = {f"tool:{name}:{each}" for name in OPERATIONS for each in OPERATIONS[name]}
    assert heads == known | {"tool:client:NAME", "tool:own:NAME"}
    made = {row[0].removeprefix("| ").strip("`"): row[3].split() for row in rows}
    assert made["tool:file:delete"] == ["`move_file`", "`delete_file`"]
    assert {tool.name for tool in all_tools()} == {
        tool.strip("`") for tools in made.values() for tool in tools
    }


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="argparse words help differently")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_the_code_says(made: Path, page: str):
    assert (FOLDER / page).read_text("utf-8") == (made / page).read_text("utf-8"), "make reference"
