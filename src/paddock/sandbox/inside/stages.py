"""The directory of one sandbox's layers, made by the launcher: `upper` and `work`.

Where it has an overlay over a git directory outside of the workspace, two more of them.

Started as root, their owner is not root but the user that root is inside, see
`HOST_IDS_FIRST`: what a command leaves behind belongs to nobody of the host.
"""

from __future__ import annotations

import os

HOST_IDS_FIRST = 0x7A000000
"""Started as root, user and group N of the sandbox are this + N of the host.

Above the ranges that systemd gives to containers (to 0x6FFFFFFF), below those that it keeps for
foreign trees (from 0x7FFE0000): they belong to nobody. The upper layer's owners are such numbers.
"""
HOST_IDS_COUNT = 0x01000000
"""Owners from here on are not mapped: such a file can be read, as far as its mode allows
everybody, and not changed (EOVERFLOW)."""

ROOT_MODE = 0o3777
"""What `upper` has of the mode of the workspace's root. With the setgid bit, so that what is
made there looks as it does in any other such directory."""

HIDDEN_PREFIX = b"hidden-"
"""Names of layers of whiteouts, which many sandboxes share."""

WORKSPACE = (b"upper", b"work")
GIT = (b"upper-git", b"work-git")
"""Names in a stage: what the overlay of each writes to, and what it works in."""


def make_stage(area: int, name: bytes, workspace: int, git: int, *, as_root: bool) -> int:
    """Make `name` in the area, with `upper` as the workspace's root looks; its descriptor.

    `git` is the git directory that has an overlay of its own, -1 for none.

    Raises: OSError; FileExistsError where there is one already.
    """
    os.mkdir(name, 0o700, dir_fd=area)
    stage = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=area)
    try:
        if as_root:
            os.chown(".", HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=stage)
        _make_layer(stage, WORKSPACE, workspace, as_root=as_root)
        if git >= 0:
            _make_layer(stage, GIT, git, as_root=as_root)
    except OSError:
        os.close(stage)
        raise
    return stage


def _make_layer(stage: int, names: tuple[bytes, bytes], below: int, *, as_root: bool) -> None:
    upper, work = names
    os.mkdir(work, 0o700, dir_fd=stage)
    os.mkdir(upper, 0o700, dir_fd=stage)
    root = os.fstat(below)
    if as_root:
        os.chown(work, HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=stage)
        os.chown(upper, _inside(root.st_uid), _inside(root.st_gid), dir_fd=stage)
    # The merged root shows the upper directory's mode and times.
    os.chmod(upper, root.st_mode & ROOT_MODE, dir_fd=stage)
    os.utime(upper, ns=(root.st_atime_ns, root.st_mtime_ns), dir_fd=stage)


def _inside(owner: int) -> int:
    return HOST_IDS_FIRST + owner if owner < HOST_IDS_COUNT else HOST_IDS_FIRST
