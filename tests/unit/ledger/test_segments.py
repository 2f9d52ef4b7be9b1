"""A ledger goes on in a new file, at any instant of which it may be killed, and is one text."""

import errno
import glob
import os
import re
import shutil

import pytest

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.query import Filter, query
from paddock.ledger.read import LedgerReader, follow, read_head
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import ChainFault, verify
from paddock.testing.faulty_disk import Fault, FaultyDisk, How, SimulatedCrash
from tests.support.ledgers import QUICK, Pending, Poll, assert_holds, is_poisoned, note, open_ledger

SMALL = 2_000


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def fill(path, count=20, size=300, first=0):
    ledger = open_ledger(path, segment_bytes=SMALL)
    for number in range(first, first + count):
        ledger.append([note(str(number), size)])
    ledger.close()
    return [str(number) for number in range(first, first + count)]


def segments(path):
    return sorted(glob.glob(path.replace(".jsonl", ".*jsonl")))


def whole(path):
    text = b""
    for name in segments(path):
        with open(name, "rb") as file:
            text += file.read()
    return text


def base(path):
    return read_head(LedgerPaths(path).head).base


def test_a_full_file_gets_the_name_of_its_first_byte_and_a_new_one_goes_on(path):
    wanted = fill(path)

    names = segments(path)
    start = 0
    for name in names:
        if name != path:
            assert os.path.basename(name) == f"x.{start:016}.jsonl"
            start += os.path.getsize(name)
    assert names[-1] == path
    assert len(names) > 3
    assert base(path) == start
    assert all(os.path.getsize(name) <= SMALL for name in names)
    assert_holds(path, wanted)


def test_the_chain_continues_over_the_seam(path, tmp_path):
    fill(path)
    one = tmp_path / "one.jsonl"
    one.write_bytes(whole(path))

    apart, together = verify(path), verify(os.fspath(one))

    assert (apart.problems, together.problems) == ((), ())
    assert (apart.entries, apart.head) == (together.entries, together.head)


def test_a_ledger_in_many_files_answers_as_one_in_one_file(path, tmp_path):
    fill(path, 40)
    one = tmp_path / "one.jsonl"
    one.write_bytes(whole(path))

    for wanted, last in [(Filter(), None), (Filter(event_type="NOTE"), 7), (Filter(), 13)]:
        assert query(path, wanted, last=last) == query(os.fspath(one), wanted, last=last)


def test_what_is_appended_at_once_stays_in_one_file(path):
    ledger = open_ledger(path, segment_bytes=SMALL)
    receipt = ledger.append([note(str(number), 1000) for number in range(10)])
    ledger.append([note("after")])
    ledger.close()

    assert receipt.first_seq == 1
    with open(segments(path)[1], "rb") as file:
        assert len(file.readlines()) == 10
    assert_holds(path, [*map(str, range(10)), "after"])


def test_writers_follow_each_other_into_new_files(path):
    writers = [open_ledger(path, segment_bytes=SMALL) for _ in range(3)]

    for number in range(60):
        writers[number % 3].append([note(str(number), 200)])

    assert len({writer._files.active.identity for writer in writers}) <= 2
    for writer in writers:
        writer.close()
    assert len(segments(path)) > 5
    assert_holds(path, list(map(str, range(60))))


def test_entries_that_wait_while_others_rotate_are_acknowledged(path):
    first, second = (open_ledger(path, segment_bytes=SMALL) for _ in range(2))
    pending = Pending(first, [note("waits")])
    for number in range(20):
        second.append([note(str(number), 500)])

    assert pending.wait().first_seq == 1
    first.append([note("later")])
    assert_holds(path, ["waits", *map(str, range(20)), "later"])


def test_a_ledger_that_was_replaced_while_others_rotate_is_not_acknowledged(path):
    ledger = open_ledger(path, segment_bytes=SMALL)
    pending = Pending(ledger, [note("one")])
    shutil.copy(path, path + ".copy")
    os.rename(path + ".copy", path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        pending.wait()


def test_a_full_disk_makes_the_file_longer_and_not_the_ledger_shorter(path):
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk, segment_bytes=SMALL)
    for call in ("sync", "link", "replace"):
        ledger.append([note("fill", 1500)])
        before = len(segments(path))
        disk.fault = Fault(call, How.BEFORE, errno.ENOSPC)

        ledger.append([note(call, 1500)])

        assert disk.fault is None
        assert len(segments(path)) == before
        ledger.append([note("next", 1500)])
        assert len(segments(path)) == before + 1
    ledger.close()
    assert_holds(path, ["sync", "link", "replace"])


def test_a_disk_that_cannot_sync_stops_the_rotation_and_poisons(path):
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk, segment_bytes=SMALL)
    ledger.append([note("one", 1000)])
    disk.fault = Fault("fdatasync", How.BEFORE, errno.EIO)

    with pytest.raises(HostError, match="the disk failed"):
        ledger.append([note("two", 1500)])

    assert is_poisoned(path)
    assert segments(path) == [path]
    assert_holds(path, ["one"])


def test_a_name_that_is_taken_is_not_replaced(path):
    ledger = open_ledger(path, segment_bytes=SMALL)
    ledger.append([note("one", 1000)])
    taken = LedgerPaths(path).sealed(0)
    ledger.close()
    with open(taken, "wb") as file:
        file.write(b"mine")

    with pytest.raises((LedgerDamagedError, HostError)):
        open_ledger(path, segment_bytes=SMALL).append([note("two", 1500)])

    with open(taken, "rb") as file:
        assert file.read() == b"mine"


# --- killed at any instant ----------------------------------------------------------


@pytest.mark.parametrize("how", list(How))
@pytest.mark.parametrize("is_same_process", [True, False], ids=["open", "opened"])
def test_a_rotation_that_is_killed_anywhere_is_finished_or_taken_back(
    tmp_path, how, is_same_process
):
    template, scene = tmp_path / "template", tmp_path / "scene"
    template.mkdir()
    ledger = open_ledger(template / "x.jsonl", segment_bytes=SMALL)
    ledger.append([note("one", 1000)])
    ledger.close()
    seen = set()
    for call in range(200):
        shutil.rmtree(scene, ignore_errors=True)
        shutil.copytree(template, scene)
        path = os.fspath(scene / "x.jsonl")
        other = (
            open_ledger(path, segment_bytes=SMALL, lock_timeout_s=QUICK)
            if is_same_process
            else None
        )
        disk = FaultyDisk()
        dying = open_ledger(path, segment_bytes=SMALL, disk=disk)
        disk.calls.clear()
        disk.fault = Fault(call, how)
        acknowledged = ["one"]
        try:
            dying.append([note("two", 1500)])
            acknowledged.append("two")
        except SimulatedCrash:
            seen.add(tuple(map(os.path.basename, segments(path))))
        disk.bury()
        readable = [row.entry.reason for row in query(path, Filter("NOTE")).entries]
        assert readable[: len(acknowledged)] == acknowledged
        assert verify(path).problems == ()
        ledger = other or open_ledger(path, segment_bytes=SMALL)
        ledger.append([note("three", 1500)])
        ledger.append([note("four", 1500)])
        ledger.close()
        assert_holds(path, [*acknowledged, "three", "four"])
        assert base(path) == sum(os.path.getsize(name) for name in segments(path)[:-1])
        if disk.fault is not None:
            break
    assert disk.fault is not None, "never got through"
    assert len(seen) >= 2


def test_a_reader_of_a_rotation_that_was_killed_sees_each_entry_once(path):
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk, segment_bytes=SMALL)
    ledger.append([note("one", 1000)])
    disk.fault = Fault("replace", How.BEFORE)
    with pytest.raises(SimulatedCrash):
        ledger.append([note("two", 1500)])
    disk.bury()

    assert len(segments(path)) == 2
    assert os.path.samefile(*segments(path))
    assert [row.entry.reason for row in query(path, Filter("NOTE")).entries] == ["one"]
    assert assert_holds(path, ["one"]).entries == 2


@pytest.mark.parametrize("content", [None, b"", bytes(4096)], ids=["gone", "empty", "zeros"])
def test_where_the_newest_file_begins_is_found_without_the_head(path, content):
    fill(path)
    head = LedgerPaths(path).head
    os.unlink(head)
    if content is not None:
        with open(head, "wb") as file:
            file.write(content)

    more = fill(path, 5, first=20)

    assert_holds(path, [*map(str, range(20)), *more])
    assert base(path) == sum(os.path.getsize(name) for name in segments(path)[:-1])


# --- readers ----------------------------------------------------------------------


def test_a_ledger_is_followed_over_rotations(path):
    fill(path)
    more = [lambda: fill(path, 10, first=20), lambda: None, lambda: fill(path, 2, first=30)]

    found = follow(path, last=3, poll=Poll(*more))

    assert [each.entry.reason for each in found] == list(map(str, range(17, 32)))


def test_a_reader_can_read_up_to_the_marks_although_others_rotate(path):
    fill(path)
    with LedgerReader(path) as reader:
        for first in (20, 30):
            fill(path, 10, first=first)
            newest = reader.marks().newest
            assert reader.size() == newest.offset_bytes == len(whole(path))
            assert reader.read(len(whole(path)), 0) == whole(path)


def test_a_sealed_name_that_leads_nowhere_is_an_error_and_not_for_ever(path):
    fill(path)
    os.symlink("nowhere", LedgerPaths(path).sealed(10**9))

    with pytest.raises(HostError):
        query(path, Filter())


def test_a_newest_file_that_was_replaced_is_not_followed(path):
    fill(path)

    def replace():
        shutil.copy(path, path + ".copy")
        os.rename(path + ".copy", path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        list(follow(path, last=1, poll=Poll(replace)))


# --- tampering -----------------------------------------------------------------------


def remove(path):
    os.unlink(segments(path)[1])


def remove_first(path):
    os.unlink(segments(path)[0])


def cut_sealed(path):
    name = segments(path)[1]
    os.truncate(name, os.path.getsize(name) - 10)


def lengthen(path):
    with open(segments(path)[1], "ab") as file:
        file.write(b"more\n")


def swap(path):
    first, second, aside = segments(path)[1], segments(path)[2], path + ".aside"
    os.rename(first, aside)
    os.rename(second, first)
    os.rename(aside, second)


def edit(path):
    name = segments(path)[1]
    with open(name, "rb") as file:
        content = file.read()
    with open(name, "wb") as file:
        file.write(re.sub(rb'"x{9}', b'"xxxxyxxxx', content, count=1))


@pytest.mark.parametrize("tamper", [remove, remove_first, cut_sealed, lengthen, swap, edit])
def test_whatever_is_done_to_a_sealed_file_is_found(path, tamper):
    fill(path)
    tamper(path)

    found = verify(path)

    assert not found.is_whole
    kinds = {problem.kind for problem in found.problems}
    assert (ChainFault.SEGMENT in kinds) == (tamper not in {edit, swap})
    assert all(problem.offset_bytes >= 0 for problem in found.problems)


@pytest.mark.parametrize("tamper", [remove_first, cut_sealed, remove])
def test_what_is_missing_is_said_and_not_read_around(path, tamper):
    fill(path)
    tamper(path)

    with pytest.raises((LedgerDamagedError, HostError), match="segment|missing"):
        query(path, Filter())
    assert len(query(path, Filter("NOTE"), last=2).entries) == 2


def test_a_ledger_whose_newest_file_is_gone_is_not_made_anew(path, tmp_path):
    fill(path)
    os.unlink(path)
    shutil.rmtree(tmp_path / "x.d")

    with pytest.raises(LedgerDamagedError, match="is gone"):
        open_ledger(path)

    assert not os.path.exists(path)


def test_a_newest_file_that_was_cut_is_refused(path):
    fill(path)
    os.truncate(path, 0)

    with pytest.raises(LedgerDamagedError, match="was cut"):
        open_ledger(path)


def test_space_for_a_result_is_there_although_the_file_is_full(path):
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk, segment_bytes=SMALL)
    reservation = ledger.reserve(4000)
    ledger.append([note("one", 1000)])
    disk.fault = Fault("write", How.HALF, errno.ENOSPC)

    ledger.append([note("result", 1000)], reservation=reservation)

    ledger.close()
    assert len(segments(path)) == 2
    assert_holds(path, ["one", "result"])
