"""Entries in which a call was decided, newest first, one at a time.

The file is read backwards, and a line is parsed only if its bytes name one of the event
types. A line that holds no entry is given too: nobody can say what it was.
"""

from collections.abc import Iterator, Sequence

from paddock.ledger.format.lines import BadLine, StoredEntry, inspect_line
from paddock.ledger.query import BadRow, Filter
from paddock.ledger.reading import LedgerReader
from paddock.ledger.scan import LINE_END, LINE_OPENING


def find_decided(
    path: str, event_types: Sequence[str], wanted: Filter, holding: bytes = b""
) -> Iterator[StoredEntry | BadRow]:
    """Yield the entries of these types that `wanted` matches besides, newest first.

    A line without the bytes `holding` is not looked at.

    Raises:
        HostError: there is no ledger, or it cannot be read.
    """
    needles = [f'"event_type":"{name}"'.encode() for name in event_types]
    others = (*wanted.needles(), holding)
    with LedgerReader(path) as reader:
        for offset, line in reader.lines_backwards(reader.whole_bytes(reader.size())):
            is_shaped = line.startswith(LINE_OPENING) and line.endswith(LINE_END)
            if is_shaped and not (
                any(needle in line for needle in needles)
                and all(needle in line for needle in others)
            ):
                continue
            row = inspect_line(line)
            if isinstance(row, BadLine):
                yield BadRow(offset, row.fault, row.detail)
            elif row.entry.event_type in event_types and wanted.matches(row):
                yield row
