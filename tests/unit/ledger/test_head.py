import os

import pytest

from paddock.errors import HostError
from paddock.ledger.disk import SystemDisk
from paddock.ledger.head import FILES, HeadFile, HeadPage, Mark, decode_mark, encode_mark

BOOT = b"b" * 16
FIRST = Mark(1, 1, 100, "ab" * 32, BOOT)
SECOND = Mark(2, 3, 300, "cd" * 32, BOOT)


@pytest.fixture
def head(tmp_path):
    opened = HeadFile(SystemDisk(), os.path.join(tmp_path, "head"), create=True)
    yield opened
    os.close(opened.descriptor)


def again(head):
    fresh = HeadFile(SystemDisk(), head.path, create=False)
    try:
        return fresh.read()
    finally:
        os.close(fresh.descriptor)


def test_a_new_head_file_says_nothing_and_has_its_full_size(head):
    assert head.read() == HeadPage(None, None, 0)
    assert os.path.getsize(head.path) == 4096


def test_the_newest_mark_counts(head):
    for mark in (FIRST, SECOND):
        head.store_newest(mark)
        assert head.read().newest == mark
        assert again(head).newest == mark


def test_a_torn_mark_leaves_its_predecessor(head):
    head.store_newest(FIRST)
    head.store_newest(SECOND)
    record = encode_mark(SECOND)

    for cut in range(1, len(record)):
        os.pwrite(head.descriptor, bytes(cut), 0)
        assert again(head).newest == FIRST
        os.pwrite(head.descriptor, record, 0)
        assert again(head).newest == SECOND


def test_commit_marks_take_turns(head):
    for generation in range(1, 6):
        mark = FIRST._replace(generation=generation)
        head.store_durable(mark, head.read().durable_slot)
        assert head.read().durable == mark
        assert again(head).durable == mark


def test_commits_are_read_without_the_appends_beside_them(head):
    head.store_newest(FIRST)
    head.store_durable(FIRST, 0)
    other = HeadFile(SystemDisk(), head.path, create=False)
    page, before = other.read(), other.last_commits()

    head.store_newest(SECOND)
    same = other.read_commits(before)
    head.store_durable(SECOND, page.durable_slot)
    head.store_base(7)

    assert same is before
    assert (before.durable, before.turn, before.base) == (FIRST, page.turn, page.base)
    found = other.read_commits(before)
    assert (found.durable, found.durable_slot, found.base) == (SECOND, 0, 7)
    assert other.last_commits() is found
    assert other.read() == HeadPage(SECOND, SECOND, 0, found.turn, 7)
    os.close(other.descriptor)


FILES_HERE = FILES.pack(*range(8))


def files_of(head):
    fresh = HeadFile(SystemDisk(), head.path, create=False)
    try:
        return fresh.read_commits(fresh.last_commits()).files
    finally:
        os.close(fresh.descriptor)


@pytest.mark.parametrize("slot", [0, 1])
def test_a_commit_mark_says_which_files_its_leader_found_and_a_later_one_does_not(head, slot):
    head.store_durable(FIRST, slot, FILES_HERE)
    found = files_of(head)

    head.store_durable(SECOND, slot)

    assert (found, files_of(head), again(head).durable) == (FILES_HERE, b"", SECOND)


def test_no_flipped_bit_names_other_files_or_takes_the_mark_away(head):
    head.store_durable(FIRST, 0, FILES_HERE)
    start = 1024 + len(encode_mark(FIRST))
    behind = os.pread(head.descriptor, len(FILES_HERE) + 4, start)

    for at in range(len(behind) * 8):
        flipped = bytearray(behind)
        flipped[at // 8] ^= 1 << at % 8
        os.pwrite(head.descriptor, flipped, start)
        assert (files_of(head), again(head).durable) == (b"", FIRST)


def test_a_head_file_that_was_cut_within_the_names_of_the_files_has_the_mark(head):
    head.store_durable(FIRST, 1, FILES_HERE)
    os.truncate(head.path, 1536 + len(encode_mark(FIRST)) + 10)

    assert (files_of(head), again(head).durable) == (b"", FIRST)


def test_whoever_reads_the_commits_first_reads_the_appends_afterwards(head):
    head.store_newest(SECOND)
    head.store_durable(FIRST, 0)
    other = HeadFile(SystemDisk(), head.path, create=False)

    assert other.read_commits(other.last_commits()).durable == FIRST
    assert other.read() == HeadPage(SECOND, FIRST, 1)
    os.close(other.descriptor)


def test_a_head_file_that_was_cut_is_read_as_the_same_while_it_is(head):
    head.store_durable(FIRST, 0)
    os.truncate(head.path, 2100)
    before = head.read_commits(head.last_commits())

    assert (before.durable, head.read_commits(before) is before) == (FIRST, True)


def test_the_newest_generation_is_that_of_the_newer_record(head):
    for mark in (FIRST, SECOND):
        head.store_newest(mark)
        assert head.read_generation() == mark.generation
    os.truncate(head.path, 10)
    assert head.read_generation() == 0


def test_a_poisoned_commit_outranks_the_one_that_it_repeats(head):
    head.store_durable(FIRST, 0)
    head.store_durable(FIRST._replace(is_poisoned=True), head.read().durable_slot)

    assert head.read().durable.is_poisoned
    assert again(head).durable.is_poisoned


def test_a_mark_survives_its_encoding_and_no_flipped_bit_does():
    mark = Mark(2**63, 2**53, 2**40, "0f" * 32, BOOT, 9, 10**9, is_poisoned=True)
    record = encode_mark(mark)

    assert decode_mark(record) == mark
    for at in range(len(record) * 8):
        flipped = bytearray(record)
        flipped[at // 8] ^= 1 << at % 8
        assert decode_mark(bytes(flipped)) is None


def test_a_head_file_that_was_cut_says_nothing(head):
    head.store_newest(FIRST)
    os.truncate(head.path, 10)

    assert again(head) == HeadPage(None, None, 0)


def test_a_mark_in_a_head_file_that_was_cut_is_kept_when_it_is_made_whole(head):
    head.store_newest(SECOND)
    os.truncate(head.path, len(encode_mark(SECOND)))

    whole = HeadFile(SystemDisk(), head.path, create=True)

    assert whole.read() == HeadPage(SECOND, None, 0)
    assert os.path.getsize(head.path) == 4096
    os.close(whole.descriptor)


def test_the_marks_that_can_be_believed_come_in_the_order_of_their_place():
    poisoned = Mark(0, 0, 0, "00" * 32, BOOT, is_poisoned=True)
    pages = {
        "both": HeadPage(SECOND, FIRST, 0),
        "elder twin": HeadPage(FIRST, SECOND, 0),
        "append alone": HeadPage(SECOND, None, 0),
        "commit alone": HeadPage(None, FIRST, 0),
        "none": HeadPage(None, None, 0),
        "before any commit": HeadPage(SECOND, poisoned, 0),
    }

    def found(boot):
        return {name: page.believable(boot) for name, page in pages.items()}

    assert found(BOOT) == {
        "both": [FIRST, SECOND],
        "elder twin": [FIRST, SECOND],
        "append alone": [SECOND],
        "commit alone": [FIRST],
        "none": [],
        "before any commit": [SECOND],
    }
    assert found(b"c" * 16) == {
        "both": [FIRST],
        "elder twin": [SECOND],
        "append alone": [],
        "commit alone": [FIRST],
        "none": [],
        "before any commit": [],
    }


def test_where_the_boot_is_not_known_no_append_mark_is_believed():
    unknown = SECOND._replace(boot=bytes(16))

    assert HeadPage(unknown, FIRST, 0).believable(bytes(16)) == [FIRST]


def test_a_turn_that_was_passed_is_another_one_and_touches_no_mark(head):
    head.store_newest(FIRST)
    head.store_durable(FIRST, 0)
    other = HeadFile(SystemDisk(), head.path, create=False)
    before = other.read()

    head.pass_turn()

    turn = head.read().turn
    assert turn != before.turn
    assert other.read() == before._replace(turn=turn)
    assert head.read() == before._replace(turn=turn)
    assert os.path.getsize(head.path) == 4096
    os.close(other.descriptor)


def test_a_head_file_that_was_cut_has_no_turn(head):
    head.pass_turn()
    os.truncate(head.path, 2050)

    assert head.read_commits(head.last_commits()).turn == 0
    assert again(head).turn == 0


def test_a_link_is_not_followed_to_a_head_file(tmp_path):
    os.symlink("elsewhere", tmp_path / "head")

    with pytest.raises(HostError, match="cannot be opened"):
        HeadFile(SystemDisk(), os.path.join(tmp_path, "head"), create=True)

    assert not os.path.lexists(tmp_path / "elsewhere")


@pytest.mark.parametrize("create", [True, False])
def test_a_pipe_in_its_place_is_an_error_and_no_wait(tmp_path, create):
    path = os.path.join(tmp_path, "head")
    os.mkfifo(path)

    with pytest.raises(HostError, match="head file"):
        HeadFile(SystemDisk(), path, create=create).read()
