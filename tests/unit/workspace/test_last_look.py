"""What somebody does in the last moment before a change, and just after it, is not lost."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.errors import FileChangedError
from paddock.storage.disk import Disk
from paddock.storage.history import History, Kept
from paddock.storage.journal import Journal
from paddock.storage.notes import Doing
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.workspace import Workspace
from paddock.workspace.apply import Recovered, RecoveredSet, commit_changes, recover
from paddock.workspace.changes import Absent, MakeDirectory, RemoveDirectory, RemoveFile, WriteFile
from paddock.workspace.paths import unchecked_path as at
from paddock.workspace.single_change import delete_entry, write_file
from paddock.workspace.workspace import detect_resolution
from tests.support.changes import (
    File,
    Folder,
    content,
    lay_out,
    model_of,
    open_bench,
    removal,
    seen,
)
from tests.support.children import end_of

OLD = {"a": File(b"old bytes"), "dir": Folder(), "dir/f": File(b"in there"), "dir/sub": Folder()}


def rewrite_unseen(path: Path, text: bytes) -> None:
    """Other bytes, as many, under the old modification time."""
    before = os.stat(path)
    assert before.st_size == len(text)
    with path.open("r+b") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


class Meanwhile(Struct, dict=True):
    """A witness that does something just before the set happens."""

    act: Callable[[], object]

    def __call__(self, rows) -> None:
        self.act()


def removals(root: Path):
    model = model_of(root)
    names = ("dir/f", "dir/sub", "dir")
    return [removal(root, name, model[name]) for name in names]


@pytest.fixture
def bench(tmp_path):
    lay_out(tmp_path / "ws", OLD)
    with open_bench(tmp_path) as bench:
        yield bench


SETS = {
    "replaced": ("a", lambda root: [WriteFile(at("a"), content(b"new"), seen(root, "a"))]),
    "removed": ("a", lambda root: [RemoveFile(at("a"), seen(root, "a"))]),
    "removed with its directory": ("dir/f", removals),
}


@pytest.mark.parametrize("case", SETS)
def test_a_file_rewritten_under_its_old_time_before_a_set_is_kept_as_it_is(bench, case):
    name, changes = SETS[case]
    theirs = b"x" * len(OLD[name].content)
    witness = Meanwhile(lambda: rewrite_unseen(bench.root / name, theirs))
    with pytest.raises(FileChangedError):
        commit_changes(
            bench.workspace, [changes(bench.root)], bench.objects, bench.journal, witness=witness
        )
    assert model_of(bench.root) == OLD | {name: File(theirs)}
    assert bench.entries() == []


@pytest.mark.parametrize("case", SETS)
def test_a_set_over_files_that_nobody_touched_happens(bench, case):
    name, changes = SETS[case]
    commit_changes(
        bench.workspace,
        [changes(bench.root)],
        bench.objects,
        bench.journal,
        witness=Meanwhile(lambda: None),
    )
    assert model_of(bench.root).get(name) != OLD[name]


def test_two_names_of_one_file_change_in_one_set(bench):
    # The first exchange moves the change time of the second name's file, which is the same.
    os.link(bench.root / "a", bench.root / "b")
    bench.commit(
        *(WriteFile(at(name), content(b"new"), seen(bench.root, name)) for name in ("a", "b"))
    )
    assert [(bench.root / name).read_bytes() for name in ("a", "b")] == [b"new"] * 2


class Keeper(Struct, dict=True):
    """Keeps a file, and then somebody rewrites it."""

    keeper: object
    path: Path
    theirs: bytes = b""

    def keep_file(self, doing: Doing, fd: int) -> Kept:
        kept = self.keeper.keep_file(doing, fd)
        if self.theirs:
            rewrite_unseen(self.path, self.theirs)
        return kept


SIZES = [pytest.param(11, id="copied"), pytest.param(9000, id="held")]
ACTS = {
    "written": lambda w: write_file(w, w.resolve_write("a"), b"n"),
    "deleted": lambda w: delete_entry(w, w.resolve_entry("a")),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("act", ACTS)
def test_a_file_rewritten_under_its_old_time_after_it_was_kept_stays(tmp_path, size, act):
    lay_out(tmp_path / "ws", {"a": File(b"o" * size)})
    path = tmp_path / "ws/a"
    history = History(str(tmp_path / "objects"), bytes_max=1 << 20)
    keeper = Keeper(history.keeper(), path, b"u" * size)
    with Workspace.open(str(tmp_path / "ws"), keeper=keeper) as workspace:
        with pytest.raises(FileChangedError):
            ACTS[act](workspace)
        assert model_of(tmp_path / "ws") == {"a": File(b"u" * size)}
        keeper.theirs = b""
        ACTS[act](workspace)
        assert not path.exists() or path.read_bytes() == b"n"
    history.close()


END_RECORD = b'{"record":"end"}\n'


class FillingDisk(Disk):
    """Somebody whose working directory is removed saves a file there.

    At the first `unlink` in it, or at the `end` record: as soon as that is durable.
    """

    def __init__(self, call: str) -> None:
        self.call = call
        self.fd = -1
        self.ending = -1

    def _save(self, call: str) -> None:
        if call == self.call and self.fd >= 0:
            fd = os.open("theirs", os.O_CREAT | os.O_WRONLY, dir_fd=self.fd)
            os.write(fd, b"their work")
            os.close(fd)
            self.fd = -1

    def unlink(self, dir_fd: int, name: str) -> None:
        if name == "f":
            self._save("unlink")
        super().unlink(dir_fd, name)

    def write(self, fd: int, content: bytes | memoryview) -> None:
        super().write(fd, content)
        if bytes(content).endswith(END_RECORD):
            self.ending = fd

    def sync(self, fd: int) -> None:
        super().sync(fd)
        if fd == self.ending:
            self._save("end")


def left_in(root: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in root.rglob("theirs")}


@pytest.mark.parametrize("call", ["unlink", "end"])
def test_what_is_saved_in_a_directory_that_goes_away_is_never_removed(tmp_path, call):
    lay_out(tmp_path / "ws", OLD)
    disk = FillingDisk(call)
    with open_bench(tmp_path, disk) as bench:
        disk.fd = os.open(bench.root / "dir", os.O_RDONLY)
        receipt = bench.commit(*removals(bench.root))
        (note,) = receipt.notes
        assert "something that this change removed was changed meanwhile" in note
        assert not (bench.root / "dir").exists()
        assert left_in(bench.root) == {"theirs": b"their work"}
        (entry,) = bench.entries()
    with Journal(str(tmp_path / "journal"), Disk()) as journal:
        root = os.path.realpath(tmp_path / "ws")
        for _ in range(2):
            found = recover(journal, Disk(), detect_resolution())
            assert found == (Recovered(entry, root, RecoveredSet.ENDED, "C-1", why=note),)
            assert left_in(tmp_path / "ws") == {"theirs": b"their work"}


def remove_all(base: Path, disk: Disk) -> None:
    with open_bench(base, disk) as bench:
        bench.commit(*removals(bench.root))


def test_a_directory_that_was_half_removed_when_the_process_was_killed_goes_later(tmp_path):
    steps = FaultyDisk()
    lay_out(tmp_path / "ws", OLD)
    remove_all(tmp_path, steps)
    last = [n for n, name in enumerate(steps.calls) if name == "remove_directory"][-1]
    for step in range(last - 3, last + 1):
        lay_out(tmp_path / "ws", OLD)
        dying = FaultyDisk(Fault(step, How.BEFORE, "kill"))
        assert end_of(lambda dying=dying: remove_all(tmp_path, dying)) == -signal.SIGKILL
        with open_bench(tmp_path) as bench:
            bench.commit(MakeDirectory(at("x"), Absent(), 0o755))
            assert model_of(bench.root) == {"a": OLD["a"], "x": Folder()}
            assert bench.entries() == []


def test_a_directory_goes_whole_whatever_is_said_to_stand_there(bench):
    bench.commit(*removals(bench.root)[:-1], RemoveDirectory(at("dir")))
    assert model_of(bench.root) == {"a": OLD["a"]}
    assert bench.entries() == []
