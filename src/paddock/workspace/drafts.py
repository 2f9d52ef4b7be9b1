"""New content on its way to a name: whole and on the device before anyone can see it.

Durability, step by step (open(2), rename(2), fsync(2)):

  new file     unnamed file → owner, mode, attributes → write → fsync → link to its name
               → fsync of the directory
  replacement  the same → keep the old content (`storage.history`) → link to a temporary
               name → exchange with the old file → look at what came out → fsync of the
               directory → unlink what came out

The old content is kept before the exchange and not after it, so that no moment is left in
which it has no name but a temporary one. What comes out must be what was kept.

link(2) never replaces, so a file that appeared meanwhile is not lost. The exchange shows
what was really replaced; if that is not the file that was read, it is exchanged back.
Where a file system lacks O_TMPFILE the draft has a temporary name from the beginning;
where it lacks the exchange, the last look comes just before the rename.

If the directory cannot be synced the step before is undone, so that failure leaves the
old content.
"""

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Self

from paddock.errors import FileChangedError
from paddock.storage.disk import Disk
from paddock.storage.history import Keeper, Kept
from paddock.text.show import quote
from paddock.workspace.metadata import FileStatus, status_at, status_of
from paddock.workspace.names import WorkspacePath
from paddock.workspace.temporary import TemporaryName

_NEW_FILE_MODE: Final = 0o666
"""Less the umask, or as the directory's default ACL says."""
_PRIVATE_MODE: Final = 0o600
_EXCHANGES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a directory that is open and locked."""

    disk: Disk
    root_fd: int
    directory: WorkspacePath
    dir_fd: int
    path: WorkspacePath
    keeper: Keeper
    """Who keeps what is replaced here."""

    @property
    def name(self) -> str:
        """The last component, under `dir_fd`."""
        return self.path.name

    def status(self) -> FileStatus | None:
        """What stands there now; a link is a link."""
        return status_at(self.dir_fd, self.name)

    def temporary(self) -> TemporaryName:
        """A temporary name beside it."""
        return TemporaryName(self.disk, self.root_fd, self.directory, self.dir_fd)


def changed(path: WorkspacePath) -> FileChangedError:
    """The refusal when somebody else was at the path between look and act."""
    return FileChangedError(
        f"{quote(path.relative)} was changed by somebody else meanwhile",
        hint="read it again, then repeat the call",
    )


@dataclass(slots=True)
class Draft:
    """A file that nobody sees yet. Leaving the context without placing it leaves nothing."""

    place: Place
    mode: int
    fd: int = -1
    _name: str | None = None
    _held: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def of_new_file(cls, place: Place) -> Self:
        return cls(place, _NEW_FILE_MODE)

    @classmethod
    def of_replacement(cls, place: Place) -> Self:
        """A draft that nobody may read until it has the old file's permissions."""
        return cls(place, _PRIVATE_MODE)

    def __enter__(self) -> Self:
        place = self.place
        fd = place.disk.open_unnamed(place.dir_fd, self.mode)
        if fd is None:
            with ExitStack() as held:
                self._name = held.enter_context(place.temporary())
                fd = place.disk.create(place.dir_fd, self._name, self.mode)
                self._held = held.pop_all()
        self.fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        self._held.close()

    def fill(self, *pieces: bytes | memoryview) -> None:
        """Write them one after the other, all of them, and wait for the device."""
        for piece in pieces:
            self.place.disk.write(self.fd, piece)
        self.place.disk.sync(self.fd)

    def place_new(self, kept: Kept) -> None:
        """Let it appear under its name; `kept` holds the note of it.

        Raises:
            FileExistsError: something has the name; it is left as it is.
            OSError: the disk fails; the name is free again.
        """
        disk, dir_fd, name = self.place.disk, self.place.dir_fd, self.place.name
        try:
            if self._name is None:
                disk.link_open(self.fd, dir_fd, name)
            else:
                disk.move_new(dir_fd, self._name, dir_fd, name)
            disk.sync(dir_fd)
        except BaseException:
            # Also if placing it failed: a file system across a network may have done it.
            if self._stands_at(name):
                disk.unlink(dir_fd, name)
            kept.release()
            raise
        kept.settle()

    def replace(self, old: FileStatus, kept: Kept) -> None:
        """Take the place of `old`, whose content is `kept`.

        Raises:
            FileChangedError: what stands there is not `old` any more; it is left or put back.
            OSError: the disk fails; the old file stands.
        """
        try:
            if self._name is not None:
                self._exchange(self._name, old, kept)
                return
            with self.place.temporary() as name:
                self.place.disk.link_open(self.fd, self.place.dir_fd, name)
                self._exchange(name, old, kept)
        except BaseException:
            kept.release()
            raise

    def _exchange(self, name: str, old: FileStatus, kept: Kept) -> None:
        disk, dir_fd = self.place.disk, self.place.dir_fd
        require_untouched(self.place, old, kept)
        try:
            if not disk.exchange(dir_fd, name, self.place.name):
                disk.replace(dir_fd, name, dir_fd, self.place.name)
                disk.sync(dir_fd)
                kept.settle()
                return
            displaced = status_at(dir_fd, name)
            # Threat: the name was swapped for a link, or rewritten, since it was read.
            if displaced is None or displaced.content_mark != old.content_mark:
                raise changed(self.place.path)
            disk.sync(dir_fd)
            # Last: nothing may fail once the displaced file belongs to the history.
            kept.settle()
        except BaseException as failure:
            # Also if exchanging failed: a file system across a network may have done it.
            if status_at(dir_fd, name) is not None and not self._stands_at(name):
                self._put_back(name)
            if isinstance(failure, FileNotFoundError):
                raise changed(self.place.path) from failure
            raise

    def _stands_at(self, name: str) -> bool:
        """Whether this draft is what that name in its directory leads to."""
        now = status_at(self.place.dir_fd, name)
        return now is not None and _same_inode(now, status_of(self.fd))

    def _put_back(self, name: str) -> None:
        """Return what the exchange displaced to its place, without losing anything newer.

        Each exchange shows what was taken away. If it is what was put there last, all is
        as if we had not been; else somebody was quicker, and theirs is the newer one.
        """
        dir_fd = self.place.dir_fd
        last = status_of(self.fd)
        for _ in range(_EXCHANGES_MAX):
            returned = status_at(dir_fd, name)
            try:
                self.place.disk.exchange(dir_fd, name, self.place.name)
            except FileNotFoundError:
                return  # somebody removed the name: what we held was theirs to remove
            taken = status_at(dir_fd, name)
            if returned is None or taken is None or _same_inode(taken, last):
                return
            last = returned


def require_untouched(place: Place, old: FileStatus, kept: Kept) -> None:
    """The last look at what is about to lose its place, with the change time.

    Threat: rewritten in place since it was kept, with as many bytes, and its old
    modification time set again. After our own rename the change time tells nothing.

    Raises:
        FileChangedError: it is not what was looked at, or not what was kept.
    """
    now = place.status()
    if now is None or not _is_same(now, old):
        raise changed(place.path)
    kept.require_untouched()


def _is_same(now: FileStatus, old: FileStatus) -> bool:
    """Whether it is the file that was looked at; keeping it may have given it one more name."""
    if now.links == old.links:
        return now == old
    return now.content_mark == old.content_mark and (now.mode, now.uid, now.gid) == (
        old.mode,
        old.uid,
        old.gid,
    )


def _same_inode(one: FileStatus, other: FileStatus) -> bool:
    return (one.device, one.inode) == (other.device, other.inode)
