"""The tree of RFC 6962, against the vectors that the Certificate Transparency project published."""

from hashlib import sha256

import pytest

from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.notes import (
    EMPTY_ROOT,
    Growing,
    consistency_path,
    inclusion_path,
    leaf_nodes,
    root_of,
    verify_consistency,
    verify_inclusion,
)

INPUTS = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# (leaf from 0, size): audit path; (old size, size): consistency proof.
PATHS = {
    (0, 1): [],
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (1, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
PROOFS = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
LEAVES = [bytes.fromhex(leaf_hash(each)) for each in INPUTS]
NODES = leaf_nodes(LEAVES)


def in_hex(path):
    return [each.hex() for each in path]


def test_the_root_of_nothing_is_the_hash_of_nothing():
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert root_of(leaf_nodes([]), 0) == Growing().root() == EMPTY_ROOT


@pytest.mark.parametrize("size", range(1, 9))
def test_the_published_roots_come_out(size):
    growing = Growing()
    growing.extend(LEAVES[:size])

    assert growing.root().hex() == root_of(NODES, size).hex() == ROOTS[size - 1]


@pytest.mark.parametrize(("leaf", "size"), PATHS)
def test_the_published_inclusion_proofs_come_out_and_verify(leaf, size):
    path = inclusion_path(NODES, leaf, size)

    assert in_hex(path) == PATHS[leaf, size]
    assert verify_inclusion(LEAVES[leaf], leaf, size, path, bytes.fromhex(ROOTS[size - 1]))


@pytest.mark.parametrize(("old", "size"), PROOFS)
def test_the_published_consistency_proofs_come_out_and_verify(old, size):
    path = consistency_path(NODES, old, size)
    old_root, root = bytes.fromhex(ROOTS[old - 1]), bytes.fromhex(ROOTS[size - 1])

    assert in_hex(path) == PROOFS[old, size]
    assert verify_consistency(old, size, old_root, root, path)


@pytest.mark.parametrize("size", range(1, 9))
def test_every_inclusion_proof_verifies_and_no_other_place_leaf_or_hash_does(size):
    root = root_of(NODES, size)
    for leaf in range(size):
        path = inclusion_path(NODES, leaf, size)
        assert verify_inclusion(LEAVES[leaf], leaf, size, path, root)
        for place in (*range(-1, leaf), *range(leaf + 1, size + 1)):
            assert not verify_inclusion(LEAVES[leaf], place, size, path, root)
        assert not verify_inclusion(sha256(b"other").digest(), leaf, size, path, root)
        assert not verify_inclusion(LEAVES[leaf], leaf, size, [*path, root], root)
        for at in range(len(path)):
            changed = [*path[:at], bytes(32), *path[at + 1 :]]
            assert not verify_inclusion(LEAVES[leaf], leaf, size, changed, root)
            assert not verify_inclusion(LEAVES[leaf], leaf, size, path[:at], root)


@pytest.mark.parametrize("size", range(1, 9))
def test_every_consistency_proof_verifies_and_no_changed_one_does(size):
    root = root_of(NODES, size)
    for old in range(size + 1):
        old_root = root_of(NODES, old)
        path = consistency_path(NODES, old, size)
        assert verify_consistency(old, size, old_root, root, path)
        assert not verify_consistency(old, size, old_root, root, [*path, root])
        assert not verify_consistency(size + 1, size, old_root, root, path)
        if old < size:
            assert not verify_consistency(old, size, root, root, path)
            assert not verify_consistency(old, size, old_root, bytes(32), path) or old == 0
        for at in range(len(path)):
            changed = [*path[:at], bytes(32), *path[at + 1 :]]
            assert not verify_consistency(old, size, old_root, root, changed)
            assert not verify_consistency(old, size, old_root, root, path[:at])


def test_there_is_no_proof_of_what_is_not_there():
    with pytest.raises(ValueError, match="leaf 8 of 8"):
        inclusion_path(NODES, 8, 8)
    with pytest.raises(ValueError, match="9 leaves of 8"):
        consistency_path(NODES, 9, 8)


def test_an_edge_of_the_wrong_size_is_none():
    growing = Growing()
    growing.extend(LEAVES[:6])

    again = Growing.from_hashes(6, growing.hashes())

    assert again.root() == growing.root()
    assert Growing.from_hashes(7, growing.hashes()) is None
    assert Growing.from_hashes(6, [b"short", b"short"]) is None
