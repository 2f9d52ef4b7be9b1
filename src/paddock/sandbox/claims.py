"""Directories of ours that go away with us, however we end: claimed by a lock, swept without one.

The lock is flock(2) on the directory itself: the kernel lets it go with the process. Whoever is
taken for dead between making and locking finds his directory gone, and makes another.
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
from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY
from paddock.storage.locks import open_locked

_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_TOKEN: Final = lazy_pattern("[0-9a-f]{16}")
_TRIES_MAX: Final = 100


class Claim:
    __slots__ = ("_parent", "fd", "name")

    def __init__(self, parent: int, name: str, fd: int) -> None:
        """Takes over `fd`, which holds the lock; `parent` stays the caller's, and open."""
        self._parent = parent
        self.name = name
        self.fd = fd

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self._remove()
        self.forget()

    def forget(self) -> None:
        """Remove nothing: in a child of the process whose it is."""
        os.close(self.fd)

    def _remove(self) -> None:
        # The lock is held to the end, so nobody takes what is half removed for a dead one's.
        for name in os.listdir(self.fd):
            remove_tree(self.fd, name)
        os.rmdir(self.name, dir_fd=self._parent)


def claim(parent: int, prefix: str) -> Claim:
    """Make a directory in `parent`, a descriptor, and hold it. Raises: OSError."""
    for _ in range(_TRIES_MAX):
        name = prefix + secrets.token_hex(8)
        os.mkdir(name, 0o700, dir_fd=parent)
        fd = open_locked(parent, name, DIRECTORY)
        if fd is not None:
            return Claim(parent, name, fd)
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextlib.contextmanager
def claimed(home: Path, prefix: str) -> Generator[Path]:
    """Hold a claim in `home`; sweep what the dead left of the kind. Raises: OSError."""
    with held_open(os.open(home, _PASSED)) as parent:
        with contextlib.suppress(OSError):
            sweep(parent, prefix)
        held = claim(parent, prefix)
        try:
            yield home / held.name
        finally:
            held.release()


def sweep(parent: int, prefix: str) -> None:
    """Remove what dead processes of this user claimed in `parent`; what cannot be removed stays.

    Threat: others may write there, too: what is not this user's stays, and no link is followed.
    """
    with held_open(os.open(".", DIRECTORY, dir_fd=parent)) as listed:
        names = os.listdir(listed)
    for name in _claimed(names, prefix):
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid != os.geteuid():
                continue
            fd = open_locked(parent, name, DIRECTORY)
            if fd is not None:
                Claim(parent, name, fd).release()


def _claimed(names: list[str], prefix: str) -> Iterator[str]:
    for name in names:
        if name.startswith(prefix) and _TOKEN.fullmatch(name.removeprefix(prefix)):
            yield name
