"""Proving to an outsider what a ledger holds: one entry, or that it only grew.

A proof is made for a checkpoint, out of the tree beside the ledger where that is
the checkpoint's, else out of the lines. What is handed out was verified first.
"""

from collections.abc import Callable
from contextlib import closing, suppress
from hashlib import sha256
from typing import TypeVar

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
from paddock.ledger.format.notes import SignedCheckpoint, format_inclusion
from paddock.ledger.read import LedgerReader
from paddock.ledger.segments import LedgerPaths
from paddock.ledger.tree import TreeFiles

T = TypeVar("T")


class InclusionProof(Struct, frozen=True):
    seq: int
    size: int
    leaf: bytes
    hashes: tuple[bytes, ...]
    note: str

    @property
    def text(self) -> str:
        return format_inclusion(self.seq, self.hashes, self.note)


class ConsistencyProof(Struct, frozen=True):
    old: int
    old_root: bytes
    size: int
    hashes: tuple[bytes, ...]
    note: str


def prove_inclusion(path: str, seq: int, signed: SignedCheckpoint) -> InclusionProof:
    """Raises: UsageError: not covered; LedgerDamagedError: not what was signed; HostError."""
    size, root = signed.checkpoint.size, signed.checkpoint.root

    def make(nodes: Nodes) -> InclusionProof | None:
        leaf, hashes = nodes.node(0, seq), inclusion_path(nodes, seq, size)
        if not verify_inclusion(leaf, seq, size, hashes, root):
            return None
        return InclusionProof(seq, size, leaf, tuple(hashes), signed.note)

    return _prove(path, signed, seq, seq + 1, make)


def prove_consistency(path: str, old: int, signed: SignedCheckpoint) -> ConsistencyProof:
    size, root = signed.checkpoint.size, signed.checkpoint.root

    def make(nodes: Nodes) -> ConsistencyProof | None:
        old_root, hashes = root_of(nodes, old), consistency_path(nodes, old, size)
        if not verify_consistency(old, size, old_root, root, hashes):
            return None
        return ConsistencyProof(old, old_root, size, tuple(hashes), signed.note)

    return _prove(path, signed, old, old, make)


def _prove(
    path: str, signed: SignedCheckpoint, asked: int, needed: int, make: Callable[[Nodes], T | None]
) -> T:
    """`make` gives None where the nodes are not those that were signed."""
    size = signed.checkpoint.size
    if asked < 0 or needed > size:
        raise UsageError(
            f"the checkpoint covers entries 0 to {size - 1}, not {asked}",
            hint="paddock ledger checkpoint makes a newer one",
        )
    found = None
    with (
        suppress(LedgerDamagedError, HostError),  # the files beside the ledger are not whole
        closing(TreeFiles(LedgerPaths(path).folder, create=False)) as tree,
    ):
        found = make(tree)
    leaves: list[bytes] = []
    if found is None:
        with LedgerReader(path) as reader:
            for _, lines in reader.lines():
                leaves += [sha256(b"\0" + line).digest() for line in lines[: size - len(leaves)]]
                if len(leaves) == size:
                    found = make(LeafNodes(leaves))
                    break
    if found is None:
        said = f"the first {size} entries are not those that were signed"
        if len(leaves) < size:
            said = f"{size} entries were signed, {len(leaves)} are here"
        raise LedgerDamagedError(said, where=ascii(path), hint="paddock ledger verify says more")
    return found
