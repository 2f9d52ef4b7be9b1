"""Packages: one tree is one archive, one content one identity, and nothing else is read."""

import itertools
import json
import os
import random
import tempfile
from pathlib import Path

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from paddock.packages.archive import is_litter, pack, read_archive, unwrap, wrap
from paddock.packages.manifest import find_collision, parse_manifest, path_problem, version_key
from paddock.packages.rows import ArchiveRefusedError
from paddock.policy.compiled import fold
from tests.support.bad_archives import GOOD, GOOD_TAR
from tests.support.packages import archive_bytes, gzipped, lay_source, manifest_json, manifest_of

WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cf"]), min_size=1, max_size=12
)
PATHS = st.lists(WORDS, min_size=1, max_size=3).map(lambda parts: "HOT/" + "/".join(parts))
TREES = st.dictionaries(PATHS, st.binary(max_size=2_000), min_size=1, max_size=6)


def is_usable(files) -> bool:
    return (
        all(path_problem(path) == "" for path in files)
        and find_collision(files) is None
        and not any(is_litter(part) for path in files for part in path.split("/"))
    )


@settings(max_examples=20)
@given(TREES, st.integers(0, 0o777), st.integers(0, 2**31), st.randoms(use_true_random=False))
def test_one_tree_packs_to_one_archive_whatever_clock_umask_and_order(files, umask, moment, chance):
    assume(is_usable(files))
    with tempfile.TemporaryDirectory() as base:
        made = []
        for turn in range(2):
            shuffled = list(files.items())
            chance.shuffle(shuffled)
            source = lay_source(Path(base) / f"src{turn}", dict(shuffled))
            value = manifest_json(dict(shuffled))
            (source / "manifest.json").write_text(json.dumps(value, indent=turn or None))
            if turn:
                for path in source.rglob("*"):
                    os.utime(path, (moment, moment))
            before = os.umask(umask if turn else 0o022)
            try:
                made.append(pack(source, Path(base) / f"{turn}.tar.gz").archive.read_bytes())
            finally:
                os.umask(before)
    assert made[0] == made[1]


@given(TREES)
def test_what_is_packed_is_read_back(files):
    assume(is_usable(files))
    found = read_archive(archive_bytes(files))
    assert {each.path: each.content for each in found.files} == files
    assert found.manifest == manifest_of(files)


def shuffled(value, chance: random.Random):
    """The same JSON value with its members in another order."""
    if isinstance(value, dict):
        members = [(name, shuffled(each, chance)) for name, each in value.items()]
        chance.shuffle(members)
        return dict(members)
    return [shuffled(each, chance) for each in value] if isinstance(value, list) else value


@given(TREES, st.randoms(use_true_random=False), st.booleans(), st.integers(0, 4))
def test_the_identity_is_of_the_content_and_not_of_its_layout(files, chance, ascii_only, indent):
    assume(is_usable(files))
    value = manifest_json(files, dependencies=["PKG-B", "PKG-C"])
    other = shuffled(value, chance)
    chance.shuffle(other["assets"])
    chance.shuffle(other["dependencies"])
    text = json.dumps(other, ensure_ascii=ascii_only, indent=indent or None)
    assert (
        parse_manifest(text.encode(), "").digest
        == parse_manifest(json.dumps(value).encode(), "").digest
    )


@given(st.integers(0, len(GOOD_TAR) - 1), st.integers(1, 255))
@example(GOOD_TAR.index(b"It brings"), 1)
@settings(max_examples=200)
def test_a_byte_of_the_tar_that_is_another_is_refused_or_makes_another_identity(at, by):
    spoiled = bytearray(GOOD_TAR)
    spoiled[at] ^= by
    try:
        found = read_archive(gzipped(bytes(spoiled)))
    except ArchiveRefusedError:
        return
    good = read_archive(GOOD)
    # What people read in the manifest is covered by its digest, which is what is signed.
    is_another = found.manifest.digest != good.manifest.digest
    assert is_another or (found.manifest, found.files) == (good.manifest, good.files)


@given(st.binary(max_size=3_000))
@example(b"")
@example(b"\x1f\x8b")
def test_no_bytes_make_the_reader_fail_otherwise(content):
    for archive in (
        content,
        gzipped(content),
        gzipped(GOOD_TAR[:600] + content),
        GOOD[:40] + content,
    ):
        try:
            read_archive(archive)
        except ArchiveRefusedError:
            continue


@given(st.integers(0, len(GOOD)))
def test_no_beginning_of_an_archive_is_one(length):
    assume(length < len(GOOD))
    try:
        read_archive(GOOD[:length])
    except ArchiveRefusedError:
        return
    raise AssertionError(length)


@given(st.binary(max_size=200_000))
def test_the_gzip_layer_gives_back_what_it_got(content):
    assert unwrap(wrap(content)) == content


@given(st.text(max_size=40))
def test_a_path_that_is_taken_leads_nowhere_else(path):
    if path_problem(path) == "":
        assert os.path.normpath(path) == path
        assert not path.startswith(("/", "../"))
        assert path.encode().decode() == path


FEW = st.lists(st.sampled_from(["a", "A", "ab", "é", "É", "a-"]), min_size=1, max_size=4)


def may_meet(one, other):
    """Whether two names are one somewhere, or lie in directories that are, by looking at all."""
    for depth in range(1, min(len(one), len(other)) + 1):
        mine, theirs = "/".join(one[:depth]), "/".join(other[:depth])
        if fold(mine) == fold(theirs) and (mine != theirs or depth in {len(one), len(other)}):
            return True
    return False


@given(st.lists(FEW, max_size=6))
def test_a_collision_is_found_where_any_two_names_meet(names):
    meeting = any(may_meet(*pair) for pair in itertools.combinations(names, 2))
    assert (find_collision("/".join(parts) for parts in names) is not None) == meeting


NUMBERS = st.integers(0, 12)
VERSIONS = st.builds(
    lambda a, b, c, pre: f"{a}.{b}.{c}{pre}",
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.sampled_from(["", "-alpha", "-alpha.1", "-1", "-2.x", "-10", "+build"]),
)


@given(VERSIONS)
def test_a_version_has_its_place_whatever_was_built(version):
    key = version_key(version)
    assert key is not None
    assert version_key(version.partition("+")[0]) == key
