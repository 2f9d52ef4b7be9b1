"""Directories that a write needs: made when it writes, taken back when it fails.

Resolving a path makes nothing; so a refused call leaves nothing. Each directory is made
under the descriptor of the one before, without passing a link.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field

from paddock.storage.disk import Disk
from paddock.storage.locks import try_lock, unlock
from paddock.workspace.names import WorkspacePath, child_of, join_parts
from paddock.workspace.resolution import PASS_DIRECTORY, READ_DIRECTORY, Resolution


@dataclass(slots=True)
class Parents:
    """Makes missing directories and remembers which ones are its own."""

    root_fd: int
    resolution: Resolution
    disk: Disk
    made: list[WorkspacePath] = field(default_factory=list[WorkspacePath])

    def ensure(self, directory: WorkspacePath) -> None:
        """Make `directory` and what is missing above it.

        Raises:
            OSError: ENOTDIR where something else stands, ELOOP where a link does,
                else what mkdir(2) says.
        """
        fd, missing = self._deepest(directory)
        here = join_parts(directory.parts[: len(directory.parts) - len(missing)])
        try:
            for name in missing:
                here = child_of(here, name)
                fd = self._make(fd, name, here)
        finally:
            os.close(fd)

    def _deepest(self, directory: WorkspacePath) -> tuple[int, tuple[str, ...]]:
        """A descriptor of the deepest directory that exists, and the names below it."""
        parts = directory.parts
        for depth in range(len(parts), -1, -1):
            try:
                above = join_parts(parts[:depth])
                fd = self.resolution.open(self.root_fd, above.relative, PASS_DIRECTORY)
            except FileNotFoundError:
                continue
            return fd, parts[depth:]
        raise FileNotFoundError

    def _make(self, fd: int, name: str, path: WorkspacePath) -> int:
        """Make one directory and return its descriptor in exchange for its parent's."""
        self.made.append(path)
        try:
            self.disk.make_directory(fd, name)
        except FileExistsError:
            self.made.remove(path)  # somebody else was quicker; opening says what it is
        below = os.open(name, PASS_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        os.close(fd)
        return below

    def sync(self) -> None:
        """Put the names of all directories made on the device, deepest first."""
        for path in reversed(self.made):
            fd = self.resolution.open(self.root_fd, path.parent.relative, READ_DIRECTORY)
            try:
                self.disk.sync(fd)
            finally:
                os.close(fd)

    def take_back(self) -> None:
        """Remove the directories made, as far as nobody uses them."""
        while self.made:
            path = self.made.pop()
            try:
                # One that could not be made is not there.
                with suppress(FileNotFoundError):
                    self._remove(path)
            except OSError:
                # Somebody put something there meanwhile, so it is theirs now.
                self.made.clear()

    def _remove(self, path: WorkspacePath) -> None:
        # Its lock, so that no writer is about to create something in it. Never waited for:
        # whoever holds it needs the directory.
        fd = self.resolution.open(self.root_fd, path.relative, READ_DIRECTORY)
        try:
            if try_lock(fd):
                parent = self.resolution.open(self.root_fd, path.parent.relative, PASS_DIRECTORY)
                try:
                    self.disk.remove_directory(parent, path.name)
                finally:
                    os.close(parent)
        finally:
            unlock(fd)
