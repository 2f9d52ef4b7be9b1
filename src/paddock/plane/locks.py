"""One writer at a time in a directory of the plane, and the flock(2) that every lock takes."""

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import HostError
from paddock.plane.files import host_errors
from paddock.text.show import quote

_POLL_S: Final = 0.01


@contextmanager
def locked(directory: Path) -> Generator[None, None, None]:
    """Hold the exclusive lock of `directory` (flock(2) on its descriptor; no lock file).

    The lock goes with the descriptor, so a killed holder leaves none behind.

    Raises:
        HostError: not had within `limits.path_lock_timeout_s`.
    """
    with _opened(directory) as descriptor:
        _acquire(descriptor, directory, fcntl.LOCK_EX)
        yield


@contextmanager
def try_locked(directory: Path) -> Generator[bool, None, None]:
    """The same without waiting: whether the lock is ours. Raises: HostError."""
    with _opened(directory) as descriptor:
        yield _try(descriptor, directory, fcntl.LOCK_EX)


@contextmanager
def shared(directory: Path) -> Generator[None, None, None]:
    """Keep whoever wants the exclusive lock out; any number may at once. Raises: as `locked`."""
    with _opened(directory) as descriptor:
        _acquire(descriptor, directory, fcntl.LOCK_SH)
        yield


@contextmanager
def try_shared(directory: Path) -> Generator[bool, None, None]:
    """The same without waiting: False where somebody has the exclusive lock. Raises: HostError."""
    with _opened(directory) as descriptor:
        yield _try(descriptor, directory, fcntl.LOCK_SH)


@contextmanager
def _opened(directory: Path) -> Generator[int, None, None]:
    with host_errors("locking", directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, directory: Path, kind: int) -> None:
    # flock(2) has no time-out of its own: a stopped holder would stop us for ever.
    until = time.monotonic() + limits.path_lock_timeout_s
    while not _try(descriptor, directory, kind):
        if time.monotonic() >= until:
            raise HostError(
                f"{quote(str(directory))} was locked by another process"
                f" for {limits.path_lock_timeout_s:g} s",
                where=str(directory),
                hint="end the other paddock process, then try again",
            )
        time.sleep(_POLL_S)


def _try(descriptor: int, directory: Path, kind: int) -> bool:
    with host_errors("locking", directory):
        return try_lock(descriptor, kind)


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Take the lock if it is free. Raises: OSError where it cannot be locked at all."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Give the lock up and close; a child forked meanwhile holds a copy, and would keep it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
