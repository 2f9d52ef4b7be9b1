"""Faults planted in a real plane: what stands there (G0B, G1, G1-COMPLETE)."""

import os
import shutil

import pytest

from paddock.gates.results import Status
from paddock.values.entries import digest_of
from tests.support.gates import Plane, failed_files
from tests.support.planted import (
    PLANTED,
    Faults,
    moved_behind_a_link,
    passes_until,
    planted_archive,
)

NOTE = "HOT/kernel/planted-1/note.md"
SKILL = "HO1/skills/inspect-plane/SKILL.md"
POLICY, ADMIN_CONFIG = "HOT/config/policy.toml", "HOT/config/admin_config.json"
SPECS, FRAMEWORKS = "HOT/registries/specs", "HOT/registries/frameworks"
SPEC, FRAMEWORK = f"{SPECS}/SPEC-SKILLS-001.json", f"{FRAMEWORKS}/FMWK-200.json"
CALLS = "HOT/registries/approvals/calls"
MANIFEST = f"HOT/installed/{PLANTED}/manifest.json"


def edited_unseen(p, path, old, new) -> None:
    """Same size, same times."""
    at = p.at(path)
    status, content = at.stat(), at.read_bytes()
    assert old in content
    at.write_bytes(content.replace(old, new, 1))
    os.utime(at, ns=(status.st_atime_ns, status.st_mtime_ns))


# G0B

STANDING: Faults = {
    "a file edited, its size and time kept": (
        NOTE,
        lambda p: edited_unseen(p, NOTE, b"A", b"B"),
    ),
    "a block of zeros": (NOTE, lambda p: p.write(NOTE, b"\0" * 8)),
    "an edited file, its manifest and receipt": (
        MANIFEST,
        lambda p: (
            p.write(NOTE, b"B note.\n"),
            p.edit_package(PLANTED, assets=_with_digest(p, MANIFEST, "assets")),
            p.edit_json(MANIFEST.replace("manifest", "receipt"), files=_files_told(p)),
        ),
    ),
    "a file that became a link to its own bytes": (NOTE, lambda p: moved_behind_a_link(p, NOTE)),
    "a folder that became a link": (
        "HO1/skills/inspect-plane",
        lambda p: moved_behind_a_link(p, "HO1/skills/inspect-plane"),
    ),
    "a package's folder that became a link": (
        f"HOT/installed/{PLANTED}",
        lambda p: moved_behind_a_link(p, f"HOT/installed/{PLANTED}"),
    ),
    "a program made of a text": (SKILL, lambda p: p.at(SKILL).chmod(0o755)),
    "a text that nobody else can read": (SKILL, lambda p: p.at(SKILL).chmod(0o600)),
    "a sticky bit": (SKILL, lambda p: p.at(SKILL).chmod(0o1644)),
    "a folder that its group can write": (
        "HO1/skills",
        lambda p: p.at("HO1/skills").chmod(0o775),
    ),
    "a policy that everybody can write": (POLICY, lambda p: p.at(POLICY).chmod(0o666)),
    "a policy that its group can write": (POLICY, lambda p: p.at(POLICY).chmod(0o664)),
    "a policy that is a program": (POLICY, lambda p: p.at(POLICY).chmod(0o755)),
    "an orphan in the schemas": (
        "HOT/schemas/x.json",
        lambda p: p.write("HOT/schemas/x.json", b""),
    ),
    "an orphan in the tests": ("HO2/tests/.x", lambda p: p.write("HO2/tests/.x", b"")),
    "an orphan among skills": (
        "HO1/skills/inspect-plane/SKILL.md~",
        lambda p: p.write(f"{SKILL}~", b""),
    ),
    "a name with a line break": (
        r"HOT/scripts/a\nb",
        lambda p: p.write("HOT/scripts/a\nb", b""),
    ),
    "an empty folder with a blank for a name": (
        "HOT/kernel/ ",
        lambda p: p.at("HOT/kernel/ ").mkdir(),
    ),
    "a file in a folder of a package that left": (
        "HOT/kernel/planted-1/more.md",
        lambda p: (
            p.write("HOT/kernel/planted-1/more.md", b""),
            p.operator.run("package", "uninstall", PLANTED),
        ),
    ),
    "a file renamed by its case": (
        "HO1/skills/readme.md",
        lambda p: p.at("HO1/skills/README.md").rename(p.at("HO1/skills/readme.md")),
    ),
    "a hidden package": (
        f"HOT/installed/.paddock-{'0' * 32}.tmp",
        lambda p: shutil.copytree(
            p.at(f"HOT/installed/{PLANTED}"), p.at(f"HOT/installed/.paddock-{'0' * 32}.tmp")
        ),
    ),
    "a second copy of a receipt": (
        f"HOT/installed/{PLANTED}/receipt.json.orig",
        lambda p: p.write(f"HOT/installed/{PLANTED}/receipt.json.orig", b"{}"),
    ),
    "a hidden file among keys": (
        "HOT/registries/keys",
        lambda p: p.write("HOT/registries/keys/.x", b""),
    ),
    "a temporary among keys": (
        f"HOT/registries/keys/.paddock-{'0' * 32}.tmp",
        lambda p: p.write(f"HOT/registries/keys/.paddock-{'0' * 32}.tmp", b""),
    ),
    "an approval's copy": (
        "HOT/registries/approvals/WO-1.json",
        lambda p: shutil.copy(
            p.at(p.approval_of(PLANTED)), p.at("HOT/registries/approvals/WO-1.json")
        ),
    ),
    "a link among waiting calls": (
        f"{CALLS}/APR-{'0' * 16}.{'0' * 32}.json",
        lambda p: (
            p.at(CALLS).mkdir(mode=0o700, exist_ok=True),
            p.at(f"{CALLS}/APR-{'0' * 16}.{'0' * 32}.json").symlink_to("/dev/null"),
        ),
    ),
    "a ledger's copy": (
        "HOT/ledger/governance.jsonl.bak",
        lambda p: p.write("HOT/ledger/governance.jsonl.bak", b""),
    ),
    "a ledger that everybody can write": (
        "HO1/ledger/ho1m.jsonl",
        lambda p: p.at("HO1/ledger/ho1m.jsonl").chmod(0o666),
    ),
    "what is kept beside a ledger is behind a link": (
        "HO1/ledger/ho1m.d",
        lambda p: moved_behind_a_link(p, "HO1/ledger/ho1m.d"),
    ),
    "the packages' folder is gone": (MANIFEST, lambda p: p.remove("HOT/installed")),
    "a tier is gone": ("HO1", lambda p: p.remove("HO1")),
}


def _with_digest(p, path, name):
    digest = digest_of(p.at(NOTE).read_bytes())
    return [each | {"sha256": digest} for each in p.json(path)[name]]


def _files_told(p):
    return _with_digest(p, MANIFEST.replace("manifest", "receipt"), "files")


@pytest.mark.parametrize("fault", STANDING.values(), ids=STANDING)
def test_g0b_finds_what_was_planted(real, fault):
    passes_until(real, "G0B", fault)


BEFORE_IT_IS_LOADED: Faults = {
    "a policy that is a link to itself elsewhere": (
        POLICY,
        lambda p: moved_behind_a_link(p, POLICY),
    ),
    "a policy that does not load": (POLICY, lambda p: p.write(POLICY, b"[paths")),
    "a policy with a space more": (
        POLICY,
        lambda p: p.at(POLICY).write_bytes(p.at(POLICY).read_bytes() + b" "),
    ),
    "an admin who works on the plane": (
        ADMIN_CONFIG,
        lambda p: p.operator.change(tool_profile="development"),
    ),
    "a configuration that says a thing twice": (
        ADMIN_CONFIG,
        lambda p: text_for(p, ADMIN_CONFIG, "{", '{"tool_profile": "development",'),
    ),
    "a tier that everybody can write": ("HO1", lambda p: p.at("HO1").chmod(0o757)),
}
"""What a command line would stop at, or put on record, before any gate looks."""


@pytest.mark.parametrize("fault", BEFORE_IT_IS_LOADED.values(), ids=BEFORE_IT_IS_LOADED)
def test_g0b_finds_what_no_command_has_loaded_yet(real, fault):
    file, spoil = fault
    assert Plane.check(real, "G0B").status is Status.PASS

    spoil(real)

    assert file in failed_files(Plane.check(real, "G0B"))


def test_configuration_may_be_kept_closer_than_it_was_brought(real):
    real.at(POLICY).chmod(0o600)

    assert real.check("G0B").status is Status.PASS


# G1 and G1-COMPLETE


def fifo_for(p, path) -> None:
    p.remove(path)
    os.mkfifo(p.at(path))


def text_for(p, path, old, new) -> None:
    text = p.at(path).read_text()
    assert old in text
    p.at(path).write_text(text.replace(old, new, 1))


ROWS: Faults = {
    "a spec is gone": (
        "HOT/installed/PKG-SKILLS-001/manifest.json",
        lambda p: p.remove(SPEC),
    ),
    "all specs are gone": (MANIFEST, lambda p: p.remove(SPECS)),
    "a FIFO for a spec, which must not hang": (SPEC, lambda p: fifo_for(p, SPEC)),
    "a folder for a spec": (SPEC, lambda p: (p.remove(SPEC), p.at(SPEC).mkdir())),
    "a spec behind a link": (SPEC, lambda p: moved_behind_a_link(p, SPEC)),
    "specs behind a link": (SPEC, lambda p: moved_behind_a_link(p, SPECS)),
    "a spec cut off": (SPEC, lambda p: os.truncate(p.at(SPEC), 9)),
    "a spec that is a list": (SPEC, lambda p: p.write(SPEC, b"[]")),
    "a spec of brackets": (SPEC, lambda p: p.write(SPEC, b"[" * 60_000)),
    "a spec that says its framework twice": (
        SPEC,
        lambda p: text_for(p, SPEC, '"framework_id"', '"framework_id": "FMWK-000", "framework_id"'),
    ),
    "a spec under another's name": (
        SPEC,
        lambda p: shutil.copy(p.at(f"{SPECS}/SPEC-ADMIN-001.json"), p.at(SPEC)),
    ),
    "a spec of another framework, vouched for": (
        "HOT/installed/PKG-SKILLS-001/manifest.json",
        lambda p: p.forge_row(SPEC, framework_id="FMWK-100"),
    ),
    "a framework is gone": (
        "HOT/installed/PKG-SKILLS-001/manifest.json",
        lambda p: p.remove(FRAMEWORK),
    ),
    "a framework in another case": (
        f"{FRAMEWORKS}/fmwk-200.json",
        lambda p: p.at(FRAMEWORK).rename(p.at(f"{FRAMEWORKS}/fmwk-200.json")),
    ),
    "a package of a spec that nobody registered": (
        "HOT/installed/PKG-PLANTED-002/manifest.json",
        lambda p: p.install(planted_archive(2, spec_id="SPEC-GHOST-001"), dev=True),
    ),
    "a package of another framework than its spec": (
        "HOT/installed/PKG-PLANTED-002/manifest.json",
        lambda p: p.install(planted_archive(2, framework_id="FMWK-100"), dev=True),
    ),
    "a row that somebody put there": (
        f"{SPECS}/SPEC-GHOST-001.json",
        lambda p: (
            p.install(
                planted_archive(2, spec_id="SPEC-GHOST-001", framework_id="FMWK-200"), dev=True
            ),
            p.write(
                f"{SPECS}/SPEC-GHOST-001.json",
                p.at(SPEC).read_bytes().replace(b"SPEC-SKILLS", b"SPEC-GHOST"),
            ),
        ),
    ),
    "nothing is installed any more": (MANIFEST, lambda p: p.remove("HOT/installed")),
}


@pytest.mark.parametrize("fault", ROWS.values(), ids=ROWS)
def test_g1_finds_what_was_planted(real, fault):
    passes_until(real, "G1", fault)


def specs_of(p, path):
    return p.json(path)["specs"]


EXPECTED: Faults = {
    "a framework expects a spec that is none": (
        f"{SPECS}/SPEC-GHOST-001.json",
        lambda p: p.forge_row(FRAMEWORK, specs=[*specs_of(p, FRAMEWORK), "SPEC-GHOST-001"]),
    ),
    "a framework expects another's spec": (
        f"{SPECS}/SPEC-KERNEL-001.json",
        lambda p: p.forge_row(FRAMEWORK, specs=[*specs_of(p, FRAMEWORK), "SPEC-KERNEL-001"]),
    ),
    "a framework expects a spec in another case": (
        f"{SPECS}/spec-skills-001.json",
        lambda p: p.forge_row(FRAMEWORK, specs=["spec-skills-001"]),
    ),
    "a framework expects what leads out": (
        f"{SPECS}/../frameworks/FMWK-200.json",
        lambda p: p.forge_row(FRAMEWORK, specs=["../frameworks/FMWK-200"]),
    ),
    "a framework expects a number": (FRAMEWORK, lambda p: p.forge_row(FRAMEWORK, specs=[1])),
    "a framework expects a text for a list": (
        FRAMEWORK,
        lambda p: p.forge_row(FRAMEWORK, specs="SPEC-SKILLS-001"),
    ),
    "a spec that nobody uses any more points away": (
        SPEC,
        lambda p: (
            p.command("package", "uninstall", "PKG-SKILLS-001"),
            p.forge_row(SPEC, framework_id="FMWK-100"),
        ),
    ),
    "a framework that nobody brought": (
        f"{FRAMEWORKS}/FMWK-900.json",
        lambda p: p.write(
            f"{FRAMEWORKS}/FMWK-900.json", b'{"framework_id":"FMWK-900","title":"","specs":[]}'
        ),
    ),
    "a framework that expects less, unvouched": (
        FRAMEWORK,
        lambda p: p.edit_json(FRAMEWORK, specs=[]),
    ),
    "a framework of garbage": (FRAMEWORK, lambda p: p.write(FRAMEWORK, b"\xff\xfe")),
    "a FIFO for a framework, which must not hang": (FRAMEWORK, lambda p: fifo_for(p, FRAMEWORK)),
    "a hidden row": (
        f"{FRAMEWORKS}/.FMWK-200.json.swp",
        lambda p: p.write(f"{FRAMEWORKS}/.FMWK-200.json.swp", b""),
    ),
    "a spec is gone": (SPEC, lambda p: p.remove(SPEC)),
    "a framework is gone": (FRAMEWORK, lambda p: p.remove(FRAMEWORK)),
    "all frameworks are gone": (FRAMEWORK, lambda p: p.remove(FRAMEWORKS)),
    "both registries are gone": (FRAMEWORK, lambda p: p.remove("HOT/registries")),
}


@pytest.mark.parametrize("fault", EXPECTED.values(), ids=EXPECTED)
def test_g1_complete_finds_what_was_planted(real, fault):
    passes_until(real, "G1-COMPLETE", fault)
