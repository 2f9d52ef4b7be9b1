import errno
import hashlib
import os
import stat
import subprocess
import sys
import threading
import zlib

import pytest

from paddock.errors import ConfigError, HostError, IntegrityError, StorageFullError
from paddock.storage.objects import ObjectStore, StoreReader
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from tests.support.stores import objects_in
from tests.support.users import give_to_plain_user, run_as_plain_user


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


CONTENTS = [b"", b"x", b"some text\n" * 1000, os.urandom(300_000)]


def put(store, content: bytes) -> str:
    digest = store.put_bytes(content)
    store.sync()
    return digest


@pytest.fixture
def file(tmp_path):
    """An open file, by its content."""
    held = []

    def open_file(content: bytes) -> int:
        path = tmp_path / f"file{len(held)}"
        path.write_bytes(content)
        held.append(os.open(path, os.O_RDONLY))
        return held[-1]

    yield open_file
    for fd in held:
        os.close(fd)


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_what_is_put_is_read_under_its_digest(store, content):
    digest = put(store, content)
    assert digest == digest_of(content)
    assert (store.has(digest), store.read(digest)) == (True, content)


@pytest.mark.parametrize("content", CONTENTS, ids=len)
@pytest.mark.parametrize("is_known", [True, False])
def test_an_open_file_is_kept_whole_wherever_it_is_read(store, file, content, is_known):
    fd = file(content)
    os.lseek(fd, 0, os.SEEK_END)
    digest = store.put_file(fd, digest=digest_of(content) if is_known else None)
    store.sync()
    assert (digest, store.read(digest)) == (digest_of(content), content)


@pytest.mark.needs("linux")
@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_a_draft_that_was_filled_becomes_the_object_itself(place, content):
    with ObjectStore(str(place), bytes_max=10_000_000) as store:
        fd = store.open_draft()
        os.write(fd, content)
        inode = os.fstat(fd).st_ino
        store.adopt(fd, digest_of(content))
        assert objects_in(place) == []
        store.sync()
        os.close(fd)

        (name,) = objects_in(place)
        assert (place / name).stat().st_ino == inode
        assert store.read(digest_of(content)) == content


@pytest.mark.needs("linux")
def test_a_draft_that_is_not_adopted_leaves_nothing(place):
    with ObjectStore(str(place), bytes_max=10_000_000) as store:
        os.close(store.open_draft())
        store.sync()

    assert objects_in(place) == []


def test_a_content_is_copied_to_an_open_file(store, tmp_path):
    digest = put(store, b"content")
    fd = os.open(tmp_path / "copy", os.O_WRONLY | os.O_CREAT)
    store.copy_to(digest, fd)
    os.close(fd)
    assert (tmp_path / "copy").read_bytes() == b"content"


def test_a_content_is_there_once_and_its_size_counted_once(store, place):
    for _ in range(3):
        put(store, b"same")
    store.put_bytes(b"same")
    store.put_bytes(b"same")
    store.sync()
    assert objects_in(place) == [digest_of(b"same").removeprefix("sha256:")]
    assert store.usage_bytes() == 4


def test_what_is_put_is_found_by_others_after_sync_and_not_before(store, place):
    digest = store.put_bytes(b"content")
    with ObjectStore(str(place), bytes_max=10) as other:
        assert (store.has(digest), other.has(digest)) == (True, False)
        store.sync()
        assert other.read(digest) == b"content"


def test_what_is_put_and_not_synced_is_dropped_with_the_store(place, disk):
    with ObjectStore(str(place), bytes_max=10, disk=disk) as store:
        digest = store.put_bytes(b"content")
    assert objects_in(place) == os.listdir(place / "incoming") == []
    with ObjectStore(str(place), bytes_max=10) as store:
        assert not store.has(digest)


def test_many_puts_wait_for_one_sync(store):
    digests = [store.put_bytes(b"%d" % number) for number in range(200)]
    store.sync()
    assert [store.read(digest) for digest in digests] == [b"%d" % n for n in range(200)]


def test_nobody_else_may_look_into_the_store(store, place):
    old = os.umask(0)
    try:
        digest = put(store, b"secret")
    finally:
        os.umask(old)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    file = place / digest.removeprefix("sha256:")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_store_that_others_may_write_to_is_refused(place):
    place.mkdir(mode=0o700)
    place.chmod(0o770)
    with (
        ObjectStore(str(place), bytes_max=10) as store,
        pytest.raises(ConfigError, match="written by others"),
    ):
        put(store, b"content")
    place.chmod(0o700)
    with ObjectStore(str(place), bytes_max=10) as store:
        put(store, b"content")


def test_a_store_behind_a_link_is_refused(place, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.symlink_to("elsewhere")
    with ObjectStore(str(place), bytes_max=10) as store, pytest.raises(ConfigError):
        put(store, b"content")
    assert os.listdir(tmp_path / "elsewhere") == []


def damage_by_one_byte(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def damage_by_cutting(file):
    file.write_bytes(file.read_bytes()[:-1])


def damage_by_appending(file):
    file.write_bytes(file.read_bytes() + b"x")


DAMAGES = [damage_by_one_byte, damage_by_cutting, damage_by_appending]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_damaged_object_is_never_given_out(store, place, tmp_path, damage, is_packed):
    content = b"some text\n" * 5000
    digest = put(store, content)
    file = place / digest.removeprefix("sha256:")
    if is_packed:
        file = pack_object(file)
    assert store.read(digest) == content
    damage(file)
    with pytest.raises(IntegrityError, match=digest):
        store.read(digest)
    with (tmp_path / "copy").open("wb") as copy, pytest.raises(IntegrityError, match=digest):
        store.copy_to(digest, copy.fileno())


def pack_object(file):
    """As an earlier version did."""
    packed = file.with_name(file.name + ".z")
    packed.write_bytes(zlib.compress(file.read_bytes(), 6))
    file.unlink()
    return packed


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_object_is_mended_by_the_next_put(store, place, damage):
    digest = put(store, b"some text\n")
    damage(place / digest.removeprefix("sha256:"))
    put(store, b"some text\n")
    assert store.read(digest) == b"some text\n"


def test_a_packed_object_that_holds_more_than_any_was_packed_from_is_damaged(store, place):
    bomb = zlib.compress(bytes(70_000_000))
    digest = digest_of(bytes(70_000_000))
    (place / (digest.removeprefix("sha256:") + ".z")).write_bytes(bomb)
    with pytest.raises(IntegrityError, match="more than"):
        store.read(digest)


def test_an_object_that_is_not_there_is_told_apart_from_a_damaged_one(store):
    assert not store.has(digest_of(b"nothing"))
    with pytest.raises(HostError, match="no longer has"):
        store.read(digest_of(b"nothing"))


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:../../etc/passwd", "0" * 64, "sha256:" + "A" * 64]
)
def test_what_is_no_digest_opens_nothing(store, text):
    for act in (store.has, store.read, store.stored_bytes):
        with pytest.raises(IntegrityError, match="not a digest"):
            act(text)


def test_a_link_in_the_place_of_an_object_is_not_followed(store, place, tmp_path):
    (tmp_path / "outside").write_bytes(b"content")
    digest = digest_of(b"content")
    (place / digest.removeprefix("sha256:")).symlink_to(tmp_path / "outside")
    with pytest.raises(HostError):
        store.read(digest)


PUT_AND_SYNC = """
import sys
from paddock.storage.objects import ObjectStore
with ObjectStore(sys.argv[1], bytes_max=10) as store:
    for number in range(200):
        store.put_bytes(b"%d" % (number // 2) * 1000)
        if number % 3 == 0:
            store.sync()
    store.sync()
"""


def test_processes_that_keep_the_same_contents_end_with_one_of_each(place, store):
    command = [sys.executable, "-c", PUT_AND_SYNC, str(place)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    contents = [b"%d" % number * 1000 for number in range(100)]
    assert [store.read(digest_of(content)) for content in contents] == contents
    assert len(objects_in(place)) == 100
    assert os.listdir(place / "incoming") == []


def test_threads_share_one_store(store):
    wrong = []

    def keep(seed: int) -> None:
        for number in range(30):
            content = b"%d" % ((seed + number) % 40)
            digest = store.put_bytes(content)
            store.sync()
            if store.read(digest) != content:
                wrong.append(content)

    threads = [threading.Thread(target=keep, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def steps_of_a_put(place) -> list[str]:
    disk = FaultyDisk()
    with ObjectStore(str(place), bytes_max=1000, disk=disk) as store:
        assert store.incoming_fd >= 0
        disk.calls.clear()
        store.put_bytes(b"content")
        store.sync()
    return disk.calls


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_put_that_fails_at_any_step_leaves_nothing_and_is_told(tmp_path, code):
    steps = steps_of_a_put(tmp_path / "first")
    assert steps == ["create", "write", "sync", "sync", "replace"]
    for index in range(len(steps)):
        place = tmp_path / f"objects{index}"
        disk = FaultyDisk()
        with ObjectStore(str(place), bytes_max=1000, disk=disk) as store:
            assert store.incoming_fd >= 0
            disk.fault = Fault(len(disk.calls) + index, How.BEFORE, code)
            expected = StorageFullError if code == errno.ENOSPC else HostError
            with pytest.raises(expected):
                put(store, b"content")
            assert os.listdir(place / "incoming") == []
            # The same put succeeds where nothing fails.
            assert store.read(put(store, b"content")) == b"content"


def test_the_content_is_on_the_device_before_it_has_a_name(place):
    disk = FaultyDisk()
    with ObjectStore(str(place), bytes_max=1000, disk=disk) as store:
        assert store.incoming_fd >= 0
        disk.calls.clear()
        put(store, b"content")
    # Of its bytes, and of the name that it has until then.
    assert disk.calls == ["create", "write", "sync", "sync", "replace"]


def test_who_puts_again_and_again_waits_for_the_bytes_alone(place):
    disk = FaultyDisk()
    with ObjectStore(str(place), bytes_max=1000, disk=disk) as store:
        for number in range(21):
            put(store, b"%d" % number)
        disk.calls.clear()
        put(store, b"content")
        assert disk.calls == ["write", "sync", "replace"]
        assert {path.stat().st_size for path in (place / "incoming").iterdir()} == {0}
        assert store.read(digest_of(b"content")) == b"content"
    assert os.listdir(place / "incoming") == []


def test_a_name_that_was_made_ahead_and_swept_by_another_is_not_relied_on(place):
    with ObjectStore(str(place), bytes_max=1000) as store:
        for number in range(2):
            put(store, b"%d" % number)
        assert os.listdir(place / "incoming") != []
        with ObjectStore(str(place), bytes_max=1000) as other:
            other.recover()
        assert os.listdir(place / "incoming") == []
        assert store.read(put(store, b"content")) == b"content"


@pytest.mark.parametrize("act", ["read", "put", "look"])
def test_a_content_whose_last_name_a_power_cut_took_is_found(place, act):
    """As a file system may leave it: synced under its first name, the rename not yet."""
    with ObjectStore(str(place), bytes_max=1000) as store:
        digest = put(store, b"content")
    held = place / "incoming" / ("0" * 32 + ".held")
    (place / digest.removeprefix("sha256:")).rename(held)
    (place / "incoming" / ("1" * 32 + ".held")).touch()
    if act == "look":
        with StoreReader(str(place)) as seen:
            assert seen.read(digest) == b"content"
        assert held.exists()
        return
    with ObjectStore(str(place), bytes_max=1000) as store:
        if act == "put":
            put(store, b"another")
            assert digest.removeprefix("sha256:") in objects_in(place)
        assert (store.has(digest), store.read(digest)) == (True, b"content")
    assert os.listdir(place / "incoming") == []


@pytest.mark.needs("root")
def test_a_plain_user_keeps_and_reads(tmp_path):
    give_to_plain_user(tmp_path)

    def act() -> None:
        with ObjectStore(str(tmp_path / "objects"), bytes_max=10) as store:
            assert store.read(put(store, b"content")) == b"content"

    run_as_plain_user(act)
    os.chown(tmp_path, 0, 0)
    with (
        ObjectStore(str(tmp_path / "objects"), bytes_max=10) as store,
        pytest.raises(ConfigError, match="belongs to"),
    ):
        put(store, b"content")
