"""The index of a ledger, made however small that is, and spoiled by whoever can write there."""

import sqlite3
from contextlib import closing
from pathlib import Path

from paddock.ledger.index import Index
from paddock.ledger.read import LedgerReader
from paddock.ledger.tail import LedgerPaths


def index_all(ledger: Path, end: int | None = None) -> Path:
    """Index all lines of a ledger, or those up to a place; where that stands."""
    paths = LedgerPaths(str(ledger))
    with LedgerReader(str(ledger)) as reader, closing(Index(paths)) as index:
        assert index.extend(reader, end or reader.size())
    return Path(paths.index)


def hide_all(ledger: Path, start: int = 0, end: int | None = None) -> None:
    """Have the index name no line from one place to another, in a way that a question believes."""
    file = index_all(ledger, end)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "UPDATE line SET type = 0, decision = 0, session = 0, agent = 0, call = 0, client = NULL"
            " WHERE start >= ?",
            (start,),
        )
