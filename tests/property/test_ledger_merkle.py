"""The tree agrees with the recursive definition of RFC 6962, however it grows."""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from paddock.ledger.format.notes import (
    Growing,
    consistency_path,
    inclusion_path,
    leaf_nodes,
    root_of,
    verify_consistency,
    verify_inclusion,
)


def split(size):
    power = 1
    while power * 2 < size:
        power *= 2
    return power


def naive_root(leaves):
    """MTH, from the words of the RFC."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    middle = split(len(leaves))
    pair = naive_root(leaves[:middle]) + naive_root(leaves[middle:])
    return sha256(b"\x01" + pair).digest()


def naive_path(index, leaves):
    """PATH."""
    if len(leaves) == 1:
        return []
    middle = split(len(leaves))
    if index < middle:
        return [*naive_path(index, leaves[:middle]), naive_root(leaves[middle:])]
    return [*naive_path(index - middle, leaves[middle:]), naive_root(leaves[:middle])]


def naive_proof(old, leaves, is_whole=True):
    """SUBPROOF."""
    if old == len(leaves):
        return [] if is_whole else [naive_root(leaves)]
    middle = split(len(leaves))
    if old <= middle:
        return [*naive_proof(old, leaves[:middle], is_whole), naive_root(leaves[middle:])]
    rest = naive_proof(old - middle, leaves[middle:], is_whole=False)
    return [*rest, naive_root(leaves[:middle])]


def leaves_of(count):
    return [sha256(b"\x00" + str(number).encode()).digest() for number in range(count)]


@given(st.lists(st.integers(0, 40), max_size=8))
def test_a_tree_that_grows_in_any_steps_has_the_root_of_its_leaves(steps):
    leaves = leaves_of(sum(steps))
    growing, at = Growing(), 0
    found = {0: {}}
    for step in steps:
        rows = growing.extend(leaves[at : at + step])
        at += step
        for level, row in enumerate(rows):
            for each in row:
                known = found.setdefault(level, {})
                known[len(known)] = each
        assert growing.root() == naive_root(leaves[:at])
    nodes = leaf_nodes(leaves)
    # Every subtree that became whole was told once, in order.
    for level, known in found.items():
        assert list(known.values()) == [nodes(level, n) for n in range(len(leaves) >> level)]


@given(st.data(), st.integers(1, 90))
def test_proofs_are_those_of_the_definition_and_verify(data, size):
    leaves = leaves_of(size)
    nodes = leaf_nodes(leaves)
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(1, size))
    root = root_of(nodes, size)

    path = inclusion_path(nodes, index, size)
    proof = consistency_path(nodes, old, size)

    assert root == naive_root(leaves)
    assert path == naive_path(index, leaves)
    assert proof == naive_proof(old, leaves)
    assert verify_inclusion(leaves[index], index, size, path, root)
    assert verify_consistency(old, size, naive_root(leaves[:old]), root, proof)


@given(st.data(), st.integers(2, 90))
def test_a_tree_of_other_leaves_is_not_consistent(data, size):
    leaves = leaves_of(size)
    old = data.draw(st.integers(1, size - 1))
    changed = data.draw(st.integers(0, old - 1))
    other = [*leaves]
    other[changed] = bytes(32)

    proof = consistency_path(leaf_nodes(other), old, size)

    old_root, root = naive_root(leaves[:old]), naive_root(other)
    assert not verify_consistency(old, size, old_root, root, proof)


@given(st.integers(0, 300), st.integers(0, 300))
def test_an_edge_goes_on_where_the_nodes_are_kept(first, second):
    leaves = leaves_of(first + second)
    growing = Growing.resume(leaf_nodes(leaves[:first]), first)
    growing.extend(leaves[first:])

    assert growing.root() == root_of(leaf_nodes(leaves), first + second)
