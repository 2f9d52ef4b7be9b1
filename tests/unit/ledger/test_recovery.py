"""Torn tails are put aside and reported; damage is refused. Nothing is thrown away."""

import hashlib
import os
import shutil

import pytest

from paddock.errors import LedgerDamagedError
from paddock.ledger.query import Filter, query
from paddock.testing.faulty_disk import FaultyDisk
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


def test_an_edit_of_the_last_line_is_left_for_verification_to_find(path):
    content = b"".join(lines(path)).replace(b'"two"', b'"owt"')
    with open(path, "wb") as file:
        file.write(content)

    open_ledger(path).append([note("three")])

    with open(path, "rb") as file:
        assert file.read().startswith(content)


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
    "name", ["x.pending", "-.pending", "5-.pending", "٣-a.pending", "a-b.pending"]
)
def test_other_files_in_the_torn_folder_do_no_harm(path, name):
    os.mkdir(torn_folder(path))
    with open(os.path.join(torn_folder(path), name), "w", encoding="ascii"):
        pass

    open_ledger(path).append([note("three")])

    assert_holds(path, ["one", "two", "three"])
