"""A SQLite file beside a ledger that says which lines hold a value: `NAME.d/index.sqlite`.

A row for each entry, up to a place in the ledger; what comes after it is read from the lines,
and taken in by a question that has to read far. It can be removed at any time.

It is believed as little as anything beside the ledger. Its last line has to be the ledger's, and
wherever it answers its rows have to be whole in their numbers: an index that lacks a row
must not hide a denial. Each line that it names is read again and compared with its row.
One that is a link, of another user, of another form, or does not fit is not asked; one that
is locked, or cannot be written, is not waited for. Then the lines are read.

A value is kept as its CRC-32: what shares it is told apart in the line.
"""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from paddock import limits
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.read import LedgerReader
from paddock.ledger.segments import LedgerPaths
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
_TIME_DIGITS: Final = 18
"""Of a timestamp: as many as a number in SQLite holds. It is cut, so bounds are included."""
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
_KINDS: Final = {
    "call": "(call = :call OR client = :call)",
    "session": "session = :session",
    "type": "type = :type",
    "decision": "decision = :decision",
}
_CACHE_KIB: Final = 32_768
_PROBED_ROWS: Final = 2_000
_ROWS_AT_FIRST: Final = 32
_ROWS_AT_ONCE: Final = 1_024
"""Mostly the newest few are asked for. An open cursor would hold writers up."""

T = TypeVar("T")
Row = tuple[int, int, int, int, int, int, int, int, int, int | None]


class Covered(NamedTuple):
    """How many entries an index has, and where in the ledger the last of them ends."""

    entries: int
    end: int


_NOTHING: Final = Covered(0, 0)


class StaleIndexError(Exception):
    """The index does not say what the ledger says. Never leaves this folder."""


class Index:
    """The index of one ledger, for one thread. Opened when it is first asked."""

    def __init__(self, paths: LedgerPaths) -> None:
        self._path = paths.index
        self._opened: sqlite3.Connection | None = None

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None

    def covered(self, reader: LedgerReader, end: int) -> Covered:
        database = self._tried(lambda: self._open(create=False), None)
        if database is None:
            return _NOTHING
        return self._tried(lambda: _covered(database, reader, end), _NOTHING)

    def _tried(self, act: Callable[[], T], otherwise: T) -> T:
        try:
            return act()
        except (OSError, sqlite3.OperationalError):
            self.close()  # locked, or not to be read or written now
        except (sqlite3.DatabaseError, StaleIndexError):
            self.remove()
        return otherwise

    def lines(
        self,
        reader: LedgerReader,
        keys: Mapping[str, bytes],
        span: Mapping[str, bytes],
        covered: Covered,
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the places and lines that may be wanted, of those covered, the newest first.

        `keys` are values as they stand in a line, without quotes, by the name of their column.

        Raises:
            StaleIndexError: it does not fit the ledger; what was given by then is right.
            HostError: the ledger cannot be read.
        """
        numbers = {kind: crc32(value) for kind, value in keys.items()}
        times = {name: _time(text) for name, text in span.items()}
        try:
            database = self._open(create=False)
            if database is None:
                raise StaleIndexError("it is gone")
            kind = _fewest(database, numbers)
            # Another process may have extended it since.
            where = _where(kind, numbers, times)
            for rows, low, high in _pages(database, where, {**numbers, **times}, covered.entries):
                _verify_whole(database, low, high)
                for row in rows:
                    yield row[1], _verified(reader, row)
        except (OSError, sqlite3.Error) as fault:
            raise StaleIndexError(str(fault)) from fault

    def extend(self, reader: LedgerReader, end: int) -> bool:
        """Take in lines up to a place, where an LF was; whether there are more than before.

        No more than `limits.ledger_indexed_bytes_max`, and none from a line on that holds no
        entry. False where another process is at it, or nothing can be written.
        """
        return self._tried(lambda: self._extend(reader, end), False)

    def _extend(self, reader: LedgerReader, end: int) -> bool:
        database = self._open(create=True)
        if database is None:
            return False
        with database:
            database.execute("BEGIN IMMEDIATE")
            entries, start = _covered(database, reader, end)
            added = database.executemany(_INSERT, _build(reader, entries, start, end)).rowcount
            if added > 0:
                _store_covered(database, reader, entries + added)
        return added > 0

    def remove(self) -> None:
        """Do without an index that does not fit; whoever extends it next makes it anew."""
        self.close()
        try:
            if _is_ours(self._path):
                os.unlink(self._path)
        except OSError:
            return

    def is_wrong(self, reader: LedgerReader) -> bool:
        try:
            database = self._open(create=False)
            if database is None:
                return False
            covered = _covered(database, reader, reader.size())
        except (OSError, sqlite3.Error, StaleIndexError):
            return False
        # Threat: an index of SQLite's own that lacks what the table has.
        if database.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return True
        lines = chain.from_iterable(lines for _, lines in reader.lines(0, covered.end))
        rows, at = database.execute("SELECT * FROM line ORDER BY seq"), 0
        for row, line in zip(rows, lines, strict=False):
            if row_of(line, at) != row:
                return True
            at += len(line) + 1
        return at != covered.end

    def _open(self, *, create: bool) -> sqlite3.Connection | None:
        """The connection; None where there is no file of ours."""
        if self._opened is not None:
            return self._opened
        if not os.path.lexists(self._path):
            if not create:
                return None
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(self._path, flags, 0o600))
        if not _is_ours(self._path):
            return None
        database = sqlite3.connect(self._path, timeout=0, isolation_level=None)
        try:
            # Threat: a file of somebody else's making would run its own triggers and functions.
            database.execute("PRAGMA trusted_schema = OFF")
            database.execute("PRAGMA cell_size_check = ON")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            _settle_schema(database, create=create)
        except BaseException:
            database.close()
            raise
        self._opened = database
        return database


def _covered(database: sqlite3.Connection, reader: LedgerReader, end: int) -> Covered:
    found = database.execute(_ASK_COVERED).fetchone()
    if found is None:
        return _NOTHING
    entries, covered, leaf, start, size = found
    # Threat: the index of another ledger, or of this one before it was restored. The hash
    # of one line stands for all lines before it, too.
    if leaf_hash(_line(reader, start, size)) != leaf:
        raise StaleIndexError("its last line is another one")
    if covered != start + size + 1 or covered > end:
        raise StaleIndexError("it has another end than the ledger")
    return Covered(entries, covered)


def _is_ours(path: str) -> bool:
    """Threat: a link would have another file written, and another user's file answers for him."""
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1


def _settle_schema(database: sqlite3.Connection, *, create: bool) -> None:
    found = [sql for (sql,) in database.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
    if not found and create:
        with database:
            database.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
        return
    (application,) = database.execute("PRAGMA application_id").fetchone()
    if found != list(_SCHEMA) or application != _APPLICATION:
        raise StaleIndexError("it has another form")


def _store_covered(database: sqlite3.Connection, reader: LedgerReader, entries: int) -> None:
    asked = "SELECT start, size FROM line WHERE seq = ?"
    start, size = database.execute(asked, (entries - 1,)).fetchone()
    leaf = leaf_hash(_line(reader, start, size))
    database.execute("DELETE FROM covered")
    database.execute("INSERT INTO covered VALUES (?, ?, ?)", (entries, start + size + 1, leaf))


def _build(reader: LedgerReader, seq: int, start: int, end: int) -> Iterator[Row]:
    end = min(end, reader.whole_bytes(start + limits.ledger_indexed_bytes_max))
    for offset, lines in reader.lines(start, end):
        at = offset
        for line in lines:
            row = row_of(line, at)
            if row is None or row[0] != seq:
                return
            yield row
            seq, at = seq + 1, at + len(line) + 1


def row_of(line: bytes, start: int) -> Row | None:
    """Return the row of a line without its LF; None where it is no entry's."""
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


def _verified(reader: LedgerReader, row: Row) -> bytes:
    line = _line(reader, row[1], row[2])
    if row_of(line, row[1]) != row:
        raise StaleIndexError("a row names another line")
    return line


def _line(reader: LedgerReader, start: object, size: object) -> bytes:
    if not isinstance(start, int) or not isinstance(size, int):
        raise StaleIndexError("a row leads nowhere")
    if not 0 <= start <= reader.size() or not 0 < size <= limits.entry_bytes_max:
        raise StaleIndexError("a row leads nowhere")
    line = reader.read(size + 1, start)
    if line.find(b"\n") != size:
        raise StaleIndexError("a line is not where it should be")
    return line[:-1]


def _fewest(database: sqlite3.Connection, numbers: Mapping[str, int]) -> str:
    kinds = [each for each in _KINDS if each in numbers]
    if len(kinds) < 2:
        return kinds[0] if kinds else ""
    counted: dict[str, int] = {}
    for kind in kinds:
        probe = f"SELECT 1 FROM line WHERE {_KINDS[kind]} LIMIT {_PROBED_ROWS}"  # noqa: S608 - no value in it
        counting = f"SELECT count(*) FROM ({probe})"  # noqa: S608 - as above
        counted[kind] = database.execute(counting, dict(numbers)).fetchone()[0]
    return min(counted, key=counted.__getitem__)


def _where(kind: str, numbers: Mapping[str, int], times: Mapping[str, int]) -> str:
    parts = [_KINDS[kind]] if kind else []
    for other in (each for each in numbers if each != kind):
        if other == "call":
            parts.append("(+call = :call OR +client = :call)")
        else:
            parts.append(f"+{other} = :{other}")
    parts += [f"time {'>=' if name == 'since' else '<='} :{name}" for name in times]
    return " AND ".join(["seq < :before", *parts])


def _verify_whole(database: sqlite3.Connection, low: int, high: int) -> None:
    """Threat: a row that was taken out would hide its line."""
    counting = "SELECT count(*) FROM line WHERE seq >= ? AND seq < ?"
    if database.execute(counting, (low, high)).fetchone() != (high - low,):
        raise StaleIndexError("rows are missing")


def _pages(
    database: sqlite3.Connection, where: str, given: Mapping[str, int], before: int
) -> Iterator[tuple[list[Row], int, int]]:
    count = _ROWS_AT_FIRST
    while True:
        asked = f"SELECT * FROM line WHERE {where} ORDER BY seq DESC LIMIT {count}"  # noqa: S608 - no value in it
        rows = database.execute(asked, {**given, "before": before}).fetchall()
        is_last = len(rows) < count
        yield rows, 0 if is_last else rows[-1][0], before
        if is_last:
            return
        before, count = rows[-1][0], min(2 * count, _ROWS_AT_ONCE)


def is_wrong(path: str) -> bool:
    """Whether a question might believe this ledger's index, and it says what is not so.

    Reads every line that it covers. One that fits the ledger in no way answers nothing.
    """
    with LedgerReader(path) as reader, closing(Index(LedgerPaths(path))) as index:
        return index.is_wrong(reader)
