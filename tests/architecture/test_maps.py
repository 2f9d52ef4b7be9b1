"""A folder's docstring is its map: rows that name what stands in the folder, and nothing else.

A row is indented by four; what stands before the first gap of two spaces are names. A name
with `*` speaks of all that begin alike.
"""

import ast
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.support.repository import PACKAGE, ROOT, modules

FOLDERS = sorted({path.parent for path in modules()} - {PACKAGE})
NAMES_OF_A_ROW = re.compile(r"    (?! )([\w*./, ]+?) {2,}")


def rows(folder: Path) -> list[str]:
    """The map of a folder; empty where its docstring has none."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree, clean=False) or ""
    return [row for row in docstring.split("\n") if row.startswith("    ")]


def holds(folder: Path) -> set[str]:
    """What stands in a folder: modules and folders, as they are imported."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def names(text: str) -> set[str]:
    return set(re.findall(r"\w+\*?", re.sub(r"\.py\b", "", text)))


def breaches(folder: Path) -> tuple[set[str], set[str]]:
    """What no row names, and what a row names that is not there."""
    mapped, there = rows(folder), holds(folder)
    found = names("\n".join(mapped))
    heads = [NAMES_OF_A_ROW.match(row) for row in mapped]
    claimed = {name for head in heads if head for name in names(head[1])}
    missing = {each for each in there if not any(fnmatchcase(each, name) for name in found)}
    return missing, {name for name in claimed if not any(fnmatchcase(e, name) for e in there)}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(PACKAGE)))
def test_a_map_names_everything_in_its_folder_and_nothing_that_is_gone(folder: Path):
    assert breaches(folder) == (set(), set())


def test_what_a_map_leaves_out_and_what_it_names_in_vain_is_found(tmp_path: Path):
    text = '"""X.\n\n    kept.py, gone   some  words\n    all_*, kept  y\n\nProse: left.\n"""\n'
    (tmp_path / "__init__.py").write_text(text)
    for name in ("kept.py", "all_of_it.py", "left.py"):
        (tmp_path / name).touch()

    assert breaches(tmp_path) == ({"left"}, {"gone"})


def test_the_page_on_architecture_names_every_layer_and_the_folders_in_it():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = text.split("## Folders")[1].split("\n## ")[0]
    layers = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    below = {path.parent.name for path in PACKAGE.glob("*/*/__init__.py")}
    files = {path.name for path in PACKAGE.glob("*.py")}

    wanted = {f"{name}/" for name in layers | below} | files
    assert {name for name in wanted if f"── {name}" not in folders} == set()
