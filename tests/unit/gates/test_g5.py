"""G5: the whole set is signed, and so is every key that counts."""

import base64
import json
import shutil

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from paddock.errors import ConfigError, IntegrityError
from paddock.gates.results import Status
from paddock.ledger.signing import make_key
from paddock.packages.signing import enrol_key, public_half, sign_bytes
from paddock.packages.statements import SignedSet, sign_installed_set
from tests.support.gates import THIEF, failed_files, install_approved
from tests.support.packages import KEY

PKG = "PKG-A-001"
RECEIPT = f"HOT/installed/{PKG}/receipt.json"


def without(event_type):
    def change(entries):
        return [each for each in entries if each["event_type"] != event_type]

    return change


def edit(event_type, **metadata):
    def change(entries):
        for entry in entries:
            if entry["event_type"] == event_type:
                entry["metadata"] |= metadata

    return change


def last_signed_first(entries):
    """An old statement, written once more at the end."""
    signed = [each for each in entries if each["event_type"] == "PACKAGE_SET_SIGNED"]
    return [*entries, signed[0]]


def another_signature(plane):
    found = json.loads(plane.at(RECEIPT).read_bytes())["signature"]
    plane.edit_json(RECEIPT, signature={**found, "signature": found["signature"][::-1]})


MUTANTS = {
    "the signature of the set was turned": lambda p: p.rechain(
        "packages", edit("PACKAGE_SET_SIGNED", signature="A" * 86 + "==")
    ),
    "the set was signed by nobody": lambda p: p.rechain(
        "packages", edit("PACKAGE_SET_SIGNED", key_id="0" * 32)
    ),
    "an old statement stands there once more": lambda p: p.rechain("packages", last_signed_first),
    "the first key was never enrolled": lambda p: p.rechain(
        "packages", without("OPERATOR_KEY_ENROLLED")
    ),
    "another key was enrolled first": lambda p: p.rechain(
        "packages", edit("OPERATOR_KEY_ENROLLED", key_id=public_half(THIEF).key_id)
    ),
    "the key is another one": lambda p: (p.remove(p.key_file), p.enrol_thief()),
    "a manifest changed, and its receipt with it": lambda p: p.edit_package(PKG, title="B"),
    "a manifest changed, and the ledger with it": lambda p: (
        p.edit_package(PKG, title="B"),
        p.edit_install(PKG, digest=json.loads(p.at(RECEIPT).read_bytes())["digest"]),
    ),
    "a package more": lambda p: shutil.copytree(
        p.at(f"HOT/installed/{PKG}"), p.at("HOT/installed/PKG-COPY")
    ),
    "a version was lowered": lambda p: p.edit_package(PKG, version="0.9.0"),
    "a package's signature was turned": another_signature,
    "the last install was cut off": lambda p: p.rechain("packages", lambda entries: entries[:-1]),
    "the ledger is gone": lambda p: p.remove("HOT/ledger/packages.jsonl"),
    "the digest of the set is another in the ledger": lambda p: p.edit_install(
        PKG, set_digest="sha256:" + "0" * 64
    ),
}


@pytest.mark.parametrize("spoil", MUTANTS.values(), ids=MUTANTS)
def test_a_set_that_nobody_vouches_for_as_it_is_is_found(plane, spoil):
    spoil(plane)

    assert plane.check("G5").status is Status.FAIL


def test_installs_upgrades_and_removals_need_no_new_signature_of_the_set(plane):
    with plane.bench() as bench:
        install_approved(bench, {"HOT/kernel/n": b"n"}, package_id="PKG-N")
        install_approved(bench, {"HOT/kernel/n": b"m"}, package_id="PKG-N", version="2.0.0")
        bench.uninstall("PKG-T-001")

    assert plane.check("G5").status is Status.PASS


# Keys


def test_a_second_operators_key_counts_once_the_first_one_vouched_for_it(plane):
    enrol_key(plane.layout, public_half(THIEF))
    assert plane.check("G5").status is Status.FAIL
    with plane.bench() as bench:
        sign_installed_set(bench.depot, KEY)
        assert plane.check("G5").status is Status.PASS
        signed = sign_installed_set(bench.depot, THIEF)

    assert signed.key_id == public_half(THIEF).key_id
    assert plane.check("G5").status is Status.PASS


def test_a_key_that_vouches_for_itself_does_not_count(plane):
    enrol_key(plane.layout, public_half(THIEF))
    with plane.bench() as bench:
        sign_installed_set(bench.depot, THIEF)

    assert plane.check("G5").status is Status.FAIL


def test_a_key_that_was_taken_away_does_not_count_any_more(plane):
    enrol_key(plane.layout, public_half(THIEF))
    with plane.bench() as bench:
        sign_installed_set(bench.depot, KEY)
        plane.remove(f"HOT/registries/keys/{public_half(THIEF).key_id}.json")
        sign_installed_set(bench.depot, KEY)
        assert plane.check("G5").status is Status.PASS
        enrol_key(plane.layout, public_half(THIEF))
        sign_installed_set(bench.depot, THIEF)

    assert plane.check("G5").status is Status.FAIL


AUTHORITY = ("G2", "G3", "G5")


def hand_on(plane, bench) -> None:
    """The first operator enrols the second one, and leaves."""
    enrol_key(plane.layout, public_half(THIEF))
    sign_installed_set(bench.depot, KEY)
    plane.remove(plane.key_file)


def statuses(plane):
    return {gate: plane.check(gate).status for gate in AUTHORITY}


def test_who_left_keeps_his_word_for_what_an_operator_vouched_for_since(plane):
    with plane.bench() as bench:
        hand_on(plane, bench)
        assert statuses(plane) == dict.fromkeys(AUTHORITY, Status.FAIL)
        sign_installed_set(bench.depot, THIEF)

    assert statuses(plane) == dict.fromkeys(AUTHORITY, Status.PASS)


def test_his_word_outlasts_the_next_one_who_left_too(plane):
    third = make_key("third/operator", bytes(range(2, 34)))
    with plane.bench() as bench:
        hand_on(plane, bench)
        enrol_key(plane.layout, public_half(third))
        sign_installed_set(bench.depot, THIEF)
        plane.remove(f"HOT/registries/keys/{public_half(THIEF).key_id}.json")
        sign_installed_set(bench.depot, third)

    assert statuses(plane) == dict.fromkeys(AUTHORITY, Status.PASS)


def test_his_own_word_for_the_set_is_none_once_he_left(plane):
    with plane.bench() as bench:
        sign_installed_set(bench.depot, KEY)
        enrol_key(plane.layout, public_half(THIEF))
    plane.remove(plane.key_file)

    assert statuses(plane) == dict.fromkeys(AUTHORITY, Status.FAIL)


def install_with_his_key(plane, files, *, signed):
    """Somebody who has that key puts it back, installs, and takes it away again.

    No install accepts that any more, so a statement that lists the key is taken out afterwards.
    """
    enrol_key(plane.layout, public_half(KEY))
    with plane.bench() as bench:
        listing = sign_installed_set(bench.depot, THIEF)
        install_approved(bench, files, package_id="PKG-N", signed=signed)
    plane.remove(plane.key_file)
    plane.rechain(
        "packages",
        lambda entries: [
            each for each in entries if each["metadata"].get("signature") != listing.signature
        ],
    )


def test_what_came_with_his_key_after_he_left_is_never_vouched_for(plane):
    with plane.bench() as bench:
        hand_on(plane, bench)
        sign_installed_set(bench.depot, THIEF)
    install_with_his_key(plane, {"HOT/kernel/n": b"n"}, signed=True)
    with plane.bench() as bench:
        failing = {
            "G2": {"HOT/installed/PKG-N/manifest.json"},
            "G5": {"HOT/installed/PKG-N/receipt.json"},
        }
        assert {gate: failed_files(plane.check(gate)) for gate in failing} == failing
        sign_installed_set(bench.depot, THIEF)

    assert {gate: failed_files(plane.check(gate)) for gate in failing} == failing


def test_what_came_back_with_his_key_after_he_left_needs_another_approval(plane):
    """The very digest that an operator vouched for when it stood there before."""
    files = {"HOT/kernel/n": b"n"}
    with plane.bench() as bench:
        install_approved(bench, files, package_id="PKG-N")
        hand_on(plane, bench)
        sign_installed_set(bench.depot, THIEF)
        assert plane.check("G2").status is Status.PASS
        bench.uninstall("PKG-N")
    install_with_his_key(plane, files, signed=False)

    assert failed_files(plane.check("G2")) == {"HOT/installed/PKG-N/manifest.json"}


def test_a_forged_approval_in_his_name_is_found_after_he_left(plane):
    with plane.bench() as bench:
        hand_on(plane, bench)
        sign_installed_set(bench.depot, THIEF)
    plane.edit_json(plane.approval_of(PKG), scope=["**"])

    assert plane.approval_of(PKG) in failed_files(plane.check("G2"))
    assert plane.check("G3").status is Status.FAIL


def test_an_older_statement_cannot_bring_a_key_back(plane):
    enrol_key(plane.layout, public_half(THIEF))
    thief = f"HOT/registries/keys/{public_half(THIEF).key_id}.json"
    with plane.bench() as bench:
        sign_installed_set(bench.depot, KEY)
        plane.remove(thief)
        sign_installed_set(bench.depot, KEY)
    enrol_key(plane.layout, public_half(THIEF))

    def change(entries):
        older = {**entries[-2], "id": "LED-" + "1" * 32}
        return [*entries, older]

    plane.rechain("packages", change)

    assert thief in failed_files(plane.check("G5"))


def test_a_statement_about_another_set_does_not_count(plane):
    def change(entries):
        key = public_half(KEY)
        after, digest = entries[-1]["id"], "sha256:" + "0" * 64
        row = {"key_id": key.key_id, "public_key": base64.b64encode(key.public).decode()}
        fields = {"set_digest": digest, "keys": [row], "after": after, "key_id": key.key_id}
        draft = convert({**fields, "signature": ""}, SignedSet)
        signed = replace(draft, signature=sign_bytes(KEY, draft.signed_bytes()))
        made = {
            **entries[-1],
            "id": "LED-" + "1" * 32,
            "event_type": "PACKAGE_SET_SIGNED",
            "metadata": to_builtins(signed),
        }
        return [*entries, made]

    plane.rechain("packages", change)

    (failure,) = plane.check("G5").failures
    assert "the signature is for the set" in failure.reason


def test_a_strangers_key_cannot_sign(plane):
    with plane.bench() as bench, pytest.raises(ConfigError):
        sign_installed_set(bench.depot, THIEF)

    assert plane.check("G5").status is Status.PASS


def test_what_the_ledger_does_not_know_is_not_signed(plane):
    plane.edit_package(PKG, title="B")
    with plane.bench() as bench, pytest.raises(IntegrityError):
        sign_installed_set(bench.depot, KEY)
