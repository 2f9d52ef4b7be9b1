"""What stands on what."""

import random

import pytest

from paddock.packages.manifest import find_graph_problems, install_order
from paddock.packages.rows import GateRefusedError
from tests.support.packages import manifest_of


def package(name: str, layer: int = 1, *needed: str):
    return manifest_of(
        {f"HOT/kernel/{name}": b"x"}, package_id=f"PKG-{name}", layer=layer,
        dependencies=[f"PKG-{each}" for each in needed],
    )  # fmt: skip


def order_of(*packages):
    return [each.package_id for each in install_order(packages)]


def test_layer_then_dependencies_then_name():
    packages = [
        package("Z", 0),
        package("A", 2, "Z"),
        package("C", 1, "D"),
        package("D", 1),
        package("B", 1, "Z"),
        package("E", 1, "C"),
    ]
    expected = ["PKG-Z", "PKG-B", "PKG-D", "PKG-C", "PKG-E", "PKG-A"]
    for seed in range(10):
        random.Random(seed).shuffle(packages)
        assert order_of(*packages) == expected


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        ([package("A", 1, "B")], "PKG-B, which is not installed"),
        ([package("A", 1, "B"), package("B", 1, "A")], "lead back: PKG-A → PKG-B → PKG-A"),
        (
            [package("A", 1, "B"), package("B", 1, "C"), package("C", 1, "B")],
            "lead back: PKG-B → PKG-C → PKG-B",
        ),
        ([package("A", 0, "B"), package("B", 1)], "layer 1"),
    ],
)
def test_a_graph_that_is_not_closed_is_refused(packages, said):
    assert any(
        said in str(each) for each in find_graph_problems({p.package_id: p for p in packages})
    )
    with pytest.raises(GateRefusedError) as caught:
        install_order(packages)
    assert caught.value.gate == "G3"


def test_one_id_twice_is_refused():
    with pytest.raises(GateRefusedError):
        install_order([package("A"), package("A", 2)])


def test_a_closed_graph_has_no_problems():
    packages = [package("A"), package("B", 1, "A"), package("C", 2, "A", "B")]
    assert find_graph_problems({each.package_id: each for each in packages}) == ()


def test_a_chain_longer_than_the_stack_is_walked():
    packages = [package("N0")]
    packages += [package(f"N{number}", 1, f"N{number - 1}") for number in range(1, 1500)]
    assert find_graph_problems({each.package_id: each for each in packages}) == ()
