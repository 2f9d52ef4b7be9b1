"""A hostile tree: the same rows every time, and never one from outside."""

import os
import signal
from pathlib import Path

import pytest

from paddock.errors import InvalidPatternError
from paddock.tools.grep import GREP, GREP_DEV
from paddock.tools.listing import FIND, LS
from paddock.tools.spec import Ports
from paddock.workspace import Workspace
from tests.support.hostile_tree import build
from tests.support.shown import Shows

RUNS = 15
TOOLS = {tool.name: tool for tool in (GREP, FIND, LS, GREP_DEV)}
CALLS = [
    ("grep", {"pattern": "needle", "limit": 500}),
    ("grep", {"pattern": "needle", "limit": 20, "context": 3}),
    ("grep", {"pattern": "NEEDLE", "ignoreCase": True, "glob": "*.txt"}),
    ("grep", {"pattern": "needle$", "path": "sub", "limit": 1}),
    ("grep", {"pattern": "stands outside"}),
    ("find", {"pattern": "*"}),
    ("find", {"pattern": "*", "limit": 5}),
    ("find", {"pattern": "**/*e*"}),
    ("ls", {}),
    ("ls", {"path": "sub"}),
    ("grep_dev", {"pattern": "needle", "context_lines": 2, "max_results": 200}),
    ("grep_dev", {"pattern": "n[e]+dle", "max_results": 7}),
]


def call(ports, name, arguments):
    tool = TOOLS[name]
    bound, _ = tool.binder.bind(arguments)
    return tool.handler.run(tool.handler.resolve(bound, ports), ports)


@pytest.fixture(params=[1, 2, 3])
def ports(request, tmp_path):
    (tmp_path / "work").mkdir()
    build(tmp_path / "work", tmp_path / "outside", request.param)
    # Whatever hangs is killed: a FIFO must hold nobody.
    signal.alarm(120)
    with Workspace.open(str(tmp_path / "work")) as workspace:
        yield Ports(workspace, Shows(frozenset({".hidden"}), ("closed",)))
    signal.alarm(0)


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_a_hostile_tree_gives_the_same_rows_every_time(ports, name, arguments):
    first = call(ports, name, arguments)
    for _ in range(RUNS):
        assert call(ports, name, arguments) == first


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_no_row_of_a_hostile_tree_is_from_outside_or_broken(ports, name, arguments):
    output = call(ports, name, arguments)
    assert "outside" not in output.content
    for row in output.content.split("\n"):
        assert row.isprintable() or "\t" in row, row
    paths = [match["path"] for match in output.details.get("matches", [])]
    paths += [match["file"] for match in output.details.get("results", [])]
    root = Path(ports.workspace.root)
    for path in paths + output.details.get("paths", []):
        assert not path.startswith(("closed/c", ".hidden/", ".git/", "node_modules/")) or (
            name in ("find", "grep_dev")
        ), path
        if "\\x" not in path:
            target = root / path
            assert os.path.lexists(target), path
            assert not target.is_symlink(), path
            assert target.resolve().is_relative_to(root.resolve()), path


def test_the_rows_of_one_file_are_those_of_the_tree(ports):
    output = call(ports, "grep", {"pattern": "needle", "limit": 500})
    paths = sorted({match["path"] for match in output.details["matches"]})
    # The others are no paths that anyone could ask for.
    asked = [path for path in paths if path.isprintable() and "\\x" not in path]
    assert asked != []
    for path in asked:
        alone = call(ports, "grep", {"pattern": "needle", "limit": 500, "path": path})
        expected = [match for match in output.details["matches"] if match["path"] == path]
        assert alone.details["matches"] == expected


def test_a_bad_pattern_is_an_error_in_a_hostile_tree_too(ports):
    with pytest.raises(InvalidPatternError):
        call(ports, "grep", {"pattern": "[z-a]"})
