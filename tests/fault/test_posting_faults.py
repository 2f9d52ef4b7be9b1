"""Posting is killed at every system call, and fails at every one: no answer changes."""

import errno
import os
import shutil
import tempfile

import pytest

from paddock.ledger.postings import parse_run_name
from paddock.ledger.query import Filter, LedgerSearch, query
from paddock.testing.faulty_disk import Fault, FaultyDisk, How, SimulatedCrash
from paddock.values.entries import Entry
from tests.support.ledgers import note, open_ledger

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WANTED = Filter("NOTE")
RUN_KINDS = 7


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        yield made


def fill(path):
    """More than a search reads before it posts; the notes first."""
    ledger = open_ledger(path)
    ledger.write([note(str(number)) for number in range(5)])
    ledger.append([Entry("OTHER", metadata={"filling": "x" * 700}) for _ in range(500)])
    ledger.close()


def runs(folder):
    posted = os.path.join(folder, "x.d")
    return [
        (kind, name)
        for kind in os.listdir(posted)
        if os.path.isdir(os.path.join(posted, kind))
        for name in os.listdir(os.path.join(posted, kind))
        if parse_run_name(name)
    ]


@pytest.mark.parametrize("error", [None, errno.EIO, errno.ENOSPC], ids=["killed", "EIO", "ENOSPC"])
@pytest.mark.parametrize("how", list(How))
def test_posting_that_is_stopped_anywhere_changes_no_answer(folder, how, error):
    template, scene = os.path.join(folder, "template"), os.path.join(folder, "scene")
    os.mkdir(template)
    fill(os.path.join(template, "x.jsonl"))
    path = os.path.join(scene, "x.jsonl")
    for call in range(300):
        shutil.rmtree(scene, ignore_errors=True)
        shutil.copytree(template, scene)
        disk = FaultyDisk(Fault(call, how, error))
        search = LedgerSearch(path, disk=disk)
        try:
            assert [row.seq for row in search.query(WANTED).entries] == [1, 2, 3, 4, 5]
        except SimulatedCrash:
            assert error is None
        disk.bury()

        for _ in range(2):
            assert [row.seq for row in query(path, WANTED).entries] == [1, 2, 3, 4, 5]
        assert len(runs(scene)) == RUN_KINDS
        if disk.fault is not None:
            assert call > RUN_KINDS * 5
            return
    raise AssertionError("it never got through")
