import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from paddock.errors import ConfigError, HostError
from paddock.storage.atomic import (
    create_file,
    make_directories,
    read_file,
    read_file_through_links,
    replace_file,
    require_private,
)
from paddock.storage.locks import locked, try_locked
from tests.support.children import start


def test_a_regular_file_is_read_whole_up_to_the_limit(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert read_file(file, 5) == b"12345"
    with pytest.raises(ConfigError, match="more than 4 bytes"):
        read_file(file, 4)


def test_nothing_there_is_none(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert read_file(tmp_path / "absent", 10) is None
    assert read_file(tmp_path / "file" / "below", 10) is None


def test_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_file(tmp_path / "fifo", 10)


def test_a_socket_is_refused(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(ConfigError, match="not a regular file"):
            read_file(tmp_path / "s", 10)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not a regular file"):
        read_file(tmp_path, 10)


def test_a_link_is_refused_unless_links_are_wanted(tmp_path):
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="is a link"):
        read_file(tmp_path / "link", 10)
    with pytest.raises(ConfigError, match="is a link"):
        read_file(tmp_path / "dangling", 10)
    assert read_file_through_links(tmp_path / "link", 10) == b"x"
    assert read_file_through_links(tmp_path / "dangling", 10) is None


def test_a_link_to_a_fifo_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    with pytest.raises(ConfigError, match="not a regular file"):
        read_file_through_links(tmp_path / "link", 10)


@pytest.mark.needs("plain_user")
def test_an_unreadable_file_is_refused(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"x")
    file.chmod(0)
    with pytest.raises(ConfigError, match="may not be read"):
        read_file(file, 10)


def test_a_replaced_file_is_private_and_leaves_nothing_beside_it(tmp_path):
    file = tmp_path / "f"
    replace_file(file, b"old")
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_that_cannot_be_replaced_is_a_host_error_and_leaves_nothing(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"")
    with pytest.raises(HostError):
        replace_file(tmp_path / "d", b"new")
    assert os.listdir(tmp_path) == ["d"]


def test_creating_never_replaces(tmp_path):
    file = tmp_path / "f"
    assert create_file(file, b"first", 0o600)
    assert not create_file(file, b"second", 0o600)
    assert file.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("nowhere"), os.mkdir, os.mkfifo])
def test_creating_does_not_write_through_what_stands_there(tmp_path, make):
    make(tmp_path / "f")
    assert not create_file(tmp_path / "f", b"x", 0o600)
    assert os.listdir(tmp_path) == ["f"]


def test_of_many_threads_one_creates_the_file(tmp_path):
    file = tmp_path / "f"
    start = threading.Barrier(8)
    won: list[int] = []

    def create(number: int) -> None:
        start.wait()
        if create_file(file, b"%d" % number, 0o600):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.read_bytes()] == [b"%d" % number for number in won]
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_system_without_hard_links_still_creates_exclusively(tmp_path, monkeypatch):
    def no_links(*_arguments: object, **_options: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", no_links)
    assert create_file(tmp_path / "f", b"first", 0o600)
    assert not create_file(tmp_path / "f", b"second", 0o600)
    assert (tmp_path / "f").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["f"]


def test_directories_are_made_private_and_made_once(tmp_path):
    make_directories(tmp_path / "a" / "b")
    make_directories(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_directory_below_a_file_is_a_host_error(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(HostError):
        make_directories(tmp_path / "a" / "b")


@pytest.mark.parametrize(
    ("mode", "private"), [(0o700, True), (0o755, True), (0o770, False), (0o707, False)]
)
def test_a_directory_that_others_can_write_is_not_private(tmp_path, mode, private):
    directory = tmp_path / "d"
    directory.mkdir()
    directory.chmod(mode)
    if private:
        require_private(directory)
    else:
        with pytest.raises(ConfigError, match="written by others"):
            require_private(directory)


@pytest.mark.needs("root")
def test_a_strangers_directory_is_not_private_unless_all_around_it_is_theirs(tmp_path):
    directory = tmp_path / "theirs" / "d"
    directory.mkdir(parents=True)
    os.chown(directory, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        require_private(directory)
    os.chown(directory.parent, 12345, 12345)
    require_private(directory)


def test_a_link_is_no_private_directory_and_a_missing_one_is_fine(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    require_private(tmp_path / "missing")
    with pytest.raises(ConfigError, match="not a directory"):
        require_private(tmp_path / "link")


def test_the_lock_of_a_directory_excludes_threads_and_is_let_go(tmp_path):
    inside: list[str] = []

    def work(name: str) -> None:
        with locked(tmp_path):
            inside.append(f"{name} in")
            inside.append(f"{name} out")

    threads = [threading.Thread(target=work, args=(str(number),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [pair.split()[0] for pair in inside[::2]] == [pair.split()[0] for pair in inside[1::2]]
    with locked(tmp_path):
        assert os.listdir(tmp_path) == []


def test_the_lock_of_a_directory_is_let_go_though_a_child_was_forked_meanwhile(tmp_path):
    reader, writer = os.pipe()

    def wait_for_parent(_: int) -> None:
        os.close(writer)
        os.read(reader, 1)

    with locked(tmp_path):
        child = start(wait_for_parent)
    with try_locked(tmp_path) as is_ours:
        is_free = is_ours
    os.close(writer)
    os.close(reader)
    assert (is_free, child.end()) == (True, (0, b""))


def test_a_lock_that_is_never_let_go_is_a_host_error(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("paddock.limits.path_lock_timeout_s", 0.0)
    with (
        locked(tmp_path),
        pytest.raises(HostError, match="locked by another process"),
        locked(tmp_path),
    ):
        pytest.fail("had the lock twice")
