"""What holds of every gate: on a good plane it passes, and with its input gone it never does."""

import shutil

import pytest
from msgspec.structs import replace

from paddock.gates.checks import CHECKS, CHECKS_FOR_MODELS
from paddock.gates.results import (
    ALL_GATES,
    G0A,
    G2,
    G5,
    PLANE_GATES,
    GateResult,
    Status,
    Tally,
    not_applicable,
    results_json,
)
from paddock.packages.rows import Failure

INPUTS = {
    "G0B": ("HOT/installed", "HOT/kernel", "HOT", "HOT/scripts/run.sh"),
    "G1": ("HOT/registries/specs", "HOT/registries/frameworks", "HOT/registries", "HOT/installed"),
    "G1-COMPLETE": ("HOT/registries/frameworks", "HOT/registries/specs", "HOT/registries"),
    "G2": ("HOT/registries/approvals", "HOT/registries/keys", "HOT/ledger/packages.jsonl"),
    "G3": ("HOT/installed", "HOT/installed/PKG-R-001", "HOT/ledger/packages.jsonl"),
    "G4": ("HOT/installed", "HOT/installed/PKG-A-001/manifest.json", "HOT/ledger"),
    "G5": ("HOT/registries/keys", "HOT/installed", "HOT/ledger/packages.jsonl"),
    "G6": ("HOT/ledger", "HOT/ledger/governance.jsonl", "HOT/installed", "HO2/ledger/ho2m.jsonl"),
}


@pytest.mark.parametrize("gate", PLANE_GATES)
def test_it_passes_on_a_good_plane_and_has_looked_at_something(plane, gate):
    result = plane.check(gate)

    assert (result.status, result.failures) == (Status.PASS, ())
    assert result.checks > 0


@pytest.mark.parametrize(
    ("gate", "path"), [(gate, path) for gate, paths in INPUTS.items() for path in paths]
)
def test_it_does_not_pass_without_its_input(plane, gate, path):
    plane.remove(path)

    assert plane.check(gate).status is Status.FAIL


@pytest.mark.parametrize("gate", PLANE_GATES)
def test_it_does_not_pass_on_a_plane_that_holds_nothing(plane, gate):
    for path in ("HOT", "HO2", "HO1", "objects"):
        plane.remove(path)

    assert plane.check(gate).status is not Status.PASS


@pytest.mark.parametrize("gate", PLANE_GATES)
def test_where_nothing_was_ever_installed_no_gate_but_that_of_ledgers_applies(plane, gate):
    kept = plane.ledger("governance").read_bytes()
    shutil.rmtree(plane.root)
    for path in ("HOT/ledger", "HOT/config", "HO2/scratch", "HO1"):
        plane.at(path).mkdir(parents=True, mode=0o700)
    plane.ledger("governance").write_bytes(kept)

    result = plane.check(gate)

    if gate == "G6":
        assert result.status is Status.PASS
    else:
        assert (result.status, result.checks) == (Status.NOT_APPLICABLE, 0)
        assert result.note


@pytest.mark.parametrize("gate", [gate for gate in PLANE_GATES if gate != "G6"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda plane: plane.edit_package("PKG-A-001", title="Another title"),
        lambda plane: plane.edit_json("HOT/installed/PKG-T-001/receipt.json", dev=True),
        lambda plane: plane.edit_install("PKG-T-001", digest="sha256:" + "0" * 64),
        lambda plane: plane.rechain("packages", lambda entries: entries[:-1]),
        lambda plane: plane.remove("HOT/installed/PKG-T-001"),
        lambda plane: plane.write("objects/packages/transaction.json", b"{}"),
    ],
)
def test_it_does_not_believe_packages_that_the_ledger_does_not_know(plane, gate, spoil):
    spoil(plane)

    assert plane.check(gate).status is Status.FAIL


@pytest.mark.parametrize("gate", [G2, G5])
def test_on_a_plane_made_with_dev_nobody_has_to_approve_or_sign(plane, gate):
    result = replace(plane, is_dev=True).check(gate)

    assert (result.status, result.checks) == (Status.NOT_APPLICABLE, 0)
    assert "--dev" in result.note


@pytest.mark.parametrize("gate", [gate for gate in PLANE_GATES if gate not in {G2, G5}])
def test_on_a_plane_made_with_dev_the_others_look_all_the_same(plane, gate):
    assert replace(plane, is_dev=True).check(gate).status is Status.PASS


def test_no_reason_holds_a_path_of_the_host(plane):
    plane.remove("HOT/registries/keys")
    plane.at("HOT/registries/keys").symlink_to(plane.root / "HO2")

    failures = [failure for gate in PLANE_GATES for failure in plane.check(gate).failures]

    assert failures != []
    for failure in failures:
        assert str(plane.root) not in f"{failure.file} {failure.reason}"


def test_there_is_a_check_for_every_gate():
    assert tuple(CHECKS) == tuple(CHECKS_FOR_MODELS) == ALL_GATES
    assert tuple(gate for gate in ALL_GATES if gate != G0A) == PLANE_GATES


def test_of_a_plane_the_gate_of_archives_has_nothing_to_say(plane):
    assert plane.check(G0A).status is Status.NOT_APPLICABLE


def test_looking_changes_nothing(plane):
    def tree():
        return {
            path.relative_to(plane.root): (path.lstat().st_mode, path.lstat().st_mtime_ns)
            for path in plane.root.rglob("*")
        }

    before = tree()
    for gate in PLANE_GATES:
        plane.check(gate)

    assert tree() == before


# Results


def tallied(gate: str, looks: int, *failures: Failure) -> Tally:
    """What a gate counted: `looks` without a fault, and these failures."""
    tally = Tally(gate)
    tally.count(looks)
    tally.fail(failures)
    return tally


def test_nothing_looked_at_is_never_a_pass():
    assert tallied("G1", 0).result("nothing there") == not_applicable("G1", "nothing there")
    assert tallied("G1", 1).result("nothing there") == GateResult("G1", Status.PASS, 1)


def test_a_failure_is_a_failure_however_little_was_counted():
    failure = Failure("a", "b")
    assert tallied("G1", 0, failure).result("") == GateResult("G1", Status.FAIL, 1, (failure,))


def test_the_answers_are_counted():
    results = (
        tallied("G1", 2).result(""),
        tallied("G2", 1, Failure("f", "r")).result(""),
        not_applicable("G3", "why"),
    )

    assert results_json(results) == {
        "gates": [
            {"gate": "G1", "status": "pass", "checks": 2, "failures": [], "note": ""},
            {
                "gate": "G2",
                "status": "fail",
                "checks": 2,
                "failures": [{"file": "f", "reason": "r"}],
                "note": "",
            },
            {"gate": "G3", "status": "not_applicable", "checks": 0, "failures": [], "note": "why"},
        ],
        "passed": 1,
        "failed": 1,
        "not_applicable": 1,
    }
