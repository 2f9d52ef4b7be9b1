"""What packages and their files may be called."""

import pytest

from paddock.packages.manifest import (
    find_collision,
    is_digest,
    is_package_id,
    path_problem,
    place_problem,
)


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
        "the name has no room in an archive: 100 bytes at most, or 155, a slash and 100"
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
