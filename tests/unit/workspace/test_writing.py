"""Writing and editing: whole or not at all, what is replaced is what was judged."""

import hashlib
import os
import socket

import pytest

from paddock import limits
from paddock.errors import (
    FileChangedError,
    PathExistsError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    ReadOnlyPathError,
    SpecialFileError,
    StringNotFoundError,
    TextTooLargeError,
)
from paddock.storage.notes import Doing
from paddock.workspace import Workspace
from paddock.workspace.changes import Absent, AtVersion
from paddock.workspace.paths import unchecked_path
from paddock.workspace.read import Pieces
from paddock.workspace.single_change import SingleReceipt, edit_file, write_file
from tests.support.disks import DISKS, tree

p = unchecked_path
OLD, NEW = b"old\n", b"new content\n"


def version(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


class To:
    """An edit that replaces everything."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def apply(self, content: bytes) -> Pieces:
        return (self.content,)


class Refuse:
    """An edit that does not fit."""

    def apply(self, content: bytes) -> Pieces:
        raise StringNotFoundError("not in there")


@pytest.fixture(params=DISKS.values(), ids=DISKS.keys())
def filled(ground, request):
    """A file in a directory and a link to it, on disks that can more and less."""
    (ground.root / "dir").mkdir()
    (ground.root / "dir/file").write_bytes(OLD)
    (ground.root / "link").symlink_to("dir/file")
    with Workspace.open(
        str(ground.root), ground.workspace.resolution, request.param()
    ) as workspace:
        ground.workspace = workspace
        yield ground


def write(ground, name: str, content: bytes = NEW, **terms) -> SingleReceipt:
    return write_file(ground.workspace, ground.workspace.resolve_write(name), content, **terms)


def test_a_new_file_is_created_with_its_directories(filled):
    assert write(filled, "new/deep/file") == SingleReceipt(
        Doing("new/deep/file", "created", after=version(NEW), made=("new", "new/deep")),
        bytes_before=0,
        bytes_written=len(NEW),
    )
    assert tree(filled.root) == {
        "dir": None,
        "dir/file": OLD,
        "link": "-> dir/file",
        "new": None,
        "new/deep": None,
        "new/deep/file": NEW,
    }


@pytest.mark.parametrize("name", ["dir/file", "link"])
def test_a_file_is_replaced_and_a_link_stays_a_link(filled, name):
    assert write(filled, name) == SingleReceipt(
        Doing("dir/file", "overwritten", before=version(OLD), after=version(NEW)),
        bytes_before=len(OLD),
        bytes_written=len(NEW),
    )
    assert tree(filled.root) == {"dir": None, "dir/file": NEW, "link": "-> dir/file"}


def test_a_write_through_a_dangling_link_creates_its_target(filled):
    (filled.root / "dangling").symlink_to("made/target")
    assert write(filled, "dangling").doing.path == "made/target"
    assert tree(filled.root)["made/target"] == NEW
    assert tree(filled.root)["dangling"] == "-> made/target"


@pytest.mark.parametrize("content", [b"", b"\0\xff" * 10, b"x" * 3_000_000])
def test_any_bytes_are_written_as_they_are(filled, content):
    for name in ("dir/file", "fresh"):
        write(filled, name, content)
        assert (filled.root / name).read_bytes() == content


def test_an_edit_is_applied_to_what_is_there(filled):
    class Twice:
        def apply(self, content: bytes) -> Pieces:
            return content, content

    path = filled.workspace.resolve_write("link")
    receipt = edit_file(filled.workspace, path, Twice())
    assert receipt == SingleReceipt(
        Doing("dir/file", "edited", before=version(OLD), after=version(OLD * 2)),
        bytes_before=len(OLD),
        bytes_written=2 * len(OLD),
    )
    assert tree(filled.root)["dir/file"] == OLD * 2


def test_an_edit_that_refuses_leaves_everything_as_it_is(filled):
    inode = os.stat(filled.root / "dir/file").st_ino
    with pytest.raises(StringNotFoundError):
        edit_file(filled.workspace, filled.workspace.resolve_write("dir/file"), Refuse())
    assert tree(filled.root) == {"dir": None, "dir/file": OLD, "link": "-> dir/file"}
    assert os.stat(filled.root / "dir/file").st_ino == inode


def test_an_edit_of_a_missing_file_is_refused_and_makes_nothing(filled):
    with pytest.raises(PathNotFoundError):
        edit_file(filled.workspace, filled.workspace.resolve_write("new/file"), To(NEW))
    assert "new" not in tree(filled.root)


def test_a_file_over_the_limit_is_not_edited(filled):
    os.truncate(filled.root / "dir/file", limits.edited_file_bytes_max + 1)
    path = filled.workspace.resolve_write("dir/file")
    with pytest.raises(TextTooLargeError, match="256000001 bytes"):
        edit_file(filled.workspace, path, To(NEW))
    os.truncate(filled.root / "dir/file", 4)
    edit_file(filled.workspace, path, To(NEW))


def test_a_version_that_holds_is_accepted_and_one_that_does_not_is_refused(filled):
    path = filled.workspace.resolve_write("dir/file")
    acts = (
        lambda tag: write_file(filled.workspace, path, NEW, old=AtVersion(tag)),
        lambda tag: edit_file(filled.workspace, path, To(NEW), if_version=tag),
    )
    for act in acts:
        (filled.root / "dir/file").write_bytes(OLD)
        with pytest.raises(FileChangedError, match=version(OLD)):
            act(version(b"other"))
        assert (filled.root / "dir/file").read_bytes() == OLD
        assert act(version(OLD)).doing.after == version(NEW)
        assert (filled.root / "dir/file").read_bytes() == NEW


def test_a_version_of_a_missing_file_holds_never_and_leaves_no_directories(filled):
    with pytest.raises(FileChangedError, match="does not exist"):
        write(filled, "new/file", old=AtVersion(version(OLD)))
    assert "new" not in tree(filled.root)


def test_exclusive_creation_refuses_whatever_is_there(filled):
    assert write(filled, "fresh", old=Absent()).doing.kind == "created"
    for name in ("fresh", "dir/file"):
        before = tree(filled.root)
        with pytest.raises(PathExistsError):
            write(filled, name, b"other", old=Absent())
        assert tree(filled.root) == before
    path = filled.workspace.resolve_write("races")
    (filled.root / "races").write_bytes(b"theirs")
    with pytest.raises(PathExistsError):
        write_file(filled.workspace, path, NEW, old=Absent())
    assert tree(filled.root)["races"] == b"theirs"


def test_missing_parents_are_refused_where_they_are_not_to_be_made(filled):
    with pytest.raises(PathNotFoundError):
        write(filled, "new/file", create_parents=False)
    assert "new" not in tree(filled.root)
    assert write(filled, "dir/new", create_parents=False).doing.kind == "created"


@pytest.mark.parametrize("target", ["../../outside/file", "../../outside", "kept", "nothing"])
def test_a_link_that_takes_the_place_of_the_file_is_neither_followed_nor_replaced(filled, target):
    path = filled.workspace.resolve_write("dir/file")
    (filled.root / "dir/file").rename(filled.root / "dir/kept")
    (filled.root / "dir/file").symlink_to(target)
    before = tree(filled.root), tree(filled.outside)
    with pytest.raises(FileChangedError):
        write_file(filled.workspace, path, NEW)
    with pytest.raises(FileChangedError):
        edit_file(filled.workspace, path, To(NEW))
    assert (tree(filled.root), tree(filled.outside)) == before


def test_a_link_that_takes_the_place_of_a_directory_is_not_followed(filled):
    paths = [filled.workspace.resolve_write(name) for name in ("dir/file", "dir/new", "dir/a/b")]
    (filled.root / "dir").rename(filled.root / "kept")
    (filled.root / "dir").symlink_to("../outside")
    before = tree(filled.root), tree(filled.outside)
    for path in paths:
        with pytest.raises(FileChangedError):
            write_file(filled.workspace, path, NEW)
    assert (tree(filled.root), tree(filled.outside)) == before


class MeddlingEdit:
    """Lets somebody else act between our reading and our replacing."""

    def __init__(self, meddle) -> None:
        self.meddle = meddle

    def apply(self, content: bytes) -> Pieces:
        self.meddle()
        return (NEW,)


@pytest.mark.parametrize("how", ["rewritten", "replaced", "same size", "removed", "linked"])
def test_a_change_by_somebody_else_during_an_edit_is_kept_and_reported(filled, how):
    file = filled.root / "dir/file"

    def meddle() -> None:
        if how == "rewritten":
            file.write_bytes(b"theirs\n")
        elif how == "same size":
            file.write_bytes(b"OLD\n")
            os.utime(file)
        else:
            file.unlink()
            if how == "replaced":
                file.write_bytes(b"theirs\n")
            elif how == "linked":
                file.symlink_to("../../outside/file")

    with pytest.raises(FileChangedError):
        edit_file(
            filled.workspace, filled.workspace.resolve_write("dir/file"), MeddlingEdit(meddle)
        )
    left = {
        "rewritten": b"theirs\n",
        "replaced": b"theirs\n",
        "same size": b"OLD\n",
        "linked": "-> ../../outside/file",
    }
    assert tree(filled.root).get("dir/file") == left.get(how)
    assert not any("paddock" in name for name in tree(filled.root))
    assert tree(filled.outside)["file"] == b"outside\n"


def test_what_is_no_file_is_not_written(filled):
    os.mkfifo(filled.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(filled.root, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        for name, kind in [
            ("fifo", SpecialFileError),
            ("socket", SpecialFileError),
            ("dir", PathNotAFileError),
            (".", PathNotAFileError),
            ("dir/file/below", PathNotADirectoryError),
            ("dir/file/below/more", PathNotADirectoryError),
        ]:
            with pytest.raises(kind):
                write(filled, name)
            with pytest.raises(kind):
                edit_file(filled.workspace, filled.workspace.resolve_write(name), To(NEW))


@pytest.mark.parametrize("mode", [0o444, 0o400, 0o000, 0o555])
def test_a_file_without_any_write_bit_is_refused_even_for_root(filled, mode):
    os.chmod(filled.root / "dir/file", mode)
    with pytest.raises(ReadOnlyPathError) as refused:
        write(filled, "dir/file")
    assert refused.value.hint
    with pytest.raises(ReadOnlyPathError):
        edit_file(filled.workspace, filled.workspace.resolve_write("dir/file"), To(NEW))
    os.chmod(filled.root / "dir/file", 0o644)
    assert tree(filled.root)["dir/file"] == OLD
    assert write(filled, "dir/file").doing.kind == "overwritten"


def test_nothing_of_a_write_is_left_open_or_lying_about(filled):
    before = os.listdir("/proc/self/fd")
    write(filled, "dir/file")
    write(filled, "new/deep/file")
    with pytest.raises(StringNotFoundError):
        edit_file(filled.workspace, filled.workspace.resolve_write("dir/file"), Refuse())
    assert os.listdir("/proc/self/fd") == before
    assert not any(".paddock" in name for name in tree(filled.root))
