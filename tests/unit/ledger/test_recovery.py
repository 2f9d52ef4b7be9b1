"""Torn tails are put aside and reported; damage is refused. Nothing is thrown away."""

import errno
import hashlib
import os
import shutil

import pytest

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.files import open_head
from paddock.ledger.format.line import chain_tail, leaf_hash
from paddock.ledger.query import Filter, query
from paddock.ledger.tail import LedgerPaths
from paddock.ledger.verify import verify
from paddock.storage.disk import Disk
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from tests.support.ledgers import assert_holds, note, open_ledger

OTHER_BOOT = b"another machine!"


@pytest.fixture
def path(tmp_path):
    found = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(found)
    ledger.append([note("one")])
    ledger.append([note("two", 2000)])
    ledger.close()
    return found


def append_raw(path, data):
    with open(path, "ab") as file:
        file.write(data)


def recovered(path):
    rows = query(path, Filter(event_type="LEDGER_RECOVERED"))
    assert rows.bad == ()
    return [row.entry.metadata for row in rows.entries]


def lines(path):
    with open(path, "rb") as file:
        return file.read().splitlines(keepends=True)


def torn_folder(path):
    return os.path.join(os.path.dirname(path), "x.d", "torn")


TAILS = {
    "half a line": b'{"id":"LED-00',
    "a line without its end": None,
    "NUL bytes": bytes(10_000),
    "garbage with an end": b"garbage\n",
    "many garbage lines": b"garbage\n" * 1000,
    "a line that does not chain": "copy",
}
BY_HAND = {
    "a key given twice": lambda line: line.replace(
        b'"decision":', b'"decision":"deny","decision":'
    ),
    "a number that is none": lambda line: line.replace(b'"metadata":{', b'"metadata":{"n":NaN,'),
    "white space": lambda line: line.replace(b'"metadata":{', b'"metadata": {'),
    "no UTF-8": lambda line: line.replace(b'"two"', b'"tw\xff"'),
}


def chained_by_hand(path, change):
    """What somebody without any key can write who knows the format, but for what a line holds."""
    last = lines(path)[-1][:-1]
    body = last[: last.index(b',"seq":')]
    return change(body) + chain_tail(len(lines(path)), leaf_hash(last)) + b"\n"


@pytest.mark.parametrize("name", BY_HAND)
def test_a_line_that_chains_and_holds_no_entry_is_not_gone_on_from(path, name):
    forged = chained_by_hand(path, BY_HAND[name])
    append_raw(path, forged)

    open_ledger(path).append([note("three")])

    assert [each["bytes"] for each in recovered(path)] == [len(forged)]
    assert assert_holds(path, ["one", "two", "three"]).torn_bytes == 0


def test_a_line_that_chains_and_holds_an_entry_is_gone_on_from(path):
    append_raw(path, chained_by_hand(path, lambda line: line.replace(b'"two"', b'"by hand"')))

    open_ledger(path).append([note("three")])

    assert recovered(path) == []
    assert_holds(path, ["one", "two", "by hand", "three"])


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened"])
def test_a_torn_tail_is_put_aside_and_reported(path, name, is_open):
    tail = TAILS[name]
    if tail is None:
        tail = lines(path)[-1][:-1]
    elif tail == "copy":
        tail = lines(path)[1]
    offset = os.path.getsize(path)
    ledger = open_ledger(path) if is_open else None
    append_raw(path, tail)

    ledger = ledger or open_ledger(path)
    ledger.append([note("three")])

    digest = hashlib.sha256(tail).hexdigest()
    assert recovered(path) == [
        {
            "bytes": len(tail),
            "offset": offset,
            "digest": f"sha256:{digest}",
            "file": f"torn/{offset}-{digest}",
        }
    ]
    with open(os.path.join(torn_folder(path), f"{offset}-{digest}"), "rb") as file:
        assert file.read() == tail
    assert assert_holds(path, ["one", "two", "three"]).torn_bytes == 0


def test_a_pipe_where_the_torn_tail_is_put_aside_holds_nobody_up(path):
    os.mkdir(torn_folder(path))
    os.mkfifo(os.path.join(torn_folder(path), "draft"))
    append_raw(path, b'{"id":"LED-00')

    open_ledger(path).append([note("three")])

    assert [each["bytes"] for each in recovered(path)] == [13]
    assert_holds(path, ["one", "two", "three"])


def test_a_pipe_where_a_ledger_is_made_holds_nobody_up(tmp_path):
    made = os.fspath(tmp_path / "made.jsonl")
    new = LedgerPaths(made).new
    os.makedirs(os.path.dirname(new), exist_ok=True)
    os.mkfifo(new)

    open_ledger(made).append([note("one")])

    assert_holds(made, ["one"])


def test_whole_lines_that_a_killed_writer_left_are_adopted(path, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "x.d", copy)
    ledger = open_ledger(path)
    ledger.append([note("three"), note("four")])
    ledger.close()
    shutil.copy(copy / "head", tmp_path / "x.d" / "head")

    ledger = open_ledger(path)
    ledger.append([note("five")])

    assert recovered(path) == []
    assert_holds(path, ["one", "two", "three", "four", "five"])


def test_what_follows_adopted_lines_is_put_aside(path, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "x.d", copy)
    ledger = open_ledger(path)
    ledger.append([note("three"), note("four")])
    ledger.close()
    os.truncate(path, os.path.getsize(path) - 20)
    shutil.copy(copy / "head", tmp_path / "x.d" / "head")

    open_ledger(path).append([note("five")])

    assert len(recovered(path)) == 1
    assert_holds(path, ["one", "two", "three", "five"])


def test_a_ledger_that_was_cut_is_refused_open_or_not(path):
    ledger = open_ledger(path)
    os.truncate(path, os.path.getsize(path) - 1)
    before = lines(path)

    for act in (lambda: ledger.append([note("x")]), lambda: open_ledger(path)):
        with pytest.raises(LedgerDamagedError, match="was cut"):
            act()

    assert lines(path) == before


def test_an_emptied_ledger_is_refused(path):
    os.truncate(path, 0)

    with pytest.raises(LedgerDamagedError, match="no first line"):
        open_ledger(path)

    assert os.path.getsize(path) == 0


@pytest.mark.parametrize("content", [b"", b"\n", b"garbage\n", b"garbage", bytes(5000)])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "y.jsonl"
    path.write_bytes(content)

    with pytest.raises(LedgerDamagedError):
        open_ledger(path)

    assert path.read_bytes() == content


def test_the_folder_beside_the_file_can_be_made_again(path, tmp_path):
    shutil.rmtree(tmp_path / "x.d")

    open_ledger(path, create=None).append([note("three")])

    assert_holds(path, ["one", "two", "three"])


@pytest.mark.parametrize("gone", [".", "lock", "head"])
def test_nothing_is_acknowledged_where_another_writer_would_not_be_seen(path, tmp_path, gone):
    """The attack: two writers with locks and head files of their own, in one ledger."""
    first = open_ledger(path)
    first.append([note("three")])
    target = tmp_path / "x.d" / gone
    (shutil.rmtree if target.is_dir() else os.unlink)(target)
    second = open_ledger(path)
    second.append([note("four")])

    for _ in range(2):
        with pytest.raises(LedgerDamagedError, match="beside the ledger was removed or replaced"):
            first.append([note("not acknowledged")])
    second.append([note("five")])

    assert_holds(path, ["one", "two", "three", "four", "five"])


def test_what_a_writer_has_on_its_way_is_not_put_aside_by_one_with_another_lock(path, tmp_path):
    first = open_ledger(path)
    shutil.rmtree(tmp_path / "x.d")
    open_ledger(path)
    append_raw(path, b'{"id":"LED-00')

    with pytest.raises(LedgerDamagedError, match="beside the ledger was removed or replaced"):
        first.append([note("three")])

    assert content_of(path).endswith(b'{"id":"LED-00')


def test_without_the_head_file_only_an_unfinished_end_counts_as_torn(path, tmp_path):
    shutil.rmtree(tmp_path / "x.d")
    append_raw(path, b'{"id":"LED-00')

    open_ledger(path).append([note("three")])

    assert len(recovered(path)) == 1
    assert_holds(path, ["one", "two", "three"])


@pytest.mark.parametrize("at", [1, 2])
def test_without_the_head_file_a_bad_line_is_damage(path, tmp_path, at):
    shutil.rmtree(tmp_path / "x.d")
    found = lines(path)
    found[at] = b"garbage\n"
    content = b"".join(found)
    with open(path, "wb") as file:
        file.write(content)

    with pytest.raises(LedgerDamagedError, match="bad line") as caught:
        open_ledger(path)

    assert f"line {at + 1}, byte {sum(map(len, found[:at]))}" in caught.value.where
    with open(path, "rb") as file:
        assert file.read() == content


def content_of(path):
    with open(path, "rb") as file:
        return file.read()


def put(path, content):
    with open(path, "wb") as file:
        file.write(content)


def assert_refused(path, match, **how):
    """Refused, and nothing was touched."""
    content = content_of(path)
    with pytest.raises(LedgerDamagedError, match=match):
        open_ledger(path, **how)
    assert content_of(path) == content
    assert not os.path.exists(torn_folder(path))


def wipe(path, *slots):
    """Tear records of the head file: 0 and 1 of the newest append, 2 and 3 of the commit."""
    with open(os.path.join(os.path.dirname(path), "x.d", "head"), "r+b") as file:
        for slot in slots:
            file.seek(512 * slot)
            file.write(b"\xff" * 40)


def newest_slots(path):
    """Which slots hold the newest append's record and the newest commit's."""
    head = open_head(Disk(), os.path.join(os.path.dirname(path), "x.d", "head"))
    newest, (_, next_slot) = head.read().newest, head.read_durable()
    os.close(head.descriptor)
    return newest.generation % 2, 3 - next_slot


DAMAGES = {
    "an edit": lambda old: old.replace(b'"two"', b'"owt"'),
    "another last byte": lambda old: old[:-1] + b"x",
    "no last LF but a longer line": lambda old: old[:-1] + b" \n",
    "a byte more in the middle": lambda old: old.replace(b'"NOTE"', b'"NOTE" ', 1),
    "a line taken out and garbage put at the end": lambda old: b"".join(
        [old.splitlines(keepends=True)[0], old.splitlines(keepends=True)[2], b"x" * 1000]
    ),
    "a line of another length": lambda old: old.replace(b"xxx", b"") + b"y" * 3000,
    "NUL bytes": lambda old: old[:-100] + bytes(100),
}
MARKS = {
    "both marks": (),
    "the append's mark alone": (2, 3),
    "the commit's mark alone": (0, 1),
}


@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_another_newest_line_than_the_recorded_one_is_refused(path, damage, marks):
    wipe(path, *MARKS[marks])
    put(path, DAMAGES[damage](content_of(path)))

    assert_refused(path, "a line of the ledger was changed")


@pytest.mark.parametrize("damage", DAMAGES)
def test_after_a_new_boot_another_line_before_the_commit_mark_is_refused(path, damage):
    put(path, DAMAGES[damage](content_of(path)))

    assert_refused(path, "line of the ledger was changed", disk=FaultyDisk(boot=OTHER_BOOT))


@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("gone", [1, 100, "a line"])
def test_a_ledger_that_is_shorter_than_any_mark_is_refused(path, gone, marks):
    wipe(path, *MARKS[marks])
    size = len(lines(path)[-1]) if gone == "a line" else gone
    os.truncate(path, os.path.getsize(path) - size)

    assert_refused(path, "was cut")


@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("tail", [b"", b'{"id":"LED-00', bytes(2_000_000)])
def test_a_whole_ledger_goes_on_from_any_mark(path, marks, tail):
    wipe(path, *MARKS[marks])
    append_raw(path, tail)

    open_ledger(path).append([note("three")])

    assert [entry["bytes"] for entry in recovered(path)] == [len(tail)][: len(tail)]
    assert_holds(path, ["one", "two", "three"])


def test_without_the_append_mark_a_bad_line_is_damage(path):
    wipe(path, 0, 1)
    append_raw(path, b"garbage\n")

    assert_refused(path, "bad line")


@pytest.mark.parametrize("size", [2_000_000, 1_048_577, 1_000_000])
def test_without_the_head_file_a_line_longer_than_any_can_be_is_damage(path, tmp_path, size):
    shutil.rmtree(tmp_path / "x.d")
    found = lines(path)
    put(path, b"".join([found[0], b"9" * size, *found[1:]]))

    assert_refused(path, "bad line")


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened"])
def test_a_ledger_that_was_cut_to_the_elder_twin_of_a_torn_mark_is_refused(path, is_open):
    ledger = open_ledger(path)
    newest, _ = newest_slots(path)
    wipe(path, newest)
    os.truncate(path, os.path.getsize(path) - len(lines(path)[-1]))
    before = content_of(path)

    with pytest.raises(LedgerDamagedError, match="was cut"):
        ledger.append([note("three")]) if is_open else open_ledger(path)

    assert content_of(path) == before


def test_the_elder_twin_of_a_torn_mark_is_enough_where_the_lines_are_there(path):
    newest, durable = newest_slots(path)
    wipe(path, newest, durable)

    open_ledger(path).append([note("three")])

    assert recovered(path) == []
    assert_holds(path, ["one", "two", "three"])


def test_damage_inside_an_open_ledger_is_refused_where_the_end_has_moved(path):
    ledger = open_ledger(path)
    put(path, DAMAGES["a byte more in the middle"](content_of(path)))
    before = content_of(path)

    with pytest.raises(LedgerDamagedError, match="line of the ledger was changed"):
        ledger.append([note("three")])

    assert content_of(path) == before
    assert not os.path.exists(torn_folder(path))


def test_an_edit_before_the_commit_mark_is_found_behind_entries_that_no_commit_covers(path):
    ledger = open_ledger(path)
    ledger.write([note("three")])
    ledger.close()
    put(path, content_of(path).replace(b'"two"', b'"owt"'))

    assert_refused(path, "line of the ledger was changed")


def test_after_a_new_boot_the_append_mark_says_nothing(path):
    """Its line was undone, and another one of the same length stands there."""
    ledger = open_ledger(path)
    durable = content_of(path)
    ledger.write([note("three")])
    ledger.close()
    size = os.path.getsize(path) - len(durable)
    put(path, durable + bytes(size))

    assert_refused_only_on_this_boot(path)
    assert [entry["bytes"] for entry in recovered(path)] == [size]
    assert_holds(path, ["one", "two", "after"])


def test_where_the_boot_is_not_known_the_append_mark_says_nothing(path, tmp_path):
    other = os.path.join(tmp_path, "other", "x.jsonl")
    os.mkdir(os.path.dirname(other))
    ledger = open_ledger(other, disk=FaultyDisk(boot=bytes(16)))
    ledger.append([note("one")])
    durable = content_of(other)
    ledger.write([note("two")])
    ledger.close()
    put(other, durable + bytes(os.path.getsize(other) - len(durable)))

    open_ledger(other, disk=FaultyDisk(boot=bytes(16))).append([note("after")])

    assert len(recovered(other)) == 1
    assert_holds(other, ["one", "after"])


def assert_refused_only_on_this_boot(path):
    assert_refused(path, "line of the ledger was changed")
    open_ledger(path, disk=FaultyDisk(boot=OTHER_BOOT)).append([note("after")])


def test_a_failed_disk_is_not_forgotten_where_the_append_mark_is_torn(path):
    disk = FaultyDisk()
    ledger = open_ledger(path, disk=disk)
    disk.fault = Fault("fdatasync", How.BEFORE, errno.EIO)
    with pytest.raises(HostError):
        ledger.append([note("three")])
    wipe(path, 0, 1)
    syncs = disk.calls.count("fdatasync")

    other = open_ledger(path, disk=disk)
    for each in (ledger, other):
        with pytest.raises(HostError, match="the disk failed"):
            each.append([note("four")])

    assert disk.calls.count("fdatasync") == syncs


def test_a_ledger_whose_first_sync_failed_verifies_after_a_restart_and_before(tmp_path):
    path = os.path.join(tmp_path, "y.jsonl")
    with pytest.raises(HostError):
        open_ledger(path, disk=FaultyDisk(Fault("fdatasync", How.AFTER, errno.EIO)))

    assert verify(path).problems == ()
    open_ledger(path, disk=FaultyDisk(boot=OTHER_BOOT)).append([note("one")])
    assert_holds(path, ["one"])


@pytest.mark.parametrize("size", [0, 3000, 5000, 70_000, 1_000_000])
def test_opening_reads_no_more_than_the_newest_line(path, size):
    ledger = open_ledger(path)
    ledger.append([note("long", size)])
    ledger.close()
    read = []

    class Noting(Disk):
        def pread(self, descriptor, size_bytes, offset):
            read.append(size_bytes)
            return os.pread(descriptor, size_bytes, offset)

    open_ledger(path, disk=Noting()).append([note("three")])

    assert sum(read) < 40_000 + 40 * size
    assert_holds(path, ["one", "two", "long", "three"])


def test_after_a_new_boot_what_the_disk_did_not_keep_is_no_damage(path):
    """The newest mark is on the disk; the lines that it speaks of are not."""
    ledger = open_ledger(path)
    durable = os.path.getsize(path)
    ledger.write([note("three"), note("four", 5000)])
    ledger.close()
    with open(path, "rb") as file:
        content = file.read()
    for kept in range(durable, len(content), 97):
        for filling in (b"", bytes(300)):
            with open(path, "wb") as file:
                file.write(content[:kept] + filling)
            shutil.rmtree(os.path.dirname(path) + "/copy", ignore_errors=True)
            folder = shutil.copytree(os.path.dirname(path), os.path.dirname(path) + "/copy")
            there = os.path.join(folder, "x.jsonl")

            again = open_ledger(there, disk=FaultyDisk(boot=OTHER_BOOT))
            again.append([note("after")])
            again.close()

            assert_holds(there, ["one", "two", "after"])


def test_after_a_new_boot_a_loss_below_the_durable_mark_is_damage(path):
    durable = os.path.getsize(path)
    open_ledger(path).close()
    os.truncate(path, durable - 1)

    with pytest.raises(LedgerDamagedError, match="was cut"):
        open_ledger(path, disk=FaultyDisk(boot=OTHER_BOOT))


def test_a_piece_that_was_put_aside_but_not_reported_is_reported_later(path):
    append_raw(path, b"torn")
    ledger = open_ledger(path)
    ledger.close()
    (name,) = os.listdir(torn_folder(path))
    os.rename(
        os.path.join(torn_folder(path), name), os.path.join(torn_folder(path), name + ".pending")
    )

    open_ledger(path).close()

    assert os.listdir(torn_folder(path)) == [name]
    assert [entry["bytes"] for entry in recovered(path)] == [4, 4]
    assert_holds(path, ["one", "two"])


@pytest.mark.parametrize(
    "name",
    [
        "x.pending",
        "-.pending",
        "5-.pending",
        "٣-a.pending",
        "²-a.pending",
        "a-b.pending",
        f"²-{'0' * 64}.pending",
        f"5-{'0' * 63}\udcff.pending",
        f"5-{'0' * 63}\x1b.pending",
        f"{'9' * 90}-{'0' * 64}.pending",
    ],
    ids=ascii,
)
def test_other_files_in_the_torn_folder_do_no_harm(path, name):
    os.mkdir(torn_folder(path))
    with open(os.path.join(torn_folder(path), name), "w", encoding="ascii"):
        pass

    open_ledger(path).append([note("three")])

    assert_holds(path, ["one", "two", "three"])
