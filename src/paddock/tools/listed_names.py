"""Which entries a listing has, what it says of one, and names that could pass for that."""

import re
from typing import Final

from paddock.tools.spec import Shown
from paddock.workspace import WorkspacePath

TO_NOTHING: Final = "(link to nothing)"
TO_HIDDEN: Final = "(link to what is not shown)"
TO_OUTSIDE: Final = "(link out of the workspace, never followed)"
SPECIAL: Final = "(FIFO, socket or device)"

_REMARKS: Final = (TO_NOTHING, TO_HIDDEN, TO_OUTSIDE, SPECIAL)
_INSIDE: Final = "|".join(re.escape(remark.removeprefix("(")) for remark in _REMARKS)
_LIKE_A_REMARK: Final = re.compile(rf"\((?=(?:{_INSIDE})\s*$)")
_LIKE_A_SIZE: Final = re.compile(r" (?=[0-9]+ bytes\s*$)")
_LIKE_AN_ARROW: Final = re.compile(r"(?<= -)>(?= )")


class ShownEntries:
    """Leaves out what may not be shown, and does not enter `.git`."""

    __slots__ = ("_shown",)

    def __init__(self, shown: Shown) -> None:
        self._shown = shown

    def shows(self, path: WorkspacePath, *, is_directory: bool) -> bool:
        del is_directory
        return self._shown.is_shown(path.relative)

    def enters(self, path: WorkspacePath) -> bool:
        return path.name != ".git" and self._shown.is_shown(path.relative)


def without_remark(shown: str) -> str:
    """A name as it is shown, with nothing at its end that passes for a remark of ours.

    Threat: a file called `a (link to nothing)` would be listed like a link called `a`.
    """
    return _LIKE_A_REMARK.sub(r"\\x28", shown)


def without_arrow(shown: str) -> str:
    """A name as it is shown, with nothing in it that passes for the arrow of a link.

    Threat: a file called `a -> b` would be listed like a link called `a`.
    """
    return _LIKE_AN_ARROW.sub(r"\\x3e", shown)


def without_size(shown: str) -> str:
    """A name as it is shown, with nothing at its end that passes for the size of a file.

    Threat: a link to `b  5 bytes` would be listed like a file.
    """
    return _LIKE_A_SIZE.sub(r"\\x20", shown)
