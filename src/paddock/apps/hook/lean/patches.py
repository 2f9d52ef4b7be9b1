"""The files that a patch in Codex's own form touches.

    *** Begin Patch
    *** Add File: PATH        then lines with +
    *** Update File: PATH     then maybe *** Move to: PATH, then hunks
    *** Delete File: PATH
    *** End Patch

Whatever looks like a header counts as one, and a text without any is refused: what
we do not understand, somebody else may apply.
"""

from paddock.apps.hook.lean.asked import ShapeError

_HEADERS = (
    ("*** Add File:", "create"),
    ("*** Update File:", "str_replace"),
    ("*** Delete File:", "delete"),
    ("*** Move to:", "create"),
)
_FRAMES = ("*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID:")
FILES_MAX = 1000


def read_patch(text: str) -> "tuple[tuple[str, str], ...]":
    """Return operations with their paths, in the order of the patch.

    Raises:
        ShapeError: no header, one that is not known, or more than `FILES_MAX`.
    """
    found: list[tuple[str, str]] = []
    for row in text.splitlines():
        # Leading blanks too: the client's own reader is lenient.
        line = row.strip()
        if not line.startswith("***"):
            continue
        for header, operation in _HEADERS:
            if line.startswith(header):
                path = line[len(header) :].strip()
                if not path:
                    raise ShapeError("a header of the patch names no file")
                if header == "*** Move to:" and found:
                    # The file that was updated goes away under its old name.
                    found.append(("delete", found[-1][1]))
                found.append((operation, path))
                break
        else:
            if not line.startswith(_FRAMES):
                raise ShapeError("the patch has a header that is not known")
    if not found:
        raise ShapeError("the patch names no file")
    if len(found) > FILES_MAX:
        raise ShapeError(f"the patch touches more than {FILES_MAX} files")
    return tuple(found)
