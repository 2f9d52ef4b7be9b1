"""Keeping a large file without copying it: the file that is displaced becomes the object.

    link to incoming/ → fsync → (the writer exchanges the files) → nobody has it open for
    writing → rename to its digest → fsync of the directory

From before the exchange on it has a name in the store, so whenever a process is killed
the old content is found: `Shelf.sweep` makes an object of it.

Only a file that has one name, belongs to us, and lies on the store's file system can be
held; and only if nobody can write to it any more does it become an object. A read lease
(fcntl(2), F_SETLEASE) is refused exactly while somebody has the file open for writing, or
mapped so. Else, and where there are no leases, it is copied after all.
"""

import errno
import fcntl
import os
import signal
import stat
from dataclasses import dataclass
from typing import Final, Protocol

from paddock.errors import FileChangedError, HostError, StorageFullError
from paddock.history.locking import StoreLock
from paddock.history.packing import name_of
from paddock.history.shelf import Shelf
from paddock.storage.disk import READ

HELD_BYTES_MIN: Final = 4096
"""Smaller files are copied: a new file and the removal of the old one cost less there than
the steps above."""
_NOT_HERE: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOENT}
)
"""link(2): another file system or mount, no hard links there, no /proc."""
_PRIVATE_MODE: Final = 0o600


class Store(Protocol):
    def put_file(self, fd: int, *, digest: str | None = None) -> str: ...

    def sync(self) -> None: ...

    def count(self, size_bytes: int) -> None: ...


def can_be_held(fd: int) -> bool:
    """Whether an open file could become an object once it has lost its place."""
    status = os.fstat(fd)
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_size >= HELD_BYTES_MIN
        and status.st_nlink == 1
        and status.st_uid == os.geteuid()
    )


def hold(shelf: Shelf, fd: int) -> tuple[str, int] | None:
    """See `Shelf.hold`; None where the file gets no second name."""
    try:
        return shelf.hold(fd)
    except OSError as failure:
        if failure.errno in _NOT_HERE:
            return None
        raise


@dataclass(slots=True)
class Held:
    """A large file that is about to lose its place. End it with `settle` or `release`."""

    shelf: Shelf
    lock: StoreLock
    store: Store
    digest: str
    name: str | None
    """In `incoming/`; None once it is over."""
    changed_ns: int
    """The file's change time when it got that name."""

    def require_untouched(self) -> None:
        """Asked before the file loses its place: its digest is known from before.

        Raises:
            FileChangedError: somebody has written to it.
        """
        name, incoming_fd = self.name, self.shelf.incoming_fd
        if name is None:
            return
        if os.stat(name, dir_fd=incoming_fd, follow_symlinks=False).st_ctime_ns != self.changed_ns:
            raise _changed()

    def settle(self) -> None:
        """The file has lost its place: it becomes the object, durably.

        Where that fails it keeps its name in `incoming/`, and is made an object by the
        next who sweeps: it is kept in any case.

        Raises:
            FileChangedError: somebody writes to it, and it is not what was read any more.
        """
        if self.name is None:
            return
        held, self.name = self.name, None
        try:
            self._make_object(held)
        except (OSError, StorageFullError, HostError):
            return
        finally:
            self.lock.release()

    def _make_object(self, held: str) -> None:
        shelf = self.shelf
        fd = os.open(held, READ, dir_fd=shelf.incoming_fd)
        try:
            if _nobody_writes(fd):
                self._rename(held, fd)
                return
            if self.store.put_file(fd) != self.digest:
                raise _changed()
            self.store.sync()
            shelf.disk.unlink(shelf.incoming_fd, held)
        finally:
            os.close(fd)

    def _rename(self, held: str, fd: int) -> None:
        shelf, name = self.shelf, name_of(self.digest)
        more = os.fstat(fd).st_size - shelf.size_of(name)
        shelf.disk.replace(shelf.incoming_fd, held, shelf.fd, name)
        shelf.disk.sync(shelf.fd)
        # Its age is that of the file that it was, and its mode may let others in.
        shelf.disk.touch(shelf.fd, name)
        shelf.disk.set_mode(fd, _PRIVATE_MODE)
        self.store.count(more)

    def release(self) -> None:
        """The file stays where it was: let the second name go; a second time does nothing."""
        if self.name is None:
            return
        held, self.name = self.name, None
        try:
            self.shelf.disk.unlink(self.shelf.incoming_fd, held)
        except OSError:
            return  # swept later: it is one more copy of a content, and no less of any
        finally:
            self.lock.release()


def _changed() -> FileChangedError:
    return FileChangedError(
        "the file was changed by somebody else meanwhile",
        hint="read it again, then repeat the call",
    )


def _nobody_writes(fd: int) -> bool:
    """Whether no descriptor and no mapping can change the open file."""
    try:
        # Who opens it for writing while we hold the lease makes the kernel send us SIGIO,
        # which would end the process. SIGURG is ignored where nobody asks for it.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (OSError, AttributeError):  # writers, no leases here, or not Linux
        return False
    return True
