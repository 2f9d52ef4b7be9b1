"""The two system calls, against the real kernel."""

import errno
import os

import pytest

from paddock.kernel.files import (
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    openat2,
    renameat2,
)

FLAGS = os.O_RDONLY | os.O_CLOEXEC


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "file").write_bytes(b"here")
    (tmp_path / "other").write_bytes(b"there")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "out").symlink_to("/etc/passwd")
    fd = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def errno_of(act) -> int | None:
    try:
        act()
    except OSError as failure:
        return failure.errno
    return None


@pytest.mark.needs("openat2")
def test_openat2_opens_beneath_a_descriptor(folder):
    fd = openat2(folder, b"file", FLAGS, RESOLVE_BENEATH)
    assert os.read(fd, 10) == b"here"
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.needs("openat2")
@pytest.mark.parametrize(
    ("path", "resolve", "code"),
    [
        (b"../x", RESOLVE_BENEATH, errno.EXDEV),
        (b"/etc/passwd", RESOLVE_BENEATH, errno.EXDEV),
        (b"out", RESOLVE_BENEATH, errno.EXDEV),
        (b"link", RESOLVE_BENEATH, None),
        (b"link", RESOLVE_NO_SYMLINKS, errno.ELOOP),
        (b"/proc/self/cwd", RESOLVE_NO_MAGICLINKS, errno.ELOOP),
        (b"missing", RESOLVE_BENEATH, errno.ENOENT),
        (b"file", 1 << 40, errno.EINVAL),
    ],
)
def test_openat2_answers_with_the_kernels_errno(folder, path, resolve, code):
    opened = []
    assert errno_of(lambda: opened.append(openat2(folder, path, FLAGS, resolve))) == code
    assert len(opened) == (code is None)
    for fd in opened:
        os.close(fd)


@pytest.mark.needs("openat2")
def test_openat2_creates_with_a_mode(folder, tmp_path):
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(openat2(folder, b"new", flags, RESOLVE_BENEATH, 0o600))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


@pytest.mark.needs("openat2")
def test_openat2_opens_one_after_another(folder):
    names = (b"file", b"other", b"file")
    fds = [openat2(folder, name, FLAGS, RESOLVE_BENEATH) for name in names]
    assert [os.read(fd, 10) for fd in fds] == [b"here", b"there", b"here"]
    for fd in fds:
        os.close(fd)


@pytest.mark.needs("linux")
def test_renameat2_never_replaces_if_told_so(folder, tmp_path):
    with pytest.raises(FileExistsError):
        renameat2(folder, b"file", folder, b"other", RENAME_NOREPLACE)
    assert (tmp_path / "other").read_bytes() == b"there"
    renameat2(folder, b"file", folder, b"third", RENAME_NOREPLACE)
    assert (tmp_path / "third").read_bytes() == b"here"
    assert not (tmp_path / "file").exists()


@pytest.mark.needs("linux")
def test_renameat2_exchanges_two_names(folder, tmp_path):
    renameat2(folder, b"file", folder, b"out", RENAME_EXCHANGE)
    assert (tmp_path / "out").read_bytes() == b"here"
    assert os.readlink(tmp_path / "file") == "/etc/passwd"
    with pytest.raises(FileNotFoundError):
        renameat2(folder, b"file", folder, b"missing", RENAME_EXCHANGE)
