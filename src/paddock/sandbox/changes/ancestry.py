"""Whether a directory of the workspace is still the one that a command saw under its path.

Entries below a directory that is renamed keep their own times: what came with another
directory looks as if it had always been there. So each directory is compared with the
survey of the start, from the root down.

A directory that is removed and made anew may get the same number. What is in it was put
there since, and each file of it says so by its own change time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from paddock.sandbox.changes.upper import Look
from paddock.sandbox.hidden import KnownDirectory

_NOBODY: Final = (0, 0)


class Ancestor(Enum):
    SAME = "same"
    STRANGER = "stranger"
    """Made or put there since; whether it brought anything with it, its entries tell."""
    EXCHANGED = "exchanged"
    """It took another one's place, or stands below one that did."""


@dataclass(slots=True)
class Ancestry:
    """Asked for each path, looks at each directory once; makes no system call."""

    directories: Mapping[str, KnownDirectory]
    started_ns: int
    standing: dict[str, Look]
    """Those of now, as far as a command's changes lie in them; may grow meanwhile."""
    _found: dict[str, Ancestor] = field(default_factory=dict[str, Ancestor])

    def above(self, path: str) -> Ancestor:
        """What holds `path`: the root of the workspace is always the same."""
        parent = path.rpartition("/")[0]
        return self.at(parent) if parent else Ancestor.SAME

    def at(self, path: str) -> Ancestor:
        """What stands at `path`, a directory or nothing."""
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._compare(path)
        return found

    def mode_before(self, path: str) -> int | None:
        """The mode of the directory that stood at `path` at the start; None where none did."""
        known = self._known(path)
        return None if known is None else known.mode

    def _compare(self, path: str) -> Ancestor:
        above = self.above(path)
        look = self.standing.get(path)
        if above is Ancestor.EXCHANGED or look is None:
            return above
        known = self._known(path)
        if known is not None:
            is_same = known.identity[:2] == look.identity
            return above if is_same else Ancestor.EXCHANGED
        return Ancestor.STRANGER if look.ctime_ns >= self.started_ns else above

    def _known(self, path: str) -> KnownDirectory | None:
        known = self.directories.get(path)
        return None if known is None or known.identity[:2] == _NOBODY else known
