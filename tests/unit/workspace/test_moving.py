"""Moving and deleting entries: never over anything, never what was not judged."""

import hashlib
import os

import pytest

from paddock.errors import (
    DirectoryNotEmptyError,
    FileChangedError,
    InvalidPathError,
    PathError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    ReadOnlyPathError,
    SpecialFileError,
)
from paddock.storage.notes import Doing
from paddock.workspace import EntryKind, EntryVersion, Workspace
from paddock.workspace.paths import unchecked_path
from paddock.workspace.single_change import SingleReceipt, delete_entry, entry_version, move_entry
from tests.support.disks import DISKS, tree
from tests.support.users import give_to_plain_user, run_as_plain_user

p = unchecked_path
CONTENT = b"content\n"


def version(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture(params=DISKS.values(), ids=DISKS.keys())
def filled(ground, request):
    root = ground.root
    for folder in ("dir/sub", "empty", "other"):
        (root / folder).mkdir(parents=True)
    (root / "dir/file").write_bytes(CONTENT)
    (root / "taken").write_bytes(b"taken\n")
    for name, target in {
        "link": "dir/file",
        "dir_link": "dir",
        "out": "../outside/file",
        "dangling": "nothing",
    }.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "fifo")
    with Workspace.open(str(root), ground.workspace.resolution, request.param()) as workspace:
        ground.workspace = workspace
        ground.has_rename_flags = request.param is not DISKS["plain-rename"]
        yield ground


def move(ground, name: str, to: str, **terms) -> SingleReceipt:
    workspace = ground.workspace
    return move_entry(
        workspace, workspace.resolve_entry(name), workspace.resolve_write(to), **terms
    )


def delete(ground, name: str, **terms) -> SingleReceipt:
    return delete_entry(ground.workspace, ground.workspace.resolve_entry(name), **terms)


@pytest.fixture(params=["move", "delete"])
def remove(request, filled):
    """Either act that takes an entry away."""
    if request.param == "move":
        return lambda name: move(filled, name, "new/place")
    return lambda name: delete(filled, name)


@pytest.mark.parametrize("to", ["dir/renamed", "other/file", "new/deep/file", "top"])
def test_a_file_is_moved_with_the_directories_that_it_needs(filled, to):
    inode = os.stat(filled.root / "dir/file").st_ino
    made = ("new", "new/deep") if to.startswith("new") else ()
    at = version(CONTENT)
    mode = os.stat(filled.root / "dir/file").st_mode & 0o777
    assert move(filled, "dir/file", to) == SingleReceipt(
        Doing("dir/file", "moved", before=at, after=at, to=to, made=made, mode=mode)
    )
    found = tree_without_fifo(filled)
    assert "dir/file" not in found
    assert found[to] == CONTENT
    assert os.stat(filled.root / to).st_ino == inode


def tree_without_fifo(ground) -> dict[str, object]:
    if os.path.exists(ground.root / "fifo"):
        os.unlink(ground.root / "fifo")
    return tree(ground.root)


@pytest.mark.parametrize("name", ["link", "dir_link", "out", "dangling"])
def test_a_link_itself_is_moved_and_deleted_and_never_its_target(filled, name):
    target = os.readlink(filled.root / name)
    at = version(target.encode())
    assert move(filled, name, "other/moved") == SingleReceipt(
        Doing(name, "moved", "link", before=at, after=at, to="other/moved")
    )
    assert os.readlink(filled.root / "other/moved") == target
    assert not os.path.lexists(filled.root / name)
    assert delete(filled, "other/moved") == SingleReceipt(
        Doing("other/moved", "deleted", "link", before=at)
    )
    found = tree_without_fifo(filled)
    assert "other/moved" not in found
    assert found["dir/file"] == CONTENT
    assert tree(filled.outside) == {"dir": None, "dir/file": b"outside\n", "file": b"outside\n"}


def test_a_file_is_deleted(filled):
    (filled.root / "dir/file").chmod(0o750)
    assert delete(filled, "dir/file") == SingleReceipt(
        Doing("dir/file", "deleted", before=version(CONTENT), mode=0o750), len(CONTENT)
    )
    assert os.listdir(filled.root / "dir") == ["sub"]


def test_an_empty_directory_is_moved_and_deleted(filled):
    if filled.has_rename_flags:
        receipt = move(filled, "empty", "other/place")
        mode = os.stat(filled.root / "other/place").st_mode & 0o777
        assert receipt == SingleReceipt(
            Doing("empty", "moved", "directory", to="other/place", mode=mode)
        )
    else:
        # link(2) takes no directories, and nothing else is safe there.
        with pytest.raises(ReadOnlyPathError):
            move(filled, "empty", "other/place")
        (filled.root / "empty").rename(filled.root / "other/place")
    (filled.root / "other/place").chmod(0o711)
    assert delete(filled, "other/place") == SingleReceipt(
        Doing("other/place", "deleted", "directory", mode=0o711)
    )
    assert os.listdir(filled.root / "other") == []


def test_a_directory_with_entries_is_neither_moved_nor_deleted(filled, remove):
    with pytest.raises(DirectoryNotEmptyError):
        remove("dir")
    found = tree_without_fifo(filled)
    assert found["dir/file"] == CONTENT
    assert "new" not in found


@pytest.mark.parametrize("to", ["taken", "empty", "link", "dangling", "out_too", "dir/file"])
def test_a_move_never_overwrites(filled, to):
    (filled.root / "out_too").symlink_to("dir/sub/target")
    os.unlink(filled.root / "fifo")
    before = tree(filled.root)
    with pytest.raises(PathExistsError):
        move(filled, "dir/file", to)
    assert tree(filled.root) == before


def test_a_move_never_overwrites_what_appears_at_the_last_moment(filled):
    os.unlink(filled.root / "fifo")
    to = filled.workspace.resolve_write("appears")
    (filled.root / "appears").write_bytes(b"theirs")
    before = tree(filled.root)
    with pytest.raises(PathExistsError):
        move_entry(filled.workspace, filled.workspace.resolve_entry("dir/file"), to)
    assert tree(filled.root) == before


def test_the_root_is_neither_moved_nor_deleted(filled, remove):
    for name in (".", "dir/..", str(filled.root)):
        with pytest.raises(InvalidPathError, match="root itself"):
            remove(name)
    with pytest.raises(PathNotAFileError):
        move(filled, "taken", ".")


def test_nothing_is_moved_into_itself(filled):
    before = os.listdir(filled.root / "empty")
    for to in ("empty/below", "empty/a/b"):
        with pytest.raises(InvalidPathError, match="into itself"):
            move(filled, "empty", to)
    assert os.listdir(filled.root / "empty") == before
    with pytest.raises((InvalidPathError, PathNotADirectoryError)):
        move(filled, "taken", "taken/below")


def test_what_is_not_there_is_not_found_and_no_directory_is_made(filled, remove):
    for name in ("nothing", "dir/nothing", "nothing/below"):
        with pytest.raises(PathNotFoundError):
            remove(name)
    assert not (filled.root / "new").exists()


def test_fifos_are_left_alone(filled, remove):
    with pytest.raises(SpecialFileError):
        remove("fifo")
    assert os.path.exists(filled.root / "fifo")
    assert not (filled.root / "new").exists()


def test_a_file_without_any_write_bit_stays_even_for_root(filled, remove):
    os.chmod(filled.root / "dir/file", 0o444)
    with pytest.raises(ReadOnlyPathError):
        remove("dir/file")
    assert (filled.root / "dir/file").exists()
    os.chmod(filled.root / "dir/file", 0o644)
    remove("dir/file")
    assert not (filled.root / "dir/file").exists()


def test_a_version_that_does_not_hold_is_refused(filled):
    for act in (
        lambda tag: delete(filled, "dir/file", if_version=tag),
        lambda tag: move(filled, "dir/file", "new/place", if_version=tag),
    ):
        with pytest.raises(FileChangedError):
            act(version(b"other"))
        assert (filled.root / "dir/file").read_bytes() == CONTENT
        assert not (filled.root / "new").exists()
    assert delete(filled, "dir/file", if_version=version(CONTENT)).doing.before


def test_a_link_that_takes_the_place_of_a_directory_on_the_way_is_not_followed(filled):
    workspace = filled.workspace
    entry = workspace.resolve_entry("dir/file")
    to = workspace.resolve_write("dir/new")
    (filled.root / "dir").rename(filled.root / "kept")
    (filled.root / "dir").symlink_to("../outside")
    before = tree(filled.outside)
    for act in (
        lambda: delete_entry(workspace, entry),
        lambda: move_entry(workspace, entry, workspace.resolve_write("fresh")),
        lambda: move_entry(workspace, workspace.resolve_entry("taken"), to),
    ):
        with pytest.raises(FileChangedError):
            act()
    assert tree(filled.outside) == before
    assert (filled.root / "taken").exists()


def test_receipts_leave_nothing_open_or_lying_about(filled, remove):
    before = os.listdir("/proc/self/fd")
    remove("dir/file")
    with pytest.raises((PathNotFoundError, PathExistsError)):
        remove("dir/file")
    assert os.listdir("/proc/self/fd") == before
    assert not any(".paddock" in name for name in tree_without_fifo(filled))


@pytest.mark.needs("root")
def test_another_file_system_is_told_as_such(ground):
    (ground.root / "file").write_bytes(CONTENT)
    (ground.root / "mounted").mkdir()
    if os.system(f"mount -t tmpfs none {ground.root}/mounted 2>/dev/null"):
        pytest.skip("needs to mount a tmpfs")
    try:
        with pytest.raises(PathError, match="another file system"):
            move(ground, "file", "mounted/file")
        assert (ground.root / "file").read_bytes() == CONTENT
        assert os.listdir(ground.root / "mounted") == []
    finally:
        os.system(f"umount {ground.root}/mounted")


@pytest.mark.needs("root")
def test_a_plain_user_may_not_take_from_a_directory_that_it_may_not_write(ground):
    (ground.root / "dir").mkdir()
    (ground.root / "dir/file").write_bytes(CONTENT)
    give_to_plain_user(ground.root)
    os.chmod(ground.root / "dir", 0o555)

    def act() -> None:
        with Workspace.open(str(ground.root), ground.workspace.resolution) as workspace:
            entry = workspace.resolve_entry("dir/file")
            with pytest.raises(ReadOnlyPathError):
                delete_entry(workspace, entry)
            with pytest.raises(ReadOnlyPathError):
                move_entry(workspace, entry, workspace.resolve_write("new/file"))

    run_as_plain_user(act)
    assert tree(ground.root) == {"dir": None, "dir/file": CONTENT}


@pytest.fixture(params=["move", "delete"])
def remove_at(request, filled):
    """Either act, of what has a version alone."""
    if request.param == "move":
        return lambda name, at: move(filled, name, "other/place", if_version=at)
    return lambda name, at: delete(filled, name, if_version=at)


@pytest.mark.parametrize("name", ["taken", "link"])
def test_a_version_with_a_kind_is_that_of_what_is_of_this_kind(filled, remove_at, name):
    workspace = filled.workspace
    at = entry_version(workspace, workspace.resolve_entry(name))
    kind = EntryKind.LINK if name == "link" else EntryKind.FILE
    text = b"dir/file" if name == "link" else b"taken\n"
    assert at == EntryVersion(kind, version(text))
    assert str(at) == ("link " if name == "link" else "") + version(text)
    assert remove_at(name, at).doing.entry == kind.value
    assert not os.path.lexists(filled.root / name)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [("link", EntryKind.FILE, b"dir/file"), ("taken", EntryKind.LINK, b"taken\n")],
)
def test_the_version_of_another_kind_is_another_one_whatever_it_holds(
    filled, remove_at, name, kind, text
):
    os.unlink(filled.root / "fifo")
    before = tree(filled.root)
    with pytest.raises(FileChangedError):
        remove_at(name, EntryVersion(kind, version(text)))
    assert tree(filled.root) == before
    # Whoever names no kind has looked at it himself.
    assert remove_at(name, version(text)) is not None
