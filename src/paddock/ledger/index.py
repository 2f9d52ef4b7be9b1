"""A SQLite index beside a ledger of the lines with a value: `NAME.d/index.sqlite`.

Like all files beside the ledger it is not trusted: its last line must be the ledger's, the searched
range must have every row, and each line is compared with its row. So a forged index can hide lines,
but not change them. An index that is invalid, locked or owned by another user is not used.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from paddock import limits
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.read import LedgerReader
from paddock.ledger.tail import LedgerPaths
from paddock.pattern import lazy_pattern

_APPLICATION: Final = 0x70646B31
_TEXT: Final = rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_GROUP: Final = rb'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"'
_LINE: Final = lazy_pattern(
    rb'\{"id":"LED-[0-9a-f]{32}","timestamp":"([-0-9T:.]{26})Z",'
    rb'"event_type":"([A-Z][A-Z0-9_]*)","submission_id":%b,"decision":%b,"reason":%b,'
    rb'"session_id":%b,"agent":%b,"call_id":%b,"metadata":\{.*\},'
    rb'"seq":([0-9]{1,16}),"prev":"[0-9a-f]{64}"\}' % (_TEXT, _GROUP, _TEXT, _GROUP, _GROUP, _GROUP)
)
_CLIENT_CALL: Final = lazy_pattern(rb'"client_call":%b' % _GROUP)
_TIME_DIGITS: Final = 18  # what fits a SQLite integer; truncation keeps bounds inclusive
_SCHEMA: Final = (
    "CREATE TABLE covered (entries INTEGER, end INTEGER, leaf TEXT)",
    (
        "CREATE TABLE line (seq INTEGER PRIMARY KEY, start INTEGER, size INTEGER, time INTEGER, "
        "type INTEGER, decision INTEGER, session INTEGER, agent INTEGER, call INTEGER, "
        "client INTEGER)"
    ),
    *(
        f"CREATE INDEX by_{kind} ON line ({kind})"
        for kind in ("type", "decision", "session", "call")
    ),
    "CREATE INDEX by_client ON line (client) WHERE client IS NOT NULL",
)
_INSERT: Final = "INSERT INTO line VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ASK_COVERED: Final = (
    "SELECT entries, end, leaf, start, size FROM covered LEFT JOIN line ON seq = entries - 1"
)
_WHERE: Final = {
    "call": "({0}call = :call OR {0}client = :call)",
    "session": "{0}session = :session",
    "type": "{0}type = :type",
    "decision": "{0}decision = :decision",
    "agent": "{0}agent = :agent",
    "since": "time >= :since",
    "until": "time <= :until",
}
"""A `+` before a column keeps SQLite from using that column's index."""
_INDEXED: Final = ("call", "session", "type", "decision")
_CACHE_KIB: Final = 32_768
_PROBED_ROWS: Final = 2_000
_ROWS_AT_FIRST: Final = 32
_ROWS_AT_ONCE: Final = 1_024
"""Few at first: usually the newest few suffice. In batches: an open cursor would block writers."""
T = TypeVar("T")
Row = tuple[int, int, int, int, int, int, int, int, int, int | None]


class Covered(NamedTuple):
    entries: int
    end: int


_NOTHING: Final = Covered(0, 0)


class StaleIndexError(Exception):
    """The index does not match the ledger. Caught within this folder."""


class Index:
    # Not safe to share between threads. Opened at first use.
    def __init__(self, paths: LedgerPaths) -> None:
        self._path = paths.index
        self._opened: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def remove(self) -> None:
        self.close()
        with suppress(OSError):
            if _is_ours(self._path):
                os.unlink(self._path)

    def covered(self, reader: LedgerReader, end: int) -> Covered:
        return self._tried(lambda: _covered(self.open(create=False), reader, end), _NOTHING)

    def extend(self, reader: LedgerReader, end: int) -> bool:
        """Index lines up to `end` or the first bad line; return False if none was added."""
        return self._tried(lambda: self._extend(reader, end), False)

    def lines(
        self, reader: LedgerReader, asked: Mapping[str, bytes], covered: Covered
    ) -> Iterator[tuple[int, bytes]]:
        """Yield candidate lines, the newest first. Raises: StaleIndexError."""
        # The caller parses each line, which separates values with the same CRC-32.
        given = {name: _CONVERTERS.get(name, crc32)(value) for name, value in asked.items()}
        try:
            database = self.open(create=False)
            for row in _rows(database, _find_where(database, given), given, covered.entries):
                line = _line(reader, row[1], row[2])
                if row_of(line, row[1]) != row:
                    raise StaleIndexError("a row does not match its line")
                yield row[1], line
        except (OSError, sqlite3.Error) as fault:
            raise StaleIndexError(str(fault)) from fault

    def _tried(self, act: Callable[[], T], otherwise: T) -> T:
        try:
            return act()
        except (OSError, sqlite3.OperationalError):
            self.close()  # missing, locked, or temporarily not readable or writable
        except (sqlite3.DatabaseError, StaleIndexError):
            self.remove()
        return otherwise

    def _extend(self, reader: LedgerReader, end: int) -> bool:
        database = self.open(create=True)
        with database:
            database.execute("BEGIN IMMEDIATE")
            entries, start = _covered(database, reader, end)
            added = database.executemany(_INSERT, _build(reader, entries, start, end)).rowcount
            if added > 0:
                asked = "SELECT start, size FROM line WHERE seq = ?"
                start, size = database.execute(asked, (entries + added - 1,)).fetchone()
                leaf = leaf_hash(_line(reader, start, size))
                database.execute("DELETE FROM covered")
                known = (entries + added, start + size + 1, leaf)
                database.execute("INSERT INTO covered VALUES (?, ?, ?)", known)
        return added > 0

    def open(self, *, create: bool) -> sqlite3.Connection:
        """Raises: OSError: no file, or not owned by this user; sqlite3.Error."""
        if self._opened is not None:
            return self._opened
        if create and not os.path.lexists(self._path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self._path, flags, 0o600))
        if not _is_ours(self._path):
            raise PermissionError("not a regular file of this user")
        database = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            # Threat: a forged file would run its triggers and functions.
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            asked = "SELECT sql FROM sqlite_master ORDER BY rowid"
            found = [sql for (sql,) in database.execute(asked)]
            if not found and create:
                with database:
                    database.execute("BEGIN IMMEDIATE")
                    for statement in _SCHEMA:
                        database.execute(statement)
                    database.execute(f"PRAGMA application_id = {_APPLICATION}")
                found = list(_SCHEMA)
            (application,) = database.execute("PRAGMA application_id").fetchone()
            if found != list(_SCHEMA) or application != _APPLICATION:
                raise StaleIndexError("it has another schema")
        except BaseException:
            database.close()
            raise
        self._opened = database
        return database


def is_wrong(path: str) -> bool:
    """Return True if a query would use this ledger's index although it has wrong rows."""
    with LedgerReader(path) as reader, closing(Index(LedgerPaths(path))) as index:
        try:
            database = index.open(create=False)
            covered = _covered(database, reader, reader.size())
        except (OSError, sqlite3.Error, StaleIndexError):
            return False
        # Threat: an SQL index that lacks rows of its table.
        if database.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return True
        lines = chain.from_iterable(lines for _, lines in reader.lines(0, covered.end))
        rows, at = database.execute("SELECT * FROM line ORDER BY seq"), 0
        for row, line in zip(rows, lines, strict=False):
            if row_of(line, at) != row:
                return True
            at += len(line) + 1
        return at != covered.end


def _covered(database: sqlite3.Connection, reader: LedgerReader, end: int) -> Covered:
    found = database.execute(_ASK_COVERED).fetchone()
    if found is None:
        return _NOTHING
    entries, covered, leaf, start, size = found
    # Threat: the index of another ledger, or of this one before it was restored. The hash of one
    # line also covers all lines before it.
    if leaf_hash(_line(reader, start, size)) != leaf:
        raise StaleIndexError("its last line differs from the ledger's")
    if covered != start + size + 1 or covered > end:
        raise StaleIndexError("its end is not a line end of the ledger")
    return Covered(entries, covered)


def _is_ours(path: str) -> bool:
    """Threat: a link redirects writes to another file; another user's file holds forged rows."""
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1


def _build(reader: LedgerReader, seq: int, start: int, end: int) -> Iterator[Row]:
    end = min(end, reader.whole_bytes(start + limits.ledger_indexed_bytes_max))
    for at, lines in reader.lines(start, end):
        for line in lines:
            row = row_of(line, at)
            if row is None or row[0] != seq:
                return
            yield row
            seq, at = seq + 1, at + len(line) + 1


def row_of(line: bytes, start: int) -> Row | None:
    found = _LINE.fullmatch(line)
    if found is None or len(line) > limits.entry_bytes_max:
        return None
    stamp, *values, seq = found.groups()
    kind, decision, session, agent, call = map(crc32, values)
    client = None if b'"client_call":' not in line else _CLIENT_CALL.search(line)
    return (
        *(int(seq), start, len(line), _time(stamp)),
        *(kind, decision, session, agent, call),
        None if client is None else crc32(client[1]),
    )


def _time(stamp: bytes) -> int:
    digits = stamp.translate(None, b"-T:.Z")[:_TIME_DIGITS]
    return int(digits) if digits.isdigit() else 0


_CONVERTERS: Final = {"since": _time, "until": _time}


def _line(reader: LedgerReader, start: Any, size: Any) -> bytes:
    is_place = isinstance(start, int) and isinstance(size, int)
    if is_place and 0 <= start <= reader.size() and 0 < size <= limits.entry_bytes_max:
        line = reader.read(size + 1, start)
        if line.find(b"\n") == size:
            return line[:-1]
    raise StaleIndexError("a row does not point to a line")


def _find_where(database: sqlite3.Connection, given: Mapping[str, int]) -> str:
    rows: dict[str, int] = {}
    for kind in _INDEXED:
        if kind in given:
            probe = f"SELECT 1 FROM line WHERE {_WHERE[kind].format('')} LIMIT {_PROBED_ROWS}"  # noqa: S608 - no value in it
            (rows[kind],) = database.execute(f"SELECT count(*) FROM ({probe})", given).fetchone()  # noqa: S608 - as above
    best = min(rows, key=rows.__getitem__, default="")
    parts = [_WHERE[each].format("" if each == best else "+") for each in given]
    return " AND ".join(["seq < :before", *parts])


def _rows(
    database: sqlite3.Connection, where: str, given: Mapping[str, int], before: int
) -> Iterator[Row]:
    count = _ROWS_AT_FIRST
    is_last = False
    while not is_last:
        asked = f"SELECT * FROM line WHERE {where} ORDER BY seq DESC LIMIT {count}"  # noqa: S608 - no value in it
        rows = database.execute(asked, {**given, "before": before}).fetchall()
        is_last = len(rows) < count
        low = 0 if is_last else rows[-1][0]
        # Threat: a deleted row would hide its line.
        counting = "SELECT count(*) FROM line WHERE seq >= ? AND seq < ?"
        if database.execute(counting, (low, before)).fetchone() != (before - low,):
            raise StaleIndexError("rows are missing")
        yield from rows
        before, count = low, min(2 * count, _ROWS_AT_ONCE)
