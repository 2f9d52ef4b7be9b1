"""What a command left becomes the entry itself, and looks as a copy would."""

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from paddock.errors import FileChangedError
from paddock.storage.disk import Disk
from paddock.workspace.changes import Absent, GivenContent, MakeDirectory, MakeLink, WriteFile
from paddock.workspace.paths import unchecked_path as at
from tests.support.changes import MODIFIED_NS, File, Folder, Link, model_of, open_bench, seen
from tests.support.disks import DISKS


class FarDisk(Disk):
    """What is given lies on another file system."""

    def take(self, from_fd: int, path: str, to_fd: int, to: str) -> bool:
        return False


ALL_DISKS = {**DISKS, "far": FarDisk}


@pytest.fixture(params=ALL_DISKS)
def bench(request: pytest.FixtureRequest, tmp_path: Path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "given").mkdir()
    with open_bench(tmp_path, ALL_DISKS[request.param]()) as made:
        made.given_fd = os.open(tmp_path / "given", os.O_RDONLY | os.O_DIRECTORY)
        yield made
        os.close(made.given_fd)


def give(bench, name: str, content: bytes = b"given\n", mode: int = 0o640) -> GivenContent:
    path = bench.base / "given" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))
    return GivenContent(bench.given_fd, name)


def write(bench, name: str, old=None, **more) -> WriteFile:
    given = more.pop("given", None) or give(bench, name)
    return WriteFile(at(name), given, old or Absent(), 0o640, MODIFIED_NS, **more)


def test_a_new_file_is_taken_with_its_mode_and_time(bench):
    receipt = bench.commit(write(bench, "a"))

    assert model_of(bench.root) == {"a": File(b"given\n", 0o640)}
    assert receipt.changes[0].after.version.startswith("sha256:")


def test_a_file_that_is_replaced_keeps_its_owner_and_goes_into_the_store(bench):
    (bench.root / "a").write_bytes(b"old\n")
    receipt = bench.commit(write(bench, "a", seen(bench.root, "a")))

    assert model_of(bench.root) == {"a": File(b"given\n", 0o640)}
    assert bench.objects.read(receipt.changes[0].before.version) == b"old\n"


def test_a_file_with_a_second_name_is_copied(bench):
    given = give(bench, "a")
    os.link(bench.base / "given/a", bench.base / "given/b")
    bench.commit(write(bench, "a", given=given))
    (bench.base / "given/b").write_bytes(b"through the other name\n")

    assert model_of(bench.root) == {"a": File(b"given\n", 0o640)}


def test_attributes_do_not_come_along(bench):
    given = give(bench, "a")
    os.setxattr(bench.base / "given/a", "user.mark", b"x")
    bench.commit(write(bench, "a", given=given))

    assert os.listxattr(bench.root / "a") == []


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o644])
def test_a_file_that_its_mode_protects_loses_its_attributes_and_keeps_its_mode(bench, mode: int):
    given = give(bench, "a")
    os.setxattr(bench.base / "given/a", "user.mark", b"x")
    (bench.base / "given/a").chmod(mode)
    bench.commit(WriteFile(at("a"), given, Absent(), mode, MODIFIED_NS))

    assert model_of(bench.root) == {"a": File(b"given\n", mode)}
    assert os.listxattr(bench.root / "a") == []


def test_in_a_tree_a_file_that_its_mode_protects_does_so_too(bench):
    changes = tree(bench)
    os.setxattr(bench.base / "given/t/a", "user.mark", b"x")
    (bench.base / "given/t/a").chmod(0o440)
    changes[2] = replace(changes[2], mode=0o440)
    receipt = bench.commit(*changes)

    assert model_of(bench.root)["t/a"] == File(b"given\n", 0o440)
    assert os.listxattr(bench.root / "t/a") == []
    assert receipt.changes[1].after.mode == 0o440


@pytest.mark.needs("root")
def test_the_owner_is_that_of_a_new_file(bench):
    given = give(bench, "a")
    os.chown(bench.base / "given/a", 2_046_820_352, 2_046_820_352)
    bench.commit(write(bench, "a", given=given))

    found = os.lstat(bench.root / "a")
    assert (found.st_uid, found.st_gid) == (os.geteuid(), os.getegid())


def tree(bench, *, extra: bool = False) -> list:
    for name in ("t/a", "t/d/b"):
        give(bench, name)
    os.symlink("a", bench.base / "given/t/l")
    if extra:
        give(bench, "t/d/unjudged")
    for name in ("t/d", "t"):
        os.chmod(bench.base / "given" / name, 0o750)
        os.setxattr(bench.base / "given" / name, "user.overlay.opaque", b"y")
    whole = GivenContent(bench.given_fd, "t")
    return [
        MakeDirectory(at("t"), Absent(), 0o750, MODIFIED_NS, given=whole),
        MakeDirectory(at("t/d"), Absent(), 0o750, MODIFIED_NS),
        WriteFile(at("t/a"), GivenContent(bench.given_fd, "t/a"), Absent(), 0o640, MODIFIED_NS),
        WriteFile(at("t/d/b"), GivenContent(bench.given_fd, "t/d/b"), Absent(), 0o640, MODIFIED_NS),
        MakeLink(at("t/l"), "a", Absent()),
    ]


def test_a_tree_is_taken_whole(bench):
    receipt = bench.commit(*tree(bench))

    assert model_of(bench.root) == {
        "t": Folder(0o750),
        "t/a": File(b"given\n", 0o640),
        "t/d": Folder(0o750),
        "t/d/b": File(b"given\n", 0o640),
        "t/l": Link("a"),
    }
    assert [row.path.relative for row in receipt.changes] == ["t", "t/a", "t/d", "t/d/b", "t/l"]
    assert all(row.after is not None for row in receipt.changes)
    for path in (bench.root / "t", bench.root / "t/d"):
        assert os.listxattr(path) == []


def test_what_nobody_judged_does_not_come_in_with_a_tree(tmp_path: Path):
    (tmp_path / "ws").mkdir()
    (tmp_path / "given").mkdir()
    with open_bench(tmp_path) as bench:
        bench.given_fd = os.open(tmp_path / "given", os.O_RDONLY | os.O_DIRECTORY)
        with pytest.raises(FileChangedError):
            bench.commit(*tree(bench, extra=True))
        os.close(bench.given_fd)
        assert model_of(bench.root) == {}
        assert bench.entries() == []


@pytest.mark.needs("root")
def test_a_directory_that_hands_on_its_group_does_so_to_what_is_taken(bench):
    os.chown(bench.root, -1, 1235)
    os.chmod(bench.root, 0o2775)
    bench.commit(*tree(bench), write(bench, "f"))

    found = {name: os.lstat(bench.root / name) for name in ("t", "t/d", "t/a", "f")}
    assert {look.st_gid for look in found.values()} == {1235}
    assert all(stat.S_IMODE(found[name].st_mode) & stat.S_ISGID for name in ("t", "t/d"))
