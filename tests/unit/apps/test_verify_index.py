"""`ledger verify --full` also looks whether questions are answered from what is so."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from paddock.ledger.query import Filter, query
from paddock.values.entries import Entry
from tests.support.ledgers import open_ledger


def test_an_index_that_was_edited_fails_a_full_verification_and_no_other(user):
    user.run("init")
    user.call("view", path="README.md")
    path = Path(json.loads(user.run("where", "--json").out)["ledgers"]["ho1m"])
    ledger = open_ledger(path, create=None)
    ledger.append([Entry("NOTE", metadata={"filling": "x" * 800}) for _ in range(500)])
    ledger.close()
    assert query(os.fspath(path), Filter("NEVER")).entries == ()
    assert user.run("ledger", "verify", "--full").status == 0
    file = path.with_suffix(".d") / "index.sqlite"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE line SET type = 0 WHERE seq = 7")

    quick, full = user.run("ledger", "verify"), user.run("ledger", "verify", "--full")

    assert (quick.status, full.status) == (0, 4)
    assert "the index does not match the ledger" in full.err
    assert file.name in full.err
