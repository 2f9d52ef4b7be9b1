"""Indexing is killed at any moment: no answer changes, and whoever asks next goes on."""

import os
import random
import signal
import time

import pytest

from paddock.ledger.index import is_wrong
from paddock.ledger.query import Filter, query
from paddock.ledger.tail import LedgerPaths
from paddock.values.entries import Entry
from tests.support.children import start
from tests.support.ledgers import note, open_ledger

ROUNDS = 12


@pytest.fixture
def path(tmp_path):
    """More than a search reads before it indexes; the notes first."""
    made = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(made)
    ledger.write([note(str(number)) for number in range(5)])
    for _ in range(5):
        ledger.append([Entry("OTHER", metadata={"filling": "x" * 300}) for _ in range(1000)])
    ledger.close()
    return made


def test_indexing_that_is_killed_changes_no_answer(path):
    chance = random.Random(5)
    index = LedgerPaths(path).index

    def ask_for_ever():
        while True:
            query(path, Filter("NEVER"))
            os.unlink(index)

    for _ in range(ROUNDS):
        child = start(lambda _: ask_for_ever())
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(child.pid, signal.SIGKILL)
        child.end_killed()

        assert [row.seq for row in query(path, Filter("NOTE")).entries] == [1, 2, 3, 4, 5]
        assert not is_wrong(path)
