"""What was done to a ledger is found, with its position."""

import json
import os
import shutil
import threading

import pytest

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.format.line import chain_line, leaf_hash
from paddock.ledger.format.lines import LineFault, encode_body
from paddock.ledger.verify import ChainFault, Unanswered, verify
from paddock.values.entries import Entry
from tests.support.ledgers import GENESIS, INTENT, RESULT, note, open_ledger

COUNT = 10


@pytest.fixture
def path(tmp_path):
    found = os.path.join(tmp_path, "x.jsonl")
    ledger = open_ledger(found)
    for number in range(1, COUNT):
        ledger.append([note(f"note {number}")])
    ledger.close()
    return found


def read(path):
    with open(path, "rb") as file:
        return file.read().split(b"\n")[:-1]


def write(path, lines):
    with open(path, "wb") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def test_a_whole_ledger_has_no_problems(path):
    found = verify(path)

    lines = read(path)
    assert found.problems == ()
    assert found.is_whole
    assert (found.entries, found.torn_bytes, found.genesis) == (COUNT, 0, GENESIS)
    assert (found.head.seq, found.head.hash) == (COUNT - 1, leaf_hash(lines[-1]))
    assert found.uncovered == (
        "entries 0 to 9 are covered by no exported checkpoint: "
        "they could have been cut off or rewritten"
    )


def edited(line):
    return line.replace(b'"note ', b'"nota ')


def re_encoded(line):
    return line.replace(b'"reason":"', b'"reason": "')


def twice(line):
    return line.replace(b'"reason":', b'"reason":"x","reason":')


def stripped(line):
    return line[: line.index(b',"seq"')] + b"}"


def renumbered(line, seq):
    return line.replace(b'"seq":%d' % json.loads(line)["seq"], b'"seq":%d' % seq)


def with_line(at, change):
    return lambda lines: [change(line) if n == at else line for n, line in enumerate(lines)]


def swapped(lines):
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


# What is done, and what is found first: the fault, at which line and sequence number.
TAMPERING = {
    "edit": (with_line(4, edited), ChainFault.CHANGED, 5, 4),
    "edit of the first": (
        with_line(0, lambda line: line.replace(b'"HOT"', b'"HO1"')),
        ChainFault.CHANGED,
        1,
        0,
    ),
    "delete": (lambda lines: lines[:4] + lines[5:], ChainFault.MISSING, 5, 4),
    "delete the first": (lambda lines: lines[1:], ChainFault.MISSING, 1, 0),
    "delete two and renumber": (
        lambda lines: (
            lines[:4] + [renumbered(line, n - 2) for n, line in enumerate(lines) if n > 5]
        ),
        ChainFault.CHANGED,
        4,
        3,
    ),
    "swap": (swapped, ChainFault.MISSING, 5, 4),
    "repeat": (lambda lines: [*lines[:5], lines[4], *lines[5:]], ChainFault.OUT_OF_ORDER, 6, 5),
    "insert garbage": (lambda lines: [*lines[:4], b"{}", *lines[4:]], LineFault.FIELDS, 5, 4),
    "insert a blank line": (lambda lines: [*lines[:4], b"", *lines[4:]], LineFault.BLANK, 5, 4),
    "insert text": (lambda lines: [*lines[:4], b"hello", *lines[4:]], LineFault.GARBAGE, 5, 4),
    "re-encode": (with_line(4, re_encoded), LineFault.RE_ENCODED, 5, 4),
    "duplicate key": (with_line(4, twice), LineFault.DUPLICATE_KEY, 5, 4),
    "strip a hash": (with_line(4, stripped), LineFault.FIELDS, 5, 4),
    "strip all hashes": (lambda lines: list(map(stripped, lines)), LineFault.FIELDS, 1, 0),
    "carriage return": (with_line(4, lambda line: line + b"\r"), LineFault.CARRIAGE_RETURN, 5, 4),
    "all carriage returns": (
        lambda lines: [line + b"\r" for line in lines],
        LineFault.CARRIAGE_RETURN,
        1,
        0,
    ),
    "byte order mark": (
        with_line(0, lambda line: b"\xef\xbb\xbf" + line),
        LineFault.BYTE_ORDER_MARK,
        1,
        0,
    ),
    "NUL": (with_line(4, lambda line: line[:50] + b"\0" + line[51:]), LineFault.NUL, 5, 4),
    "missing LF": (
        lambda lines: [*lines[:4], lines[4] + lines[5], *lines[6:]],
        LineFault.GARBAGE,
        5,
        4,
    ),
    "split": (
        lambda lines: [*lines[:4], lines[4][:60], lines[4][60:], *lines[5:]],
        LineFault.GARBAGE,
        5,
        4,
    ),
    "another link": (
        with_line(4, lambda line: line[:-66] + b"0" * 64 + b'"}'),
        ChainFault.CHANGED,
        4,
        3,
    ),
}


@pytest.mark.parametrize("name", TAMPERING)
@pytest.mark.parametrize("with_head", [True, False], ids=["with head", "without"])
def test_tampering_in_the_middle_is_found_with_its_position(path, tmp_path, name, with_head):
    change, kind, line, seq = TAMPERING[name]
    before = read(path)
    after = change(before)
    assert after != before
    write(path, after)
    if not with_head:
        shutil.rmtree(tmp_path / "x.d")

    found = verify(path)

    first = found.problems[0]
    offset = sum(len(each) + 1 for each in after[: line - 1])
    assert (first.kind, first.line, first.seq, first.offset_bytes) == (kind, line, seq, offset)
    assert not found.is_whole


def rechained(lines, start):
    """As someone would who knows the format: everything from `start` made anew."""
    found = lines[:start]
    for line in lines[start:]:
        values = json.loads(line)
        entry = Entry("NOTE", reason=values["reason"].upper())
        body = encode_body(entry, values["id"], values["timestamp"])
        found.append(chain_line(body, len(found), leaf_hash(found[-1])))
    return found


HEAD_KNOWS = {
    "cut off": (lambda lines: lines[:-2], ChainFault.CUT, 9, 8),
    "rewritten from the middle": (lambda lines: rechained(lines, 5), ChainFault.HEAD, 10, 9),
    "edit of the last": (with_line(9, edited), ChainFault.HEAD, 10, 9),
}


@pytest.mark.parametrize("name", HEAD_KNOWS)
def test_what_the_chain_cannot_see_is_found_where_the_head_file_knows_better(path, name):
    change, kind, line, seq = HEAD_KNOWS[name]
    write(path, change(read(path)))

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line, problem.seq) == (kind, line, seq)


@pytest.mark.parametrize("name", HEAD_KNOWS)
def test_without_the_head_file_that_is_only_stated_as_uncovered(path, tmp_path, name):
    """The limit of a chain. A checkpoint that is held elsewhere is what finds these."""
    write(path, HEAD_KNOWS[name][0](read(path)))
    shutil.rmtree(tmp_path / "x.d")

    found = verify(path)

    assert found.is_whole
    assert "covered by no exported checkpoint" in found.uncovered


def test_what_follows_the_last_whole_line_is_said_and_is_no_problem(path):
    with open(path, "ab") as file:
        file.write(b'{"id":"LED-')

    found = verify(path)

    assert (found.problems, found.torn_bytes, found.entries) == ((), 11, COUNT)


def test_a_last_line_that_lost_its_end_is_a_problem(path):
    os.truncate(path, os.path.getsize(path) - 1)

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line, problem.seq) == (ChainFault.CUT, COUNT, COUNT - 1)


@pytest.mark.parametrize("text", [b'"no', b'"note 9, and more'], ids=["shorter", "longer"])
def test_a_last_line_of_another_length_is_found_where_the_head_file_knows_better(path, text):
    *others, last = read(path)
    write(path, [*others, last.replace(b'"note 9', text)])

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line, problem.seq) == (ChainFault.HEAD, COUNT, COUNT - 1)
    assert problem.offset_bytes == sum(len(line) + 1 for line in others)


def test_whole_lines_beyond_the_head_must_verify_too(path):
    with open(path, "ab") as file:
        file.write(b"hello\n")

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line) == (LineFault.GARBAGE, COUNT + 1)


def test_genesis_stands_at_the_beginning_and_nowhere_else(path):
    ledger = open_ledger(path)
    ledger.append([GENESIS.entry()])

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line) == (ChainFault.GENESIS, COUNT + 1)


def test_a_ledger_that_begins_with_another_entry_is_found(tmp_path):
    path = os.path.join(tmp_path, "x")
    body = encode_body(Entry("NOTE"), "LED-" + "0" * 32, "1970-01-01T00:00:00.000000Z")
    write(path, [chain_line(body, 0, "0" * 64)])

    assert [problem.kind for problem in verify(path).problems] == [ChainFault.GENESIS]


def test_a_first_line_that_follows_another_is_found(tmp_path):
    path = os.path.join(tmp_path, "x")
    body = encode_body(GENESIS.entry(), "LED-" + "0" * 32, "1970-01-01T00:00:00.000000Z")
    write(path, [chain_line(body, 0, "1" * 64)])

    assert {problem.kind for problem in verify(path).problems} == {ChainFault.GENESIS}


def test_an_empty_file_is_no_ledger(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")

    found = verify(os.fspath(path))

    assert [problem.kind for problem in found.problems] == [ChainFault.GENESIS]
    assert (found.entries, found.head, found.uncovered) == (0, None, "")


def test_another_format_version_is_not_verified(tmp_path):
    path = os.path.join(tmp_path, "x")
    entry = Entry("GENESIS", metadata=dict(GENESIS.entry().metadata) | {"format": 2})
    body = encode_body(entry, "LED-" + "0" * 32, "1970-01-01T00:00:00.000000Z")
    write(path, [chain_line(body, 0, "0" * 64)])

    with pytest.raises(HostError, match="unknown ledger format 2"):
        verify(path)


def test_an_intent_without_a_result_is_reported(path):
    ledger = open_ledger(path)
    ledger.append([INTENT, RESULT])
    ledger.append([INTENT])
    ledger.append([Entry("TOOL_RESULT", session_id="SES-1", agent="main", call_id="another")])
    ledger.append([Entry("TOOL_INTENT", session_id="SES-2", agent="main", call_id="call-1")])

    found = verify(path)

    assert found.problems == ()
    assert found.unanswered == (
        Unanswered(COUNT + 2, "SES-1", "main", "call-1", "view_file"),
        Unanswered(COUNT + 4, "SES-2", "main", "call-1", ""),
    )


def test_more_problems_than_are_listed_are_counted(path):
    write(path, read(path) + [b"x"] * (limits.ledger_problems_listed_max + 5))

    found = verify(path)

    assert (len(found.problems), found.problems_omitted) == (limits.ledger_problems_listed_max, 5)


def test_a_line_longer_than_any_can_be_is_found_with_its_position(path):
    lines = read(path)
    lines[4] = b"x" * 5_000_000
    write(path, lines)

    (problem,) = verify(path).problems

    assert (problem.kind, problem.line) == (LineFault.TOO_LONG, 5)
    assert problem.offset_bytes == sum(len(each) + 1 for each in lines[:4])


def test_long_lines_verify(path):
    ledger = open_ledger(path)
    ledger.append([note("long", limits.entry_bytes_max - 500) for _ in range(3)])

    assert verify(path).problems == ()


def test_a_ledger_that_grows_verifies_at_every_moment(path):
    ledger = open_ledger(path)

    def work():
        for _ in range(200):
            ledger.write([note("grow", 5000), note("grow")])

    thread = threading.Thread(target=work)
    thread.start()
    found = [verify(path)]
    while thread.is_alive():
        found.append(verify(path))
    thread.join()

    assert [each.problems for each in found] == [()] * len(found)
    assert verify(path).entries == COUNT + 400
