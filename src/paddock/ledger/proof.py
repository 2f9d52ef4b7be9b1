"""Proving to an outsider what a ledger holds: one entry, or that it only grew.

A proof is made for a checkpoint, out of the tree beside the ledger where that is
the checkpoint's, else out of the lines. What is handed out was verified first.
"""

from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from typing import Final, TypeVar

from msgspec import Struct

from paddock.errors import HostError, LedgerDamagedError, UsageError
from paddock.ledger.format.merkle import (
    LeafNodes,
    Nodes,
    consistency_path,
    inclusion_path,
    root_of,
    verify_consistency,
    verify_inclusion,
)
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint, format_inclusion
from paddock.ledger.read import LedgerReader
from paddock.ledger.segments import LedgerPaths
from paddock.ledger.tree import TreeFiles

T = TypeVar("T")
_HINT: Final = "paddock ledger verify says more"


class InclusionProof(Struct, frozen=True):
    """Entry `seq` is in the ledger that the note is about. `line` is the entry as it is stored."""

    seq: int
    size: int
    leaf: bytes
    hashes: tuple[bytes, ...]
    note: str

    @property
    def text(self) -> str:
        return format_inclusion(self.seq, self.hashes, self.note)


class ConsistencyProof(Struct, frozen=True):
    """The ledger of `old` entries is the beginning of the one that the note is about."""

    old: int
    old_root: bytes
    size: int
    hashes: tuple[bytes, ...]
    note: str


def prove_inclusion(path: str, seq: int, signed: SignedCheckpoint) -> InclusionProof:
    """Prove one entry against a checkpoint.

    Raises:
        UsageError: the checkpoint does not cover the entry.
        LedgerDamagedError: the ledger is not the one that was signed.
        HostError: it cannot be read.
    """
    _require_covered(signed.checkpoint, seq, seq + 1)
    return _prove(path, signed, lambda nodes: _inclusion(nodes, seq, signed))


def prove_consistency(path: str, old: int, signed: SignedCheckpoint) -> ConsistencyProof:
    """Prove that the ledger only grew since it had `old` entries. Raises as `prove_inclusion`."""
    _require_covered(signed.checkpoint, old, old)
    return _prove(path, signed, lambda nodes: _consistency(nodes, old, signed))


def _prove(path: str, signed: SignedCheckpoint, make: Callable[[Nodes], T | None]) -> T:
    try:
        with closing(TreeFiles(LedgerPaths(path).folder, create=False)) as tree:
            found = make(tree)
    except (LedgerDamagedError, HostError):
        found = None  # the files beside the ledger are not whole
    found = found or make(_leaf_nodes(path, signed.checkpoint))
    if found is None:
        raise LedgerDamagedError(
            f"the first {signed.checkpoint.size} entries are not those that were signed",
            where=ascii(path),
            hint=_HINT,
        )
    return found


def _inclusion(nodes: Nodes, seq: int, signed: SignedCheckpoint) -> InclusionProof | None:
    """The proof; None where the nodes are not those that were signed."""
    checkpoint = signed.checkpoint
    leaf = nodes.node(0, seq)
    hashes = inclusion_path(nodes, seq, checkpoint.size)
    if not verify_inclusion(leaf, seq, checkpoint.size, hashes, checkpoint.root):
        return None
    return InclusionProof(seq, checkpoint.size, leaf, tuple(hashes), signed.note)


def _consistency(nodes: Nodes, old: int, signed: SignedCheckpoint) -> ConsistencyProof | None:
    checkpoint = signed.checkpoint
    hashes = consistency_path(nodes, old, checkpoint.size)
    root = root_of(nodes, old)
    if not verify_consistency(old, checkpoint.size, root, checkpoint.root, hashes):
        return None
    return ConsistencyProof(old, root, checkpoint.size, tuple(hashes), signed.note)


def _leaf_nodes(path: str, checkpoint: Checkpoint) -> LeafNodes:
    leaves: list[bytes] = []
    with LedgerReader(path) as reader:
        for _, lines in reader.lines():
            missing = checkpoint.size - len(leaves)
            leaves += [sha256(b"\0" + line).digest() for line in lines[:missing]]
            if missing <= len(lines):
                return LeafNodes(leaves)
    raise LedgerDamagedError(
        f"{checkpoint.size} entries were signed, {len(leaves)} are here",
        where=ascii(path),
        hint=_HINT,
    )


def _require_covered(checkpoint: Checkpoint, asked: int, needed: int) -> None:
    if asked < 0 or needed > checkpoint.size:
        raise UsageError(
            f"the checkpoint covers entries 0 to {checkpoint.size - 1}, not {asked}",
            hint="paddock ledger checkpoint makes a newer one",
        )
