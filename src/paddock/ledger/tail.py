"""Following a ledger as it grows."""

from collections.abc import Callable, Iterator

from paddock import limits
from paddock.errors import LedgerDamagedError
from paddock.ledger.format.lines import BadLine, StoredEntry, inspect_line
from paddock.ledger.reading import LedgerReader


def follow(path: str, *, last: int, poll: Callable[[], bool]) -> Iterator[StoredEntry]:
    """Yield the `last` entries that are there, then each new one.

    `poll` is called whenever there is nothing new: it waits as it likes and
    answers whether to go on. Only entries up to the head's mark are given, as
    what lies beyond may still be taken back; without a head file, whole lines.

    Raises:
        HostError: there is no ledger, or it cannot be read.
        LedgerDamagedError: a line holds no entry, or the file became shorter or
            was replaced.
    """
    with LedgerReader(path) as reader:
        position = _start(reader, last)
        while True:
            end = _end(reader)
            if end < position:
                raise LedgerDamagedError("the ledger became shorter", where=ascii(path))
            while position < end:
                line = _next_line(reader, position, end)
                found = inspect_line(line)
                if isinstance(found, BadLine):
                    raise LedgerDamagedError(
                        f"not a ledger line ({found.fault}): {found.detail}",
                        where=f"{path!a}, byte {position}",
                    )
                yield found
                position += len(line) + 1
            if not poll():
                return
            if not reader.keep_up():
                raise LedgerDamagedError(
                    "the ledger was replaced by another file", where=ascii(path)
                )


def find_torn_bytes(path: str) -> int:
    """How many bytes follow the last whole line. Raises: HostError."""
    with LedgerReader(path) as reader:
        size = reader.size()
        return size - reader.whole_bytes(size)


def _start(reader: LedgerReader, last: int) -> int:
    position = _end(reader)
    if last <= 0:
        return position
    for count, (offset, _) in enumerate(reader.lines_backwards(position), start=1):
        position = offset
        if count == last:
            break
    return position


def _end(reader: LedgerReader) -> int:
    """How far the file may be believed: the newest mark of this boot, else the last LF."""
    marks = reader.marks()
    size = reader.size()
    if marks is None or marks.newest is None or marks.newest.boot != reader.boot():
        return reader.whole_bytes(size)
    return marks.newest.offset_bytes


def _next_line(reader: LedgerReader, position: int, end: int) -> bytes:
    size = limits.ledger_scan_chunk_bytes
    while True:
        chunk = reader.read(min(size, end - position), position)
        found = chunk.find(b"\n")
        if found >= 0:
            return chunk[:found]
        if size > limits.entry_bytes_max or len(chunk) < size:
            return chunk
        size *= 4
