"""Lines of a ledger in runs, at the price of their bytes: what hashing a ledger reads."""

from collections.abc import Iterator
from typing import Final

from paddock import limits
from paddock.ledger.reading import LedgerReader

_CHUNK: Final = limits.ledger_scan_chunk_bytes
LINE_OPENING: Final = b'{"id":"LED-'
"""Every line begins so."""


def whole_lines(reader: LedgerReader, start: int, end: int) -> Iterator[tuple[int, list[bytes]]]:
    """Runs of lines without their LF, each with the offset of its first, in order.

    From `start`, where a line begins, up to `end`, where one ends. Of a line longer
    than any can be its beginning is given, as the last of all.
    """
    carry, offset, position = b"", start, start
    while position < end:
        chunk = reader.read(min(_CHUNK, end - position), position)
        if not chunk:
            return
        position += len(chunk)
        lines = (carry + chunk).split(b"\n")
        carry = lines.pop()
        if lines:
            yield offset, lines
            offset = position - len(carry)
        if len(carry) > limits.entry_bytes_max:
            yield offset, [carry]
            return
