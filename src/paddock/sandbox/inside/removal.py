"""Removing what a command left behind, whatever it made of it."""

from __future__ import annotations

import os

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(parent: int, name: str) -> None:
    """Remove `name` and all below it; nothing to do where it is not there.

    Threat: directories without any mode bit, nested deeper than a process has stack or
    descriptors, are what a command may leave. So each directory is opened up, moved to
    the top and emptied there: no depth, one descriptor.

    Raises: OSError where something cannot be removed.
    """
    grave = f".{name}-{os.urandom(4).hex()}"
    try:
        os.mkdir(grave, 0o700, dir_fd=parent)
        _move_directory(parent, name, parent, f"{grave}/0")
    except FileNotFoundError:
        os.rmdir(grave, dir_fd=parent)
        return
    top = os.open(grave, _DIRECTORY, dir_fd=parent)
    try:
        made, at = 1, 0
        while at < made:
            made = _empty(top, at, made)
            os.rmdir(str(at), dir_fd=top)
            at += 1
    finally:
        os.close(top)
    os.rmdir(grave, dir_fd=parent)


def _empty(top: int, at: int, made: int) -> int:
    """Remove the files of one directory and move its directories to the top; how many are there."""
    fd = os.open(str(at), _DIRECTORY, dir_fd=top)
    try:
        with os.scandir(fd) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, is_directory in found:
            if is_directory:
                _move_directory(fd, name, top, str(made))
                made += 1
            else:
                os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    return made


def _move_directory(source: int, name: str, target: int, new_name: str) -> None:
    # Its `..` changes with the move: that takes the right to write to it.
    os.chmod(name, 0o700, dir_fd=source)
    os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
