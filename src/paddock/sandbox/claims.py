"""Directories of ours that go away with us, however we end: claimed by a lock, swept without one.

The lock is flock(2) on the directory itself: the kernel lets it go with the process. So a
directory whose lock can be had has no owner any more, and whoever has got it removes it.
Making one and locking it are two steps; who is taken for dead in between finds his lock
taken, or his directory gone, and makes another. Nobody waits for anybody.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from paddock.pattern import lazy_pattern
from paddock.sandbox.inside.stages import remove_tree
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import leads_to, try_lock
from paddock.workspace.resolve import held_open

_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TOKEN: Final = lazy_pattern("[0-9a-f]{16}")
_TRIES_MAX: Final = 100


class Claim:
    """A directory that is this process's, for nobody but its user, until `release`."""

    __slots__ = ("_parent", "fd", "name")

    def __init__(self, parent: int, name: str, fd: int) -> None:
        """Takes over `fd`, which holds the lock; `parent` stays the caller's, and open."""
        self._parent = parent
        self.name = name
        self.fd = fd

    def release(self) -> None:
        """Remove it with everything in it. What cannot be removed is the next sweep's."""
        with contextlib.suppress(OSError):
            self._remove()
        self.forget()

    def forget(self) -> None:
        """Let go and remove nothing: in a child of the process whose it is."""
        os.close(self.fd)

    def _remove(self) -> None:
        # The lock is held to the end, so nobody takes what is half removed for a dead one's.
        for name in os.listdir(self.fd):
            remove_tree(self.fd, name)
        os.rmdir(self.name, dir_fd=self._parent)


def claim(parent: int, prefix: str) -> Claim:
    """Make a directory in `parent`, a descriptor, whose name begins so, and hold it.

    Raises: OSError where it cannot be made or locked.
    """
    for _ in range(_TRIES_MAX):
        name = prefix + secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = _hold(parent, name)
        if fd >= 0:
            return Claim(parent, name, fd)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextlib.contextmanager
def claimed(home: Path, prefix: str) -> Generator[Path]:
    """A claim in `home` for as long as it is used; what the dead left of the kind goes first.

    Raises: OSError where it cannot be made.
    """
    with held_open(os.open(home, _PASSED)) as parent:
        with contextlib.suppress(OSError):
            sweep(parent, prefix)
        held = claim(parent, prefix)
        try:
            yield home / held.name
        finally:
            held.release()


def sweep(parent: int, prefix: str) -> None:
    """Remove what dead processes of this user claimed in `parent` under such names.

    Threat: where others may write too, one of them puts something there under such a name.
    It is not this user's, and no link is followed.

    Raises: OSError where `parent` cannot be read. One that cannot be removed stays.
    """
    with held_open(os.open(".", DIRECTORY, dir_fd=parent)) as listed:
        names = os.listdir(listed)
    for name in _claimed(names, prefix):
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid != os.geteuid():
                continue
            fd = _hold(parent, name)
            if fd >= 0:
                Claim(parent, name, fd).release()


def _claimed(names: list[str], prefix: str) -> Iterator[str]:
    for name in names:
        if name.startswith(prefix) and _TOKEN.fullmatch(name.removeprefix(prefix)):
            yield name


def _hold(parent: int, name: str) -> int:
    """A descriptor of the directory with its lock; -1 where another has it, or it is gone."""
    try:
        fd = os.open(name, DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        return -1
    try:
        if try_lock(fd) and leads_to(parent, name, fd):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return -1
