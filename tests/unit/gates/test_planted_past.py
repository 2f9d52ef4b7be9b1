"""Faults planted in a real plane: what runs there (G4), and what its ledgers tell (G6)."""

import json
import os
import shutil

import pytest

from paddock.gates.results import Status
from paddock.ledger.signing import make_key
from tests.support.gates import Plane, failed_files, write_chain
from tests.support.planted import (
    PLANTED,
    SLOW,
    Faults,
    moved_behind_a_link,
    passes_until,
)

GOVERNANCE, PACKAGES = "HOT/ledger/governance.jsonl", "HOT/ledger/packages.jsonl"
HO2M, HO1M = "HO2/ledger/ho2m.jsonl", "HO1/ledger/ho1m.jsonl"
SKILLS, SCRIPT = "HOT/installed/PKG-SKILLS-001/manifest.json", "HO1/tests/skills.sh"
MANIFEST = f"HOT/installed/{PLANTED}/manifest.json"


def says(text):
    return lambda p: p.at(SCRIPT).write_text(f"#!/bin/sh\n{text}\n")


RUNS: Faults = {
    "a test that fails": (SKILLS, says("exit 1")),
    "a test that fails with the largest number": (SKILLS, says("exit 255")),
    "a test that says that it passed": (SKILLS, says("echo passed; false")),
    "a test that is killed": (SKILLS, says("kill -9 $$")),
    "a test that stops itself hearing": (SKILLS, says("trap '' TERM; kill -KILL 0")),
    "a test that is no program text": (SKILLS, says("if")),
    "a test that fails behind much talk": (SKILLS, says("yes | head -c 3000000; exit 3")),
    "a test that was emptied": (SCRIPT, lambda p: os.truncate(p.at(SCRIPT), 0)),
    "a test that always passes": (SCRIPT, says("exit 0")),
    "a test that is a link to one that passes": (
        SCRIPT,
        lambda p: (
            p.write("HO2/scratch/x.sh", b"exit 0"),
            p.remove(SCRIPT),
            p.at(SCRIPT).symlink_to("../../HO2/scratch/x.sh"),
        ),
    ),
    "a test is gone": (SKILLS, lambda p: p.remove(SCRIPT)),
    "a folder for a test": (SCRIPT, lambda p: (p.remove(SCRIPT), p.at(SCRIPT).mkdir())),
    "what a test looks for is gone": (
        MANIFEST,
        lambda p: p.remove("HOT/kernel/planted-1/note.md"),
    ),
    "a second test that does not come back": (MANIFEST, lambda p: p.write(SLOW, b"")),
    "no test any more": (
        MANIFEST,
        lambda p: p.edit_package(PLANTED, acceptance=[]),
    ),
    "an easier test": (
        MANIFEST,
        lambda p: p.edit_package(PLANTED, acceptance=[{"command": "true", "timeout_s": 1}]),
    ),
    "nothing is installed any more": (SKILLS, lambda p: p.remove("HOT/installed")),
    "the past is gone": (PACKAGES, lambda p: p.remove(PACKAGES)),
}


@pytest.mark.parametrize("fault", RUNS.values(), ids=RUNS)
def test_g4_finds_what_was_planted(real, fault):
    file, spoil = fault

    spoil(real)

    assert file in failed_files(real.check("G4"))


def test_g4_passes_before_and_keeps_nothing_that_a_test_writes(real):
    assert real.check("G4").status is Status.PASS

    real.at(SCRIPT).write_text("echo x > HO2/scratch/x; echo x > HOT/kernel/README.md; exit 0\n")
    before = real.at("HOT/kernel/README.md").read_bytes()
    real.check("G4")

    assert not real.at("HO2/scratch/x").exists()
    assert real.at("HOT/kernel/README.md").read_bytes() == before


# G6


def lines_of(p, file):
    return p.at(file).read_bytes().splitlines(keepends=True)


def rewrite(p, file, change):
    found = lines_of(p, file)
    p.at(file).write_bytes(b"".join(change(found)))


def details(file):
    return file.replace(".jsonl", ".d")


def cut(p, file, kept):
    """The end is gone, and all that stood beside the ledger with it."""
    rewrite(p, file, lambda found: found[:kept])
    p.remove(details(file))


def told_anew(p, file, change):
    """Another story, whole in itself."""
    entries = [json.loads(line) for line in lines_of(p, file)]
    change(entries)
    write_chain(p.at(file), entries)


def reason(number, text):
    return lambda entries: entries[number].update(reason=text)


def with_another_key(entries):
    key = make_key("thief/ledger", bytes(range(2, 34)))
    entries[0]["metadata"]["public_key"] = str(key.verifier)


def put_back(*files):
    """As they were earlier, with all beside them."""

    def spoil(p):
        for file in files:
            p.put_back(file)
            p.put_back(details(file))

    return spoil


def forge_note(p, file):
    folder = p.at(f"{details(file)}/checkpoints")
    newest = max(folder.iterdir(), key=lambda path: int(path.name))
    text = newest.read_text()
    *_, signature = text.splitlines()
    newest.write_text(text.replace(signature, signature[:-8] + "AAAAAAA="))


def flip(p, file, number=1):
    def change(found):
        found[number] = found[number].replace(b'"event_type":"', b'"event_type":"X', 1)
        return found

    rewrite(p, file, change)


def spaced(found):
    """The same value, in other bytes."""
    found[1] = json.dumps(json.loads(found[1])).encode() + b"\n"
    return found


def doubled_key(found):
    found[-1] = found[-1].replace(b'{"id":', b'{"decision":"allow","id":', 1)
    return found


def escaped(found):
    """The same letter, written another way."""
    found[-1] = found[-1].replace(b'"event_type":"', b'"event_type":"\\u0041', 1)
    return found


def lost(*places):
    """Of what the operator's home keeps; careless, or a thief's first step."""

    def spoil(p):
        for place in places:
            shutil.rmtree(p.operator.home / place)

    return spoil


def whole_plane_back(p):
    shutil.rmtree(p.root)
    shutil.copytree(p.kept / "early", p.root, symlinks=True)


SIGNING_KEYS, ANCHORS = ".config/paddock/keys", ".local/state/paddock/anchors"


def uninstalled(entries):
    entries[:] = [each for each in entries if each["metadata"].get("package_id") != PLANTED]


PAST: Faults = {
    **{
        f"{what}: {file}": (file, spoil)
        for file in (PACKAGES, HO2M, HO1M)
        for what, spoil in {
            "it is empty": lambda p, f=file: os.truncate(p.at(f), 0),
            "it is behind a link": lambda p, f=file: moved_behind_a_link(p, f),
        }.items()
    },
    **{
        f"{what}: {file}": (file, spoil)
        for file in (GOVERNANCE, PACKAGES, HO2M, HO1M)
        for what, spoil in {
            "it is gone with all beside it": lambda p, f=file: (p.remove(f), p.remove(details(f))),
            "its end and all beside it are gone": lambda p, f=file: cut(p, f, -1),
            "only its first line is left": lambda p, f=file: cut(p, f, 1),
            "an entry is edited": lambda p, f=file: flip(p, f),
            "two entries changed places": lambda p, f=file: rewrite(
                p, f, lambda found: [found[0], *reversed(found[1:])]
            ),
            "an entry is spaced": lambda p, f=file: rewrite(p, f, spaced),
            "a key is given twice": lambda p, f=file: rewrite(p, f, doubled_key),
            "a letter is written another way": lambda p, f=file: rewrite(p, f, escaped),
            "it is told anew from the middle": lambda p, f=file: told_anew(
                p, f, reason(1, "nothing happened")
            ),
            "it was made with another key": lambda p, f=file: told_anew(p, f, with_another_key),
            "a block of zeros in it": lambda p, f=file: p.at(f).write_bytes(
                p.at(f).read_bytes()[:300] + bytes(64) + p.at(f).read_bytes()[364:]
            ),
            "a torn line behind it": lambda p, f=file: p.at(f).write_bytes(
                p.at(f).read_bytes() + b'{"id":"LED-'
            ),
            "its newest checkpoint is forged": lambda p, f=file: forge_note(p, f),
        }.items()
    },
    "an earlier copy of governance": (GOVERNANCE, put_back(GOVERNANCE)),
    "an earlier copy of the calls": (HO1M, put_back(HO1M)),
    "an earlier copy of the sessions": (HO2M, put_back(HO2M)),
    "an earlier copy of the packages": (PACKAGES, put_back(PACKAGES)),
    "an earlier copy of all ledgers": (GOVERNANCE, put_back(GOVERNANCE, PACKAGES, HO2M, HO1M)),
    "an earlier copy of the whole plane": (GOVERNANCE, whole_plane_back),
    "an earlier copy of it, and the keys were lost": (
        GOVERNANCE,
        lambda p: (lost(SIGNING_KEYS)(p), whole_plane_back(p)),
    ),
    "an earlier copy of it, and the anchors were lost": (
        GOVERNANCE,
        lambda p: (lost(ANCHORS)(p), whole_plane_back(p)),
    ),
    "governance told anew with another key, and the keys were lost": (
        GOVERNANCE,
        lambda p: (lost(SIGNING_KEYS)(p), told_anew(p, GOVERNANCE, with_another_key)),
    ),
    "a piece before a ledger's first": (
        HO1M,
        lambda p: p.write(HO1M.replace(".jsonl", f".{0:016}.jsonl"), lines_of(p, HO1M)[0]),
    ),
    "an empty piece in a ledger": (
        HO1M,
        lambda p: p.write(HO1M.replace(".jsonl", f".{3:016}.jsonl"), b""),
    ),
    "an install is cut out": (PACKAGES, lambda p: told_anew(p, PACKAGES, uninstalled)),
    "a package is gone": (MANIFEST, lambda p: p.remove(f"HOT/installed/{PLANTED}")),
    "nothing is installed any more": (MANIFEST, lambda p: p.remove("HOT/installed")),
    "a package more": (
        "HOT/installed/PKG-COPY",
        lambda p: shutil.copytree(p.at(f"HOT/installed/{PLANTED}"), p.at("HOT/installed/PKG-COPY")),
    ),
    "one ledger's bytes in another's place": (
        HO1M,
        lambda p: shutil.copy(p.at(HO2M), p.at(HO1M)),
    ),
}


@pytest.mark.parametrize("fault", PAST.values(), ids=PAST)
def test_g6_finds_what_was_planted(real, fault):
    passes_until(real, "G6", fault)


STOPPING = {
    "it is behind a link": lambda p: moved_behind_a_link(p, GOVERNANCE),
    "it is a folder": lambda p: (p.remove(GOVERNANCE), p.at(GOVERNANCE).mkdir()),
}
"""Without governance nothing can be put on record, so no command does anything."""


@pytest.mark.parametrize("spoil", STOPPING.values(), ids=STOPPING)
@pytest.mark.parametrize("gates", [("--gate", "G6"), ("--all",)], ids=["one", "all"])
def test_without_governance_the_door_stays_shut_and_g6_finds_it(real, spoil, gates):
    spoil(real)

    ran = real.operator.run("gate", *gates, "--json")
    assert (ran.status in {4, 5}, ran.out) == (True, "")
    assert GOVERNANCE in ran.err
    assert GOVERNANCE in failed_files(Plane.check(real, "G6"))


REPORTED = {
    "it is empty": lambda p: os.truncate(p.at(GOVERNANCE), 0),
    "no ledgers at all": lambda p: p.remove("HOT/ledger"),
}


@pytest.mark.parametrize("spoil", REPORTED.values(), ids=REPORTED)
@pytest.mark.parametrize("gates", [("--gate", "G6"), ("--all",)], ids=["one", "all"])
def test_a_governance_ledger_that_is_empty_or_gone_is_reported_and_the_check_fails(
    real, spoil, gates
):
    spoil(real)

    ran = real.operator.run("gate", *gates, "--json")
    assert ran.status == 1
    assert "G6" in {each["gate"] for each in ran.json["gates"] if each["status"] == "fail"}
