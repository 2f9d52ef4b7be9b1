"""Where a mount begins: the kernel says it, and the device where the kernel may not be asked."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from paddock.sandbox.changes.upper import is_mount_point

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def folder(tmp_path: Path) -> Generator[int, None, None]:
    (tmp_path / "inside").mkdir()
    (tmp_path / "link").symlink_to("inside")
    fd = os.open(tmp_path, os.O_PATH)
    yield fd
    os.close(fd)


def test_a_directory_of_the_same_mount_is_none(folder: int):
    assert not is_mount_point(folder, "inside", os.fstat(folder).st_dev)


@pytest.mark.needs("openat2")
def test_a_directory_with_a_device_of_its_own_in_the_same_mount_is_none(folder: int):
    assert not is_mount_point(folder, "inside", os.fstat(folder).st_dev + 1)


def test_where_something_is_mounted_is_one():
    slash = os.open("/", os.O_PATH)
    try:
        assert is_mount_point(slash, "proc", os.stat("/proc").st_dev)
    finally:
        os.close(slash)


@pytest.mark.parametrize("name", ["link", "gone"])
def test_of_what_cannot_be_looked_at_the_device_tells(folder: int, name: str):
    device = os.fstat(folder).st_dev

    assert not is_mount_point(folder, name, device)
    assert is_mount_point(folder, name, device + 1)
