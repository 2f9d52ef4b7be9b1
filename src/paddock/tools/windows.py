"""Some lines of a text file, as every tool that reads one takes them."""

from typing import Final

from paddock import limits
from paddock.errors import BinaryFileError, TextEncodingError
from paddock.policy.settings import LoweredLimits
from paddock.text.edit import KEEP_ENCODING
from paddock.text.show import quote, text_of
from paddock.workspace import OpenFile, Window, WindowLimits

ALL_LINES: Final = 2**62
"""As a number of lines: however many there are."""


def window_limits(lowered: LoweredLimits) -> WindowLimits:
    """What one look may hold; a single line may take all of it."""
    return WindowLimits(lowered.view_bytes_max, lowered.view_bytes_max)


def require_text_start(file: OpenFile, name: str) -> None:
    """Refuse a file that is not text.

    Raises:
        BinaryFileError: a NUL byte among the first `limits.binary_probe_bytes`.
    """
    probe = file.read_start(limits.binary_probe_bytes)
    if b"\0" in probe:
        raise BinaryFileError(
            f"{quote(name)} is a binary file: it has a NUL byte at offset {probe.index(0)}",
            hint="only UTF-8 text can be viewed",
        )


def require_utf8(window: Window, name: str) -> None:
    """Refuse lines that are not UTF-8.

    Raises:
        TextEncodingError: with the byte, its place and its line.
    """
    for line in window.lines:
        try:
            line.content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TextEncodingError(
                f"{quote(name)} is not UTF-8: byte 0x{line.content[error.start]:02x} "
                f"at byte {error.start + 1} of line {line.number}",
                hint=KEEP_ENCODING,
            ) from None


def window_notices(window: Window, offset: int, limit: int, bytes_max: int) -> list[str]:
    """What a model has to know beyond the lines: what is missing and how to get it."""
    total = window.lines_total
    said: list[str] = []
    if total == 0:
        said.append("the file is empty")
    elif offset > total:
        said.append(f"offset {text_of(offset)} is past the end: the file has {total} lines")
    elif window.next_line is not None:
        why = f"cut at {bytes_max} bytes" if window.cut_by_bytes else f"limit={limit} reached"
        said.append(
            f"lines {offset}-{window.next_line - 1} of {total} shown, {why}; "
            f"use offset={window.next_line} to go on"
        )
    if any(line.is_cut for line in window.lines):
        said.append(f"a line is shown up to {bytes_max} bytes; no file tool shows more of it")
    if window.changed_while_reading:
        said.append("the file changed while it was read; view it again")
    return said
