"""Both ways to open a name answer alike."""

import errno
import os
import re
import struct

import pytest

from paddock import limits
from paddock.kernel import files
from paddock.kernel.seccomp import install_filter
from paddock.kernel.syscalls import call_number, set_no_new_privileges, this_machine
from paddock.workspace import detect_resolution
from paddock.workspace.workspace import (
    PASS,
    PASS_DIRECTORY,
    READ_DIRECTORY,
    READ_FILE,
    Openat2Resolution,
    WalkResolution,
)
from tests.support.children import end_of


@pytest.fixture
def root_fd(tmp_path):
    root = tmp_path / "ws"
    (root / "dir/sub").mkdir(parents=True)
    (root / "dir/sub/file").write_bytes(b"x")
    (root / "dir_link").symlink_to("dir")
    (root / "file_link").symlink_to("dir/sub/file")
    (root / "out_link").symlink_to("/etc")
    (root / "dangling").symlink_to("nothing")
    (tmp_path / "outside").write_bytes(b"outside")
    os.mkfifo(root / "fifo")
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("name", "flags", "code"),
    [
        (".", PASS, None),
        (".", READ_DIRECTORY, None),
        ("dir", PASS_DIRECTORY, None),
        ("dir/sub/file", READ_FILE, None),
        ("dir/sub/file", PASS, None),
        ("fifo", READ_FILE, None),
        ("dir_link", PASS, errno.ELOOP),
        ("dir_link", PASS_DIRECTORY, errno.ELOOP),
        ("dir_link", READ_DIRECTORY, errno.ELOOP),
        ("file_link", READ_FILE, errno.ELOOP),
        ("file_link", PASS, errno.ELOOP),
        ("out_link", PASS, errno.ELOOP),
        ("dangling", PASS, errno.ELOOP),
        ("dir_link/sub/file", READ_FILE, errno.ELOOP),
        ("out_link/passwd", READ_FILE, errno.ELOOP),
        ("missing", READ_FILE, errno.ENOENT),
        ("missing/file", READ_FILE, errno.ENOENT),
        ("dir/sub/file", READ_DIRECTORY, errno.ENOTDIR),
        ("dir/sub/file/below", READ_FILE, errno.ENOTDIR),
        ("../outside", READ_FILE, errno.EXDEV),
        ("/etc/passwd", READ_FILE, errno.EXDEV),
    ],
)
def test_a_name_opens_or_is_refused_with_the_same_errno(root_fd, resolution, name, flags, code):
    before = os.listdir("/proc/self/fd")
    if code is None:
        fd = resolution.open(root_fd, name, flags)
        assert not os.get_inheritable(fd)
        os.close(fd)
    else:
        with pytest.raises(OSError, match=re.escape(f"[Errno {code}]")):
            resolution.open(root_fd, name, flags)
    assert os.listdir("/proc/self/fd") == before


def test_the_walk_refuses_dots_that_no_link_flag_would_stop(root_fd):
    for name in ("..", "dir/../..", "dir/..", "./dir", "dir//sub"):
        with pytest.raises(OSError, match="cross-device"):
            WalkResolution().open(root_fd, name, PASS)


class Busy:
    """openat2 that says EAGAIN some times, and how often it was asked."""

    def __init__(self, code: int, times: int) -> None:
        self.code = code
        self.times = times
        self.asked = 0

    def open(self, dir_fd: int, path: bytes, flags: int, _: int) -> int:
        self.asked += 1
        if self.asked <= self.times:
            raise OSError(self.code, os.strerror(self.code))
        return os.open(path, flags, dir_fd=dir_fd)


@pytest.mark.parametrize(
    ("times", "answered"),
    [(0, True), (1, True), (limits.openat2_retries_max - 1, True), (10_000, False)],
)
def test_openat2_asks_again_a_bounded_number_of_times(root_fd, times, answered, monkeypatch):
    busy = Busy(errno.EAGAIN, times)
    monkeypatch.setattr(files, "openat2", busy.open)
    resolution = Openat2Resolution()
    if answered:
        os.close(resolution.open(root_fd, "dir", PASS))
        assert busy.asked == times + 1
    else:
        with pytest.raises(BlockingIOError):
            resolution.open(root_fd, "dir", PASS)
        assert busy.asked == limits.openat2_retries_max + 1


def refuse_openat2(code: int) -> None:
    """From now on the kernel answers it with this error, as a container's filter does."""
    load, equal, answer = 0x20, 0x15, 0x06  # linux/bpf_common.h
    refused, allowed = 0x00050000, 0x7FFF0000  # linux/seccomp.h
    openat2 = call_number("openat2", this_machine())
    steps = [
        *((load, 0, 0, 0), (equal, 0, 1, openat2)),
        *((answer, 0, 0, refused | code), (answer, 0, 0, allowed)),
    ]
    set_no_new_privileges()
    install_filter(b"".join(struct.pack("=HBBI", *step) for step in steps))


@pytest.mark.needs("openat2")
def test_the_probe_chooses_openat2_where_the_kernel_has_it():
    assert detect_resolution().name == "openat2"


@pytest.mark.needs("openat2")
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_the_probe_falls_back_to_the_walk_where_openat2_is_refused(code):
    def find_the_walk() -> None:
        refuse_openat2(code)
        assert detect_resolution().name == "walk"

    assert end_of(find_the_walk) == 0


def test_the_probe_leaves_no_descriptor_open():
    before = os.listdir("/proc/self/fd")
    detect_resolution()
    assert os.listdir("/proc/self/fd") == before
