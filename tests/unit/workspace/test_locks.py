"""Locks: bounded, in one order, on the directory that the name leads to."""

import fcntl
import os
import resource
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import Struct, field

from paddock.errors import PathError, StorageFullError
from paddock.workspace import targets
from paddock.workspace.paths import unchecked_path
from paddock.workspace.workspace import READ_DIRECTORY, Resolution

p = unchecked_path


def locked(root_fd, resolution, *paths, **wait):
    return targets.locked(
        lambda path, flags: resolution.open(root_fd, path.relative, flags), *paths, **wait
    )


@pytest.fixture
def root_fd(ground):
    for name in ("a", "b", "c"):
        (ground.root / name).mkdir()
    fd = os.open(ground.root, os.O_PATH)
    yield fd
    os.close(fd)


def is_locked(path) -> bool:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_directories_are_locked_inside_the_block_only(ground, root_fd, resolution):
    with locked(root_fd, resolution, p("b"), p("a")) as fds:
        assert [os.fstat(fd).st_ino for fd in fds] == [
            os.stat(ground.root / name).st_ino for name in ("b", "a")
        ]
        assert [is_locked(ground.root / name) for name in "abc"] == [True, True, False]
    assert [is_locked(ground.root / name) for name in "abc"] == [False] * 3


def test_a_directory_named_twice_is_locked_once(ground, root_fd, resolution):
    with locked(root_fd, resolution, p("a"), p("a"), p("b")) as fds:
        assert fds[0] == fds[1] != fds[2]


def test_a_lock_that_is_not_free_in_time_is_told_and_nothing_stays_locked(
    ground, root_fd, resolution
):
    before = os.listdir("/proc/self/fd")
    with locked(root_fd, resolution, p("b")):
        with pytest.raises(PathError, match="locked by another write") as refused:
            locked(root_fd, resolution, p("a"), p("b"), wait_s=0.0).__enter__()
        assert refused.value.hint == "try again"
        assert [is_locked(ground.root / name) for name in "abc"] == [False, True, False]
    assert os.listdir("/proc/self/fd") == before


def test_a_lock_is_given_up_though_a_forked_child_still_holds_its_copy(ground, root_fd, resolution):
    read_end, write_end = os.pipe()
    held = ExitStack()
    held.enter_context(locked(root_fd, resolution, p("a")))
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent is done
        os._exit(0)
    os.close(read_end)
    held.close()
    try:
        assert not is_locked(ground.root / "a")
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


def test_opposite_orders_never_wait_for_each_other(ground, root_fd, resolution):
    done = []

    def take(*names: str) -> None:
        for _ in range(50):
            with locked(root_fd, resolution, *map(p, names)):
                done.append(names)

    orders = (("a", "b", "c"), ("c", "b", "a"), ("b", "a"), ("c", "a"))
    threads = [threading.Thread(target=take, args=names) for names in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 200


class Replacing(Struct, dict=True):
    """A resolution behind which somebody puts another directory at the name, once."""

    real: Resolution
    root: Path
    opened: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.real.name

    def open(self, root_fd: int, relative: str, flags: int) -> int:
        fd = self.real.open(root_fd, relative, flags)
        if not self.opened:
            (self.root / relative).rename(self.root / "moved")
            (self.root / relative).mkdir()
        if flags == READ_DIRECTORY:
            self.opened.append(os.fstat(fd).st_ino)
        return fd


def test_a_directory_that_was_replaced_before_it_was_locked_is_opened_again(
    ground, root_fd, resolution
):
    replacing = Replacing(resolution, ground.root)
    with locked(root_fd, replacing, p("a")) as (fd,):
        assert os.fstat(fd).st_ino == os.stat(ground.root / "a").st_ino
        assert not is_locked(ground.root / "moved")
    assert replacing.opened == [os.stat(ground.root / name).st_ino for name in ("moved", "a")]


def test_more_directories_than_descriptors_are_refused_before_any_is_locked(
    ground, root_fd, resolution
):
    names = [f"d{number}" for number in range(100)]
    for name in names:
        (ground.root / name).mkdir()
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 120, before[1]))
        with (
            pytest.raises(StorageFullError, match="the change needs 100 open directories"),
            locked(root_fd, resolution, *map(p, names)),
        ):
            pass
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 200, before[1]))
        with locked(root_fd, resolution, *map(p, names)) as fds:
            assert len(fds) == 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
