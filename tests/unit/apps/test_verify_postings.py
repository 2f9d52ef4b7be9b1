"""`ledger verify --full` also looks whether questions are answered from what is so."""

import json
import os
from pathlib import Path

from paddock.ledger.format.posting_files import FOLDERS, Kind
from paddock.ledger.query import Filter, query
from paddock.values.entries import Entry
from tests.support.ledgers import open_ledger


def test_posting_files_that_were_edited_fail_a_full_verification_and_no_other(user):
    user.run("init")
    user.call("view", path="README.md")
    path = Path(json.loads(user.run("where", "--json").out)["ledgers"]["ho1m"])
    ledger = open_ledger(path, create=None)
    ledger.append([Entry("NOTE", metadata={"filling": "x" * 800}) for _ in range(500)])
    ledger.close()
    assert query(os.fspath(path), Filter("NEVER")).entries == ()
    assert user.run("ledger", "verify", "--full").status == 0
    [file] = (path.with_suffix(".d") / FOLDERS[Kind.TYPE]).glob("*-*")
    content = bytearray(file.read_bytes())
    content[-4] ^= 1
    file.write_bytes(content)

    quick, full = user.run("ledger", "verify"), user.run("ledger", "verify", "--full")

    assert (quick.status, full.status) == (0, 4)
    assert "posting files do not say what the lines say" in full.err
    assert file.name in full.err
