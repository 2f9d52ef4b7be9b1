"""Making archives and hashing sources."""

import gzip
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from paddock.errors import ConfigError, HostError, UsageError
from paddock.packages.archive import compute_sha256, is_litter, pack, write_hashes
from paddock.packages.rows import GateRefusedError
from tests.support.packages import PROGRAM, archive_bytes, lay_source, manifest_json, manifest_of

FILES = {"HOT/kernel/a.txt": b"a\n", "HOT/scripts/run.sh": PROGRAM, "HOT/.hidden": b"h\n"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return lay_source(tmp_path / "src", FILES)


def names_in(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_every_declared_file_is_packed(source: Path, tmp_path: Path):
    report = pack(source, tmp_path / "a.tar.gz")

    assert report.archive.read_bytes() == archive_bytes(FILES)
    assert report.manifest == manifest_of(FILES)
    assert report.left_out == ()
    assert report.sha256 == compute_sha256(report.archive)
    assert report.size_bytes == report.archive.stat().st_size


def test_into_a_folder_the_archive_is_named_after_its_package(source: Path, tmp_path: Path):
    (tmp_path / "dist").mkdir()
    assert pack(source, tmp_path / "dist").archive == tmp_path / "dist" / "PKG-A-001.tar.gz"


def test_members_hold_nothing_of_this_machine(source: Path, tmp_path: Path):
    archive = pack(source, tmp_path / "a.tar.gz").archive
    raw = archive.read_bytes()

    assert raw[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(raw))) as tar:
        members = tar.getmembers()
    assert [each.name for each in members] == sorted([*FILES, "manifest.json"])
    assert {(each.mtime, each.uid, each.gid, each.uname, each.gname) for each in members} == {
        (0, 0, 0, "", "")
    }
    assert {each.name: each.mode for each in members} == {
        "HOT/.hidden": 0o644,
        "HOT/kernel/a.txt": 0o644,
        "HOT/scripts/run.sh": 0o755,
        "manifest.json": 0o644,
    }


def test_the_same_tree_gives_the_same_bytes_whatever_is_around_it(source: Path, tmp_path: Path):
    first = pack(source, tmp_path / "1.tar.gz").archive.read_bytes()
    before = os.umask(0o077)
    try:
        again = lay_source(tmp_path / "again", dict(reversed(FILES.items())))
        for path in again.rglob("*"):
            os.utime(path, (1, 1))
            if path.is_file():
                os.chmod(path, 0o700 if path.suffix == ".sh" else 0o600)
            if os.geteuid() == 0:
                os.chown(path, 1234, 4321)
        (again / "manifest.json").write_text(json.dumps(manifest_json(FILES)))
        second = pack(again, tmp_path / "2.tar.gz").archive
    finally:
        os.umask(before)

    assert second.read_bytes() == first
    assert second.stat().st_mode & 0o777 == 0o644


def test_hard_linked_files_are_packed_as_content(tmp_path: Path):
    source = lay_source(tmp_path / "src", {"HOT/kernel/a": b"x", "HOT/kernel/b": b"x"})
    (source / "HOT/kernel/b").unlink()
    os.link(source / "HOT/kernel/a", source / "HOT/kernel/b")

    archive = pack(source, tmp_path / "a.tar.gz").archive

    assert archive.read_bytes() == archive_bytes({"HOT/kernel/a": b"x", "HOT/kernel/b": b"x"})


def test_litter_is_left_out_and_said(source: Path, tmp_path: Path):
    (source / ".DS_Store").write_bytes(b"x")
    (source / "HOT/kernel/__pycache__").mkdir()
    (source / "HOT/kernel/__pycache__/a.cpython-311.pyc").write_bytes(b"x")
    (source / "HOT/kernel/a.txt~").write_bytes(b"x")
    (source / "._HOT").write_bytes(b"x")

    report = pack(source, tmp_path / "a.tar.gz")

    assert report.left_out == (
        ".DS_Store",
        "._HOT",
        "HOT/kernel/__pycache__/",
        "HOT/kernel/a.txt~",
    )
    assert names_in(report.archive) == sorted([*FILES, "manifest.json"])


@pytest.mark.parametrize("name", [".hidden", "a.py", "pycache", "store.DS", ".env", "x.swipe"])
def test_what_somebody_may_mean_is_no_litter(name):
    assert not is_litter(name)


def refused(source: Path, tmp_path: Path) -> dict[str, str]:
    with pytest.raises(GateRefusedError) as caught:
        pack(source, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()
    return {failure.file: failure.reason for failure in caught.value.failures}


def test_an_undeclared_file_stops_it(source: Path, tmp_path: Path):
    (source / "HOT/kernel/extra.txt").write_bytes(b"x")
    (source / ".env").write_bytes(b"SECRET=1\n")

    assert refused(source, tmp_path).keys() == {"HOT/kernel/extra.txt", ".env"}


def test_a_stale_hash_stops_it(source: Path, tmp_path: Path):
    (source / "HOT/kernel/a.txt").write_bytes(b"b\n")

    assert "out of date" in refused(source, tmp_path)["HOT/kernel/a.txt"]


def test_a_missing_hash_stops_it(tmp_path: Path):
    value = manifest_json(FILES)
    del value["assets"][0]["sha256"]
    source = lay_source(tmp_path / "src", FILES, value)

    with pytest.raises(ConfigError, match="sha256"):
        pack(source, tmp_path / "a.tar.gz")
    assert not (tmp_path / "a.tar.gz").exists()


def test_a_declared_file_that_is_missing_stops_it(source: Path, tmp_path: Path):
    (source / "HOT/kernel/a.txt").unlink()

    assert "missing" in refused(source, tmp_path)["HOT/kernel/a.txt"]


def test_declared_litter_stops_it(tmp_path: Path):
    source = lay_source(tmp_path / "src", {"HOT/kernel/x.pyc": b"x", "HOT/.git/config": b"y"})

    assert refused(source, tmp_path) == {
        "HOT/kernel/x.pyc": "it is declared, and it is always left out",
        "HOT/.git/config": "it is declared, and it is always left out",
    }


@pytest.mark.parametrize("target", ["/etc/passwd", "a.txt", "nowhere"])
def test_a_link_stops_it_declared_or_not(target, source: Path, tmp_path: Path):
    (source / "HOT/kernel/a.txt").rename(source / "HOT/kernel/real.txt")
    os.symlink(target, source / "HOT/kernel/a.txt")

    assert refused(source, tmp_path)["HOT/kernel/a.txt"] == "it is a link or a special file"


def test_a_linked_directory_stops_it(source: Path, tmp_path: Path):
    os.symlink("/etc", source / "HOT/etc")

    assert refused(source, tmp_path) == {"HOT/etc": "it is a link or a special file"}


def test_a_fifo_stops_it_without_waiting(source: Path, tmp_path: Path):
    os.mkfifo(source / "HOT/kernel/fifo")

    assert refused(source, tmp_path).keys() == {"HOT/kernel/fifo"}


def test_no_archive_lies_in_its_own_source(source: Path):
    for place in (source, source / "HOT", source / "x.tar.gz"):
        with pytest.raises(UsageError, match="own source"):
            pack(source, place)


def test_a_source_without_manifest_is_none(tmp_path: Path):
    (tmp_path / "src").mkdir()
    with pytest.raises(UsageError):
        pack(tmp_path / "src", tmp_path / "a.tar.gz")


def test_hash_writes_what_is_missing_and_what_is_stale(tmp_path: Path):
    value = manifest_json(FILES)
    del value["assets"][0]["sha256"]
    value["assets"][1]["sha256"] = "sha256:" + "0" * 64
    source = lay_source(tmp_path / "src", FILES, value)

    report = write_hashes(source, check=False)

    assert (report.written, report.files) == (True, 3)
    assert [failure.file for failure in report.stale] == ["HOT/kernel/a.txt", "HOT/scripts/run.sh"]
    assert json.loads((source / "manifest.json").read_text()) == manifest_json(FILES)
    assert write_hashes(source, check=False).written is False
    pack(source, tmp_path / "a.tar.gz")


def test_hash_with_check_writes_nothing(tmp_path: Path):
    value = manifest_json(FILES)
    value["assets"][0]["sha256"] = "sha256:" + "0" * 64
    source = lay_source(tmp_path / "src", FILES, value)
    before = (source / "manifest.json").read_bytes()

    report = write_hashes(source, check=True)

    assert (report.written, len(report.stale)) == (False, 1)
    assert (source / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "HOT/../../x"])
def test_hash_opens_nothing_outside_its_source(path, tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"x")
    value = manifest_json(FILES)
    value["assets"][0] = {"path": path, "classification": "text"}
    source = lay_source(tmp_path / "src", FILES, value)

    with pytest.raises(ConfigError):
        write_hashes(source, check=False)
    assert "secret" not in (source / "manifest.json").read_text() or path == "../secret"


def test_hash_follows_no_link(source: Path):
    (source / "HOT/kernel/a.txt").unlink()
    os.symlink("/etc/passwd", source / "HOT/kernel/a.txt")

    with pytest.raises((ConfigError, HostError)):
        write_hashes(source, check=False)


def test_compute_sha256_reads_regular_files_alone(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"")
    assert compute_sha256(tmp_path / "a") == (
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    with pytest.raises(ConfigError):
        compute_sha256(tmp_path / "b")
    with pytest.raises(ConfigError):
        compute_sha256(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError):
        compute_sha256(tmp_path / "fifo")
