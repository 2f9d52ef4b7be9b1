import os
from zlib import crc32

import pytest

from paddock.errors import HostError
from paddock.ledger.files import open_head
from paddock.ledger.read import believable_marks, read_head
from paddock.ledger.tail import HeadPage, Mark, decode_mark, encode_mark
from paddock.storage.disk import Disk
from tests.support.ledgers import changed

BOOT = b"b" * 16
FIRST = Mark(1, 1, 100, "ab" * 32, BOOT)
SECOND = Mark(2, 3, 300, "cd" * 32, BOOT)


@pytest.fixture
def head(tmp_path):
    opened = open_head(Disk(), os.path.join(tmp_path, "head"))
    yield opened
    os.close(opened.descriptor)


def marks_of(page):
    return page.newest, page.durable


def path_of(head):
    return os.readlink(f"/proc/self/fd/{head.descriptor}")


def again(head):
    return read_head(path_of(head))


def test_a_new_head_file_says_nothing_and_has_its_full_size(head):
    assert marks_of(head.read()) == (None, None)
    assert os.path.getsize(path_of(head)) == 4096


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


def test_durable_marks_take_turns(head):
    for generation in range(1, 6):
        mark = changed(FIRST, generation=generation)
        head.store_durable(mark, head.read_durable()[1])
        assert head.read().durable == mark
        assert again(head).durable == mark


def test_a_poisoned_mark_outranks_the_one_that_it_repeats(head):
    head.store_durable(FIRST, 0)
    poisoned = changed(FIRST, is_poisoned=True)
    head.store_durable(poisoned, head.read_durable()[1])

    assert head.read().durable.is_poisoned
    assert again(head).durable.is_poisoned


def test_a_mark_survives_its_encoding_and_no_flipped_bit_does():
    mark = Mark(2**63, 2**53, 2**40, "0f" * 32, BOOT, is_poisoned=True)
    record = encode_mark(mark)

    assert decode_mark(record) == mark
    for at in range(len(record) * 8):
        flipped = bytearray(record)
        flipped[at // 8] ^= 1 << at % 8
        assert decode_mark(bytes(flipped)) is None


def test_what_an_earlier_writer_put_into_a_record_besides_is_no_matter():
    record = bytearray(encode_mark(FIRST)[:-4])
    record[72:84] = b"cohort, time"

    assert decode_mark(bytes(record) + crc32(record).to_bytes(4, "little")) == FIRST


def test_a_head_file_that_was_cut_says_nothing(head):
    head.store_newest(FIRST)
    os.truncate(path_of(head), 10)

    assert marks_of(again(head)) == (None, None)


def test_a_mark_in_a_head_file_that_was_cut_is_kept_when_it_is_made_whole(head):
    head.store_newest(SECOND)
    os.truncate(path_of(head), len(encode_mark(SECOND)))

    whole = open_head(Disk(), path_of(head))

    assert marks_of(whole.read()) == (SECOND, None)
    assert os.path.getsize(path_of(head)) == 4096
    os.close(whole.descriptor)


def test_the_marks_that_can_be_believed_come_in_the_order_of_their_place():
    poisoned = Mark(0, 0, 0, "00" * 32, BOOT, is_poisoned=True)
    pages = {
        "both": HeadPage(SECOND, FIRST),
        "elder twin": HeadPage(FIRST, SECOND),
        "append alone": HeadPage(SECOND, None),
        "commit alone": HeadPage(None, FIRST),
        "none": HeadPage(None, None),
        "before any commit": HeadPage(SECOND, poisoned),
    }

    def found(boot):
        return {name: believable_marks(page, boot) for name, page in pages.items()}

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
    unknown = changed(SECOND, boot=bytes(16))

    assert believable_marks(HeadPage(unknown, FIRST), bytes(16)) == [FIRST]


def test_a_link_is_not_followed_to_a_head_file(tmp_path):
    os.symlink("elsewhere", tmp_path / "head")

    with pytest.raises(HostError, match="cannot be opened"):
        open_head(Disk(), os.path.join(tmp_path, "head"))

    assert not os.path.lexists(tmp_path / "elsewhere")


@pytest.mark.parametrize("read", [lambda path: open_head(Disk(), path).read(), read_head])
def test_a_pipe_in_its_place_is_an_error_and_no_wait(tmp_path, read):
    path = os.path.join(tmp_path, "head")
    os.mkfifo(path)

    with pytest.raises(HostError, match="head file"):
        read(path)
