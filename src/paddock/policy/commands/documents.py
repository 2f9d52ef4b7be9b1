"""Here-documents: where bash ends one."""

from typing import Final

_AFTER_MARK: Final = b" \t\n;|&>)"


def find_document(data: bytes, at: int, mark: bytes, *, tabs: bool) -> tuple[int, int] | None:
    """Return where the document announced before `at` starts, and where its mark stands.

    None where it has no end, or where its line announces a second one.
    """
    line_end = data.find(b"\n", at)
    if line_end < 0 or b"<<" in data[at:line_end]:
        return None
    if data[at] not in _AFTER_MARK:
        return None
    place = line_end + 1
    while place < len(data):
        stop = data.find(b"\n", place)
        stop = len(data) if stop < 0 else stop
        line = data[place:stop]
        bare = line.lstrip(b"\t") if tabs else line
        if bare == mark:
            return line_end + 1, place + len(line) - len(bare)
        place = stop + 1
    return None
