"""What commits name, read from object directories by a git that believes nothing else."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.errors import HostError
from paddock.sandbox.git.objects import SHA1_BYTES, SHA256_BYTES, TREE_MODE, TreeReader

pytestmark = pytest.mark.needs("git")


class Repository:
    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", *options)

    def git(self, *arguments: str, given: bytes = b"") -> bytes:
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=self.root,
            input=given,
            capture_output=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str]) -> bytes:
        for name, content in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-qm", "x")
        return self.git("rev-parse", "HEAD")

    def object_path(self, name: bytes) -> Path:
        return self.root / f".git/objects/{name[:2].decode()}/{name[2:].decode()}"

    @contextmanager
    def reader(self, hash_bytes: int = SHA1_BYTES) -> Generator[TreeReader]:
        fd = os.open(self.root / ".git/objects", os.O_RDONLY | os.O_DIRECTORY)
        try:
            with TreeReader([fd], hash_bytes) as trees:
                yield trees
        finally:
            os.close(fd)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "r")


@pytest.mark.parametrize(
    ("options", "hash_bytes"),
    [((), SHA1_BYTES), (("--object-format=sha256",), SHA256_BYTES)],
    ids=["sha1", "sha256"],
)
def test_paths_of_a_commit_are_found_and_no_others(tmp_path: Path, options, hash_bytes):
    made = Repository(tmp_path / "wide", *options)
    commit = made.commit({"a": "a", "d/e/f": "f", "d/g": "g"})
    with made.reader(hash_bytes) as trees:
        found = trees.find(commit, [b"a", b"d", b"d/e/f", b"d/x", b"a/b", b"x/y"])
        below = dict(trees.below(b"d", found[b"d"]))

    assert {path: (mark.mode, mark.oid.hex().encode()) for path, mark in found.items()} == {
        b"a": (0o100644, made.git("rev-parse", "HEAD:a")),
        b"d": (TREE_MODE, made.git("rev-parse", "HEAD:d")),
        b"d/e/f": (0o100644, made.git("rev-parse", "HEAD:d/e/f")),
    }
    assert sorted(below) == [b"d/e/f", b"d/g"]


def test_packed_objects_are_read(repository: Repository):
    commit = repository.commit({"d/a": "a"})
    repository.git("gc", "-q")
    with repository.reader() as trees:
        assert list(trees.find(commit, [b"d/a"])) == [b"d/a"]


def test_neither_configuration_nor_replacements_of_a_repository_count(repository: Repository):
    old = repository.commit({"a": "a"})
    new = repository.commit({"b": "b"})
    repository.git("replace", old.decode(), new.decode())
    (repository.root / ".git/config").write_text("[core]\n\tfsmonitor = touch owned\n[broken")
    with repository.reader() as trees:
        assert list(trees.find(old, [b"a", b"b"])) == [b"a"]
    assert not (repository.root / "owned").exists()


def test_an_object_with_another_content_than_its_name_says_is_not_believed(repository: Repository):
    commit = repository.commit({"a": "a"})
    tree = repository.git("rev-parse", "HEAD^{tree}")
    forged = repository.object_path(repository.git("mktree")).read_bytes()
    repository.object_path(tree).unlink()
    repository.object_path(tree).write_bytes(forged)
    with (
        repository.reader() as trees,
        pytest.raises(HostError, match=r"does not match its id|git ended"),
    ):
        trees.find(commit, [b"a"])


def test_what_is_missing_or_of_another_kind_is_not_known(repository: Repository):
    commit = repository.commit({"a": "a"})
    blob = repository.git("rev-parse", "HEAD:a")
    for name in (b"0" * 40, blob, commit[:20], b"HEAD"):
        with (
            repository.reader() as trees,
            pytest.raises(HostError, match="cannot read the repository"),
        ):
            trees.find(name, [b"a"])


def test_a_tree_of_no_end_of_paths_is_given_up(repository: Repository):
    entry = b"100644 blob " + repository.git("hash-object", "-w", "--stdin") + b"\ta\n"
    for _ in range(12):
        tree = repository.git("mktree", given=entry)
        entry = b"".join(b"040000 tree %b\t%d\n" % (tree, number) for number in range(20))
    commit = repository.git(
        "commit-tree", "-m", "x", repository.git("mktree", given=entry).decode()
    )
    with repository.reader() as trees:
        found = trees.find(commit, [b"1/1/1/1/1/1", b"1"])
        assert len(found) == 2
        with pytest.raises(HostError, match="more than"):
            for _ in trees.below(b"1", found[b"1"]):
                pass


def test_a_fifo_among_the_objects_ends_the_look(repository: Repository, monkeypatch):
    monkeypatch.setattr("paddock.sandbox.git.objects._TIMEOUT_S", 0.5)
    commit = repository.commit({"a": "a"})
    path = repository.object_path(repository.git("rev-parse", "HEAD^{tree}"))
    path.unlink()
    os.mkfifo(path)
    with repository.reader() as trees, pytest.raises(HostError, match="cannot read the repository"):
        trees.find(commit, [b"a"])
