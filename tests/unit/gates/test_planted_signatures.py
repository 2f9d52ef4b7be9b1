"""Faults planted in a real plane: who vouches for what is installed (G5)."""

import base64

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
    passes_until,
    planted_archive,
    receipt,
    with_order_added,
)

KEYS, PACKAGES = "HOT/registries/keys", "HOT/ledger/packages.jsonl"


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
