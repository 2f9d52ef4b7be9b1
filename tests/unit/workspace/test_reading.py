"""Reading: regular files only, never waiting, and saying what changed."""

import hashlib
import os
import socket

import pytest

from paddock.errors import (
    FileChangedError,
    PathError,
    PathNotADirectoryError,
    PathNotAFileError,
    PathNotFoundError,
    SpecialFileError,
    TextTooLargeError,
)
from paddock.workspace import Workspace
from tests.support.users import give_to_plain_user, run_as_plain_user

CONTENT = b"one\ntwo\r\nthree"
VERSION = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def filled(ground):
    (ground.root / "dir").mkdir()
    (ground.root / "dir/file").write_bytes(CONTENT)
    (ground.root / "link").symlink_to("dir/file")
    return ground


def test_a_file_is_read_whole_with_its_version(filled):
    workspace = filled.workspace
    for name in ("dir/file", "link"):
        path = workspace.resolve_read(name)
        assert workspace.read_all(path, len(CONTENT)) == CONTENT
        assert workspace.version(path) == VERSION


def test_size_and_mode_come_from_the_descriptor(filled):
    os.chmod(filled.root / "dir/file", 0o640)
    with filled.workspace.open_file(filled.workspace.resolve_read("link")) as file:
        (filled.root / "dir/file").unlink()
        (filled.root / "dir/file").write_bytes(b"another")
        assert (file.size_bytes, file.status.mode & 0o777) == (len(CONTENT), 0o640)
        assert file.read_all(100) == CONTENT
        assert file.version() == VERSION
        assert file.read_start(5) == CONTENT[:5]
        assert file.path.relative == "dir/file"


def test_a_file_over_the_limit_is_not_read(filled):
    with pytest.raises(TextTooLargeError, match=f"{len(CONTENT)} bytes, over 13"):
        filled.workspace.read_all(filled.workspace.resolve_read("link"), len(CONTENT) - 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("missing", PathNotFoundError),
        ("missing/below", PathNotFoundError),
        ("dir", PathNotAFileError),
        (".", PathNotAFileError),
        ("dir/file/below", PathNotADirectoryError),
    ],
)
def test_what_is_no_file_is_refused(filled, name, kind):
    with pytest.raises(kind):
        filled.workspace.open_file(filled.workspace.resolve_read(name))


def test_fifos_and_sockets_are_refused_without_waiting(filled):
    os.mkfifo(filled.root / "fifo")
    (filled.root / "fifo_link").symlink_to("fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(filled.root, os.O_PATH)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        for name in ("fifo", "fifo_link", "socket"):
            with pytest.raises(SpecialFileError):
                filled.workspace.open_file(filled.workspace.resolve_read(name))


@pytest.mark.needs("root")
def test_devices_are_refused(filled):
    try:
        os.mknod(filled.root / "null", 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs to make a device")
    try:
        with pytest.raises((SpecialFileError, PathError)):
            filled.workspace.open_file(filled.workspace.resolve_read("null"))
    finally:
        os.unlink(filled.root / "null")


@pytest.mark.parametrize("target", ["../../outside/file", "../../outside"])
def test_a_link_that_takes_the_place_of_what_was_judged_is_not_followed(filled, target):
    by_file = filled.workspace.resolve_read("dir/file")
    (filled.root / "dir/file").rename(filled.root / "dir/kept")
    (filled.root / "dir/file").symlink_to(target)
    with pytest.raises(FileChangedError):
        filled.workspace.open_file(by_file)
    (filled.root / "dir/file").unlink()
    (filled.root / "dir").rename(filled.root / "moved")
    (filled.root / "dir").symlink_to("../outside")
    with pytest.raises(FileChangedError):
        filled.workspace.open_file(by_file)


def test_a_file_that_grows_while_it_is_read_is_cut_where_it_ended_and_says_so(filled):
    with filled.workspace.open_file(filled.workspace.resolve_read("link")) as file:
        with open(filled.root / "dir/file", "ab") as writer:
            writer.write(b"\nmore\n")
        found = file.read_all(1000)
        window = file.window(1, 10, 1000)
    assert (found, window.version) == (CONTENT, VERSION)
    assert (window.lines_total, window.changed_while_reading) == (3, True)


def test_a_file_that_is_cut_while_it_is_read_ends_there_and_says_so(filled):
    with filled.workspace.open_file(filled.workspace.resolve_read("link")) as file:
        os.truncate(filled.root / "dir/file", 4)
        found = file.read_all(1000)
        window = file.window(1, 10, 1000)
    assert found == b"one\n"
    assert (window.lines_total, window.changed_while_reading) == (1, True)


def test_closing_twice_does_nothing(filled):
    file = filled.workspace.open_file(filled.workspace.resolve_read("link"))
    file.close()
    file.close()
    assert file.fileno() == -1


@pytest.mark.needs("root")
def test_an_unreadable_file_is_told_so_to_a_plain_user(filled, resolution):
    give_to_plain_user(filled.root)
    os.chmod(filled.root / "dir/file", 0o200)

    def act() -> None:
        with Workspace.open(str(filled.root), resolution) as workspace:
            with pytest.raises(PathError, match="not readable by this user"):
                workspace.open_file(workspace.resolve_read("link"))
            os.chmod("dir/file", 0o400, dir_fd=workspace.root_fd)
            assert workspace.read_all(workspace.resolve_read("link"), 100) == CONTENT

    run_as_plain_user(act)
