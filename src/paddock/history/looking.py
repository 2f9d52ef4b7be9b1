"""Looking at a history without touching it: nothing is made, tidied or opened for writing.

So what lies on a file system that is full, or that is read-only, can be looked at as it is:
also a copy that somebody keeps as evidence.
"""

import contextlib
import os
from pathlib import Path
from typing import Final, Self

from paddock.history.contents import OpenObject
from paddock.history.notes import Note, Notes
from paddock.history.objects import ObjectStore
from paddock.history.packing import digest_of_file
from paddock.history.shelf import Shelf
from paddock.storage.atomic import require_private
from paddock.storage.disk import READ, Disk, converting

_NOWHERE: Final = "/"
"""Looked at where there is no store: no object has a name there."""


class SeenStore(ObjectStore):
    """A store to read from. What would put, pin, prune or remove something is not to be called.

    What a killed process held is read where it lies: whoever puts next makes an object of it.
    """

    __slots__ = ("_held",)

    def __init__(self, shelf: Shelf, bytes_max: int) -> None:
        super().__init__(shelf, bytes_max)
        self._held: dict[str, str] | None = None

    @classmethod
    def look(cls, directory: str) -> Self:
        """Look at the store in `directory`; where none is, there is nothing in it.

        Raises:
            ConfigError: a link or no directory stands there, or others may write to it.
            HostError: it cannot be opened.
        """
        require_private(Path(directory))
        with converting("read the history"):
            return cls(Shelf.look(Disk(), directory, _NOWHERE), 0)

    def notes(self) -> tuple[Note, ...]:
        """See `Notes.read_all`. Raises: HostError."""
        return Notes.look(self.shelf)

    def _find(self, digest: str) -> OpenObject | None:
        found = super()._find(digest)
        if found is not None:
            return found
        with self._mutex:
            if self._held is None:
                self._held = _held_by_digest(self.shelf)
        name = self._held.get(digest)
        if name is None:
            return None
        try:
            fd = os.open(name, READ, dir_fd=self.shelf.incoming_fd)
        except FileNotFoundError:
            return super()._find(digest)  # its process lived, and has made it an object
        return OpenObject(digest, fd, is_packed=False)


def _held_by_digest(shelf: Shelf) -> dict[str, str]:
    """The names of what is held, each read once."""
    found: dict[str, str] = {}
    for name in shelf.held_names():
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(name, READ, dir_fd=shelf.incoming_fd)
            try:
                found[digest_of_file(fd, os.fstat(fd).st_size)] = name
            finally:
                os.close(fd)
    return found
