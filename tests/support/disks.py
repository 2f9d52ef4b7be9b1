"""Disks that lack something, and what a tree holds."""

import os
import resource
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.storage.disk import Disk
from paddock.testing.faulty_disk import FaultyDisk


class NamedOnlyDisk(Disk):
    """A file system without O_TMPFILE, such as NFS."""

    def open_unnamed(self, dir_fd: int, mode: int = 0o600) -> int | None:
        return None


class PlainRenameDisk(NamedOnlyDisk):
    """One that has neither O_TMPFILE nor any flag of renameat2."""

    def exchange(self, dir_fd: int, name: str, other: str) -> bool:
        return False

    def move_new(self, from_fd: int, name: str, to_fd: int, to: str) -> None:
        self.move_new_by_link(from_fd, name, to_fd, to)


class FaultyNamedOnlyDisk(FaultyDisk):
    """A failing disk without O_TMPFILE."""

    def open_unnamed(self, dir_fd: int, mode: int = 0o600) -> int | None:
        return None


@contextmanager
def mounted_tmpfs(place: Path, options: str) -> Generator[Path, None, None]:
    """A file system of its own on the directory, such as `size=1m`; skips where none can be."""
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip(f"needs to mount a tmpfs: {tried.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def dig(root: str | os.PathLike[str], name: str, depth: int) -> None:
    """Directories of this name in one another, further down than a path can name, and a file."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=fd), "wb") as file:
        file.write(b"needle\n")
    os.close(fd)


DISKS = {"whole": Disk, "named-only": NamedOnlyDisk, "plain-rename": PlainRenameDisk}


def tree(root: str | os.PathLike[str]) -> dict[str, object]:
    """Everything below `root` but times: bytes of files, texts of links, None of directories."""
    found: dict[str, object] = {}
    for path in sorted(Path(root).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_dir():
            found[name] = None
        else:
            # A pipe that nobody writes to would be waited for.
            found[name] = path.read_bytes() if path.is_file() else "special"
    return found


def temporaries(root: str | os.PathLike[str]) -> list[str]:
    """What looks like one of Paddock's temporary names, anywhere below `root`."""
    return [name for name in tree(root) if ".paddock-" in name]


@contextmanager
def file_bytes_at_most(size: int) -> Generator[None]:
    """No file of this process grows beyond that: it counts as a full disk (setrlimit(2))."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
