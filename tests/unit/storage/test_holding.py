import errno
import mmap
import os

import pytest

from paddock.errors import FileChangedError
from paddock.storage.objects import HELD_BYTES_MIN, ObjectStore
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.values.entries import digest_of
from tests.support.children import end_of
from tests.support.stores import objects_in
from tests.support.users import plain_ids

LARGE = os.urandom(HELD_BYTES_MIN + 1)
DIGEST = digest_of(LARGE)
NAME = DIGEST.removeprefix("sha256:")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(LARGE)
    path.chmod(0o644)
    return path


@pytest.fixture
def fd(file):
    fd = os.open(file, os.O_RDONLY)
    yield fd
    os.close(fd)


def incoming(place) -> list[str]:
    return os.listdir(place / "incoming")


def test_the_file_that_lost_its_place_becomes_the_object(store, place, file, fd):
    inode = os.fstat(fd).st_ino
    held = store.hold_file(fd, DIGEST)
    assert objects_in(place) == []
    file.unlink()
    held.settle()
    status = os.stat(place / NAME)
    assert (status.st_ino, status.st_nlink, status.st_mode & 0o7777) == (inode, 1, 0o600)
    assert store.read(DIGEST) == LARGE
    assert (incoming(place), store.usage_bytes()) == ([], len(LARGE))


def test_its_age_is_that_of_now(store, place, file, fd):
    os.utime(file, (1, 1))
    held = store.hold_file(fd, DIGEST)
    file.unlink()
    held.settle()
    assert os.stat(place / NAME).st_mtime > 1_000_000


def test_a_file_that_stays_is_let_go(store, place, file, fd):
    held = store.hold_file(fd, DIGEST)
    assert os.fstat(fd).st_nlink == 2
    held.release()
    held.release()
    held.settle()
    assert (objects_in(place), incoming(place), os.fstat(fd).st_nlink) == ([], [], 1)
    assert file.read_bytes() == LARGE
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_small_file_and_one_with_other_names_are_not_held(store, tmp_path, file, fd):
    os.link(file, tmp_path / "other")
    assert store.hold_file(fd, DIGEST) is None
    small = tmp_path / "small"
    small.write_bytes(LARGE[: HELD_BYTES_MIN - 1])
    with small.open("rb") as opened:
        assert store.hold_file(opened.fileno(), digest_of(b"any")) is None


@pytest.mark.needs("root")
def test_a_file_of_another_user_is_not_held(store, file, fd):
    os.chown(file, *plain_ids())
    assert store.hold_file(fd, DIGEST) is None


@pytest.mark.parametrize("way", ["descriptor", "mapping"])
def test_a_file_that_somebody_may_write_to_is_copied(store, place, file, fd, way):
    held = store.hold_file(fd, DIGEST)
    writer = os.open(file, os.O_RDWR)
    mapped = None
    if way == "mapping":
        mapped = mmap.mmap(writer, len(LARGE))
        os.close(writer)
    file.unlink()
    held.settle()
    if mapped is None:
        os.pwrite(writer, b"written afterwards", 0)
        os.close(writer)
    else:
        mapped[:18] = b"written afterwards"
        mapped.close()
    assert os.stat(place / NAME).st_ino != os.fstat(fd).st_ino
    assert store.read(DIGEST) == LARGE
    assert incoming(place) == []


def test_a_file_that_was_written_to_meanwhile_is_told(store, file, fd):
    held = store.hold_file(fd, DIGEST)
    with file.open("r+b") as writer:
        writer.write(b"somebody else")
        writer.flush()
        with pytest.raises(FileChangedError):
            held.settle()
    assert not store.has(DIGEST)


def test_nothing_is_pruned_while_a_file_is_held(store, place, file, fd):
    with ObjectStore(str(place), bytes_max=0) as other:
        other.put_bytes(b"old")
        other.sync()
        held = store.hold_file(fd, DIGEST)
        assert other.prune([]) == 0
        held.release()
        assert other.prune([]) > 0


def test_what_a_killed_process_held_becomes_an_object(place, file, fd):
    def killed() -> None:  # it neither settled nor released
        ObjectStore(str(place), bytes_max=1 << 20).hold_file(fd, DIGEST)

    assert end_of(killed) == 0
    (place / "incoming" / ("0" * 32 + ".part")).write_bytes(b"a draft")
    with ObjectStore(str(place), bytes_max=1 << 20) as after:
        after.recover()
        assert after.read(DIGEST) == LARGE
        assert after.usage_bytes() == len(LARGE)
    assert incoming(place) == []
    # The file stands where it stood, and what is written to it is not written to the object.
    assert os.stat(place / NAME).st_ino != file.stat().st_ino
    assert file.stat().st_nlink == 1


def test_what_a_living_process_holds_is_not_swept(store, place, fd):
    held = store.hold_file(fd, DIGEST)
    with ObjectStore(str(place), bytes_max=1 << 20) as other:
        other.recover()
    assert len(incoming(place)) == 1
    held.release()


def test_another_file_system_is_no_reason_to_fail(tmp_path, file, fd):
    disk = FaultyDisk()
    with ObjectStore(str(tmp_path / "objects"), bytes_max=1 << 20, disk=disk) as store:
        assert store.incoming_fd >= 0
        disk.fault = Fault(len(disk.calls), How.BEFORE, errno.EXDEV)
        assert store.hold_file(fd, DIGEST) is None
        assert disk.calls[-1] == "link_open"


def test_whatever_fails_in_the_end_the_content_is_kept(tmp_path, file, fd):
    for index in range(4):
        place = tmp_path / f"objects{index}"
        disk = FaultyDisk()
        with ObjectStore(str(place), bytes_max=1 << 20, disk=disk) as store:
            held = store.hold_file(fd, DIGEST)
            disk.fault = Fault(len(disk.calls) + index, How.BEFORE, errno.EIO)
            held.settle()
        with ObjectStore(str(place), bytes_max=1 << 20) as after:
            after.recover()
            assert after.read(DIGEST) == LARGE, (index, disk.calls)
        file.unlink(missing_ok=True)
        file.write_bytes(LARGE)
        os.dup2(os.open(file, os.O_RDONLY), fd)
