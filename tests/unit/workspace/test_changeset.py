"""A set of changes happens whole, keeps what it replaces, and gives way to whoever was there."""

import hashlib
import os
import stat
import threading
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.errors import (
    FileChangedError,
    HostError,
    PathError,
    PathNotAFileError,
    PathNotFoundError,
    ReadOnlyPathError,
    SpecialFileError,
)
from paddock.storage.disk import Disk
from paddock.storage.locks import try_lock
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import (
    Absent,
    AtVersion,
    ChangedPath,
    EntryState,
    MakeDirectory,
    MakeLink,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StoredContent,
    WriteFile,
)
from paddock.workspace.paths import ROOT, EntryKind
from paddock.workspace.paths import unchecked_path as at
from paddock.workspace.targets import locked
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.changes import (
    MODIFIED_NS,
    File,
    Folder,
    Link,
    content,
    lay_out,
    model_of,
    open_bench,
    seen,
)
from tests.support.disks import DISKS
from tests.support.users import give_to_plain_user, run_as_plain_user

OLD = {
    "a": Folder(),
    "a/one.txt": File(b"one\n"),
    "a/two.txt": File(b"two\n", 0o600, 5),
    "b": Folder(0o700),
    "b/deep": Folder(),
    "b/deep/three.txt": File(b"three\n"),
    "link": Link("a/one.txt"),
}
NEW = {
    "a": File(b"a file now\n", 0o640, 7),
    "b": Folder(0o750),
    "b/deep": Link("../a"),
    "c": Folder(0o711),
    "c/d": Folder(),
    "c/d/new.txt": File(b"new\n" * 1000, 0o755, 9),
    "link": Folder(),
    "link/under": Link("nowhere"),
}


def version(text: bytes) -> str:
    return "sha256:" + hashlib.sha256(text).hexdigest()


@pytest.fixture(params=DISKS.values(), ids=DISKS.keys())
def bench(request, tmp_path):
    lay_out(tmp_path / "ws", OLD)
    with open_bench(tmp_path, request.param()) as bench:
        yield bench


@pytest.fixture
def plain(tmp_path):
    lay_out(tmp_path / "ws", OLD)
    with open_bench(tmp_path) as bench:
        yield bench


class TestWholeSets:
    def test_files_become_directories_and_back_and_modes_and_times_are_as_staged(self, bench):
        bench.become(NEW)
        assert model_of(bench.root) == NEW
        bench.become(OLD)
        assert model_of(bench.root) == OLD
        assert bench.entries() == []

    @pytest.mark.needs("openat2")
    @pytest.mark.parametrize("resolution", [Openat2Resolution, WalkResolution])
    def test_either_way_of_opening_does(self, tmp_path, resolution):
        lay_out(tmp_path / "ws", OLD)
        with open_bench(tmp_path, resolution=resolution()) as bench:
            bench.become(NEW)
        assert model_of(tmp_path / "ws") == NEW

    def test_an_empty_set_does_nothing(self, plain):
        assert plain.commit().changes == ()

    def test_the_receipt_says_of_every_path_what_stood_and_what_stands_there(self, plain):
        os.utime(plain.root / "a/one.txt", ns=(3, 3))
        receipt = plain.commit(
            WriteFile(at("a/one.txt"), content(b"1"), seen(plain.root, "a/one.txt"), None, 8),
            RemoveFile(at("link"), seen(plain.root, "link")),
            MakeLink(at("to"), "b", Absent(), 4),
        )
        assert receipt.changes == (
            ChangedPath(
                at("a/one.txt"),
                EntryState(EntryKind.FILE, 0o644, version(b"one\n")),
                EntryState(EntryKind.FILE, 0o644, version(b"1")),
                kept=True,
            ),
            ChangedPath(
                at("link"),
                EntryState(EntryKind.LINK, 0o777, version(b"a/one.txt"), "a/one.txt"),
                None,
                kept=False,
            ),
            ChangedPath(
                at("to"),
                None,
                EntryState(EntryKind.LINK, 0o777, version(b"b"), "b"),
                kept=False,
            ),
        )

    def test_content_comes_from_an_opened_file_or_from_the_store(self, plain):
        digest = plain.objects.put_bytes(b"stored")
        plain.objects.sync()
        plain.commit(
            WriteFile(at("x"), StoredContent(digest), Absent()),
            WriteFile(at("y"), content(b"staged"), Absent()),
        )
        assert (plain.root / "x").read_bytes() == b"stored"
        assert (plain.root / "y").read_bytes() == b"staged"

    def test_what_is_replaced_is_in_the_store_unless_it_need_not_be(self, plain):
        plain.commit(
            RemoveFile(at("a/one.txt"), seen(plain.root, "a/one.txt")),
            RemoveFile(at("a/two.txt"), seen(plain.root, "a/two.txt"), keeps_old=False),
        )
        assert plain.objects.read(version(b"one\n")) == b"one\n"
        assert not plain.objects.has(version(b"two\n"))

    def test_an_object_that_is_missing_refuses_the_set(self, plain):
        with pytest.raises(HostError):
            plain.commit(
                WriteFile(at("first"), content(b"1"), Absent()),
                WriteFile(at("x"), StoredContent(version(b"nobody kept this")), Absent()),
            )
        assert model_of(plain.root) == OLD
        assert plain.entries() == []


class TestMetadata:
    def test_modes_and_times_change_in_place(self, plain):
        inode = (plain.root / "a/one.txt").stat().st_ino
        plain.commit(
            SetMetadata(at("a/one.txt"), seen(plain.root, "a/one.txt"), 0o755, 11),
            SetMetadata(at("b"), seen(plain.root, "b"), 0o500),
        )
        status = (plain.root / "a/one.txt").stat()
        assert (status.st_ino, status.st_mtime_ns, status.st_mode & 0o7777) == (inode, 11, 0o755)
        assert (plain.root / "b").stat().st_mode & 0o7777 == 0o500

    def test_a_link_has_no_metadata_to_change(self, plain):
        with pytest.raises(PathNotAFileError):
            plain.commit(SetMetadata(at("link"), seen(plain.root, "link"), 0o600))

    def test_owner_and_attributes_of_a_replaced_file_survive(self, plain):
        file = plain.root / "a/one.txt"
        os.setxattr(file, "user.note", b"kept")
        if os.geteuid() == 0:
            os.chown(file, 4711, 4712)
        before = file.stat()
        plain.commit(WriteFile(at("a/one.txt"), content(b"1"), seen(plain.root, "a/one.txt")))
        after = file.stat()
        assert os.getxattr(file, "user.note") == b"kept"
        assert (after.st_uid, after.st_gid, after.st_mode) == (
            before.st_uid,
            before.st_gid,
            before.st_mode,
        )

    def test_setuid_is_neither_carried_nor_gained(self, plain):
        file = plain.root / "a/one.txt"
        file.chmod(0o4755)
        plain.commit(
            WriteFile(at("a/one.txt"), content(b"1"), seen(plain.root, "a/one.txt")),
            WriteFile(at("new"), content(b"1"), Absent(), 0o6755),
            SetMetadata(at("b"), seen(plain.root, "b"), 0o7777),
        )
        modes = [stat.S_IMODE((plain.root / n).stat().st_mode) for n in ("a/one.txt", "new", "b")]
        assert modes == [0o755, 0o755, 0o777]

    def test_a_new_directory_inherits_the_group_bit_of_its_parent(self, plain):
        (plain.root / "b").chmod(0o2755)
        plain.commit(MakeDirectory(at("b/new"), Absent(), 0o750))
        assert stat.S_IMODE((plain.root / "b/new").stat().st_mode) == 0o2750

    def test_a_file_with_other_names_gets_a_copy_of_its_own(self, plain):
        os.link(plain.root / "a/one.txt", plain.base / "outside")
        receipt = plain.commit(
            WriteFile(at("a/one.txt"), content(b"1"), seen(plain.root, "a/one.txt"))
        )
        assert (plain.base / "outside").read_bytes() == b"one\n"
        assert receipt.notes == (
            "'a/one.txt' is now a separate file; 1 other hard link keeps the old content",
        )


class TestConflicts:
    """Somebody changed one path since it was looked at: none of the paths changes."""

    def refused(self, bench, *changes, named="a/one.txt"):
        before = model_of(bench.root)
        with pytest.raises(FileChangedError) as refusal:
            bench.commit(
                WriteFile(at("b/other"), content(b"other"), Absent()),
                RemoveFile(at("link"), seen(bench.root, "link")),
                *changes,
            )
        assert f"'{named}'" in refusal.value.message
        assert model_of(bench.root) == before
        assert bench.entries() == []

    def test_a_file_that_was_rewritten_refuses_the_set(self, plain):
        was = seen(plain.root, "a/one.txt")
        (plain.root / "a/one.txt").write_bytes(b"ONE\n")
        self.refused(plain, WriteFile(at("a/one.txt"), content(b"1"), was))

    def test_a_file_that_got_other_permissions_refuses_the_set(self, plain):
        was = seen(plain.root, "a/one.txt")
        (plain.root / "a/one.txt").chmod(0o600)
        self.refused(plain, RemoveFile(at("a/one.txt"), was))

    def test_a_file_at_another_version_refuses_the_set(self, plain):
        self.refused(plain, RemoveFile(at("a/one.txt"), AtVersion(version(b"other"))))
        plain.commit(RemoveFile(at("a/one.txt"), AtVersion(version(b"one\n"))))
        assert not (plain.root / "a/one.txt").exists()

    def test_a_link_with_another_text_refuses_the_set(self, plain):
        (plain.root / "c").symlink_to("x")
        self.refused(plain, RemoveFile(at("c"), AtVersion(version(b"y"))), named="c")
        plain.commit(RemoveFile(at("c"), AtVersion(version(b"x"))))

    def test_something_where_nothing_was_expected_refuses_the_set(self, plain):
        self.refused(plain, WriteFile(at("a/one.txt"), content(b"1"), Absent()))
        self.refused(plain, MakeDirectory(at("a"), Absent()), named="a")

    def test_nothing_where_something_was_expected_refuses_the_set(self, plain):
        was = seen(plain.root, "a/one.txt")
        (plain.root / "a/one.txt").unlink()
        self.refused(plain, WriteFile(at("a/one.txt"), content(b"1"), was))
        self.refused(plain, RemoveFile(at("a/one.txt"), was))
        self.refused(plain, SetMetadata(at("a/one.txt"), was, 0o600))

    def test_a_content_that_got_its_old_times_back_refuses_the_set_where_the_content_counts(
        self, plain
    ):
        file = plain.root / "a/one.txt"
        was = Seen(seen(plain.root, "a/one.txt").status, version(b"one\n"))
        file.write_bytes(b"two\n")
        os.utime(file, ns=(MODIFIED_NS, MODIFIED_NS))
        self.refused(plain, SetMetadata(at("a/one.txt"), was, 0o600))
        plain.commit(SetMetadata(at("a/one.txt"), Seen(was.status, version(b"two\n")), 0o600))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "act",
        [lambda file: file.chmod(0o600), lambda file: os.utime(file, (5, 5))],
        ids=["mode", "time"],
    )
    def test_a_mode_or_time_beside_the_very_content_that_was_seen_refuses_the_set(self, plain, act):
        file = plain.root / "a/one.txt"
        was = Seen(seen(plain.root, "a/one.txt").status, version(b"one\n"))
        act(file)
        self.refused(plain, SetMetadata(at("a/one.txt"), was, 0o755, 7))
        plain.commit(SetMetadata(at("a/one.txt"), AtVersion(version(b"one\n")), 0o755, 7))
        assert (stat.S_IMODE(file.stat().st_mode), file.stat().st_mtime_ns) == (0o755, 7)

    def test_a_link_in_the_place_of_a_file_refuses_the_set(self, plain):
        was = seen(plain.root, "a/one.txt")
        (plain.root / "a/one.txt").unlink()
        (plain.root / "a/one.txt").symlink_to("two.txt")
        self.refused(plain, WriteFile(at("a/one.txt"), content(b"1"), was))

    def test_a_directory_in_which_something_appeared_refuses_the_set(self, plain):
        removals = (
            RemoveDirectory(at("b")),
            RemoveDirectory(at("b/deep")),
            RemoveFile(at("b/deep/three.txt"), seen(plain.root, "b/deep/three.txt")),
        )
        (plain.root / "b/deep/new").write_bytes(b"new")
        before = model_of(plain.root)
        with pytest.raises(FileChangedError, match=r"changed 'b/deep/new' meanwhile"):
            plain.commit(*removals)
        assert model_of(plain.root) == before
        (plain.root / "b/deep/new").unlink()
        plain.commit(*removals)
        assert not (plain.root / "b").exists()

    def test_all_of_them_are_named_and_the_rest_counted(self, plain):
        changes = [RemoveFile(at(f"none{n:02}"), AtVersion("x")) for n in range(25)]
        with pytest.raises(FileChangedError) as refusal:
            plain.commit(*changes)
        assert refusal.value.message.startswith("another process changed 'none00', 'none01'")
        assert "'none19' and 5 more meanwhile" in refusal.value.message


class AllMustHold(Struct, dict=True):
    """A condition that looks whether these directories are locked, and then may refuse."""

    root: Path
    names: tuple[str, ...]
    holds: bool = True
    locked: list[str] = field(default_factory=list)

    def directories(self):
        return [at(name) for name in self.names]

    def verify(self):
        for name in self.names:
            fd = os.open(self.root / name, os.O_RDONLY)
            if not try_lock(fd):
                self.locked.append(name)
            os.close(fd)
        if not self.holds:
            raise FileChangedError("it does not hold")


class TestACondition:
    def test_a_condition_is_asked_while_its_directories_and_those_of_the_set_are_locked(
        self, plain
    ):
        condition = AllMustHold(plain.root, ("a", "b", "."))
        change = WriteFile(at("b/new"), content(b"new"), Absent())
        commit_changes(
            plain.workspace, [[change]], plain.objects, plain.journal, condition=condition
        )
        assert condition.locked == ["a", "b", "."]
        assert (plain.root / "b/new").read_bytes() == b"new"

    def test_a_condition_that_does_not_hold_refuses_the_set_and_leaves_no_trace(self, plain):
        before = model_of(plain.root)
        change = WriteFile(at("b/new"), content(b"new"), Absent())
        with pytest.raises(FileChangedError, match="it does not hold"):
            commit_changes(
                plain.workspace,
                [[change]],
                plain.objects,
                plain.journal,
                condition=AllMustHold(plain.root, (), holds=False),
            )
        assert (model_of(plain.root), plain.entries()) == (before, [])


class TestWhatIsNeverReplaced:
    def test_a_read_only_file_is_replaced_only_where_the_change_says_so(self, plain):
        file = plain.root / "a/one.txt"
        file.chmod(0o444)
        with pytest.raises(ReadOnlyPathError):
            plain.commit(WriteFile(at("a/one.txt"), content(b"1"), seen(plain.root, "a/one.txt")))
        assert file.read_bytes() == b"one\n"
        plain.commit(
            RemoveFile(at("a/one.txt"), seen(plain.root, "a/one.txt"), overrides_read_only=True)
        )
        assert not file.exists()

    def test_a_fifo_is_never_replaced(self, plain):
        os.mkfifo(plain.root / "fifo")
        with pytest.raises(SpecialFileError):
            plain.commit(RemoveFile(at("fifo"), seen(plain.root, "fifo")))
        assert stat.S_ISFIFO((plain.root / "fifo").lstat().st_mode)

    def test_nothing_behind_a_link_is_replaced(self, plain):
        (plain.base / "outside").mkdir()
        (plain.root / "away").symlink_to(plain.base / "outside")
        (plain.root / "inner").symlink_to("b")
        for name in ("away/x", "inner/x"):
            with pytest.raises(FileChangedError):
                plain.commit(WriteFile(at(name), content(b"1"), Absent()))
        assert os.listdir(plain.base / "outside") == []
        assert sorted(os.listdir(plain.root / "b")) == ["deep"]
        plain.commit(WriteFile(at("b/x"), content(b"1"), Absent()))
        assert (plain.root / "b/x").read_bytes() == b"1"

    def test_no_file_is_made_in_a_directory_that_is_not_there(self, plain):
        with pytest.raises(PathNotFoundError):
            plain.commit(WriteFile(at("none/x"), content(b"1"), Absent()))


class MeddlingDisk(Disk):
    """Somebody acts just before, or just after, the first change of places."""

    def __init__(self, before=None, after=None):
        self.before, self.after = before, after

    def _act(self, name):
        act, _ = getattr(self, name), setattr(self, name, None)
        if act is not None:
            act()

    def exchange(self, dir_fd, name, other):
        self._act("before")
        done = super().exchange(dir_fd, name, other)
        self._act("after")
        return done

    def move_new(self, from_fd, name, to_fd, to):
        self._act("before")
        super().move_new(from_fd, name, to_fd, to)
        self._act("after")


@pytest.fixture
def meddle(tmp_path):
    """Commit NEW over OLD with somebody meddling in the last window; the tree afterwards."""

    def run(act, when="before", **changes):
        root = tmp_path / "ws"
        lay_out(root, OLD)
        disk = MeddlingDisk(**{when: lambda: act(root)})
        with open_bench(tmp_path, disk) as bench:
            with pytest.raises((FileChangedError, PathError)):
                bench.become(NEW)
            assert bench.entries() == []
        return model_of(root)

    return run


def replace(path: Path, text: bytes) -> None:
    other = path.with_name("theirs")
    other.write_bytes(text)
    other.chmod(0o600)
    os.utime(other, ns=(1, 1))
    other.replace(path)


class TestTheLastWindow:
    """What is changed after the first look is theirs; everything else is put back."""

    def test_a_file_that_is_replaced_stays_theirs(self, meddle):
        found = meddle(lambda root: replace(root / "a/one.txt", b"theirs"))
        assert found == OLD | {"a/one.txt": File(b"theirs", 0o600, 1)}

    def test_a_file_that_is_rewritten_in_place_stays_theirs(self, meddle):
        def rewrite(root):
            (root / "a/one.txt").write_bytes(b"longer than it was")
            os.utime(root / "a/one.txt", ns=(1, 1))

        assert meddle(rewrite) == OLD | {"a/one.txt": File(b"longer than it was", 0o644, 1)}

    def test_a_file_that_appears_in_a_directory_that_goes_is_not_lost(self, meddle):
        def appear(root):
            (root / "b/deep/theirs").symlink_to("x")

        assert meddle(appear) == OLD | {"b/deep/theirs": Link("x")}

    def test_a_file_that_appears_after_its_directory_moved_is_not_lost(self, tmp_path):
        lay_out(tmp_path / "ws", OLD)
        held = os.open(tmp_path / "ws/a", os.O_RDONLY)
        disk = MeddlingDisk(after=lambda: os.symlink("x", "theirs", dir_fd=held))
        with open_bench(tmp_path, disk) as bench:
            with pytest.raises(FileChangedError):
                bench.commit(
                    RemoveDirectory(at("a")),
                    RemoveFile(at("a/one.txt"), seen(bench.root, "a/one.txt")),
                    RemoveFile(at("a/two.txt"), seen(bench.root, "a/two.txt")),
                )
            assert model_of(bench.root) == OLD | {"a/theirs": Link("x")}
        os.close(held)

    def test_a_link_that_takes_the_place_of_a_file_is_put_back_and_not_followed(
        self, meddle, tmp_path
    ):
        def plant(root):
            (root.parent / "secret").write_bytes(b"secret")
            (root / "a/one.txt").unlink()
            (root / "a/one.txt").symlink_to("../../secret")

        assert meddle(plant) == OLD | {"a/one.txt": Link("../../secret")}
        assert (tmp_path / "secret").read_bytes() == b"secret"

    def test_an_entry_that_appears_at_a_free_name_is_not_replaced(self, meddle):
        def appear(root):
            (root / "c").symlink_to("theirs")

        assert meddle(appear) == OLD | {"c": Link("theirs")}

    def test_a_path_that_they_remove_stays_removed(self, meddle):
        def remove(root):
            (root / "link").unlink()

        assert meddle(remove) == {name: node for name, node in OLD.items() if name != "link"}

    def test_our_new_file_that_they_changed_already_stays_theirs(self, tmp_path):
        lay_out(tmp_path / "ws", OLD)

        def meddle():
            (tmp_path / "ws/a/new").write_bytes(b"theirs")
            os.utime(tmp_path / "ws/a/new", ns=(1, 1))
            (tmp_path / "ws/b/free").symlink_to("taken")

        disk = MeddlingDisk(after=meddle)
        with open_bench(tmp_path, disk) as bench:
            with pytest.raises(FileChangedError, match="a/new"):
                bench.commit(
                    WriteFile(at("a/new"), content(b"ours"), Absent(), 0o644),
                    WriteFile(at("b/free"), content(b"ours"), Absent()),
                )
            assert model_of(bench.root) == OLD | {
                "a/new": File(b"theirs", 0o644, 1),
                "b/free": Link("taken"),
            }

    @pytest.mark.parametrize("name", ["a/new", "a/one.txt"])
    def test_what_they_put_there_while_the_set_is_put_back_stays_theirs(self, tmp_path, name):
        lay_out(tmp_path / "ws", OLD)
        path = tmp_path / "ws" / name

        class Late(Disk):
            """Takes a free name before the last step, and our place before it is put back."""

            calls = 0

            def meddle(self):
                self.calls += 1
                if self.calls == 2:
                    (tmp_path / "ws/z").symlink_to("taken")
                if self.calls == 3:
                    path.unlink()
                    path.symlink_to("theirs")

            def exchange(self, dir_fd, name, other):
                self.meddle()
                return super().exchange(dir_fd, name, other)

            def move_new(self, from_fd, name, to_fd, to):
                self.meddle()
                super().move_new(from_fd, name, to_fd, to)

        with open_bench(tmp_path, Late()) as bench:
            old = seen(bench.root, name) if path.exists() else Absent()
            with pytest.raises(FileChangedError, match=f"changed '{name}' meanwhile"):
                bench.commit(
                    WriteFile(at(name), content(b"ours"), old),
                    WriteFile(at("z"), content(b"ours"), Absent()),
                )
            assert bench.entries() == []
        assert model_of(tmp_path / "ws") == OLD | {name: Link("theirs"), "z": Link("taken")}

    def test_a_directory_that_is_moved_out_of_the_root_takes_nothing_with_it(self, tmp_path):
        lay_out(tmp_path / "ws", OLD)

        def move_out():
            os.rename(tmp_path / "ws/a", tmp_path / "away")
            os.symlink(tmp_path / "away", tmp_path / "ws/a")

        with open_bench(tmp_path, MeddlingDisk(after=move_out)) as bench:
            with pytest.raises(FileChangedError):
                bench.commit(
                    WriteFile(at("a/one.txt"), content(b"1"), seen(bench.root, "a/one.txt")),
                    WriteFile(at("b/x"), content(b"1"), Absent()),
                )
            assert bench.entries() == []
        assert model_of(tmp_path / "away") == {
            "one.txt": OLD["a/one.txt"],
            "two.txt": OLD["a/two.txt"],
        }
        assert not (tmp_path / "ws/b/x").exists()


class TestOthersAtWork:
    def test_a_writer_in_a_directory_that_goes_is_waited_for_and_then_in_the_way(self, plain):
        inner = at("b/deep")
        with (
            locked(plain.workspace.open_at, inner),
            pytest.raises(PathError, match="locked by another write"),
        ):
            plain.commit(
                RemoveDirectory(at("b")),
                RemoveDirectory(at("b/deep")),
                RemoveFile(at("b/deep/three.txt"), seen(plain.root, "b/deep/three.txt")),
            )
        assert model_of(plain.root) == OLD

    def test_sets_that_overlap_do_not_wait_for_each_other_for_ever(self, plain):
        rounds, done, refused = 20, [], []
        paths = ["a/x", "b/x", "b/deep/x", "x"]

        def work(number: int) -> None:
            for turn in range(rounds):
                order = paths if (turn + number) % 2 else paths[::-1]
                text = b"%d of %d" % (turn, number)
                changes = []
                for name in order:
                    try:
                        old = seen(plain.root, name)
                    except FileNotFoundError:
                        old = Absent()
                    changes.append(WriteFile(at(name), content(text), old))
                try:
                    plain.commit(*changes)
                    done.append(text)
                except FileChangedError:
                    refused.append(text)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) + len(refused) == 4 * rounds
        assert done
        found = {(plain.root / name).read_bytes() for name in paths}
        assert len(found) == 1
        assert found <= set(done)
        assert plain.entries() == []

    def test_the_root_itself_is_locked_like_any_directory(self, plain):
        done = []
        with locked(plain.workspace.open_at, ROOT):
            thread = threading.Thread(
                target=lambda: done.append(plain.commit(MakeDirectory(at("new"), Absent())))
            )
            thread.start()
            thread.join(0.05)
            assert done == []
        thread.join()
        assert (plain.root / "new").is_dir()


@pytest.mark.needs("root")
def test_as_a_plain_user_a_set_does_what_its_permissions_allow(tmp_path):
    lay_out(tmp_path / "ws", OLD | {"shut": Folder(0o555), "shut/x": File(b"x")})
    give_to_plain_user(tmp_path)

    def act():
        with open_bench(tmp_path) as bench:
            bench.commit(
                WriteFile(at("a/one.txt"), content(b"1"), seen(bench.root, "a/one.txt")),
                MakeDirectory(at("sealed"), Absent(), 0o555),
                WriteFile(at("sealed/x"), content(b"1"), Absent()),
                RemoveDirectory(at("shut")),
                RemoveFile(at("shut/x"), seen(bench.root, "shut/x")),
                SetMetadata(at("a"), seen(bench.root, "a"), 0o555),
            )
            found = model_of(bench.root)
            assert (found["a"], found["sealed"]) == (Folder(0o555), Folder(0o555))
            assert "shut" not in found
            assert not [name for name in found if ".paddock-" in name]
            with pytest.raises(ReadOnlyPathError):
                bench.commit(
                    WriteFile(at("free"), content(b"1"), Absent()),
                    WriteFile(at("a/new"), content(b"1"), Absent()),
                )
            assert model_of(bench.root) == found
            assert bench.entries() == []

    run_as_plain_user(act)
