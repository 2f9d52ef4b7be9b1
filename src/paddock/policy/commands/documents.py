"""Here-documents: where bash ends one."""

from typing import Final

_AFTER_MARK: Final = b" \t\n;|&>)"


def find_document(data: bytes, at: int, mark: bytes, *, tabs: bool) -> tuple[int, int] | None:
    """Return where the document that is announced before `at` starts and where its mark stands."""
    line_end = data.find(b"\n", at)
    if line_end < 0 or b"<<" in data[at:line_end]:
        return None
    if data[at : at + 1] not in (b" ", b"\t", b"\n", b";", b"|", b"&", b">", b")"):
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
