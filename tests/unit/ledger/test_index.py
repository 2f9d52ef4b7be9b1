"""The index makes a search short, and never its answer another one."""

import glob
import os
import random
import shutil
import sqlite3
import struct
import threading
from contextlib import closing, contextmanager
from zlib import crc32

import pytest

from paddock import limits
from paddock.ledger.index import Index, is_wrong
from paddock.ledger.query import Filter, LedgerSearch, query, query_lines
from paddock.ledger.read import LedgerReader
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import verify
from paddock.testing.faulty_disk import FaultyDisk
from paddock.values.entries import Entry
from tests.support.ledgers import counting_ids, note, open_ledger

SEGMENT = 700_000
TYPES = ["OFTEN"] * 50 + ["SOME"] * 5 + ["NOTE"]


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def entry(number, chance):
    metadata = {"filling": "y" * chance.choice((0, 50, 400)), "n": number}
    if number % 97 == 0:
        metadata["client_call"] = f"toolu-{number % 5}"
    return Entry(
        chance.choice(TYPES),
        decision=chance.choice(("allow", "deny", "")),
        reason=chance.choice(("", 'it says "no"', "ü")),
        session_id=f'SES "{number // 500}"',
        agent=chance.choice(("main", "wörker", "back\\slash")),
        call_id=f"call-{number // 2}",
        metadata=metadata,
    )


def fill(path, count, first=0, *, segment_bytes=SEGMENT):
    now = [float(first)]
    chance = random.Random(first)
    ledger = open_ledger(path, clock=lambda: now[0], segment_bytes=segment_bytes)
    for start in range(first, first + count, 50):
        now[0] = start + chance.choice((-30, 0, 0, 30))
        rows = range(start, min(start + 50, first + count))
        ledger.write([entry(number, chance) for number in rows])
    ledger.close()


FILTERS = [
    Filter("NOTE"),
    Filter("SOME"),
    Filter("OFTEN"),
    Filter("NEVER"),
    Filter(session_id='SES "1"'),
    Filter(session_id='SES "1"', decision="deny"),
    Filter(call_id="call-17"),
    Filter(call_id="toolu-3"),
    Filter("NOTE", agent="wörker", decision="allow"),
    Filter("OFTEN", session_id='SES "0"', agent="main", decision="deny"),
    Filter("SOME", call_id="call-17"),
    Filter(agent="back\\slash", decision=""),
    Filter(since=1000.0, until=1060.0),
    Filter("SOME", since=900.0, until=1500.0),
    Filter("SOME", until=-1.0),
    Filter(agent="\ud800"),
    Filter(),
]


def read_all(path):
    """The oracle: every line, looked at."""
    return query(path, Filter()).entries


FEW = [FILTERS[0], FILTERS[5], FILTERS[6], FILTERS[9], FILTERS[11], FILTERS[12]]


def assert_same(path, search=None, filters=FILTERS, lasts=(3, None)):
    everything = read_all(path)
    for wanted in filters:
        expected = [row.seq for row in everything if wanted.matches(row)]
        for last in lasts:
            asked = search.query(wanted, last=last) if search else query(path, wanted, last=last)
            assert asked.bad == ()
            kept = expected if last is None else expected[-last:]
            assert [row.seq for row in asked.entries] == kept, (wanted, last)


def index_of(path):
    return LedgerPaths(path).index


@contextmanager
def opened(path):
    with closing(sqlite3.connect(index_of(path))) as database, database:
        yield database


def covered(path):
    """How many entries the index has; None where there is none."""
    if not os.path.exists(index_of(path)):
        return None
    with opened(path) as database:
        (found,) = database.execute("SELECT count(*) FROM line").fetchone()
    return found


@pytest.mark.parametrize("segment_bytes", [SEGMENT, 1 << 28], ids=["many files", "one file"])
def test_what_is_indexed_answers_as_the_lines_do(path, segment_bytes):
    fill(path, 3000, segment_bytes=segment_bytes)

    assert_same(path)

    assert covered(path) == 3001
    assert_same(path)


def test_a_search_that_stays_open_answers_for_what_was_appended_and_sealed_since(path):
    fill(path, 1500)
    with closing(LedgerSearch(path)) as search:
        for first in range(1500, 4200, 900):
            assert_same(path, search)
            fill(path, 900, first)
        assert_same(path, search)


def test_a_small_ledger_is_read_and_nothing_is_written_beside_it(path):
    fill(path, 300)

    assert_same(path)

    assert covered(path) is None


def test_what_is_found_near_the_end_indexes_nothing(path):
    fill(path, 3000)

    assert len(query(path, Filter("OFTEN"), last=10).entries) == 10

    assert covered(path) is None


def test_what_was_appended_since_is_read_until_it_is_far(path):
    fill(path, 3000)
    query(path, Filter("NEVER"))

    fill(path, 100, 3000)
    query(path, Filter("NEVER"))
    assert covered(path) == 3001

    fill(path, 3000, 3100)
    query(path, Filter("NEVER"))
    assert covered(path) == 6101
    assert_same(path, filters=FEW)


def test_opening_to_append_asks_the_disk_the_same_whatever_the_ledger_holds(tmp_path):
    calls = []
    for count in (10, 4000):
        path = tmp_path / f"{count}.jsonl"
        fill(path, count, segment_bytes=1 << 28)
        disk = FaultyDisk()
        open_ledger(path, disk=disk).close()
        calls.append(disk.calls)

    assert calls[0] == calls[1]


def test_few_lines_are_read_to_find_the_newest_of_a_kind(path, monkeypatch):
    fill(path, 6000, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    read = []
    reading = LedgerReader.read

    def counted(reader, size_bytes, offset):
        read.append(size_bytes)
        return reading(reader, size_bytes, offset)

    monkeypatch.setattr(LedgerReader, "read", counted)

    assert len(query(path, Filter("NOTE"), last=10).entries) == 10
    assert len(read) < 30
    assert sum(read) < 40_000


# --- never trusted -------------------------------------------------------------------


def empty(file):
    os.truncate(file, 0)


def cut(file):
    os.truncate(file, os.path.getsize(file) // 2)


def zero(file):
    size = os.path.getsize(file)
    with open(file, "wb") as opened_file:
        opened_file.write(bytes(size))


def zero_body(file):
    with open(file, "r+b") as opened_file:
        opened_file.seek(4096)
        opened_file.write(bytes(os.path.getsize(file) - 4096))


def noise(file):
    chance = random.Random(7)
    with open(file, "r+b") as opened_file:
        for at in range(4096, os.path.getsize(file), 700):
            opened_file.seek(at)
            opened_file.write(chance.randbytes(3))


def remove(file):
    os.unlink(file)


def link_away(file):
    os.rename(file, file + ".aside")
    os.symlink(file + ".aside", file)


def second_name(file):
    os.link(file, file + ".aside")


def dangling(file):
    os.unlink(file)
    os.symlink(file + ".elsewhere", file)


def a_pipe(file):
    os.unlink(file)
    os.mkfifo(file)


def a_directory(file):
    os.unlink(file)
    os.mkdir(file)


HARMS = [empty, cut, zero, zero_body, noise, remove, link_away, second_name, dangling, a_pipe]


@pytest.mark.parametrize("harm", [*HARMS, a_directory])
def test_an_index_that_is_not_whole_changes_no_answer(path, harm):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    harm(index_of(path))

    assert_same(path, filters=FEW, lasts=(None,))
    assert not os.path.lexists(index_of(path) + ".elsewhere")


def test_what_a_link_leads_to_is_not_written(path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    link_away(index_of(path))
    with open(index_of(path), "rb") as file:
        before = file.read()
    fill(path, 1500, 1500)

    assert_same(path, filters=FEW)
    with open(index_of(path), "rb") as file:
        assert file.read() == before


EDITS = {
    "a row was taken out": f"DELETE FROM line WHERE seq ="
    f" (SELECT min(seq) FROM line WHERE type = {crc32(b'NOTE')})",
    "the last row was taken out": "DELETE FROM line WHERE seq = 1500",
    "the first row was taken out": "DELETE FROM line WHERE seq = 0",
    "a row was moved": "UPDATE line SET seq = 9000 WHERE seq = 700",
    "rows lead elsewhere": "UPDATE line SET start = start + 1",
    "rows lead nowhere": "UPDATE line SET start = -start",
    "rows are long": "UPDATE line SET size = 1 << 40",
    "rows are text": "UPDATE line SET size = 'x'",
    "rows name the next line": "UPDATE line SET type = (SELECT type FROM line AS l"
    " WHERE l.seq = line.seq + 1)",
    "it has less": "UPDATE covered SET entries = entries - 1",
    "it has nothing": "DELETE FROM covered",
    "it says nothing": "UPDATE covered SET leaf = NULL",
    "its end is not a line end": "UPDATE covered SET end = end - 10",
    "it has a trigger": "CREATE TRIGGER t AFTER INSERT ON line BEGIN DELETE FROM line; END",
    "it has another table": "CREATE TABLE other (x)",
    "it lacks an index": "DROP INDEX by_type",
    "it is of another program": "PRAGMA application_id = 1",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_index_that_does_not_fit_the_ledger_changes_no_answer(path, edit):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    expected = [row.seq for row in query_lines(path, Filter("NOTE")).entries]
    with opened(path) as database:
        database.execute(EDITS[edit])

    if edit != "rows name the next line":
        assert_same(path, filters=FEW)
    found = [row.seq for row in query(path, Filter("NOTE")).entries]
    assert set(found) <= set(expected)


def test_the_row_of_a_denial_that_was_taken_out_hides_no_denial_in_an_open_search(path):
    fill(path, 1500)
    wanted = Filter("NOTE", decision="deny")
    with closing(LedgerSearch(path)) as search:
        search.query(Filter("NEVER"))
        expected = search.query(wanted).entries
        with opened(path) as database:
            database.execute("DELETE FROM line WHERE seq = ?", (expected[0].seq,))

        assert search.query(wanted).entries == expected


def test_an_index_that_others_hold_locked_is_not_waited_for(path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    with opened(path) as database:
        database.execute("BEGIN EXCLUSIVE")

        assert_same(path, filters=FEW)
    assert covered(path) == 1501


def test_on_a_full_disk_the_lines_are_read_and_the_index_stays_as_it_was(path, monkeypatch):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    fill(path, 3000, 1500)
    opening = Index.open

    def small(index, *, create):
        found = opening(index, create=create)
        found.execute("PRAGMA max_page_count = 1")
        return found

    monkeypatch.setattr(Index, "open", small)

    assert_same(path, filters=FEW)
    assert covered(path) == 1501


@pytest.mark.needs("plain_user")
@pytest.mark.parametrize("mode", [0o400, 0o000])
def test_an_index_that_cannot_be_written_or_read_changes_no_answer(path, mode):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    fill(path, 3000, 1500)
    os.chmod(index_of(path), mode)

    assert_same(path, filters=FEW)


@pytest.mark.needs("root")
def test_an_index_of_another_user_is_not_asked(path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    with opened(path) as database:
        database.execute("UPDATE line SET type = 0")
    os.chown(index_of(path), 12345, -1)

    assert_same(path)


def test_the_index_of_another_ledger_changes_no_answer(path, tmp_path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    other = tmp_path / "other"
    other.mkdir()
    foreign = os.path.join(other, "x.jsonl")
    fill(foreign, 1500)
    shutil.copy(index_of(path), index_of(foreign))

    assert_same(foreign)


def test_an_index_that_fits_in_all_but_the_chain_is_not_believed(tmp_path):
    for name, kind in (("one", "AAAA"), ("two", "BBBB")):
        (tmp_path / name).mkdir()
        ledger = open_ledger(tmp_path / name / "x.jsonl", randomness=counting_ids())
        ledger.append([Entry(kind, metadata={"filling": "x" * 500}) for _ in range(900)])
        ledger.append([note("the same")])
        ledger.close()
    one, two = (os.fspath(tmp_path / name / "x.jsonl") for name in ("one", "two"))
    assert len(query(one, Filter("BBBB")).entries) == 0
    shutil.copy(index_of(one), index_of(two))

    assert len(query(two, Filter("BBBB")).entries) == 900
    assert len(query(two, Filter("AAAA")).entries) == 0


def hide_the_notes(path):
    """Have every NOTE be something else in the index, in a way that a question believes."""
    with opened(path) as database:
        database.execute("UPDATE line SET type = 0 WHERE type = ?", (crc32(b"NOTE"),))


def test_what_must_not_depend_on_an_index_reads_the_lines(path):
    """Whoever writes beside a ledger can change rows: that is why there is another way."""
    fill(path, 1500, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    expected = [row.seq for row in read_all(path) if row.entry.event_type == "NOTE"]
    assert not is_wrong(path)
    hide_the_notes(path)

    assert len(query(path, Filter("NOTE")).entries) < len(expected)
    assert [row.seq for row in query_lines(path, Filter("NOTE")).entries] == expected
    assert is_wrong(path)
    os.unlink(index_of(path))
    assert not is_wrong(path)
    assert [row.seq for row in query(path, Filter("NOTE")).entries] == expected
    assert not is_wrong(path)


def test_an_index_of_sqlites_own_that_lacks_a_row_is_found_by_reading_everything(path):
    fill(path, 1500, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    with opened(path) as database:
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'by_type'"
        ).fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
    with open(index_of(path), "r+b") as file:
        file.seek((root - 1) * size + 3)
        (cells,) = struct.unpack(">H", file.read(2))
        file.seek((root - 1) * size + 3)
        file.write(struct.pack(">H", cells - 1))

    assert is_wrong(path)
    assert verify(path).problems == ()


def test_files_that_answered_questions_before_mean_nothing(path):
    for folder in ("offsets", "by-type"):
        os.makedirs(os.path.join(os.path.dirname(path), "x.d", folder))
        with open(os.path.join(os.path.dirname(path), "x.d", folder, "0" * 16), "wb") as file:
            file.write(b"pdkpost1")
    fill(path, 1500)

    assert_same(path, filters=FEW)


def test_a_ledger_that_was_restored_is_not_answered_for_by_what_it_held(path, tmp_path):
    fill(path, 200)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy)
    fill(path, 3000, 200)
    query(path, Filter("NEVER"))
    assert covered(path)
    for name in glob.glob(str(tmp_path / "x*.jsonl")):
        os.unlink(name)
    shutil.copy(copy / "x.jsonl", path)
    shutil.copy(copy / "x.d" / "head", tmp_path / "x.d" / "head")

    assert_same(path)
    fill(path, 2000, 500)
    assert_same(path)


def test_a_row_that_was_edited_since_is_not_given_for_what_it_was(path):
    fill(path, 1500)
    assert_same(path)
    [*_, newest] = query(path, Filter("SOME")).entries
    for name in glob.glob(path.replace(".jsonl", ".*jsonl")):
        with open(name, "rb") as file:
            content = file.read()
        edited = newest.line.replace(b'"SOME"', b'"EVIL"')
        with open(name, "wb") as file:
            file.write(content.replace(newest.line, edited))

    found = query(path, Filter("SOME")).entries

    assert newest.seq not in {row.seq for row in found}
    assert [row.seq for row in query(path, Filter("EVIL")).entries] == [newest.seq]
    assert not verify(path).is_whole


def test_lines_that_are_none_are_told_and_not_posted(path):
    fill(path, 1500, segment_bytes=1 << 28)
    with open(path, "ab") as file:
        file.write(b"garbage\n")
    os.unlink(os.path.join(os.path.dirname(path), "x.d", "head"))

    found = query(path, Filter("NEVER"))

    assert [bad.detail for bad in found.bad] != []
    assert [bad.detail for bad in query(path, Filter("NEVER")).bad] != []


# --- many at once ---------------------------------------------------------


def test_where_nothing_can_be_written_the_lines_are_read(path):
    fill(path, 1500)
    shutil.rmtree(os.path.join(os.path.dirname(path), "x.d"))

    assert_same(path)

    assert not os.path.exists(os.path.join(os.path.dirname(path), "x.d"))


def test_many_may_search_and_index_while_others_append(path):
    fill(path, 1000)
    wrong = []
    done = threading.Event()

    def search():
        while not done.is_set():
            found = query(path, Filter("NOTE")).entries
            seqs = [row.seq for row in found]
            if seqs != sorted(set(seqs)) or any(row.entry.event_type != "NOTE" for row in found):
                wrong.append(seqs)

    def count():
        before = 0
        while not done.is_set():
            found = len(query(path, Filter("OFTEN")).entries)
            if found < before:
                wrong.append((before, found))
            before = found

    threads = [threading.Thread(target=each) for each in (search, search, count)]
    for thread in threads:
        thread.start()
    for first in range(1000, 5000, 500):
        fill(path, 500, first)
    done.set()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert_same(path)


def test_a_line_as_long_as_any_is_indexed(path):
    ledger = open_ledger(path)
    ledger.append([note("long", 1_040_000), note("after")])
    ledger.append(
        [Entry("RARE", reason="far", metadata={"f": "z" * 1_000_000}), note("end", 400_000)]
    )
    ledger.append([note(str(number), 900_000) for number in range(3)])
    ledger.close()

    assert [row.entry.reason for row in query(path, Filter("RARE"), last=1).entries] == ["far"]
    assert covered(path) == 8
    assert [row.entry.reason for row in query(path, Filter("RARE"), last=1).entries] == ["far"]
    assert limits.ledger_unindexed_bytes_max < os.path.getsize(path)
