"""G2: every package that changed the plane was approved, once, in time, within its scope."""

import json
import shutil

import pytest

from paddock.gates.results import Status
from paddock.packages.install import InstallWish
from paddock.packages.signing import exact_scope, make_approval, write_approval
from paddock.packages.statements import approve
from tests.support.gates import REGISTRIES, failed_files, install_approved
from tests.support.packages import KEY, NOW, manifest_of

PKG = "PKG-A-001"


def copied(plane, target: str, source: str) -> None:
    shutil.copy(plane.at(source), plane.at(target))


def uses_of(plane, package_id: str, wo_id: str) -> None:
    """The ledger tells that a package was installed with this approval, and chains."""
    plane.edit_install(package_id, wo_id=wo_id)


def used_later(plane) -> None:
    plane.edit_install(PKG, installed_at="2099-01-01T00:00:00Z")


MUTANTS = {
    "an empty folder of approvals": lambda p: [
        each.unlink() for each in p.at("HOT/registries/approvals").iterdir()
    ],
    "another package's approval under its name": lambda p: p.edit_json(
        p.approval_of(PKG),
        **{
            name: json.loads(p.at(p.approval_of("PKG-T-001")).read_bytes())[name]
            for name in ("digest", "scope", "signature", "expires")
        },
    ),
    "the expiry was moved": lambda p: p.edit_json(
        p.approval_of(PKG), expires="2099-01-01T00:00:00Z"
    ),
    "the signature was cut": lambda p: p.edit_json(p.approval_of(PKG), signature=""),
    "a field more": lambda p: p.edit_json(p.approval_of(PKG), more=1),
    "no text": lambda p: p.write(p.approval_of(PKG), b"\xff"),
    "the scope is too small": lambda p: p.approve_again(PKG, scope=["/HOT/kernel/**"]),
    "the scope names another case": lambda p: p.approve_again(
        PKG, scope=["/hot/**", "/ho2/**", "/ho1/**"]
    ),
    "it was used after it expired": used_later,
    "the key is gone": lambda p: p.remove(p.key_file),
    "the key is another one": lambda p: (p.remove(p.key_file), p.enrol_thief()),
    "the receipt names none": lambda p: p.edit_json(
        f"HOT/installed/{PKG}/receipt.json", wo_id=None
    ),
    "the ledger names another approval": lambda p: uses_of(p, PKG, "WO-" + "0" * 32),
    "a copy under another name": lambda p: copied(
        p, f"HOT/registries/approvals/WO-{'0' * 32}.json", p.approval_of(PKG)
    ),
    "the entry of the install is cut out": lambda p: p.rechain(
        "packages",
        lambda entries: [
            each
            for each in entries
            if each["metadata"].get("package_id") != PKG
            or each["event_type"] != "PACKAGE_INSTALLED"
        ],
    ),
    "the folder of approvals is open to others": lambda p: p.at("HOT/registries/approvals").chmod(
        0o777
    ),
}


@pytest.mark.parametrize("spoil", MUTANTS.values(), ids=MUTANTS)
def test_an_approval_that_does_not_carry_what_was_done_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G2").status is Status.FAIL


def test_one_approval_used_twice_for_one_package_is_found(plane):
    def change(entries):
        *before, last = entries
        earlier = {**last, "id": "LED-" + "1" * 32, "call_id": "TX-" + "1" * 32}
        gone = {
            **last,
            "id": "LED-" + "2" * 32,
            "call_id": "TX-" + "2" * 32,
            "event_type": "PACKAGE_UNINSTALLED",
            "metadata": {
                **{name: last["metadata"][name] for name in ("package_id", "version", "digest")},
                "set_digest": next(
                    each["metadata"]["set_digest"]
                    for each in reversed(before)
                    if each["event_type"] == "PACKAGE_INSTALLED"
                ),
            },
        }
        return [*before, earlier, gone, last]

    plane.rechain("packages", change)

    assert plane.check("G3").status is Status.PASS
    (failure,) = plane.check("G2").failures
    assert (failure.file, failure.reason) == (plane.approval_of("PKG-T-001"), "it was used 2 times")


@pytest.mark.parametrize("gate", ["G2", "G5"])
def test_a_package_without_an_approval_fails_until_it_has_one(plane, gate):
    files = {"HOT/kernel/n": b"n"}
    with plane.bench() as bench:
        bench.install(files, package_id="PKG-N", wish=InstallWish(dev=True))
        assert failed_files(plane.check(gate)) == {"HOT/installed/PKG-N/manifest.json"}
        approve(bench.depot, manifest_of(files, package_id="PKG-N"), KEY, (), 60)

    assert plane.check(gate).status is Status.PASS


def test_an_approval_that_waits_is_no_failure_and_a_forged_one_is(plane):
    manifest = manifest_of({"HOT/kernel/n": b"n"}, package_id="PKG-N")
    scope = exact_scope(manifest.by_path)
    made = make_approval(KEY, "WO-" + "1" * 32, manifest.digest, scope, NOW + 60)
    path = write_approval(plane.layout, made)
    assert plane.check("G2").status is Status.PASS

    found = json.loads(path.read_bytes())
    path.write_text(json.dumps(found | {"scope": ["**"]}))
    assert failed_files(plane.check("G2")) == {f"HOT/registries/approvals/WO-{'1' * 32}.json"}


def test_the_approval_of_what_is_gone_has_to_stay(plane):
    path = plane.approval_of("PKG-T-001")
    with plane.bench() as bench:
        bench.uninstall("PKG-T-001")
    assert plane.check("G2").status is Status.PASS

    plane.remove(path)
    assert failed_files(plane.check("G2")) == {path}


def test_an_upgrade_stands_on_its_own_approval(plane):
    with plane.bench() as bench:
        install_approved(
            bench,
            REGISTRIES | {"HOT/kernel/r": b"r"},
            package_id="PKG-R-001",
            spec_id="SPEC-R-001",
            layer=0,
            version="1.1.0",
        )
    assert plane.check("G2").status is Status.PASS

    plane.approve_again("PKG-R-001", scope=["/HOT/registries/**"])
    assert failed_files(plane.check("G2")) == {"HOT/installed/PKG-R-001/manifest.json"}
