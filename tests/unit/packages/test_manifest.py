"""Manifests: read strictly, with one identity."""

import hashlib
import json

import pytest

from paddock.errors import ConfigError
from paddock.packages.manifest import Acceptance, Asset, parse_manifest
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
        "100 at most: let one run the others",
    )


def test_a_path_of_40000_directories_is_refused_before_anything_is_made_of_it():
    deep = {"path": "a/" * 40_000 + "b", "sha256": DIGEST, "classification": "text"}
    with pytest.raises(ConfigError, match="no room in an archive"):
        parse(manifest_json(FILES) | {"assets": [deep]})
