"""G1 and G1-COMPLETE: packages, specs and frameworks, each row brought by somebody."""

import pytest

from paddock.gates.results import Status
from tests.support.gates import failed_files, install_approved, row

SPEC = "HOT/registries/specs/SPEC-A-001.json"
FRAMEWORK = "HOT/registries/frameworks/FMWK-000.json"
OTHER = "HOT/registries/frameworks/FMWK-100.json"


def rename(plane, name):
    plane.at(SPEC).rename(plane.at(f"HOT/registries/specs/{name}.json"))


BOTH = {
    "a spec points to another framework": lambda p: p.edit_json(SPEC, framework_id="FMWK-100"),
    "a spec points to no framework": lambda p: p.edit_json(SPEC, framework_id="FMWK-999"),
    "a framework has another id than its file": lambda p: p.edit_json(
        FRAMEWORK, framework_id="FMWK-100"
    ),
    "a row under another name": lambda p: rename(p, "SPEC-A-002"),
    "a row is empty": lambda p: p.write(SPEC, b""),
    "a row holds one thing more": lambda p: p.edit_json(SPEC, more=1),
    "a row became a program": lambda p: p.at(SPEC).chmod(0o755),
    "a row has another title": lambda p: p.edit_json(SPEC, title="B"),
    "a framework has another title": lambda p: p.edit_json(FRAMEWORK, title="B"),
    "a stranger's row does not load": lambda p: p.write("HOT/registries/specs/SPEC-X.json", b"{"),
}


@pytest.mark.parametrize("gate", ["G1", "G1-COMPLETE"])
@pytest.mark.parametrize("spoil", BOTH.values(), ids=BOTH)
def test_a_row_that_is_not_as_it_was_brought_fails_both(plane, gate, spoil):
    spoil(plane)

    assert plane.check(gate).status is Status.FAIL


@pytest.mark.parametrize(
    "fields",
    [
        {"spec_id": "SPEC-NONE"},
        {"spec_id": "spec-a-001"},
        {"spec_id": "SPEC-C-001"},
        {"framework_id": "FMWK-100"},
        {"framework_id": "FMWK-NONE"},
    ],
)
def test_g1_finds_a_package_whose_chain_does_not_resolve(plane, fields):
    plane.edit_package("PKG-A-001", **fields)

    assert "HOT/installed/PKG-A-001/manifest.json" in failed_files(plane.check("G1"))


def test_a_row_that_nobody_brought_resolves_nothing(plane):
    plane.remove(SPEC)
    plane.write(
        "HOT/registries/specs/SPEC-N-001.json",
        row(spec_id="SPEC-N-001", framework_id="FMWK-000", title="N"),
    )
    plane.edit_json(FRAMEWORK, specs=["SPEC-R-001", "SPEC-N-001"])

    assert "HOT/registries/specs/SPEC-N-001.json" in failed_files(plane.check("G1-COMPLETE"))


def test_a_package_that_brings_its_own_spec_passes(plane):
    files = {
        "HOT/kernel/n": b"n",
        "HOT/registries/specs/SPEC-N.json": row(
            spec_id="SPEC-N", framework_id="FMWK-000", title="N"
        ),
    }
    with plane.bench() as bench:
        install_approved(bench, files, package_id="PKG-N", spec_id="SPEC-N")

    assert [plane.check(gate).status for gate in ("G1", "G1-COMPLETE")] == [Status.PASS] * 2


def test_a_framework_that_nobody_uses_is_looked_at_too(plane):
    plane.remove("HOT/registries/specs/SPEC-C-001.json")
    with plane.bench() as bench:
        bench.uninstall("PKG-T-001")

    assert failed_files(plane.check("G1-COMPLETE")) == {"HOT/registries/specs/SPEC-C-001.json"}
