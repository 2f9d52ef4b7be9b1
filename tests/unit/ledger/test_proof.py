"""Proofs come from the tree beside the ledger, or from its lines, and never from what is wrong."""

import os

import pytest

from paddock.errors import LedgerDamagedError, UsageError
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.notes import verify_consistency, verify_inclusion
from paddock.ledger.tree import prove_consistency, prove_inclusion
from tests.support.sealed import seal_ledger

COUNT = 700


@pytest.fixture
def sealed(tmp_path):
    return seal_ledger(tmp_path, COUNT)


HARM = {
    "whole": lambda folder: None,
    "no tree": lambda folder: [each.unlink() for each in folder.glob("tree.*")],
    "leaves lost": lambda folder: (folder / "tree.0").write_bytes(b""),
    "a false leaf": lambda folder: harmed(folder / "tree.0", 5 * 32),
    "a false node": lambda folder: harmed(folder / "tree.1", 0),
    "a directory": lambda folder: instead(folder / "tree.0").mkdir(),
    "a pipe": lambda folder: os.mkfifo(instead(folder / "tree.0")),
    "a link": lambda folder: instead(folder / "tree.0").symlink_to("/dev/zero"),
}


def instead(path):
    path.unlink()
    return path


def harmed(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", HARM)
def test_every_proof_verifies_whatever_stands_beside_the_ledger(sealed, name):
    signed = sealed.checkpointer.make()
    HARM[name](sealed.folder / "x.d")
    lines, root = sealed.lines(), signed.checkpoint.root

    for seq in (0, 5, 255, 256, COUNT - 1):
        proof = prove_inclusion(sealed.path, seq, signed)
        assert proof.leaf.hex() == leaf_hash(lines[seq])
        assert verify_inclusion(proof.leaf, seq, COUNT, proof.hashes, root)
    for old in (1, 6, 256, 257, COUNT):
        proof = prove_consistency(sealed.path, old, signed)
        assert verify_consistency(old, COUNT, proof.old_root, root, proof.hashes)


def test_an_older_checkpoint_proves_what_it_covers(sealed):
    signed = sealed.checkpointer.make()
    sealed.append(50)
    sealed.checkpointer.make()

    proof = prove_inclusion(sealed.path, 3, signed)

    assert (proof.size, proof.note) == (COUNT, signed.note)
    with pytest.raises(UsageError, match="covers entries 0 to 699, not 700"):
        prove_inclusion(sealed.path, COUNT, signed)
    with pytest.raises(UsageError, match="not 701"):
        prove_consistency(sealed.path, COUNT + 1, signed)


def test_a_ledger_that_is_not_the_one_signed_proves_nothing(sealed):
    signed = sealed.checkpointer.make()
    sealed.write(sealed.lines()[:-1])
    sealed.forget_sidecars()
    (sealed.folder / "x.d").mkdir()

    with pytest.raises(LedgerDamagedError, match="700 entries were signed, 699 are here"):
        prove_inclusion(sealed.path, 3, signed)

    sealed.write([*sealed.lines(), b"another"])
    with pytest.raises(LedgerDamagedError, match="not those that were signed"):
        prove_consistency(sealed.path, 3, signed)
