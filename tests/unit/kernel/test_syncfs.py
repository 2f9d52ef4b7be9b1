"""syncfs(2), as the kernel answers it."""

import errno
import os

import pytest

from paddock.kernel.files import syncfs


@pytest.mark.needs("linux")
def test_an_open_file_or_directory_names_its_file_system(tmp_path):
    for path in (tmp_path, tmp_path / "file"):
        if path != tmp_path:
            path.write_bytes(b"x")
        fd = os.open(path, os.O_RDONLY)
        syncfs(fd)
        os.close(fd)


@pytest.mark.needs("linux")
def test_a_descriptor_that_reads_nothing_is_refused(tmp_path):
    fd = os.open(tmp_path, os.O_PATH)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)) as refusal:
        syncfs(fd)
    assert refusal.value.errno == errno.EBADF
    os.close(fd)
