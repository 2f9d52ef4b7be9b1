"""Faults planted in a real plane: who wanted what is there (G2, G3), and who vouches for it (G5)."""

import base64
import shutil

import pytest

from paddock.gates.results import Status
from paddock.packages.installed import digest_of_rows
from paddock.packages.signing import public_half
from tests.support.gates import THIEF, failed_files
from tests.support.planted import (
    KERNEL,
    PLANTED,
    SKILLS,
    Faults,
    approval,
    key_file,
    manifest,
    moved_behind_a_link,
    passes_until,
    planted_archive,
    receipt,
    thief_instead,
    with_order_added,
)

APPROVALS, KEYS = "HOT/registries/approvals", "HOT/registries/keys"
PACKAGES = "HOT/ledger/packages.jsonl"


def signature_of(p, change):
    path = approval(p)
    p.edit_json(path, signature=change(p.json(path)["signature"]))


def renamed_copy(p):
    """A package that somebody copied and gave a name of its own."""
    shutil.copytree(p.at(f"HOT/installed/{PLANTED}"), p.at("HOT/installed/PKG-PLANTED-002"))
    for path in (manifest("PKG-PLANTED-002"), receipt("PKG-PLANTED-002")):
        p.edit_json(path, package_id="PKG-PLANTED-002")
    p.edit_package("PKG-PLANTED-002")


def told_again_with_one_approval(p):
    """The approval of another package carries this one, all else agreeing."""
    p.edit_receipt(PLANTED, wo_id=p.wo_of(SKILLS))
    p.edit_install(PLANTED, wo_id=p.wo_of(SKILLS))


def text_again(p, path, old, new):
    text = p.at(path).read_text()
    assert old in text
    p.at(path).write_text(text.replace(old, new, 1))


ORDERS: Faults = {
    "an approval is gone": (approval, lambda p: p.remove(approval(p))),
    "one of the bootstrap's is gone": (
        lambda p: p.approval_of(SKILLS),
        lambda p: p.remove(p.approval_of(SKILLS)),
    ),
    "no approvals": (approval, lambda p: p.remove(APPROVALS)),
    "no keys": (manifest(PLANTED), lambda p: p.remove(KEYS)),
    "no packages ledger": (
        manifest(PLANTED),
        lambda p: (p.remove(PACKAGES), p.remove("HOT/ledger/packages.d")),
    ),
    "a bit of its digest": (
        approval,
        lambda p: text_again(p, approval(p), p.json(approval(p))["digest"], "sha256:" + "0" * 64),
    ),
    "a signature in its other encoding": (approval, lambda p: signature_of(p, with_order_added)),
    "a signature with spare bits": (
        approval,
        lambda p: signature_of(p, lambda text: text[:-3] + chr(ord(text[-3]) + 1) + "=="),
    ),
    "a signature with a line break": (
        approval,
        lambda p: signature_of(p, lambda text: text + "\n"),
    ),
    "a signature of zeros": (
        approval,
        lambda p: signature_of(p, lambda _: base64.b64encode(bytes(64)).decode()),
    ),
    "a scope that was widened": (approval, lambda p: p.edit_json(approval(p), scope=["**"])),
    "a scope that leaves the file out": (
        manifest(PLANTED),
        lambda p: p.approve_again(PLANTED, scope=["/HOT/kernel/planted-1/*.txt", "/hot/**"]),
    ),
    "a scope of nothing": (approval, lambda p: p.edit_json(approval(p), scope=[])),
    "it had expired, honestly signed": (
        approval,
        lambda p: p.approve_again(PLANTED, expires_at=1_000_000_000),
    ),
    "it is for another package, honestly signed": (
        approval,
        lambda p: p.approve_again(PLANTED, digest=p.json(p.approval_of(SKILLS))["digest"]),
    ),
    "a time in another zone": (
        approval,
        lambda p: p.edit_json(approval(p), expires="2099-01-01T00:00:00+00:00"),
    ),
    "a field twice": (
        approval,
        lambda p: text_again(p, approval(p), '"scope"', '"scope": ["**"], "scope"'),
    ),
    "more behind its end": (
        approval,
        lambda p: p.at(approval(p)).write_bytes(p.at(approval(p)).read_bytes() + b"{}"),
    ),
    "it stands behind a link": (approval, lambda p: moved_behind_a_link(p, approval(p))),
    "two approvals changed places": (
        lambda p: min(approval(p), p.approval_of(SKILLS)),
        lambda p: (
            p.at(approval(p)).rename(p.at("HO2/scratch/x")),
            p.at(p.approval_of(SKILLS)).rename(p.at(approval(p))),
            p.at("HO2/scratch/x").rename(p.at(p.approval_of(SKILLS))),
        ),
    ),
    "a thief's key and approval": (approval, thief_instead),
    "a thief's key under the operator's name": (
        key_file,
        lambda p: p.edit_json(
            p.key_file, public_key=base64.b64encode(THIEF.verifier.public).decode()
        ),
    ),
    "one approval for two": (lambda p: p.approval_of(SKILLS), told_again_with_one_approval),
    "an install that names none": (
        manifest(PLANTED),
        lambda p: (p.edit_receipt(PLANTED, wo_id=None), p.edit_install(PLANTED, wo_id=None)),
    ),
    "the receipt names another's": (
        receipt(PLANTED),
        lambda p: p.edit_json(receipt(PLANTED), wo_id=p.wo_of(SKILLS)),
    ),
    "a package that was copied in": (manifest("PKG-PLANTED-002"), renamed_copy),
    "a package that nobody approved": (
        manifest("PKG-PLANTED-002"),
        lambda p: p.install(planted_archive(2), dev=True),
    ),
    "an upgrade that nobody approved": (
        manifest(PLANTED),
        lambda p: p.install(planted_archive(version="1.0.1"), dev=True),
    ),
    "other content under an approval that was used": (
        manifest(PLANTED),
        lambda p: p.forge_package(PLANTED, description="Another."),
    ),
}


@pytest.mark.parametrize("fault", ORDERS.values(), ids=ORDERS)
def test_g2_finds_what_was_planted(real, fault):
    passes_until(real, "G2", fault)


# G3


GRAPH: Faults = {
    "what others need was removed by hand": (
        manifest(KERNEL),
        lambda p: p.remove(f"HOT/installed/{KERNEL}"),
    ),
    "a way leads back": (
        manifest(KERNEL),
        lambda p: p.forge(KERNEL, ["PKG-REGISTRIES-001", PLANTED], layer=4),
    ),
    "a package needs itself": (manifest(PLANTED), lambda p: p.forge(PLANTED, [PLANTED])),
    "a package needs one that is none": (
        manifest(PLANTED),
        lambda p: p.forge(PLANTED, [KERNEL, "PKG-GHOST-001"]),
    ),
    "a dependency more, in manifest, receipt and past": (
        manifest(PLANTED),
        lambda p: p.forge(PLANTED, [KERNEL, SKILLS]),
    ),
    "a dependency more, in the manifest alone": (
        f"HOT/installed/{PLANTED}",
        lambda p: p.edit_json(manifest(PLANTED), dependencies=[KERNEL, SKILLS]),
    ),
    "a dependency less": (
        manifest(PLANTED),
        lambda p: p.edit_package(PLANTED, dependencies=[]),
    ),
    "a dependency twice": (
        f"HOT/installed/{PLANTED}",
        lambda p: p.edit_package(PLANTED, dependencies=[KERNEL, KERNEL]),
    ),
    "a dependency on a higher layer": (
        manifest("PKG-CONTRACTS-001"),
        lambda p: p.forge("PKG-CONTRACTS-001", ["PKG-REGISTRIES-001", "PKG-SCHEMAS-001", PLANTED]),
    ),
    "a package came without an approval, and needs one": (
        manifest("PKG-PLANTED-002"),
        lambda p: p.install(planted_archive(2), dev=True),
    ),
    "an upgrade brought a dependency without an approval": (
        manifest(PLANTED),
        lambda p: p.install(
            planted_archive(version="1.1.0", dependencies=[KERNEL, SKILLS]), dev=True
        ),
    ),
    "the approval of whoever brought it is gone": (
        manifest(PLANTED),
        lambda p: p.remove(approval(p)),
    ),
    "that approval is somebody else's": (manifest(PLANTED), thief_instead),
    "the past told of another": (
        manifest(PLANTED),
        lambda p: p.edit_install(PLANTED, dependencies=[SKILLS]),
    ),
    "nothing is installed any more": (manifest(PLANTED), lambda p: p.remove("HOT/installed")),
    "the past is gone": (
        manifest(PLANTED),
        lambda p: (p.remove(PACKAGES), p.remove("HOT/ledger/packages.d")),
    ),
}


@pytest.mark.parametrize("fault", GRAPH.values(), ids=GRAPH)
def test_g3_finds_what_was_planted(real, fault):
    passes_until(real, "G3", fault)


def test_a_dependency_that_went_from_a_forged_package_is_found_by_who_approved_it(real):
    real.forge(PLANTED, [])

    assert real.check("G3").status is Status.PASS  # nothing came, and what is there is closed
    assert manifest(PLANTED) in failed_files(real.check("G2"))


# G5


def vanished(p):
    """A package that is gone from the plane, and from a past that agrees with itself."""
    p.remove(f"HOT/installed/{SKILLS}")

    def change(entries):
        rows, kept = {}, []
        for entry in entries:
            metadata = entry["metadata"]
            if metadata.get("package_id") == SKILLS:
                continue
            if entry["event_type"] == "PACKAGE_INSTALLED":
                name = metadata["package_id"]
                rows[name] = (name, metadata["version"], metadata["digest"])
            if "set_digest" in metadata:
                metadata["set_digest"] = digest_of_rows(rows.values())
            kept.append(entry)
        return kept

    p.rechain("packages", change)


def edited(event_type, **metadata):
    def change(entries):
        for entry in entries:
            if entry["event_type"] == event_type:
                entry["metadata"] |= metadata

    return change


def by_a_thief(entries):
    """Somebody else signed in the operator's name."""
    for entry in entries:
        if entry["event_type"] == "PACKAGE_SET_SIGNED":
            signature = THIEF.sign(b"installed-set")
            entry["metadata"]["signature"] = base64.b64encode(signature).decode()


SIGNED: Faults = {
    "a key more": (
        f"{KEYS}/{public_half(THIEF).key_id}.json",
        lambda p: p.enrol_thief(),
    ),
    "no keys": (key_file, lambda p: p.remove(KEYS)),
    "the key is gone": (key_file, lambda p: p.remove(p.key_file)),
    "a thief's key under the operator's name": (
        key_file,
        lambda p: p.edit_json(
            p.key_file, public_key=base64.b64encode(THIEF.verifier.public).decode()
        ),
    ),
    "a bit of a package's signature": (
        receipt(SKILLS),
        lambda p: p.edit_receipt(
            SKILLS,
            signature=p.json(receipt(SKILLS))["signature"]
            | {"signature": p.json(receipt(KERNEL))["signature"]["signature"]},
        ),
    ),
    "a package's signature in its other encoding": (
        receipt(SKILLS),
        lambda p: p.edit_receipt(
            SKILLS,
            signature=p.json(receipt(SKILLS))["signature"]
            | {"signature": with_order_added(p.json(receipt(SKILLS))["signature"]["signature"])},
        ),
    ),
    "a package's signature is another's, whole": (
        receipt(SKILLS),
        lambda p: p.edit_receipt(SKILLS, signature=p.json(receipt(KERNEL))["signature"]),
    ),
    "a package's signature was taken away": (
        receipt(SKILLS),
        lambda p: p.edit_json(receipt(SKILLS), signature=None),
    ),
    "a manifest with a blank more": (
        f"HOT/installed/{SKILLS}",
        lambda p: p.at(manifest(SKILLS)).write_bytes(p.at(manifest(SKILLS)).read_bytes() + b" "),
    ),
    "a package was forged, with its past": (
        manifest(KERNEL),
        lambda p: (
            p.forge_package(KERNEL, title="Another"),
            p.edit_receipt(KERNEL, signature=None),
        ),
    ),
    "an older version, with its past": (
        manifest(PLANTED),
        lambda p: (
            p.edit_install(PLANTED, version="0.9.0"),
            p.forge_package(PLANTED, version="0.9.0"),
        ),
    ),
    "a package vanished, with its past": (PACKAGES, vanished),
    "a package was removed by hand": (
        "HOT/installed",
        lambda p: p.remove(f"HOT/installed/{SKILLS}"),
    ),
    "a package that nobody approved or signed": (
        manifest("PKG-PLANTED-002"),
        lambda p: p.install(planted_archive(2), dev=True),
    ),
    "what came later lost its approval": (manifest(PLANTED), lambda p: p.remove(approval(p))),
    "nobody ever signed": (
        PACKAGES,
        lambda p: p.rechain(
            "packages",
            lambda entries: [
                each for each in entries if each["event_type"] != "PACKAGE_SET_SIGNED"
            ],
        ),
    ),
    "the set was signed by a thief": (PACKAGES, lambda p: p.rechain("packages", by_a_thief)),
    "the signed set was another": (
        PACKAGES,
        lambda p: p.rechain(
            "packages", edited("PACKAGE_SET_SIGNED", set_digest="sha256:" + "0" * 64)
        ),
    ),
    "nothing is installed any more": ("HOT/installed", lambda p: p.remove("HOT/installed")),
    "the past is gone": (
        PACKAGES,
        lambda p: (p.remove(PACKAGES), p.remove("HOT/ledger/packages.d")),
    ),
}


@pytest.mark.parametrize("fault", SIGNED.values(), ids=SIGNED)
def test_g5_finds_what_was_planted(real, fault):
    passes_until(real, "G5", fault)


def test_a_package_that_came_unapproved_is_no_fault_once_it_is_gone(real):
    real.install(planted_archive(2), dev=True)
    assert failed_files(real.check("G5")) == {manifest("PKG-PLANTED-002")}

    real.command("package", "uninstall", "PKG-PLANTED-002")

    assert [real.check(gate).status for gate in ("G2", "G3", "G5", "G6")] == [Status.PASS] * 4
