"""The files that a patch in Codex's own form touches.

    *** Begin Patch
    *** Add File: PATH        then lines with +
    *** Update File: PATH     then maybe *** Move to: PATH, then hunks
    *** Delete File: PATH
    *** End Patch

Rows end with a line feed alone. A row that begins with `***`, or a known header behind blanks,
counts. What we do not understand somebody else may apply: it is refused.
"""

from paddock.apps.hook.lean.asked import ShapeError

_HEADERS = (
    ("*** Add File:", "create"),
    ("*** Update File:", "str_replace"),
    ("*** Delete File:", "delete"),
    ("*** Move to:", "create"),
)
_FRAMES = ("*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID:")
_BLANKS = " \t\r"
_UNSEEN = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))
FILES_MAX = 1000


def read_patch(text: str) -> "tuple[tuple[str, str], ...]":
    """Return operations with their paths. Raises: ShapeError; at most `FILES_MAX`."""
    found: list[tuple[str, str]] = []
    # Threat: a row that ends where the client's reader goes on. It knows no other line end.
    for row in text.split("\n"):
        # Leading blanks too: the client's own reader is lenient.
        line = row.strip()
        if not line.startswith("***"):
            continue
        for header, operation in _HEADERS:
            if line.startswith(header):
                if not _UNSEEN.isdisjoint(row.strip(_BLANKS)):
                    raise ShapeError("a header of the patch holds a control character")
                path = _path(line[len(header) :])
                if header == "*** Move to:" and found:
                    # The file that was updated goes away under its old name.
                    found.append(("delete", found[-1][1]))
                found.append((operation, path))
                break
        else:
            # With a blank in front it is a line of the file: ` ***bold***`.
            if row.startswith("***") and not line.startswith(_FRAMES):
                raise ShapeError("the patch has a header that is not known")
    if not found:
        raise ShapeError("the patch names no file")
    if len(found) > FILES_MAX:
        raise ShapeError(f"the patch touches more than {FILES_MAX} files")
    return tuple(found)


def _path(rest: str) -> str:
    if not rest.strip():
        raise ShapeError("a header of the patch names no file")
    path = rest.removeprefix(" ")
    return f"./{path}" if path[0] == "~" else path
