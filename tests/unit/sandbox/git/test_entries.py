"""The entries of an index, as git itself lists them, in every form that git writes."""

import os
import subprocess
from pathlib import Path

import pytest

from paddock.sandbox.git.index import IndexEntry, IndexFile, open_index
from paddock.sandbox.git.objects import SHA1_BYTES, SHA256_BYTES

OPTIONS = {
    "version 2": ("-c", "index.version=2"),
    "version 3": ("-c", "index.version=3"),
    "version 4": ("-c", "index.version=4"),
    "threads": ("-c", "index.version=4", "-c", "index.threads=4"),
    "no checksum": ("-c", "index.skipHash=true"),
}


def isolated_git(where: Path, *arguments: str, fails: bool = False) -> str:
    """A git that no configuration of this machine reaches."""
    who = {
        f"GIT_{each}_{what}": "a" for each in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=where,
        env={
            **who,
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(where.parent),
            "LC_ALL": "C",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done.stdout


def make(path: Path, *options: str) -> Path:
    path.mkdir()
    isolated_git(path, "init", "-q", "-b", "main", *options)
    for name in ("a", "a.b/c", "a_/b", "é ü", "x" * 200, "deep/er/and/deeper/f", "run"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(name)
    (path / "run").chmod(0o755)
    (path / "link").symlink_to("a")
    return path


def read(repository: Path, hash_bytes: int = SHA1_BYTES) -> IndexFile:
    folder = repository / ".git"

    def read_shared(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.exists() else None

    return open_index((folder / "index").read_bytes(), hash_bytes, read_shared)


def listed(repository: Path) -> list[tuple[str, str, int, str]]:
    """What git says: mode, object, stage, path; the directories of a sparse index as such."""
    rows = isolated_git(repository, "ls-files", "-s", "-z", "--sparse").split("\0")
    found: list[tuple[str, str, int, str]] = []
    for row in rows[:-1]:
        said, _, path = row.partition("\t")
        mode, name, stage = said.split(" ")
        found.append((mode, name, int(stage), path))
    return sorted(found)


def shown(entries: list[IndexEntry]) -> list[tuple[str, str, int, str]]:
    return sorted(
        (f"{entry.mode:06o}", entry.object_id.hex(), entry.stage, os.fsdecode(entry.path))
        for entry in entries
    )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_version_is_read_as_git_lists_it(tmp_path: Path, options: tuple[str, ...]):
    repository = make(tmp_path / "r")
    isolated_git(repository, *options, "add", ".")
    assert shown(list(read(repository).entries())) == listed(repository)
    assert len(listed(repository)) == 8


def test_names_of_sha256_are_read(tmp_path: Path):
    repository = make(tmp_path / "r", "--object-format=sha256")
    isolated_git(repository, "add", ".")
    assert shown(list(read(repository, SHA256_BYTES).entries())) == listed(repository)


def test_an_empty_index_has_none(tmp_path: Path):
    repository = make(tmp_path / "r")
    isolated_git(repository, "read-tree", "--empty")
    assert list(read(repository).entries()) == []


def test_the_marks_of_an_entry_are_read(tmp_path: Path):
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", "a", "run", "link")
    isolated_git(repository, "add", "-N", "é ü")
    isolated_git(repository, "update-index", "--skip-worktree", "run")
    isolated_git(repository, "update-index", "--assume-unchanged", "link")
    marks = {
        os.fsdecode(each.path): (each.is_skipped, each.is_intended)
        for each in read(repository).entries()
    }
    assert marks == {
        "a": (False, False),
        "run": (True, False),
        "é ü": (False, True),
        "link": (False, False),
    }


def test_a_conflict_has_its_stages(tmp_path: Path):
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", ".")
    isolated_git(repository, "commit", "-qm", "base")
    isolated_git(repository, "checkout", "-qb", "other")
    (repository / "a").write_text("theirs")
    isolated_git(repository, "commit", "-qam", "theirs")
    isolated_git(repository, "checkout", "-q", "main")
    (repository / "a").write_text("ours")
    isolated_git(repository, "commit", "-qam", "ours")
    isolated_git(repository, "merge", "-q", "other", fails=True)
    found = read(repository).find_entries(frozenset({b"a"}))
    assert [each.stage for each in found] == [1, 2, 3]
    assert shown(list(read(repository).entries())) == listed(repository)


@pytest.mark.parametrize("count", [3, 300])
def test_a_split_index_is_read_with_the_file_that_it_shares(tmp_path: Path, count: int):
    repository = make(tmp_path / "r")
    for number in range(count):
        (repository / f"n{number:03}").write_text(str(number))
    isolated_git(repository, "config", "splitIndex.maxPercentChange", "100")
    isolated_git(repository, "add", ".")
    isolated_git(repository, "update-index", "--split-index")
    (repository / "a").write_text("replaced")
    (repository / "brand new").write_text("added")
    for number in range(count // 2):
        (repository / f"n{number:03}").unlink()
    isolated_git(repository, "add", "-A")
    before = list((repository / ".git").glob("sharedindex.*"))
    assert len(before) == 1
    assert shown(list(read(repository).entries())) == listed(repository)
    found = read(repository).find_entries(frozenset({b"brand new", b"a", b"n000"}))
    assert sorted(each.path for each in found) == [b"a", b"brand new"]


def test_a_split_index_without_its_shared_file_is_not_read(tmp_path: Path):
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", ".")
    isolated_git(repository, "update-index", "--split-index")
    for shared in (repository / ".git").glob("sharedindex.*"):
        shared.unlink()
    with pytest.raises(ValueError, match="missing"):
        list(read(repository).entries())


def test_a_sparse_index_has_directories(tmp_path: Path):
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", ".")
    isolated_git(repository, "commit", "-qm", "all")
    isolated_git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "a.b")
    entries = list(read(repository).entries())
    assert shown(entries) == listed(repository)
    assert [each.path for each in entries if each.mode == 0o040000] == [b"a_/", b"deep/"]


@pytest.mark.parametrize("version", ["2", "4"])
def test_only_what_is_asked_for_is_found(tmp_path: Path, version: str):
    repository = make(tmp_path / "r")
    isolated_git(repository, "-c", f"index.version={version}", "add", ".")
    index = read(repository)
    assert index.find_entries(frozenset({b".env", b"deep/f", b"a.b"})) == ()
    assert index.find_entries(frozenset()) == ()
    found = index.find_entries(frozenset({b"run", b"deep"}), frozenset({b"deep/er", b"a"}))
    assert [each.path for each in found] == [b"deep/er/and/deeper/f", b"run"]


@pytest.mark.parametrize("cut", [1, 12, 40, 400])
def test_what_is_cut_is_not_read(tmp_path: Path, cut: int):
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", ".")
    content = (repository / ".git" / "index").read_bytes()
    with pytest.raises(ValueError, match="incomplete"):
        open_index(content[:-cut], SHA1_BYTES)


@pytest.mark.parametrize("place", range(1, 8))
def test_a_link_of_any_bytes_ends_in_an_error(tmp_path: Path, place: int):
    """Zeros for a checksum are believed, so that anything can stand before them."""
    repository = make(tmp_path / "r")
    isolated_git(repository, "add", ".")
    isolated_git(repository, "update-index", "--split-index")
    (repository / "new").write_text("x")
    isolated_git(repository, "-c", "splitIndex.maxPercentChange=100", "add", "new")
    path = repository / ".git" / "index"
    content = bytearray(path.read_bytes()[:-SHA1_BYTES] + bytes(SHA1_BYTES))
    at = content.index(b"link\0") + 8 + SHA1_BYTES + place
    content[at : at + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"entries|extension|missing|cannot read"):
        list(read(repository).entries())
