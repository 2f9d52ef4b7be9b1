"""No space left, for real: the old content stands, and nothing else is left."""

import os
import resource
import signal
import subprocess

import pytest

from paddock.errors import ReadOnlyPathError, StorageFullError
from paddock.storage.disk import Disk
from paddock.workspace import Workspace
from paddock.workspace.single_change import write_file
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.disks import NamedOnlyDisk, mounted_tmpfs, tree

OLD = b"old\n" * 1000
TOO_MUCH = b"x" * 4_000_000
RESOLUTIONS = [pytest.param(Openat2Resolution, marks=pytest.mark.needs("openat2")), WalkResolution]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    with mounted_tmpfs(tmp_path, "size=1m,mode=0755") as disk:
        yield disk


@pytest.mark.needs("root")
@pytest.mark.parametrize("disk_type", [Disk, NamedOnlyDisk])
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_a_write_to_a_full_disk_is_refused_and_leaves_no_trace(small_disk, resolution, disk_type):
    (small_disk / "a").mkdir()
    (small_disk / "a/old").write_bytes(OLD)
    free = os.statvfs(small_disk).f_bfree
    with Workspace.open(str(small_disk), resolution(), disk_type()) as workspace:
        for name in ("a/old", "a/new", "b/c/new"):
            with pytest.raises(StorageFullError, match="no space"):
                write_file(workspace, workspace.resolve_write(name), TOO_MUCH)
            assert tree(small_disk) == {"a": None, "a/old": OLD}
        assert os.statvfs(small_disk).f_bfree == free
        # The same act succeeds where it fits.
        write_file(workspace, workspace.resolve_write("b/c/new"), b"fits")
    assert tree(small_disk)["b/c/new"] == b"fits"


@pytest.mark.needs("root")
def test_a_disk_without_inodes_left_is_told_as_full(tmp_path):
    with mounted_tmpfs(tmp_path, "nr_inodes=6"), Workspace.open(str(tmp_path)) as workspace:
        write_file(workspace, workspace.resolve_write("a/b/c"), b"fits")
        before = tree(tmp_path)
        with pytest.raises(StorageFullError):
            write_file(workspace, workspace.resolve_write("d/e/f/g"), b"does not")
        assert tree(tmp_path) == before


@pytest.mark.needs("root")
def test_a_read_only_file_system_is_told_as_such_for_new_and_old_files(tmp_path):
    with mounted_tmpfs(tmp_path, "size=1m"):
        (tmp_path / "old").write_bytes(OLD)
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with Workspace.open(str(tmp_path)) as workspace:
            for name in ("old", "new"):
                with pytest.raises(ReadOnlyPathError) as refused:
                    write_file(workspace, workspace.resolve_write(name), b"x")
                said = f"cannot write '{name}': the file system is read-only"
                assert (refused.value.message, refused.value.hint) == (said, "use another path")
        subprocess.run(["mount", "-o", "remount,rw", str(tmp_path)], check=True)
        with Workspace.open(str(tmp_path)) as workspace:
            write_file(workspace, workspace.resolve_write("old"), b"x")
        assert tree(tmp_path)["old"] == b"x"


def test_a_file_larger_than_the_process_may_write_is_refused_and_leaves_no_trace(tmp_path):
    (tmp_path / "old").write_bytes(OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Workspace.open(str(tmp_path)) as workspace:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
            for name in ("old", "new", "d/new"):
                with pytest.raises(StorageFullError, match="larger than this host"):
                    write_file(workspace, workspace.resolve_write(name), TOO_MUCH)
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert tree(tmp_path) == {"old": OLD}
            write_file(workspace, workspace.resolve_write("new"), TOO_MUCH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert tree(tmp_path) == {"old": OLD, "new": TOO_MUCH}
