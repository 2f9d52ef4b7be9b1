"""What the ledgers of a plane are called, in a directory of whatever name."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest

from paddock.assembly.audit import Audit, audit_ledger
from paddock.assembly.ledgers import PlaneLedger
from paddock.ledger.read import find_genesis
from paddock.plane.environment import Environment, read_environment
from paddock.plane.layout import PlaneLayout, path_id
from paddock.values.decisions import PlaneKind
from paddock.values.entries import Entry
from tests.support.planes import operator_in


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return read_environment({"HOME": str(tmp_path / "home")})


def layout_in(directory: Path) -> PlaneLayout:
    (directory / "HOT" / "ledger").mkdir(parents=True, mode=0o700)
    return PlaneLayout(directory, PlaneKind.BARE)


def append(layout: PlaneLayout, environment: Environment) -> None:
    with closing(PlaneLedger(layout, environment, "governance").open()) as ledger:
        ledger.append([Entry("TEST", reason="for a test")])


def origin_of(layout: PlaneLayout) -> str:
    genesis = find_genesis(str(layout.ledger_paths()["governance"]))
    assert genesis is not None
    return genesis.origin


@pytest.mark.parametrize("name", ["plane", "a:b", "my%20plane", "~", "x" * 219])
def test_a_plain_name_stands_in_the_ledgers_name_as_it_is(name, tmp_path, environment):
    layout = layout_in(tmp_path / name)

    append(layout, environment)

    assert origin_of(layout) == f"paddock/{name}-{path_id(layout.root)}/governance"


def test_two_planes_in_directories_of_one_name_are_not_one_to_a_signer(tmp_path, environment):
    layouts = [layout_in(tmp_path / each / "plane") for each in ("one", "two")]

    for layout in layouts:
        append(layout, environment)

    assert origin_of(layouts[0]) != origin_of(layouts[1])


LONG = "è" * 127


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("my plane", "my%20plane"),
        ("a+b", "a%2Bb"),
        ("planè", "plan%C3%A8"),
        ("50% off", "50%25%20off"),
        ("nl\nx", "nl%0Ax"),
        (os.fsdecode(b"\xff"), "%FF"),
        ("x" * 220, "x" * 154 + "-" + hashlib.sha256(b"x" * 220).hexdigest()),
        (LONG, ("%C3%A8" * 127)[:154] + "-" + hashlib.sha256(LONG.encode()).hexdigest()),
    ],
)
def test_any_other_name_is_written_so_that_a_key_can_have_it(name, shown, tmp_path, environment):
    layout = layout_in(tmp_path / name)

    append(layout, environment)
    append(layout, environment)  # with the key and the name that are there by now

    assert origin_of(layout) == f"paddock/{shown}-{path_id(layout.root)}/governance"
    report = audit_ledger(PlaneLedger(layout, environment, "governance"), Audit(full=True))
    assert (report.problems, report.entries) == ((), 3)


def test_a_plane_in_a_directory_with_a_space_passes_its_gates(tmp_path):
    operator = operator_in(tmp_path)
    plane = tmp_path / "my own plane"

    ran = operator.run("init", "--bare", str(plane), here=tmp_path)

    assert (ran.status, ran.err) == (0, "")
    gates = operator.run("gate", "--all", "--enforce", here=plane)
    assert (gates.status, gates.err) == (0, "")
