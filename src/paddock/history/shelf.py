"""The store's directories, and contents on their way to their names.

What stands there:

    <64 hex digits>          an object, as it is
    <64 hex digits>.z        an object, packed
    usage, notes/, pins/     see there
    incoming/<random>.part   a draft, where the file system lacks O_TMPFILE
    incoming/<random>.held   a second name of a large file that is about to be replaced
"""

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import Final, Self

from paddock.history.packing import chunks_of, name_of, written
from paddock.storage.disk import DIRECTORY, PRIVATE_DIRECTORY_MODE, READ, Disk

_INCOMING: Final = "incoming"
_DRAFT: Final = ".part"
_HELD: Final = ".held"


@dataclass(slots=True)
class Staged:
    """A content that has no digest for a name yet."""

    fd: int
    name: str | None
    """In `incoming/`, where the file system lacks O_TMPFILE."""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Shelf:
    """The descriptors of the store's directories, and the disk they are on."""

    disk: Disk
    fd: int
    incoming_fd: int

    @classmethod
    def open(cls, disk: Disk, directory: str) -> Self:
        """Open them, made where they are missing. Raises: OSError."""
        fd = open_directory(disk, None, directory)
        try:
            return cls(disk, fd, open_directory(disk, fd, _INCOMING))
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def look(cls, disk: Disk, directory: str, nowhere: str) -> Self:
        """Open them for reading; what is missing is not made: `nowhere` stands for it.

        Raises: OSError.
        """
        fd = _open_or(nowhere, directory, None)
        try:
            return cls(disk, fd, _open_or(nowhere, _INCOMING, fd))
        except BaseException:
            os.close(fd)
            raise

    def close(self) -> None:
        os.close(self.incoming_fd)
        os.close(self.fd)

    def draft(self) -> Staged:
        """A new file that nobody sees."""
        fd = self.disk.open_unnamed(self.fd)
        if fd is not None:
            return Staged(fd, None)
        name = secrets.token_hex(16) + _DRAFT
        return Staged(self.disk.create(self.incoming_fd, name), name)

    def discard(self, staged: Staged) -> None:
        """Forget a draft, placed or not. A name that cannot be removed is swept later."""
        os.close(staged.fd)
        if staged.name is not None:
            with contextlib.suppress(OSError):
                self.disk.unlink(self.incoming_fd, staged.name)

    def place(self, staged: Staged, name: str) -> int:
        """Let a synced draft appear; how many bytes more the store has then.

        What stands there already is replaced: it is the same, or it is damaged, and for
        pruning it is as old as what was kept last.
        """
        if staged.name is None:
            try:
                self.disk.link_open(staged.fd, self.fd, name)
            except FileExistsError:
                staged.name = secrets.token_hex(16) + _DRAFT
                self.disk.link_open(staged.fd, self.incoming_fd, staged.name)
            else:
                return staged.size_bytes
        more = staged.size_bytes - self.size_of(name)
        self.disk.replace(self.incoming_fd, staged.name, self.fd, name)
        staged.name = None
        return more

    def size_of(self, name: str) -> int:
        """The bytes of one object on the disk; 0 where there is none."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0

    def hold(self, fd: int) -> tuple[str, int]:
        """Give an open file a second name in `incoming/`, durably; the name.

        And the file's change time, in nanoseconds, which the second name has just moved.
        """
        name = secrets.token_hex(16) + _HELD
        self.disk.link_open(fd, self.incoming_fd, name)
        changed_ns = os.fstat(fd).st_ctime_ns
        self.disk.sync(fd)
        self.disk.sync(self.incoming_fd)
        return name, changed_ns

    def held_names(self) -> list[str]:
        """What has a second name in `incoming/`."""
        return [name for name in names_in(self.incoming_fd) if name.endswith(_HELD)]

    def sweep(self) -> int:
        """Deal with what killed processes left; how many bytes more the store has then.

        To be called by whoever has the store's lock alone: then every name is a dead
        process's. A draft is nothing. What was held may be the last copy of a content that
        was replaced: it becomes an object, as a copy, for its other name may be in use.
        """
        more = 0
        for name in names_in(self.incoming_fd):
            if name.endswith(_HELD):
                more += self._keep_held(name)
            self.disk.unlink(self.incoming_fd, name)
        return more

    def _keep_held(self, name: str) -> int:
        fd = os.open(name, READ, dir_fd=self.incoming_fd)
        try:
            size_bytes = os.fstat(fd).st_size
            staged = self.draft()
            try:
                digest = written(chunks_of(fd, size_bytes), self.disk, staged.fd)
                staged.size_bytes = size_bytes
                self.disk.sync(staged.fd)
                more = self.place(staged, name_of(digest))
                self.disk.sync(self.fd)
                return more
            finally:
                self.discard(staged)
        finally:
            os.close(fd)


def _open_or(nowhere: str, directory: str, dir_fd: int | None) -> int:
    try:
        return os.open(directory, DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        return os.open(nowhere, DIRECTORY)


def names_in(dir_fd: int) -> list[str]:
    # Opened anew: a descriptor that threads share has one place in the listing for all.
    fd = os.open(".", DIRECTORY, dir_fd=dir_fd)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def open_directory(disk: Disk, dir_fd: int | None, name: str) -> int:
    """A directory of ours, made durably if it is missing."""
    try:
        return os.open(name, DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        try:
            disk.make_directory(dir_fd, name, PRIVATE_DIRECTORY_MODE)
        except FileExistsError:
            return os.open(name, DIRECTORY, dir_fd=dir_fd)
    fd = os.open(name, DIRECTORY, dir_fd=dir_fd)
    try:
        parent = os.open("..", DIRECTORY, dir_fd=fd)
        try:
            disk.sync(parent)
        finally:
            os.close(parent)
    except BaseException:
        os.close(fd)
        raise
    return fd
