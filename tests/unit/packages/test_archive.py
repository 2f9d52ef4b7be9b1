"""Reading archives: exactly what was declared, in one form, or nothing."""

import hashlib
import os
import re
from pathlib import Path

import pytest

from paddock.errors import ConfigError, UsageError
from paddock.packages.archive import (
    PackedFile,
    load_archive,
    read_archive,
    unwrap,
    wrap,
    write_members,
)
from paddock.packages.rows import ArchiveRefusedError
from tests.support.bad_archives import BAD, FILES, GOOD, made
from tests.support.disks import tree
from tests.support.packages import archive_bytes, gzipped, manifest_of, members_of, tar_bytes
from tests.support.planes import Operator, operator_in


def test_a_packed_archive_is_read_whole():
    found = read_archive(GOOD)

    assert found.manifest == manifest_of(FILES)
    assert found.files == tuple(PackedFile(path, FILES[path], 0o644) for path in sorted(FILES))
    assert found.sha256 == "sha256:" + hashlib.sha256(GOOD).hexdigest()


def test_another_program_may_pack_it_if_it_packs_the_same_members():
    """The order of members and the compressor carry no meaning."""
    found = read_archive(gzipped(tar_bytes(members_of(FILES)[::-1])))

    assert (found.manifest, found.files) == (read_archive(GOOD).manifest, read_archive(GOOD).files)
    assert found.sha256 != read_archive(GOOD).sha256


def test_a_program_stays_one():
    content = b"#!/bin/sh\n"
    found = read_archive(archive_bytes({"HOT/scripts/x": content}))

    assert found.files == (PackedFile("HOT/scripts/x", content, 0o755),)


def test_a_name_of_255_bytes_has_room():
    name = "HOT/" + "d" * 150 + "/" + "f" * 100
    assert len(name) == 255
    assert read_archive(archive_bytes({name: b"x"})).files[0].path == name


def test_other_programs_split_a_long_name_alike():
    files = {"HOT/" + "d" * 80 + "/" + "e" * 60 + "/" + "f" * 50: b"x"}

    assert read_archive(gzipped(tar_bytes(members_of(files)))).files[0].path in files


def test_a_name_without_room_is_not_packed():
    with pytest.raises(ArchiveRefusedError, match="too long"):
        write_members([PackedFile("HOT/" + "/".join(["d" * 70] * 3) + "/" + "f" * 37, b"x", 0o644)])


def test_an_archive_has_the_same_bytes_whichever_python_makes_it():
    digest = "sha256:a4a2aa0cc879fcee0f10deced2b3999c6cfd0840f9bce1c45be91875989ce71e"
    assert read_archive(GOOD).sha256 == digest


def test_a_spoiled_archive_is_refused_and_the_reason_said():
    for what, content in made().items():
        with pytest.raises(ArchiveRefusedError) as refused:
            read_archive(content)
        assert re.search(f"(?i){BAD[what][1]}", str(refused.value)), what


@pytest.fixture(scope="module")
def operator(tmp_path_factory) -> Operator:
    return operator_in(tmp_path_factory.mktemp("plane")).make("--dev")


def test_installing_a_spoiled_archive_writes_nothing_at_all(operator):
    archive = operator.base / "bad.tar.gz"
    archive.touch()
    before = tree(operator.base)
    for what, content in made().items():
        archive.write_bytes(content)
        ran = operator.run("package", "install", str(archive), "--json")
        assert (ran.status, ran.json["status"], ran.json["gate"]) == (2, "refused", "G0A"), what
        archive.write_bytes(b"")
        assert tree(operator.base) == before, what


def test_the_good_one_is_installed_there(operator):
    archive = operator.base / "good.tar.gz"
    archive.write_bytes(GOOD)

    ran = operator.run("package", "install", str(archive), "--json")

    assert (ran.status, ran.json["status"]) == (0, "installed"), ran.err
    assert (operator.plane / "HOT/kernel/a.txt").read_bytes() == b"a\n"


def test_there_are_enough_kinds():
    assert len(BAD) >= 28


def test_a_bomb_is_not_unpacked_before_it_is_refused():
    import tracemalloc

    bomb = made()["a bomb by size"]
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveRefusedError, match="bomb"):
            read_archive(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000_000


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 200_000])
def test_the_gzip_layer_is_gzip(size):
    import gzip

    content = os.urandom(size)
    assert unwrap(wrap(content)) == content
    assert gzip.decompress(wrap(content)) == content


def test_an_archive_that_is_not_there_is_a_usage_error(tmp_path: Path):
    with pytest.raises(UsageError):
        load_archive(tmp_path / "x.tar.gz")


def test_a_fifo_is_refused_without_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "x.tar.gz")
    with pytest.raises(ConfigError):
        load_archive(tmp_path / "x.tar.gz")
