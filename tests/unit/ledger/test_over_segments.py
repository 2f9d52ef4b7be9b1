"""Whatever reads a ledger reads all its files: proofs, exports, effects, the verifier outside."""

import glob
import os
import subprocess
import sys

import pytest

from paddock.ledger.effects import find_effects
from paddock.ledger.export import export_lines
from paddock.ledger.format import leaf_hash
from paddock.ledger.format_merkle import verify_inclusion
from paddock.ledger.proof import prove_inclusion
from paddock.ledger.verify import verify
from paddock.values.entries import Entry
from tests.support.ledgers import open_ledger
from tests.support.repository import ROOT
from tests.support.sealed import seal_ledger

COUNT = 300


@pytest.fixture
def sealed(tmp_path):
    made = seal_ledger(tmp_path, COUNT)
    ledger = open_ledger(made.path, segment_bytes=9_000)
    for number in range(60):
        effects = [{"path": f"f{number}"}] if number % 20 == 0 else []
        ledger.append([Entry("TOOL_RESULT", metadata={"effects": effects, "f": "x" * 400})])
    ledger.close()
    return made


def text_of(path):
    parts = sorted(glob.glob(path.replace(".jsonl", ".*jsonl")))
    assert len(parts) > 3
    content = b""
    for part in parts:
        with open(part, "rb") as file:
            content += file.read()
    return content


def test_proofs_and_verification_go_over_the_seams(sealed):
    signed = sealed.checkpointer.make()
    lines = text_of(sealed.path).splitlines()

    found = verify(sealed.path)

    assert (found.problems, found.entries) == ((), len(lines))
    assert signed.checkpoint.size == len(lines)
    for seq in (0, COUNT - 1, COUNT, len(lines) - 1):
        proof = prove_inclusion(sealed.path, seq, signed)
        assert proof.leaf.hex() == leaf_hash(lines[seq])
        assert verify_inclusion(proof.leaf, seq, len(lines), proof.hashes, signed.checkpoint.root)


def test_an_export_holds_the_lines_of_all_files(sealed):
    assert list(export_lines(sealed.path, None)) == text_of(sealed.path).splitlines()


def test_effects_are_found_in_all_files(sealed):
    found = find_effects(sealed.path).results

    assert [row.entry.metadata["effects"][0]["path"] for row in found] == ["f0", "f20", "f40"]


def test_the_verifier_that_shares_no_code_reads_all_files(sealed, tmp_path):
    sealed.checkpointer.make()
    program = [sys.executable, str(ROOT / "docs" / "verify_ledger.py"), sealed.path]

    whole = subprocess.run(program, capture_output=True, text=True, check=False)
    os.unlink(sorted(glob.glob(sealed.path.replace(".jsonl", ".*jsonl")))[1])
    damaged = subprocess.run(program, capture_output=True, text=True, check=False)

    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert damaged.returncode == 4, damaged.stdout + damaged.stderr
