"""Whose an entry is, what is durable when, and what a full disk cannot keep from happening."""

import errno
import os

import pytest

from paddock.errors import ConfigError, HostError, IntegrityError, StorageFullError
from paddock.storage.disk import Disk
from paddock.storage.journal import (
    EndRecord,
    EntryMark,
    Intent,
    Journal,
    MarkKind,
    Records,
    SwapStep,
    UndoRecord,
)
from paddock.testing.faulty_disk import Fault, FaultyDisk, How
from tests.support.users import give_to_plain_user, run_as_plain_user

INTENT = Intent("/root", 1, "a" * 24, (".",), "C-1")
STEPS = (SwapStep(".", "x", 0, None, EntryMark(MarkKind.FILE, 1, 2, 3)),)


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "journal")


def open_journal(directory, disk=None):
    return Journal(directory, disk or Disk())


def dead_records(directory):
    """What each dead entry says, without taking it."""
    found = []
    with open_journal(directory) as journal:
        for entry in journal.claim_dead():
            entry.load()
            found.append(entry.records)
    return found


def test_each_record_is_there_for_whoever_comes_after(directory):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        entry.release()
        assert dead_records(directory) == [Records()]
        os.unlink(os.path.join(directory, entry.name))

        entry = journal.new_entry()
        entry.record(INTENT)
        entry.release()
        assert dead_records(directory) == [Records(INTENT)]


def test_records_go_on_where_the_one_before_us_stopped(directory):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        entry.commit(STEPS)
        entry.release()
        for record, expected in (
            (UndoRecord(), Records(INTENT, STEPS, is_undone=True)),
            (EndRecord(), Records(INTENT, STEPS, is_undone=True, is_ended=True)),
        ):
            (entry,) = journal.claim_dead()
            # The generator lets go of what it handed out when it is asked for more.
            assert entry.fd == -1
            for claimed in journal.claim_dead():
                claimed.load()
                claimed.record(record)
                assert claimed.records == expected
            assert dead_records(directory) == [expected]


def test_an_entry_whose_owner_lives_is_handed_to_nobody(directory):
    with open_journal(directory) as journal, open_journal(directory) as other:
        entry = journal.new_entry()
        entry.record(INTENT)
        assert list(other.claim_dead()) == []
        assert list(journal.claim_dead()) == []
        entry.release()
        assert [found.name for found in other.claim_dead()] == [entry.name]


def test_an_entry_that_is_claimed_is_handed_to_nobody_else(directory):
    with open_journal(directory) as journal:
        journal.new_entry().release()
        claims = journal.claim_dead()
        first = next(claims)
        with open_journal(directory) as other:
            assert list(other.claim_dead()) == []
        claims.close()
        assert [found.name for found in journal.claim_dead()] == [first.name]


def test_a_claimed_entry_is_synced_before_it_is_relied_on(directory):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        entry.release()
    disk = FaultyDisk()
    with open_journal(directory, disk) as journal:
        for claimed in journal.claim_dead():
            claimed.load()
    assert disk.calls == ["sync"]


def test_the_order_is_write_sync_and_the_directory_before_anything_is_done(directory):
    disk = FaultyDisk()
    with open_journal(directory, disk) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        entry.commit(STEPS)
        entry.record(EndRecord())
        entry.forget()
    assert disk.calls == [
        *("create", "sync"),
        *("write", "sync"),
        *("write", "sync"),
        *("write", "sync"),
        "unlink",
    ]
    assert os.listdir(directory) == []


def test_an_entry_that_was_not_committed_goes_durably(directory):
    disk = FaultyDisk()
    with open_journal(directory, disk) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        entry.abandon()
    assert disk.calls[-2:] == ["unlink", "sync"]
    assert os.listdir(directory) == []


@pytest.mark.parametrize("moment", How)
@pytest.mark.parametrize("step", [4, 5])
def test_a_commit_that_fails_is_not_found_by_anybody(directory, step, moment):
    with open_journal(directory, FaultyDisk(Fault(step, moment, errno.ENOSPC))) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        with pytest.raises(StorageFullError):
            entry.commit(STEPS)
        entry.release()
    assert dead_records(directory) == [Records(INTENT)]


def test_ending_needs_no_space(directory):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        entry.record(INTENT)
        entry.commit(STEPS)
        size_bytes = os.stat(os.path.join(directory, entry.name)).st_size
        entry.record(UndoRecord())
        entry.record(EndRecord())
        assert os.stat(os.path.join(directory, entry.name)).st_size == size_bytes
        entry.release()


def test_a_record_that_failed_is_written_over_by_the_next(directory):
    for moment in How:
        with open_journal(directory, FaultyDisk(Fault(6, moment, errno.EIO))) as journal:
            entry = journal.new_entry()
            entry.record(INTENT)
            entry.commit(STEPS)
            with pytest.raises(HostError):
                entry.record(UndoRecord())
            entry.record(EndRecord())
            entry.release()
        assert dead_records(directory) == [Records(INTENT, STEPS, is_ended=True)]
        with open_journal(directory) as journal:
            for claimed in journal.claim_dead():
                claimed.forget()


def test_other_names_in_the_directory_are_left_alone(directory):
    with open_journal(directory) as journal:
        for name in ("README", "x.entry", "0" * 32 + ".entry.bak"):
            with open(os.path.join(directory, name), "w"):
                pass
        assert list(journal.claim_dead()) == []


def test_an_entry_that_is_too_large_is_not_read(directory, monkeypatch):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        os.truncate(os.path.join(directory, entry.name), 64_000_001)
        with pytest.raises(IntegrityError, match="64000001 bytes"):
            entry.load()
        entry.release()


def test_a_journal_that_others_can_write_to_is_not_opened(directory):
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    with pytest.raises(ConfigError):
        open_journal(directory)
    os.chmod(directory, 0o700)
    open_journal(directory).close()


def test_a_journal_that_is_a_link_is_not_opened(directory, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    os.symlink(tmp_path / "elsewhere", directory)
    with pytest.raises(ConfigError):
        open_journal(directory)


STRANGE = {
    "a link": lambda path: os.symlink("/nowhere", path),
    "a directory": os.mkdir,
    "a socket": lambda path: os.mknod(path, 0o140600),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_cannot_be_opened_is_told_and_stops_nobody(directory, kind):
    with open_journal(directory) as journal:
        entry = journal.new_entry()
        entry.release()
        name = "0" * 32 + ".entry"
        STRANGE[kind](os.path.join(directory, name))
        strange, dead = journal.claim_dead()
        assert (strange.name, dead.name) == (name, entry.name)
        assert f"belongs to user {os.getuid()} and cannot be opened" in strange.why


@pytest.mark.needs("root")
def test_an_entry_of_another_user_is_told_and_stops_nobody(tmp_path):
    directory = tmp_path / "journal"
    with open_journal(str(directory)) as journal:
        theirs = journal.new_entry()
        theirs.release()
        give_to_plain_user(directory)
        os.chown(directory / theirs.name, 0, 0)

    def act():
        with open_journal(str(directory)) as journal:
            ours = journal.new_entry()
            ours.release()
            found = {each.name: each for each in journal.claim_dead()}
            assert found.keys() == {ours.name, theirs.name}
            why = found[theirs.name].why
            assert "belongs to user 0 and cannot be opened: Permission denied" in why

    run_as_plain_user(act)
