"""An entry's lines are read back as they were written, up to what a crash tore."""

import json

import pytest

from paddock.errors import IntegrityError
from paddock.storage.journal import (
    FORMAT,
    RESERVE,
    CommitRecord,
    EndRecord,
    EntryMark,
    Intent,
    MarkKind,
    Metadata,
    MetadataStep,
    Records,
    SwapStep,
    UndoRecord,
    decode,
    encode_line,
    payload_of,
)

NAME = "0" * 32 + ".entry"
INTENT = Intent("/home/x/\udcff", 17, "a" * 24, (".", "d\n/\udce9"), "C-1")
STEPS = (
    SwapStep(".", "x", 0, None, EntryMark(MarkKind.FILE, 1, 2, -3)),
    SwapStep("d", "\udcff", 1, EntryMark(MarkKind.DIRECTORY, 9, 0, 0, "ab"), None),
    SwapStep(
        "d", "l", 2, EntryMark(MarkKind.LINK, 9, 1, 1), EntryMark(MarkKind.FILE, 2**63, 2**62, 0)
    ),
    MetadataStep("d", "m", 4, Metadata(0o4755, None), Metadata(0o700, 12)),
)


def entry(*payloads) -> bytes:
    content, previous = b"", NAME
    for payload in payloads:
        line, previous = encode_line(previous, payload)
        content += line
    return content


WHOLE = entry(
    payload_of(INTENT),
    payload_of(CommitRecord(STEPS)),
    payload_of(UndoRecord()),
    payload_of(EndRecord()),
)


def test_what_is_encoded_is_decoded():
    records, _, end_bytes = decode(NAME, WHOLE + RESERVE)
    assert records == Records(INTENT, STEPS, is_undone=True, is_ended=True)
    assert end_bytes == len(WHOLE)


def test_every_line_is_ascii_and_begins_with_its_digest():
    assert WHOLE.isascii()
    for line in WHOLE.splitlines():
        assert json.loads(line[65:])["record"] in {"intent", "commit", "undo", "end"}


@pytest.mark.parametrize("filler", [b"", RESERVE, b"x" * 30], ids=["end", "reserve", "noise"])
def test_a_torn_record_is_as_if_it_had_not_been_written(filler):
    ends = [at + 1 for at, byte in enumerate(WHOLE) if byte == ord("\n")]
    expected = [
        Records(),
        Records(INTENT),
        Records(INTENT, STEPS),
        Records(INTENT, STEPS, is_undone=True),
        Records(INTENT, STEPS, is_undone=True, is_ended=True),
    ]
    for cut in range(len(WHOLE) + 1):
        whole = sum(end <= cut for end in ends)
        assert decode(NAME, WHOLE[:cut] + filler)[0] == expected[whole], cut


def test_a_changed_byte_ends_the_entry_there():
    commit_at = WHOLE.index(b"\n") + 1
    for at in range(commit_at, len(WHOLE)):
        changed = WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :]
        assert decode(NAME, changed)[2] <= at


def test_a_line_of_another_entry_does_not_count():
    assert decode("1" * 32 + ".entry", WHOLE)[0] == Records()


@pytest.mark.parametrize(
    "payloads",
    [
        [payload_of(CommitRecord(()))],
        [payload_of(INTENT), payload_of(INTENT)],
        [payload_of(INTENT), payload_of(EndRecord())],
        [payload_of(INTENT), payload_of(UndoRecord())],
        [{"record": "other"}],
        [["record"]],
        [payload_of(INTENT) | {"format": "paddock-journal/2"}],
        [payload_of(INTENT) | {"root": 1}],
        [payload_of(INTENT) | {"root_inode": True}],
        [payload_of(INTENT), {"record": "commit", "steps": [["swap", ".", "x"]]}],
        [payload_of(INTENT), {"record": "commit", "steps": [["x", ".", "x", 0, None, None]]}],
    ],
    ids=str,
)
def test_a_whole_line_that_makes_no_sense_is_damage_and_not_a_crash(payloads):
    with pytest.raises(IntegrityError, match=FORMAT):
        decode(NAME, entry(*payloads))
