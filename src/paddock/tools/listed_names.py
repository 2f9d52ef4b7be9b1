"""What a listing says of an entry beside its name, and names that could pass for it."""

import re
from typing import Final

TO_NOTHING: Final = "(link to nothing)"
TO_HIDDEN: Final = "(link to what is not shown)"
TO_OUTSIDE: Final = "(link out of the workspace, never followed)"
SPECIAL: Final = "(FIFO, socket or device)"

_REMARKS: Final = (TO_NOTHING, TO_HIDDEN, TO_OUTSIDE, SPECIAL)
_INSIDE: Final = "|".join(re.escape(remark.removeprefix("(")) for remark in _REMARKS)
_LIKE_A_REMARK: Final = re.compile(rf"\((?=(?:{_INSIDE})\s*$)")
_LIKE_A_SIZE: Final = re.compile(r" (?=[0-9]+ bytes\s*$)")
_LIKE_AN_ARROW: Final = re.compile(r"(?<= -)>(?= )")


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
