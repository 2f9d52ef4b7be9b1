"""Every guarantee of the threat model is proved, and every proof is of a guarantee."""

import ast
import re
from pathlib import Path

import pytest

from tests.guarantees import GUARANTEES
from tests.mutants.run import Mutant
from tests.support.repository import ROOT

MUTANTS = ROOT / "tests" / "mutants"
IN_TABLE = [
    pytest.param(guarantee, name, id=name)
    for guarantee in GUARANTEES
    for name in GUARANTEES[guarantee].mutants
]


def promised() -> list[str]:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    return re.findall(r"^### (G\d+)\b", text, re.MULTILINE)


def test_the_document_and_the_table_hold_the_same_guarantees_in_order():
    assert (
        promised() == list(GUARANTEES) == [f"G{number}" for number in range(1, len(GUARANTEES) + 1)]
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_guarantee_has_tests_that_exist_and_a_mutant(guarantee: str):
    proof = GUARANTEES[guarantee]

    assert proof.tests != ()
    assert proof.mutants != ()
    assert [test for test in proof.tests if not _exists(test)] == []


@pytest.mark.parametrize(("guarantee", "name"), IN_TABLE)
def test_a_mutant_still_fits_the_code(guarantee: str, name: str):
    mutant = Mutant.read(name)
    text = (ROOT / mutant.file).read_text(encoding="utf-8")

    assert text.count(mutant.find) == 1, f"{guarantee}: what {name} looks for must stand there once"
    mutated = text.replace(mutant.find, mutant.replace)
    assert mutated != text
    if mutant.file.endswith(".py"):
        ast.parse(mutated)  # a syntax error would fail every test and prove nothing


def test_no_mutant_stands_outside_the_table():
    assert {path.name for path in MUTANTS.glob("*.toml")} == {
        name for proof in GUARANTEES.values() for name in proof.mutants
    }


def _exists(node_id: str) -> bool:
    """Whether the file of a node id is there, and holds the function it names."""
    name, _, test = node_id.partition("::")
    path: Path = ROOT / name
    if not test:
        return path.exists()
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return {part.partition("[")[0] for part in test.split("::")} <= names
