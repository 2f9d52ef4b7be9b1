"""Lines of a ledger in runs, at the price of their bytes: what hashing a ledger reads."""

from collections.abc import Iterator
from typing import Final

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.genesis import Genesis, parse_genesis
from paddock.ledger.format.lines import parse_line
from paddock.ledger.reading import LedgerReader

_CHUNK: Final = limits.ledger_scan_chunk_bytes
LINE_OPENING: Final = b'{"id":"LED-'
"""Every line begins so."""
LINE_END: Final = b'"}'
"""And ends so, without its LF."""


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
        lines = chunk.split(b"\n")
        lines[0] = carry + lines[0]
        carry = lines.pop()
        if lines:
            yield offset, lines
            offset = position - len(carry)
        if len(carry) > limits.entry_bytes_max:
            yield offset, [carry]
            return


def read_first(reader: LedgerReader) -> Genesis:
    """Return what line 0 says.

    Raises:
        LedgerDamagedError: there is no such line, or it is not GENESIS.
        HostError: a format that is not known; the disk failed.
    """
    for _, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
        return parse_genesis(parse_line(lines[0]))
    raise LedgerDamagedError("the ledger has no first line", where=ascii(reader.path))


def find_genesis(path: str) -> Genesis | None:
    """Return what line 0 of a ledger says; None where it says nothing. Raises: HostError."""
    with LedgerReader(path) as reader:
        try:
            return read_first(reader)
        except LedgerDamagedError:
            return None
