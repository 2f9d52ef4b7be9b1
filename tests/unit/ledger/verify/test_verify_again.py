"""A second verification does not read again what nobody touched, and finds what somebody did."""

import hashlib
import os

import pytest
from msgspec.structs import replace

from paddock.ledger.append import LedgerFile
from paddock.ledger.format.notes import Checkpoint, leaf_nodes, root_of
from paddock.ledger.verify import ChainFault, Held, Unanswered, verify
from paddock.values.entries import Entry
from tests.support.ledgers import INTENT, RESULT, note
from tests.support.sealed import ORIGIN, load_verifier, seal_ledger

SEGMENT = 5_000


def append(sealed, entries):
    ledger = LedgerFile(
        sealed.path, create=None, clock=lambda: 0.0, randomness=os.urandom, segment_bytes=SEGMENT
    )
    for entry in entries:
        ledger.append([entry])
    ledger.close()


@pytest.fixture
def sealed(tmp_path):
    """Several files; the first holds an intent whose result comes in the last."""
    made = seal_ledger(tmp_path, 1)
    append(made, [INTENT, *[note("x" * 300)] * 60])
    return made


def files(sealed):
    return sorted(sealed.folder.glob("x.0*.jsonl"))


def test_files_that_nobody_touched_are_not_read_again(sealed):
    held = [Held("it", sealed.checkpointer.make().note)]
    first = verify(sealed.path)
    append(sealed, [note("more")] * 3)

    again = verify(sealed.path, held=held, since=first.memory)

    assert first.is_whole
    assert len(files(sealed)) > 2
    assert (first.unread_entries, first.memory.size) == (0, again.unread_entries)
    assert 0 < again.unread_entries < first.entries
    whole = verify(sealed.path)
    assert (again.problems, again.entries, again.head) == ((), whole.entries, whole.head)
    assert (
        again.unanswered
        == whole.unanswered
        == (Unanswered(1, "SES-1", "main", "call-1", "view_file"),)
    )


def test_an_intent_of_before_is_answered_by_a_result_of_now(sealed):
    held = [Held("it", sealed.checkpointer.make().note)]
    first = verify(sealed.path)
    append(sealed, [RESULT])

    again = verify(sealed.path, held=held, since=first.memory)
    assert (again.unanswered, again.unread_entries) == ((), first.memory.size)
    assert verify(sealed.path).unanswered == ()


def test_a_checkpoint_is_compared_over_what_was_not_read_again(sealed):
    first = verify(sealed.path)
    signed = sealed.checkpointer.make()

    again = verify(sealed.path, held=[Held("it", signed.note)], since=first.memory)

    assert again.unread_entries > 0
    assert (again.problems, again.covered_entries) == ((), first.entries)


def test_a_file_that_somebody_touched_is_read_again(sealed):
    held = [Held("it", sealed.checkpointer.make().note)]
    first = verify(sealed.path)
    target = files(sealed)[0]
    content = target.read_bytes()
    target.write_bytes(content.replace(b'"xxx', b'"xxy', 1))

    (problem, *_) = verify(sealed.path, held=held, since=first.memory).problems

    assert problem.kind is ChainFault.CHANGED


def test_a_change_in_the_newest_file_is_found(sealed):
    held = [Held("it", sealed.checkpointer.make().note)]
    first = verify(sealed.path)
    lines = sealed.lines()
    sealed.write([lines[0].replace(b"xxx", b"xxy", 1), *lines[1:]])

    assert not verify(sealed.path, held=held, since=first.memory).is_whole


def test_what_was_found_damaged_is_not_remembered(sealed):
    target = files(sealed)[0]
    target.write_bytes(target.read_bytes().replace(b'"xxx', b'"xxy', 1))

    assert verify(sealed.path).memory is None


def test_a_memory_of_another_ledger_is_not_used(sealed):
    first = verify(sealed.path)
    held = [Held("it", sealed.checkpointer.make().note)]
    false = replace(first.memory, edge=("00" * 32,))

    found = verify(sealed.path, held=held, since=false)

    # An edge that does not fit its size: all is read.
    assert (found.problems, found.entries, found.unread_entries) == ((), first.entries, 0)


@pytest.mark.parametrize("by", [-1, 0, 1], ids=["before", "at", "after"])
def test_a_checkpoint_that_ends_at_the_border_of_a_file_is_compared(sealed, by):
    first = verify(sealed.path)
    leaves = [hashlib.sha256(b"\0" + line).digest() for line in all_lines(sealed)]
    size = first.memory.size + by
    true, false = root_of(leaf_nodes(leaves), size), bytes(32)
    notes = [sealed.signer.sign(Checkpoint(ORIGIN, size, true), []).note]
    sealed.signer.forget()
    notes.append(sealed.signer.sign(Checkpoint(ORIGIN, size, false), []).note)

    fits, not_so = (verify(sealed.path, held=[Held("it", n)], since=first.memory) for n in notes)

    assert (fits.problems, fits.covered_entries) == ((), size)
    assert fits.unread_entries == (0 if by < 0 else first.memory.size)
    assert [each.kind for each in not_so.problems] == [ChainFault.REWRITTEN]
    assert not_so.covered_entries == 0


def all_lines(sealed):
    parts = [*files(sealed), sealed.folder / "x.jsonl"]
    return b"".join(part.read_bytes() for part in parts).split(b"\n")[:-1]


def test_where_no_checkpoint_reaches_as_far_all_is_read(sealed):
    first = verify(sealed.path)

    assert verify(sealed.path, since=first.memory).unread_entries == 0


def test_nested_calls_of_one_name_are_paired_newest_first(tmp_path):
    sealed = seal_ledger(tmp_path, 1)
    append(sealed, [INTENT, INTENT, RESULT, note("x"), Entry("TOOL_RESULT", call_id="nobody")])

    (left,) = verify(sealed.path).unanswered

    assert left.seq == 1


def test_the_other_verifier_reads_all_files_of_a_ledger(sealed, tmp_path):
    other = load_verifier()
    kept = tmp_path / "kept"
    kept.write_text(sealed.checkpointer.make().note, encoding="utf-8")
    assert other.verify_ledger(sealed.path, [str(kept)])[0] == []

    middle = files(sealed)[1]
    content = middle.read_bytes()
    middle.write_bytes(content.replace(b'"xxx', b'"xxy', 1))
    (ours, *_) = verify(sealed.path).problems
    assert other.verify_ledger(sealed.path, [])[0][0][0] == ours.line

    middle.unlink()
    assert not verify(sealed.path).is_whole
    assert other.verify_ledger(sealed.path, [])[0]
