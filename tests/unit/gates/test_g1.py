"""G1 and G1-COMPLETE: packages, specs and frameworks, each row brought by somebody."""

import os

import pytest

from paddock.gates.results import Status
from tests.support.gates import failed_files, install_approved, row

SPEC = "HOT/registries/specs/SPEC-A-001.json"
FRAMEWORK = "HOT/registries/frameworks/FMWK-000.json"
OTHER = "HOT/registries/frameworks/FMWK-100.json"


def move(plane, path, to):
    plane.at(path).rename(plane.at(to))


def link_to_copy(plane, path):
    copy = plane.write("HO2/scratch/copy.json", plane.at(path).read_bytes())
    plane.remove(path)
    plane.at(path).symlink_to(copy)


BOTH = {
    "a spec's row is missing": lambda p: p.remove(SPEC),
    "a framework's row is missing": lambda p: p.remove(FRAMEWORK),
    "a spec points to another framework": lambda p: p.edit_json(SPEC, framework_id="FMWK-100"),
    "a spec points to no framework": lambda p: p.edit_json(SPEC, framework_id="FMWK-999"),
    "a spec has another id than its file": lambda p: p.edit_json(SPEC, spec_id="SPEC-C-001"),
    "a framework has another id than its file": lambda p: p.edit_json(
        FRAMEWORK, framework_id="FMWK-100"
    ),
    "a row in another case": lambda p: move(p, SPEC, "HOT/registries/specs/spec-a-001.json"),
    "a row under another name": lambda p: move(p, SPEC, "HOT/registries/specs/SPEC-A-002.json"),
    "a row is empty": lambda p: p.write(SPEC, b""),
    "a row holds a key twice": lambda p: p.write(
        SPEC,
        b'{"spec_id":"SPEC-A-001","spec_id":"SPEC-A-001","framework_id":"FMWK-000","title":"A"}',
    ),
    "a row holds one thing more": lambda p: p.edit_json(SPEC, more=1),
    "a row is a link to a copy": lambda p: link_to_copy(p, SPEC),
    "a row is a directory": lambda p: (p.remove(SPEC), p.at(SPEC).mkdir()),
    "a row became a program": lambda p: p.at(SPEC).chmod(0o755),
    "a row has another title": lambda p: p.edit_json(SPEC, title="B"),
    "a framework has another title": lambda p: p.edit_json(FRAMEWORK, title="B"),
    "a stranger's row does not load": lambda p: p.write("HOT/registries/specs/SPEC-X.json", b"{"),
    "a framework is no file": lambda p: (p.remove(FRAMEWORK), os.mkfifo(p.at(FRAMEWORK))),
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


def test_a_package_without_its_rows_fails_g1_when_it_comes(plane):
    with plane.bench() as bench:
        install_approved(bench, {"HOT/kernel/n": b"n"}, package_id="PKG-N", spec_id="SPEC-N")

    assert failed_files(plane.check("G1")) == {"HOT/installed/PKG-N/manifest.json"}
    assert plane.check("G1-COMPLETE").status is Status.PASS


def test_a_package_that_names_another_framework_than_its_spec_fails_g1(plane):
    with plane.bench() as bench:
        install_approved(
            bench,
            {"HOT/kernel/n": b"n"},
            package_id="PKG-N",
            spec_id="SPEC-A-001",
            framework_id="FMWK-100",
        )

    assert failed_files(plane.check("G1")) == {"HOT/installed/PKG-N/manifest.json"}


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


FRAMEWORKS = {
    "a spec that is not there": ["SPEC-N", "SPEC-M"],
    "a spec that points elsewhere": ["SPEC-N", "SPEC-A-001"],
    "a spec in another case": ["spec-n"],
}


@pytest.mark.parametrize("specs", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_g1_complete_finds_what_a_framework_expects_in_vain(plane, specs):
    files = {
        "HOT/registries/specs/SPEC-N.json": row(spec_id="SPEC-N", framework_id="FMWK-N", title="N"),
        "HOT/registries/frameworks/FMWK-N.json": row(framework_id="FMWK-N", title="N", specs=specs),
    }
    with plane.bench() as bench:
        install_approved(bench, files, package_id="PKG-N", spec_id="SPEC-N", framework_id="FMWK-N")

    wrong = f"HOT/registries/specs/{specs[-1]}.json"
    assert failed_files(plane.check("G1-COMPLETE")) == {wrong}
    assert plane.check("G1").status is Status.PASS


def test_a_framework_that_nobody_uses_is_looked_at_too(plane):
    plane.remove("HOT/registries/specs/SPEC-C-001.json")
    with plane.bench() as bench:
        bench.uninstall("PKG-T-001")

    assert failed_files(plane.check("G1-COMPLETE")) == {"HOT/registries/specs/SPEC-C-001.json"}


def test_linked_registries_fail(plane):
    plane.at("HOT/registries/specs").rename(plane.at("HO2/scratch/specs"))
    plane.at("HOT/registries/specs").symlink_to(plane.at("HO2/scratch/specs"))

    assert plane.check("G1").status is Status.FAIL
    assert plane.check("G1-COMPLETE").status is Status.FAIL
