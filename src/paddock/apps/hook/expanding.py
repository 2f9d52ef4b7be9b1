"""For what names a pattern stands now, as a shell would expand it, in a bounded number of steps.

`glob` bounds nothing: `*/../*/../*/../x` makes it look into the same directories without end.
"""

import fnmatch
import glob
import os
from collections.abc import Iterator
from typing import Final

STEPS_MAX: Final = 200_000
"""Names that are looked at for the patterns of one line."""
PARTS_MAX: Final = 100
"""Slashes in a pattern."""


class TooManyStepsError(Exception):
    """The patterns of one line make too many names be looked at."""


class Expander:
    """Expands the patterns of one line, from the directories in which they stand."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_MAX

    def expand(self, pattern: str, directory: str) -> Iterator[str]:
        """Yield what `glob.iglob` would, relative to `directory` where the pattern is.

        Raises: TooManyStepsError.
        """
        if pattern.count("/") > PARTS_MAX:
            raise TooManyStepsError
        return self._expand(pattern, directory, directories=False)

    def _expand(self, pattern: str, root: str, *, directories: bool) -> Iterator[str]:
        parent, last = os.path.split(pattern)
        if not glob.has_magic(pattern):
            yield from self._there(parent, last, root)
            return
        # What is split off `/` is `/` itself.
        is_plain = not parent or parent == pattern or not glob.has_magic(parent)
        parents = [parent] if is_plain else self._expand(parent, root, directories=True)
        for each in parents:
            if glob.has_magic(last):
                yield from self._matching(each, last, root, directories=directories)
            else:
                yield from self._there(each, last, root)

    def _there(self, parent: str, name: str, root: str) -> Iterator[str]:
        self._step()
        path = os.path.join(parent, name)
        whole = os.path.join(root, path)
        if os.path.lexists(whole) if name else os.path.isdir(whole):
            yield path

    def _matching(
        self, parent: str, pattern: str, root: str, *, directories: bool
    ) -> Iterator[str]:
        names: list[str] = []
        try:
            with os.scandir(os.path.join(root, parent) or ".") as entries:
                for entry in entries:
                    self._step()
                    if not directories or _is_directory(entry):
                        names.append(entry.name)
        except OSError:
            # What cannot be read is expanded to nothing by a shell, too.
            return
        for name in fnmatch.filter(names, pattern):
            if pattern.startswith(".") or not name.startswith("."):
                yield os.path.join(parent, name)

    def _step(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyStepsError


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link that leads to itself, or to where nobody may look.
        return False
