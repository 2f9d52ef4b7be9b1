"""G3: dependencies are all there, lead nowhere back, and each came with an approval."""

import pytest

from paddock.gates.results import Status
from paddock.packages.install import InstallWish
from tests.support.gates import failed_files, make_plain_plane, with_dev

PKG = "PKG-A-001"


def drop(plane, package_id):
    """The package and all that was told of it."""
    plane.remove(f"HOT/installed/{package_id}")

    def change(entries):
        return [each for each in entries if each["metadata"].get("package_id") != package_id]

    plane.rechain("packages", change)


MUTANTS = {
    "a dependency in another case": lambda p: p.edit_package(PKG, dependencies=["pkg-r-001"]),
    "and nobody tells of it any more": lambda p: drop(p, "PKG-R-001"),
    "the ledger told of none": lambda p: p.edit_install(PKG, dependencies=[]),
    "that approval was edited": lambda p: p.edit_json(
        p.approval_of(PKG), expires="2099-01-01T00:00:00Z"
    ),
    "that approval is for something else": lambda p: p.approve_again(
        PKG, digest="sha256:" + "0" * 64
    ),
    "the ledger names no approval": lambda p: p.edit_install(PKG, wo_id=None),
    "a package's folder is a link": lambda p: (
        p.at(f"HOT/installed/{PKG}").rename(p.at("HO2/scratch/x")),
        p.at(f"HOT/installed/{PKG}").symlink_to(p.at("HO2/scratch/x")),
        p.remove("HO2/scratch/x"),
    ),
}


@pytest.mark.parametrize("spoil", MUTANTS.values(), ids=MUTANTS)
def test_a_graph_that_is_not_what_was_approved_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G3").status is Status.FAIL


def test_a_dependency_that_came_without_an_approval_is_found(plane):
    with plane.bench() as bench:
        wish = InstallWish(dev=True)
        bench.install(
            {"HOT/kernel/n": b"n"}, package_id="PKG-N", dependencies=[PKG], layer=3, wish=wish
        )
        bench.install({"HOT/kernel/m": b"m"}, package_id="PKG-M", wish=wish)

    assert failed_files(plane.check("G3")) == {"HOT/installed/PKG-N/manifest.json"}
    assert with_dev(plane).check("G3").status is Status.PASS


@pytest.mark.parametrize(
    ("package", "fields"),
    [
        ("PKG-R-001", {"dependencies": ["PKG-NONE"]}),
        ("PKG-R-001", {"dependencies": ["PKG-T-001"], "layer": 2}),
        ("PKG-R-001", {"layer": 9}),
        (PKG, {"dependencies": []}),
        (PKG, {"dependencies": ["PKG-R-001", "PKG-NONE"]}),
    ],
)
def test_a_graph_of_forged_packages_is_found_where_nobody_approves(plane, package, fields):
    plane.forge_package(package, **fields)

    assert with_dev(plane).check("G3").status is Status.FAIL


def test_forged_packages_whose_graph_holds_are_for_other_gates(plane):
    plane.forge_package("PKG-R-001", title="Another")

    assert with_dev(plane).check("G3").status is Status.PASS


def test_packages_that_depend_on_nothing_are_looked_at(tmp_path):
    result = make_plain_plane(tmp_path / "plane").check("G3")

    assert (result.status, result.checks) == (Status.PASS, 1)
