import os

import pytest

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.read import follow
from tests.support.ledgers import Poll, note, open_ledger


@pytest.fixture
def path(tmp_path):
    return os.path.join(tmp_path, "x.jsonl")


def texts(found):
    return [stored.entry.reason for stored in found]


def test_the_last_entries_come_first_and_then_each_new_one(path):
    ledger = open_ledger(path)
    ledger.append([note("one"), note("two")])

    poll = Poll(
        lambda: ledger.append([note("three")]),
        lambda: None,
        lambda: ledger.append([note("four", 900_000), note("five")]),
    )

    assert texts(follow(path, last=1, poll=poll)) == ["two", "three", "four", "five"]


@pytest.mark.parametrize(("last", "count"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_as_many_entries_are_given_as_were_asked_for(path, last, count):
    ledger = open_ledger(path)
    ledger.append([note("one"), note("two")])

    assert len(list(follow(path, last=last, poll=Poll()))) == count


def test_an_entry_that_was_not_finished_is_not_given(path):
    ledger = open_ledger(path)

    def half():
        with open(path, "ab") as file:
            file.write(b'{"id":"LED-')

    poll = Poll(half, lambda: None, lambda: ledger.append([note("one")]))

    assert [each.entry.event_type for each in follow(path, last=0, poll=poll)] == [
        "LEDGER_RECOVERED",
        "NOTE",
    ]


def test_without_a_head_file_whole_lines_are_given(path, tmp_path):
    ledger = open_ledger(path)
    ledger.append([note("one")])
    os.unlink(tmp_path / "x.d" / "head")

    assert texts(follow(path, last=1, poll=Poll())) == ["one"]


def test_a_bad_line_ends_it(path):
    ledger = open_ledger(path)
    ledger.append([note("one")])
    ledger.append([note("two")])
    with open(path, "rb") as file:
        content = file.read().replace(b'"reason":"one"', b'"reason":"on"}')
    with open(path, "wb") as file:
        file.write(content)

    with pytest.raises(LedgerDamagedError, match="not a ledger line") as caught:
        list(follow(path, last=2, poll=Poll()))

    genesis = content.index(b"\n") + 1
    assert f"byte {genesis}" in caught.value.where


def test_a_ledger_that_becomes_shorter_ends_it(path, tmp_path):
    ledger = open_ledger(path)
    ledger.append([note("one")])

    def cut():
        os.unlink(tmp_path / "x.d" / "head")
        os.truncate(path, 100)

    with pytest.raises(LedgerDamagedError, match="shorter"):
        list(follow(path, last=0, poll=Poll(cut)))


def test_a_ledger_that_is_replaced_ends_it(path):
    open_ledger(path).append([note("one")])

    with pytest.raises(LedgerDamagedError, match="replaced"):
        list(follow(path, last=0, poll=Poll(lambda: os.rename(path, path + ".aside"))))


def test_a_ledger_that_is_not_there_cannot_be_followed(path):
    with pytest.raises(HostError, match="ledger not found"):
        list(follow(path, last=0, poll=Poll()))
