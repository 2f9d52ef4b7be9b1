"""The Merkle tree of RFC 6962 over leaf hashes: roots, proofs, and their verification.

    MTH({})     = SHA-256()
    MTH({d})    = SHA-256(00 ‖ d)                      a leaf hash: `format.leaf_hash`
    MTH(D[0:n]) = SHA-256(01 ‖ MTH(D[0:k]) ‖ MTH(D[k:n]))   k the greatest power of two below n

Proofs are made from the hashes of whole subtrees, which somebody keeps (`Nodes`);
they are verified as RFC 9162 says in 2.1.3.2 and 2.1.4.2, without any tree.

Pure.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, Protocol

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()

_NODE: Final = b"\x01"
_BEGUN: Final = sha256(_NODE)


class Nodes(Protocol):
    def node(self, level: int, index: int) -> bytes: ...  # a subtree's root: of 2^level leaves


class LeafNodes:
    __slots__ = ("_levels",)

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self._levels = Growing().extend(leaves)

    def node(self, level: int, index: int) -> bytes:
        return self._levels[level][index]


class Growing:
    """The right edge of a tree that leaves are added to: one hash for each bit of its size."""

    __slots__ = ("_edge", "size")

    def __init__(self, size: int = 0, hashes: Sequence[bytes] = ()) -> None:
        self.size = size
        rest = iter(hashes)
        self._edge = [
            next(rest) if size >> level & 1 else None for level in range(size.bit_length())
        ]

    @classmethod
    def resume(cls, nodes: Nodes, size: int) -> "Growing":
        levels = [level for level in range(size.bit_length()) if size >> level & 1]
        return cls(size, [nodes.node(level, (size >> level) - 1) for level in levels])

    @classmethod
    def from_hashes(cls, size: int, hashes: Sequence[bytes]) -> "Growing | None":
        is_edge = size >= 0 and size.bit_count() == len(hashes)
        return cls(size, hashes) if is_edge and {*map(len, hashes)} <= {HASH_BYTES} else None

    def hashes(self) -> list[bytes]:
        """The edge, the smallest subtree first."""
        return [each for each in self._edge if each is not None]

    def extend(self, leaves: Sequence[bytes]) -> list[list[bytes]]:
        """Add leaf hashes; return, level by level, the subtrees that became whole."""
        self.size += len(leaves)
        rows: list[list[bytes]] = []
        row = list(leaves)
        level = 0
        while row:
            rows.append(row)
            if level == len(self._edge):
                self._edge.append(None)
            left = self._edge[level]
            # The rows are returned as they came: what was on the edge is no news.
            paired = row if left is None else [left, *row]
            self._edge[level] = paired[-1] if len(paired) % 2 else None
            row = _parents(paired)
            level += 1
        return rows

    def root(self) -> bytes:
        root = None
        for each in self.hashes():
            root = each if root is None else node_hash(each, root)
        return EMPTY_ROOT if root is None else root


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


def root_of(nodes: Nodes, size: int) -> bytes:
    return _subtree(nodes, 0, size) if size else EMPTY_ROOT


def inclusion_path(nodes: Nodes, index: int, size: int) -> list[bytes]:
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} of {size}")
    return _siblings(nodes, (index, index + 1), 0, size)


def consistency_path(nodes: Nodes, old: int, size: int) -> list[bytes]:
    """Empty where `old` is 0 or `size`: then there is nothing to prove."""
    if not 0 <= old <= size:
        raise ValueError(f"{old} leaves of {size}")
    if old in {0, size}:
        return []
    # The last whole subtree of the old tree; where that is all of it, the old root is known.
    begin = old & (old - 1)
    known = [_subtree(nodes, begin, old)] if begin else []
    return known + _siblings(nodes, (begin, old), 0, size)


def _siblings(nodes: Nodes, wanted: tuple[int, int], begin: int, end: int) -> list[bytes]:
    """The roots beside the way down to a subtree, the lowest first."""
    if (begin, end) == wanted:
        return []
    middle = begin + _split(end - begin)
    if wanted[1] <= middle:
        return [*_siblings(nodes, wanted, begin, middle), _subtree(nodes, middle, end)]
    return [*_siblings(nodes, wanted, middle, end), _subtree(nodes, begin, middle)]


def verify_inclusion(
    leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes
) -> bool:
    """RFC 9162, 2.1.3.2."""
    if not 0 <= index < size:
        return False
    found = _climb(index, size - 1, leaf, path)
    return found is not None and found[1] == root


def verify_consistency(
    old: int, size: int, old_root: bytes, root: bytes, path: Sequence[bytes]
) -> bool:
    """RFC 9162, 2.1.4.2."""
    if not 0 <= old <= size:
        return False
    if old in {0, size}:
        return not path and old_root == (root if old == size else EMPTY_ROOT)
    path = [old_root, *path] if old & (old - 1) == 0 else path
    here, last = old - 1, size - 1
    while here & 1:
        here, last = here >> 1, last >> 1
    return bool(path) and _climb(here, last, path[0], path[1:]) == (old_root, root)


def _climb(here: int, last: int, start: bytes, path: Sequence[bytes]) -> tuple[bytes, bytes] | None:
    """The roots of the tree that ends here, and of the whole."""
    first = second = start
    for each in path:
        if last == 0:
            return None
        if here & 1 or here == last:
            first, second = node_hash(each, first), node_hash(each, second)
            while not here & 1 and here:
                here, last = here >> 1, last >> 1
        else:
            second = node_hash(second, each)
        here, last = here >> 1, last >> 1
    return (first, second) if last == 0 else None


def _parents(row: Sequence[bytes]) -> list[bytes]:
    """A last one without a sibling has no parent yet."""
    # One for each leaf of a ledger: the copy of a hash that has begun is the cheapest.
    begin, found, rest = _BEGUN.copy, list[bytes](), iter(row)
    for left, right in zip(rest, rest, strict=False):
        digest = begin()
        digest.update(left)
        digest.update(right)
        found.append(digest.digest())
    return found


def _split(size: int) -> int:
    return 1 << (size - 1).bit_length() - 1


def _subtree(nodes: Nodes, begin: int, end: int) -> bytes:
    size = end - begin
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return nodes.node(level, begin >> level)
    middle = begin + _split(size)
    return node_hash(_subtree(nodes, begin, middle), _subtree(nodes, middle, end))
