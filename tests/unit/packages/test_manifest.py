"""Manifests: read strictly, with one identity; names, versions, what stands on what."""

import hashlib
import itertools
import json
import random

import pytest

from paddock.errors import ConfigError
from paddock.packages.manifest import (
    Acceptance,
    Asset,
    find_collision,
    find_graph_problems,
    install_order,
    is_digest,
    is_package_id,
    parse_manifest,
    path_problem,
    place_problem,
    version_key,
)
from paddock.packages.rows import GateRefusedError
from tests.support.packages import manifest_json, manifest_of

FILES = {"HOT/kernel/b.txt": b"b\n", "HOT/kernel/a.txt": b"a\n"}


def parse(value):
    return parse_manifest(json.dumps(value).encode(), "manifest.json")


def test_every_field_is_read():
    found = manifest_of(
        FILES,
        config=("HOT/kernel/a.txt",),
        dependencies=["PKG-Z", "PKG-B"],
        acceptance=[{"command": "true", "timeout_s": 5}],
    )

    assert (found.package_id, found.version, found.layer) == ("PKG-A-001", "1.0.0", 1)
    assert (found.spec_id, found.framework_id, found.plane_id) == ("SPEC-A-001", "FMWK-000", "hot")
    assert found.dependencies == ("PKG-B", "PKG-Z")
    assert [asset.path for asset in found.assets] == ["HOT/kernel/a.txt", "HOT/kernel/b.txt"]
    assert [asset.is_config for asset in found.assets] == [True, False]
    assert found.acceptance == (Acceptance("true", 5),)
    assert found.by_path["HOT/kernel/a.txt"] == Asset(
        "HOT/kernel/a.txt", "sha256:" + hashlib.sha256(b"a\n").hexdigest(), "config"
    )


def test_the_identity_is_the_digest_of_the_canonical_bytes():
    found = manifest_of(FILES)

    assert found.digest == "sha256:" + hashlib.sha256(found.canonical).hexdigest()
    assert found.canonical.endswith(b"}\n")
    assert parse_manifest(found.canonical, "x") == found
    assert parse_manifest(found.canonical, "x").canonical == found.canonical


def test_layout_and_order_do_not_change_the_identity():
    value = manifest_json(FILES)
    turned = dict(reversed(value.items())) | {"assets": value["assets"][::-1]}
    del turned["acceptance"]

    assert parse(turned).digest == parse(value).digest
    assert parse_manifest(json.dumps(value, indent=7).encode(), "").digest == parse(value).digest


@pytest.mark.parametrize(
    "field",
    [
        {"package_id": "PKG-B-001"},
        {"version": "1.0.1"},
        {"title": "Another"},
        {"description": "Another"},
        {"spec_id": "SPEC-B"},
        {"framework_id": "FMWK-001"},
        {"layer": 2},
        {"dependencies": ["PKG-B"]},
        {"acceptance": [{"command": "true", "timeout_s": 5}]},
    ],
)
def test_every_field_is_part_of_the_identity(field):
    assert manifest_of(FILES, **field).digest != manifest_of(FILES).digest


DIGEST = "sha256:" + "0" * 64
ASSET = {"path": "HOT/a", "sha256": DIGEST, "classification": "text"}


@pytest.mark.parametrize(
    "change",
    [
        {"package_id": "pkg-a"},
        {"package_id": 1},
        {"version": "1.0"},
        {"version": None},
        {"schema_version": 2},
        {"schema_version": "1"},
        {"schema_version": True},
        {"title": ""},
        {"title": "x" * 201},
        {"description": 5},
        {"spec_id": ""},
        {"spec_id": "../x"},
        {"framework_id": "a b"},
        {"plane_id": "HOT"},
        {"plane_id": "ho3"},
        {"layer": -1},
        {"layer": 1.5},
        {"layer": "1"},
        {"layer": True},
        {"dependencies": "PKG-B"},
        {"dependencies": ["PKG-B", "PKG-B"]},
        {"dependencies": ["x"]},
        {"dependencies": ["PKG-A-001"]},
        {"dependencies": None},
        {"assets": []},
        {"assets": {}},
        {"assets": [ASSET, ASSET]},
        {"assets": [ASSET, ASSET | {"path": "HOT/A"}]},
        {"assets": [ASSET | {"path": "../a"}]},
        {"assets": [ASSET | {"sha256": "0" * 64}]},
        {"assets": [ASSET | {"sha256": DIGEST.upper()}]},
        {"assets": [ASSET | {"sha256": ""}]},
        {"assets": [ASSET | {"classification": "Config"}]},
        {"assets": [ASSET | {"mode": "755"}]},
        {"assets": [{"path": "HOT/a", "classification": "text"}]},
        {"acceptance": [{"command": "true"}]},
        {"acceptance": [{"command": " ", "timeout_s": 5}]},
        {"acceptance": [{"command": "true", "timeout_s": 0}]},
        {"acceptance": [{"command": "true", "timeout_s": 301}]},
        {"acceptance": [{"command": "true", "timeout_s": "5"}]},
        {"acceptance": ["true"]},
        {"unknown": 1},
    ],
)
def test_what_is_not_understood_does_not_load(change):
    with pytest.raises(ConfigError):
        parse(manifest_json(FILES) | change)


@pytest.mark.parametrize("name", sorted(manifest_json(FILES).keys() - {"acceptance"}))
def test_every_field_has_to_be_there(name):
    value = manifest_json(FILES)
    del value[name]
    with pytest.raises(ConfigError):
        parse(value)


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff{}", b'{"title": NaN}', b'{"a":1,"a":2}'])
def test_what_is_no_strict_json_does_not_load(text):
    with pytest.raises(ConfigError):
        parse_manifest(text, "manifest.json")


def test_a_package_may_have_100_acceptance_commands():
    commands = [{"command": f"true {count}", "timeout_s": 5} for count in range(100)]
    found = manifest_of(FILES, acceptance=commands).acceptance
    assert found == tuple(Acceptance(f"true {count}", 5) for count in range(100))


def test_a_101st_acceptance_command_is_refused_with_the_limit():
    commands = [{"command": "true", "timeout_s": 5}] * 101
    with pytest.raises(ConfigError) as caught:
        parse(manifest_json(FILES, acceptance=commands))
    assert (caught.value.message, caught.value.hint) == (
        "the package declares 101 acceptance commands",
        "at most 100: let one run the others",
    )


def test_a_path_of_40000_directories_is_refused_before_anything_is_made_of_it():
    deep = {"path": "a/" * 40_000 + "b", "sha256": DIGEST, "classification": "text"}
    with pytest.raises(ConfigError, match="too long for an archive"):
        parse(manifest_json(FILES) | {"assets": [deep]})


# What packages and their files may be called


@pytest.mark.parametrize("text", ["PKG-A", "PKG-ADMIN-001", "PKG--", "PKG-0"])
def test_a_package_id_is_upper_case(text):
    assert is_package_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "PKG-",
        "PKG-a",
        "pkg-A",
        "XPKG-A",
        "PKG-A ",
        "PKG-A\n",
        "PKG-../A",
        "PKG-À",
        "PKG-" + "A" * 97,
    ],
)
def test_nothing_else_is_a_package_id(text):
    assert not is_package_id(text)


def test_a_digest_has_its_prefix_and_64_lower_case_digits():
    assert is_digest("sha256:" + "0a" * 32)
    for text in ("0a" * 32, "sha256:" + "0A" * 32, "sha256:" + "0a" * 31, "sha512:" + "0a" * 32):
        assert not is_digest(text)
    assert not is_digest("sha256:" + "0a" * 32 + "\n")
    assert len("sha256:" + "0a" * 32) == 71


@pytest.mark.parametrize(
    "path", ["HOT/kernel/a.py", "HOT/a", "a b/c", "HO1/contracts/ü.json", ".hidden/x", "%2e%2e/x"]
)
def test_ordinary_names_are_taken(path):
    assert path_problem(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "HOT/../x",
        "HOT/..",
        "./HOT/x",
        "HOT//x",
        "HOT/x/",
        "HOT/./x",
        "HOT\\x",
        "HOT/x\0y",
        "HOT/x\ny",
        "HOT/\x1b[31m",
        "HOT/\u202ecod.exe",
        "HOT/a\u200bb",
        "HOT/e\u0301",
        "HOT/" + "a" * 256,
        "HOT/.paddock-" + "0" * 32 + ".tmp",
        "manifest.json",
        "Manifest.JSON",
        "HOT/\udc80",
    ],
)
def test_a_name_that_means_two_things_is_refused(path):
    assert path_problem(path) != ""


@pytest.mark.parametrize(
    "path",
    ["HOT/" + "a" * 96, "a" * 155 + "/" + "b" * 100, "a/" * 127 + "b", "HOT/" + "é" * 48],
)
def test_a_name_may_be_as_long_as_an_archive_has_room(path):
    assert path_problem(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "HOT/" + "a" * 101,
        "a" * 155 + "/" + "b" * 101,
        "a" * 156 + "/b",
        "a/" * 128 + "b",
        "HOT/" + "é" * 51,
        "a/" * 1_000_000 + "b",
    ],
)
def test_a_name_that_no_archive_holds_is_refused(path):
    assert path_problem(path) == (
        "the name is too long for an archive: at most 100 bytes, or 155, a slash and 100"
    )


@pytest.mark.parametrize(
    ("path", "plane_id"),
    [
        ("HOT/kernel/a", "hot"),
        ("HO2/kernel/a", "hot"),
        ("HO1/contracts/a", "ho2"),
        ("HO1/kernel/a", "ho1"),
        ("HOT/registries/specs/SPEC-A.json", "hot"),
    ],
)
def test_a_package_brings_files_to_its_tier_and_below(path, plane_id):
    assert place_problem(path, plane_id) == ""


@pytest.mark.parametrize(
    ("path", "plane_id"),
    [
        ("HOT/kernel/a", "ho2"),
        ("HO2/kernel/a", "ho1"),
        ("agents/admin/agent.json", "hot"),
        ("objects/x", "hot"),
        ("README.md", "hot"),
        ("HOT/registries/keys/x.json", "hot"),
        ("HOT/Registries/Keys/x.json", "hot"),
        ("HOT/registries/approvals/WO-1.json", "hot"),
        ("HOT/installed/PKG-B/receipt.json", "hot"),
        ("HOT/ledger/packages.jsonl", "hot"),
        ("HO2/ledger/ho2m.jsonl", "ho2"),
        ("HO2/scratch/x", "ho2"),
        ("hot/kernel/a", "hot"),
    ],
)
def test_no_package_brings_what_is_the_planes_own_or_above_it(path, plane_id):
    assert place_problem(path, plane_id) != ""


@pytest.mark.parametrize(
    "paths",
    [
        ["HOT/a", "HOT/A"],
        ["HOT/k/a", "HOT/K/b"],
        ["HOT/a", "HOT/a"],
        ["HOT/a", "HOT/a/b"],
        ["HOT/a/b", "HOT/A"],
        ["HOT/stra\u00dfe", "HOT/STRASSE"],
        ["HOT/\u00e9", "HOT/\u00c9"],
    ],
)
def test_names_that_are_one_somewhere_collide(paths):
    assert find_collision(paths) is not None
    assert find_collision(reversed(paths)) is not None


def test_names_that_are_always_two_do_not():
    assert find_collision(["HOT/a", "HOT/ab", "HOT/b/a", "HOT/b/c/a", "HO2/a"]) is None


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["HOT/a", "HOT/A"], ("HOT/a", "HOT/A")),
        (["HOT/k/a", "HOT/m", "HOT/K/b"], ("HOT/k", "HOT/K/b")),
        (["HOT/K/b", "HOT/k/a"], ("HOT/K", "HOT/k/a")),
        (["HOT/a/b", "HOT/ab", "HOT/A"], ("HOT/A", "HOT/a/")),
        (["HOT/a/b/c", "HOT/a-b", "HOT/a"], ("HOT/a", "HOT/a/")),
    ],
)
def test_a_collision_names_both_the_earlier_first(paths, found):
    assert find_collision(paths) == found


# Semantic versions: the grammar and the order of semver.org


# Point 11 of the specification, and the rest of the order.
ASCENDING = (
    "0.0.1 0.9.0 1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 "
    "1.0.0-rc.1 1.0.0 1.0.1 1.2.0 1.10.0 2.0.0"
).split()


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(ASCENDING, 2)))
def test_each_is_below_those_after_it(low, high):
    assert version_key(low) < version_key(high)


def test_build_metadata_does_not_count():
    assert version_key("1.0.0+a") == version_key("1.0.0+b.1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.2",
        "v1.2.3",
        "1.2.3.4",
        "01.2.3",
        "1.02.3",
        "1.2.3-",
        "1.2.3-01",
        "1.2.3+",
        "1.2.3 ",
        "１.2.3",
        "1.2.3\n",
        "1.2.3-" + "a" * 200,
    ],
)
def test_anything_else_is_no_version(text):
    assert version_key(text) is None


# What stands on what


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
        ([package("A", 1, "B"), package("B", 1, "A")], "form a cycle: PKG-A → PKG-B → PKG-A"),
        (
            [package("A", 1, "B"), package("B", 1, "C"), package("C", 1, "B")],
            "form a cycle: PKG-B → PKG-C → PKG-B",
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
