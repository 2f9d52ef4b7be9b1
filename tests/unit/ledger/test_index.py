"""Posting files make a search short, and never its answer another one."""

import glob
import itertools
import os
import random
import shutil
import threading
from dataclasses import replace

import pytest

from paddock import limits
from paddock.ledger.format.posting_files import (
    FOLDERS,
    HEADER_BYTES,
    Kind,
    encode_header,
    parse_header,
)
from paddock.ledger.index import find_wrong_runs
from paddock.ledger.postings import parse_run_name, run_name
from paddock.ledger.query import Filter, LedgerSearch, query, query_lines
from paddock.ledger.verify.verifying import verify
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from paddock.values.entries import Entry
from tests.support.ledgers import note, open_ledger

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


def runs(path, kind=Kind.OFFSETS):
    folder = os.path.join(os.path.dirname(path), "x.d", FOLDERS[kind])
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(found for name in names if (found := parse_run_name(name)))


@pytest.mark.parametrize("segment_bytes", [SEGMENT, 1 << 28], ids=["many files", "one file"])
def test_what_is_posted_answers_as_the_lines_do(path, segment_bytes):
    fill(path, 3000, segment_bytes=segment_bytes)

    assert_same(path)

    assert runs(path)
    assert_same(path)


def test_a_search_that_stays_open_answers_for_what_was_appended_and_sealed_since(path):
    fill(path, 1500)
    with LedgerSearch(path) as search:
        for first in range(1500, 6000, 900):
            assert_same(path, search)
            fill(path, 900, first)
        assert_same(path, search)


def test_a_small_ledger_is_read_and_nothing_is_written_beside_it(path):
    fill(path, 300)

    assert_same(path)

    assert not os.path.exists(os.path.join(os.path.dirname(path), "x.d", "offsets"))


def test_what_is_found_near_the_end_posts_nothing(path):
    fill(path, 3000)

    assert len(query(path, Filter("OFTEN"), last=10).entries) == 10

    assert runs(path) == []


def test_a_sealed_file_has_one_run_and_all_kinds_have_the_same(path):
    fill(path, 5000)
    query(path, Filter("NEVER"))

    starts = [0]
    for name in sorted(glob.glob(path.replace(".jsonl", ".*.jsonl"))):
        starts.append(starts[-1] + os.path.getsize(name))
    sealed = list(itertools.pairwise(starts))
    assert runs(path)[: len(sealed)] == sealed
    assert all(runs(path, kind) == runs(path) for kind in Kind)


def test_runs_become_longer_and_not_many(path):
    for first in range(0, 14_000, 700):
        fill(path, 700, first, segment_bytes=1 << 28)
        query(path, Filter("NEVER"))

    found = runs(path)
    sizes = [end - start for start, end in found]
    assert len(found) <= 6
    assert sizes == sorted(sizes, reverse=True)
    assert found[0][0] == 0
    assert all(left[1] == right[0] for left, right in itertools.pairwise(found))
    assert_same(path)


def test_opening_to_append_asks_the_disk_the_same_whatever_the_ledger_holds(tmp_path):
    calls = []
    for count in (10, 4000):
        path = tmp_path / f"{count}.jsonl"
        fill(path, count, segment_bytes=1 << 28)
        disk = FaultyDisk()
        open_ledger(path, disk=disk).close()
        calls.append(disk.calls)

    assert calls[0] == calls[1]


def test_opening_to_ask_reads_nothing_of_what_is_posted(path):
    fill(path, 3000)
    query(path, Filter("NEVER"))
    disk = FaultyDisk()

    with LedgerSearch(path, disk=disk):
        assert disk.calls == []


def test_few_numbers_are_read_to_find_the_newest_of_a_kind(path):
    fill(path, 6000, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    disk = FaultyDisk()
    with LedgerSearch(path, disk=disk) as search:
        search.query(Filter("NOTE"), last=10)
        disk.calls.clear()

        assert len(search.query(Filter("NOTE"), last=10).entries) == 10

    assert disk.calls.count("read") < 30
    assert "open" not in disk.calls


# --- never trusted -------------------------------------------------------------------


def files_of_run(path):
    folder = os.path.join(os.path.dirname(path), "x.d")
    name = run_name(*runs(path)[0])
    return {kind: os.path.join(folder, FOLDERS[kind], name) for kind in Kind}


def empty(file):
    os.truncate(file, 0)


def cut(file):
    os.truncate(file, os.path.getsize(file) - 4)


def lengthen(file):
    with open(file, "ab") as opened:
        opened.write(bytes(4))


def zero(file):
    size = os.path.getsize(file)
    with open(file, "wb") as opened:
        opened.write(bytes(size))


def zero_body(file):
    size = os.path.getsize(file)
    with open(file, "r+b") as opened:
        opened.seek(HEADER_BYTES)
        opened.write(bytes(size - HEADER_BYTES))


def high_body(file):
    size = os.path.getsize(file)
    with open(file, "r+b") as opened:
        opened.seek(HEADER_BYTES)
        opened.write(b"\xff" * (size - HEADER_BYTES))


def flip_header(file):
    with open(file, "r+b") as opened:
        opened.seek(16)
        byte = opened.read(1)
        opened.seek(16)
        opened.write(bytes([byte[0] ^ 1]))


def remove(file):
    os.unlink(file)


def link_away(file):
    os.rename(file, file + ".aside")
    os.symlink(file + ".aside", file)


HARMS = [empty, cut, lengthen, zero, flip_header, remove, link_away]


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("kind", Kind)
def test_a_posting_file_that_is_not_whole_changes_no_answer(path, kind, harm):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    harm(files_of_run(path)[kind])

    assert_same(path, filters=FEW, lasts=(None,))


@pytest.mark.parametrize("harm", [high_body, zero_body])
@pytest.mark.parametrize("kind", [Kind.OFFSETS])
def test_offsets_that_lead_elsewhere_change_no_answer(path, kind, harm):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    harm(files_of_run(path)[kind])

    assert_same(path)


def test_rows_that_name_other_lines_change_no_answer(path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    file = files_of_run(path)[Kind.TYPE]
    with open(file, "r+b") as opened:
        content = bytearray(opened.read())
        body = content[-4 * 1000 :]
        opened.seek(len(content) - len(body))
        opened.write(body[4:] + body[:4])

    assert_same(path)


@pytest.mark.parametrize(
    "name",
    ["²-1", "٣-9", "1-2", f"{9:016}-{3:016}", f"{'9' * 99}-{'9' * 99}", "draft", "-", "\udcff"],
)
def test_other_files_among_posting_files_change_no_answer(path, name):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    offsets = os.path.join(os.path.dirname(path), "x.d", FOLDERS[Kind.OFFSETS])
    with open(os.path.join(offsets, name), "wb") as file:
        file.write(b"x")

    assert parse_run_name(name) is None
    assert_same(path, filters=FEW)


def test_the_posting_files_of_another_ledger_change_no_answer(path, tmp_path):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    other = tmp_path / "other"
    other.mkdir()
    foreign = os.path.join(other, "x.jsonl")
    fill(foreign, 1500)
    for kind in Kind:
        shutil.copytree(tmp_path / "x.d" / FOLDERS[kind], other / "x.d" / FOLDERS[kind])

    assert_same(foreign)


def test_a_run_that_fits_in_all_but_the_chain_is_not_believed(tmp_path):
    for name, kind in (("one", "AAAA"), ("two", "BBBB")):
        (tmp_path / name).mkdir()
        ledger = open_ledger(tmp_path / name / "x.jsonl")
        ledger.append([Entry(kind, metadata={"filling": "x" * 500}) for _ in range(900)])
        ledger.close()
    one, two = (os.fspath(tmp_path / name / "x.jsonl") for name in ("one", "two"))
    assert len(query(one, Filter("BBBB")).entries) == 0
    for kind in Kind:
        shutil.copytree(tmp_path / "one/x.d" / FOLDERS[kind], tmp_path / "two/x.d" / FOLDERS[kind])
    assert runs(two) == runs(one)

    assert len(query(two, Filter("BBBB")).entries) == 900
    assert len(query(two, Filter("AAAA")).entries) == 0


def hide_the_notes(path):
    """Take every NOTE out of the one run's list of types."""
    file = files_of_run(path)[Kind.TYPE]
    with open(file, "rb") as opened:
        header = parse_header(opened.read(HEADER_BYTES))
    with open(file, "wb") as opened:
        opened.write(encode_header(replace(header, keys=0, rows=0)) + bytes(4))
    return os.path.basename(file)


def test_what_must_not_depend_on_posting_files_reads_the_lines(path):
    """Whoever writes beside a ledger can take rows out: that is why there is another way."""
    fill(path, 1500, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    expected = [row.seq for row in read_all(path) if row.entry.event_type == "NOTE"]
    run = hide_the_notes(path)

    assert len(query(path, Filter("NOTE")).entries) < len(expected)
    assert [row.seq for row in query_lines(path, Filter("NOTE")).entries] == expected
    assert find_wrong_runs(path) == [run]
    shutil.rmtree(os.path.join(os.path.dirname(path), "x.d", "offsets"))
    assert [row.seq for row in query(path, Filter("NOTE")).entries] == expected
    assert find_wrong_runs(path) == []


def moved_away(path):
    os.rename(files_of_run(path)[Kind.DECISION], f"{path}.away")


def in_place_of_a_pipe(path):
    moved_away(path)
    os.mkfifo(files_of_run(path)[Kind.DECISION])


def hidden_by_an_empty_longer_run(path):
    start, _ = parse_run_name(os.path.basename(files_of_run(path)[Kind.OFFSETS]))
    folder = os.path.dirname(files_of_run(path)[Kind.OFFSETS])
    with open(os.path.join(folder, run_name(start, os.path.getsize(path))), "xb"):
        pass


@pytest.mark.parametrize(
    "hide",
    [moved_away, in_place_of_a_pipe, hidden_by_an_empty_longer_run],
    ids=lambda f: f.__name__,
)
def test_what_a_search_believes_is_found_whatever_stands_beside_it(path, hide):
    """Attacks: a run that lacks rows is made to look like none, and answers nevertheless."""
    fill(path, 1500, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    run = hide_the_notes(path)
    if hide is hidden_by_an_empty_longer_run:
        fill(path, 5, 1500, segment_bytes=1 << 28)
    hide(path)

    assert len(query(path, Filter("NOTE")).entries) < len(query_lines(path, Filter("NOTE")).entries)
    assert find_wrong_runs(path) == [run]


def test_a_pipe_where_a_posting_file_is_drafted_holds_nobody_up(path):
    fill(path, 1500, segment_bytes=1 << 28)
    folder = os.path.join(os.path.dirname(path), "x.d", FOLDERS[Kind.TYPE])
    os.mkdir(folder)
    os.mkfifo(os.path.join(folder, "draft"))

    query(path, Filter("NEVER"))

    assert (len(runs(path)), find_wrong_runs(path)) == (1, [])


def test_a_run_that_lacks_a_file_and_says_nothing_else_is_no_fault(path):
    fill(path, 1500, segment_bytes=1 << 28)
    query(path, Filter("NEVER"))
    moved_away(path)

    assert find_wrong_runs(path) == []


@pytest.mark.parametrize("kind", Kind)
def test_a_run_that_says_what_is_not_so_is_found_by_reading_everything(path, kind):
    fill(path, 1500)
    query(path, Filter("NEVER"))
    assert find_wrong_runs(path) == []
    file = files_of_run(path)[kind]
    with open(file, "r+b") as opened:
        opened.seek(-3, os.SEEK_END)
        byte = opened.read(1)
        opened.seek(-3, os.SEEK_END)
        opened.write(bytes([byte[0] ^ 1]))

    # Offsets whose last line is elsewhere are no run at all.
    assert find_wrong_runs(path) == ([] if kind is Kind.OFFSETS else [os.path.basename(file)])
    assert verify(path).problems == ()


def test_a_ledger_that_was_restored_is_not_answered_for_by_what_it_held(path, tmp_path):
    fill(path, 200)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path, copy)
    fill(path, 3000, 200)
    query(path, Filter("NEVER"))
    assert runs(path)
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
    assert runs(path) == []


# --- many at once ---------------------------------------------------------


@pytest.mark.parametrize("error", [5, 28])
def test_a_disk_that_refuses_posting_files_changes_no_answer(path, error):
    fill(path, 1100)
    for call in ("make_directory", "open", "lock", "write", "sync", "rename", "list"):
        disk = FaultyDisk(Fault(call, How.BEFORE, error))
        with LedgerSearch(path, disk=disk) as search:
            assert_same(path, search, filters=FEW[:2])


def test_where_nothing_can_be_written_the_lines_are_read(path):
    fill(path, 1500)
    shutil.rmtree(os.path.join(os.path.dirname(path), "x.d"))

    assert_same(path)

    assert not os.path.exists(os.path.join(os.path.dirname(path), "x.d"))


def test_many_may_search_and_post_while_others_append(path):
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


def test_a_line_as_long_as_any_is_posted(path):
    ledger = open_ledger(path)
    ledger.append([note("long", 1_040_000), note("after")])
    ledger.append(
        [Entry("RARE", reason="far", metadata={"f": "z" * 1_000_000}), note("end", 400_000)]
    )
    ledger.append([note(str(number), 900_000) for number in range(3)])
    ledger.close()

    assert [row.entry.reason for row in query(path, Filter("RARE"), last=1).entries] == ["far"]
    assert runs(path)
    assert [row.entry.reason for row in query(path, Filter("RARE"), last=1).entries] == ["far"]
    assert limits.ledger_unposted_bytes_max < os.path.getsize(path)
