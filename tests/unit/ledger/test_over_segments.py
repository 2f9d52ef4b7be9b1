"""Whatever reads a ledger reads all its files: proofs, exports, effects, the verifier outside."""

import glob
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.errors import HostError
from paddock.ledger.export import ExportedLines
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.notes import verify_inclusion
from paddock.ledger.query import Filter, find_effects, find_numbered, query
from paddock.ledger.tree import prove_inclusion
from paddock.ledger.verify import ChainFault, verify
from paddock.values.entries import Entry
from tests.support.ledgers import open_ledger
from tests.support.repository import ROOT
from tests.support.sealed import load_verifier, seal_ledger

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


def test_each_entry_is_found_by_its_number_and_what_was_before_it(sealed):
    lines = text_of(sealed.path).splitlines()

    for seq, line in enumerate(lines):
        assert find_numbered(sealed.path, seq).line == line
        before = query(sealed.path, Filter(), last=2, before=seq).entries
        assert [each.seq for each in before] == list(range(max(0, seq - 2), seq))
    assert find_numbered(sealed.path, len(lines)) is None


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
    assert list(ExportedLines(sealed.path, None)) == text_of(sealed.path).splitlines()


def test_effects_are_found_in_all_files(sealed):
    found = find_effects(sealed.path).results

    assert [row.entry.metadata["effects"][0]["path"] for row in found] == ["f0", "f20", "f40"]


def test_the_verifier_that_shares_no_code_reads_all_files(sealed, tmp_path):
    sealed.checkpointer.make()
    program = [sys.executable, str(ROOT / "src" / "paddock_verify.py"), sealed.path]

    whole = subprocess.run(program, capture_output=True, text=True, check=False)
    os.unlink(sorted(glob.glob(sealed.path.replace(".jsonl", ".*jsonl")))[1])
    damaged = subprocess.run(program, capture_output=True, text=True, check=False)

    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert damaged.returncode == 4, damaged.stdout + damaged.stderr


FILES_CHANGED = {
    "the first is empty": (0, lambda file: file.write_bytes(b"")),
    "the first is gone": (0, lambda file: file.unlink()),
    "the first lost a line": (0, lambda file: file.write_bytes(but_one(file, 0))),
    "one is empty": (1, lambda file: file.write_bytes(b"")),
    "one is gone": (1, lambda file: file.unlink()),
    "one lost its last line": (1, lambda file: file.write_bytes(but_one(file, -1))),
    "one lost its end": (1, lambda file: file.write_bytes(file.read_bytes()[:-1])),
    "one is of another size": (1, lambda file: file.write_bytes(file.read_bytes() + b"\n")),
    "one is a directory": (1, lambda file: (file.unlink(), file.mkdir())),
    "one is a pipe": (1, lambda file: (file.unlink(), os.mkfifo(file))),
    "the last is empty": (-1, lambda file: file.write_bytes(b"")),
    "the last is gone": (-1, lambda file: file.unlink()),
    "the last lost its last line": (-1, lambda file: file.write_bytes(but_one(file, -1))),
    "it comes twice": (1, lambda file: file.with_name(later(file)).write_bytes(file.read_bytes())),
    "it comes later": (1, lambda file: file.rename(file.with_name(later(file)))),
}


def later(_):
    return f"x.{10**15:016}.jsonl"


def but_one(file, at):
    lines = file.read_bytes().splitlines(keepends=True)
    del lines[at]
    return b"".join(lines)


@pytest.mark.parametrize("beside", [True, False], ids=["with sidecars", "without"])
@pytest.mark.parametrize("name", FILES_CHANGED)
def test_a_file_that_somebody_changed_is_found_and_stays_as_it_is(sealed, name, beside):
    at, change = FILES_CHANGED[name]
    memory = verify(sealed.path).memory
    if not beside:
        sealed.forget_sidecars()
    files = sorted(Path(sealed.folder).glob("x.0*.jsonl"))
    change(files[at])
    before = sorted(os.listdir(sealed.folder))

    for since in (None, memory):
        assert verdict(lambda since=since: verify(sealed.path, since=since).problems != ())
    assert verdict(lambda: load_verifier().verify_ledger(sealed.path, [])[0] != [])
    assert sorted(os.listdir(sealed.folder)) == before


def test_a_file_whose_name_says_another_place_is_found(sealed):
    file = sorted(Path(sealed.folder).glob("x.0*.jsonl"))[1]
    start = int(file.name[2:18])
    file.rename(file.with_name(f"x.{start + 1:016}.jsonl"))

    # The lines are those that were written, one after the other; a place by bytes is not.
    assert ChainFault.SEGMENT in {each.kind for each in verify(sealed.path).problems}
    assert load_verifier().verify_ledger(sealed.path, [])[0] == []


def verdict(act):
    """Whether something is found, or it cannot be read: never that all is well."""
    try:
        return act()
    except (HostError, OSError):
        return True


def test_a_file_that_was_about_to_be_sealed_is_read_once_by_both(sealed):
    sealed.checkpointer.make()
    other = load_verifier()
    begins = len(text_of(sealed.path)) - os.path.getsize(sealed.path)
    # Where a process is killed between link(2) and rename(2), until the next one appends.
    os.link(sealed.path, sealed.path.replace(".jsonl", f".{begins:016}.jsonl"))

    assert verify(sealed.path).problems == ()
    assert other.verify_ledger(sealed.path, [])[0] == []
