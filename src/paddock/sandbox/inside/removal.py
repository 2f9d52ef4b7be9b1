"""Removing what a command left behind, whatever it made of it."""

from __future__ import annotations

import errno
import os

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(parent: int, name: str) -> None:
    """Remove the directory `name` and all below it; nothing to do where it is not there.

    Threat: directories without any mode bit, nested deeper than a process has stack or
    descriptors, are what a command may leave. So each directory is opened up, moved to
    the top and emptied there: no depth, one descriptor.

    Another may be removing the same: what is gone is as wanted, what was missed is
    looked for again.

    Raises: OSError where something cannot be removed.
    """
    grave = f".{name}-{os.urandom(4).hex()}"
    os.mkdir(grave, 0o700, dir_fd=parent)
    top = os.open(grave, _DIRECTORY, dir_fd=parent)
    try:
        made = int(_move(parent, name, top, "0"))
        at = 0
        while at < made:
            made = _empty(top, at, made)
            if _rmdir(top, str(at)):
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
                made += _move(fd, name, top, str(made))
            else:
                _unlink(fd, name)
    finally:
        os.close(fd)
    return made


def _move(source: int, name: str, target: int, new_name: str) -> bool:
    """False where it is gone."""
    try:
        # Its `..` changes with the move: that takes the right to write to it.
        os.chmod(name, 0o700, dir_fd=source)
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except FileNotFoundError:
        return False
    return True


def _unlink(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return


def _rmdir(directory: int, name: str) -> bool:
    """False where something has appeared in it."""
    try:
        os.rmdir(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            return False
        raise
    return True
