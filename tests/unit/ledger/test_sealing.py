"""A ledger that checkpoints itself: when, and what happens where it cannot."""

import logging
import os
import shutil
import threading
import time

import pytest

from paddock.errors import ConfigError, HostError, LedgerDamagedError
from paddock.ledger.checkpoint import AutoCheckpoint, Pace, matters
from paddock.ledger.files import open_head
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.notes import Checkpoint, open_note
from paddock.ledger.signing import create_key
from paddock.ledger.tree import TreeFiles, checkpoints_folder, read_notes
from paddock.ledger.verify import Held, verify
from paddock.storage.disk import Disk
from paddock.values.entries import Entry
from tests.support.ledgers import INTENT, RESULT, Pending, changed, note, open_ledger
from tests.support.sealed import ORIGIN, seal_ledger


@pytest.fixture
def warned():
    """What the ledger's log was told."""
    told, log = [], logging.getLogger("paddock.ledger")
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    log.addHandler(handler)
    yield told
    log.removeHandler(handler)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Shelf:
    """Where checkpoints go, in memory."""

    def __init__(self):
        self.sizes = []
        self.failure = None

    def take(self, signed):
        if self.failure is not None:
            raise self.failure
        self.sizes.append(signed.checkpoint.size)


@pytest.fixture
def sealed(tmp_path):
    return seal_ledger(tmp_path, 1)


def open_kept(sealed, shelf, clock, pace=None, now=time.time):
    ledger = open_ledger(sealed.path, create=None)
    pace = pace or Pace(entries=4, interval_s=1.0)
    ledger.keeper = AutoCheckpoint(sealed.checkpointer, shelf, clock, pace, now)
    return ledger


def sizes_beside(sealed):
    return [int(name) for name, _ in read_notes(checkpoints_folder(sealed.path))]


def test_a_checkpoint_is_made_by_count_and_carried_up_at_the_end(sealed):
    shelf, clock = Shelf(), Clock()
    ledger = open_kept(sealed, shelf, clock)

    for _ in range(3):
        ledger.append([note("x")])
    assert sizes_beside(sealed) == [4]
    ledger.append([note("x")])
    # Little time has passed: what covers it is here, and not yet above.
    assert (sizes_beside(sealed), shelf.sizes) == ([4], [])

    ledger.close()
    assert (sizes_beside(sealed), shelf.sizes) == ([4, 5], [5])


class HeldShelf(Shelf):
    """One that takes nothing before a test lets it."""

    def __init__(self):
        super().__init__()
        self.is_open = threading.Event()

    def take(self, signed):
        assert self.is_open.wait(60)
        super().take(signed)


ASIDE = Pace(entries=4, interval_s=1.0, is_waited_for=False)


def test_no_append_waits_for_the_checkpoint_that_it_finds_due_and_the_end_does(sealed):
    shelf, clock = HeldShelf(), Clock()
    ledger = open_kept(sealed, shelf, clock, ASIDE)
    ledger.append([note("x")])

    clock.now = 1.0
    ledger.append([note("x")])
    ledger.append([note("x")])
    assert shelf.sizes == []

    shelf.is_open.set()
    ledger.close()
    assert shelf.sizes in ([3, 4], [4])


def test_a_checkpoint_is_made_and_carried_up_when_time_has_passed(sealed):
    shelf, clock = Shelf(), Clock()
    ledger = open_kept(sealed, shelf, clock)
    ledger.append([note("x")])
    assert sizes_beside(sealed) == []

    clock.now = 1.0
    ledger.append([note("x")])

    assert (sizes_beside(sealed), shelf.sizes) == ([3], [3])


@pytest.mark.parametrize(
    "entry",
    [
        Entry("APPROVAL_ASKED", decision="ask"),
        Entry("APPROVAL_ANSWERED", decision="deny"),
        Entry("TOOL_STAGED", decision="ask"),
        Entry("TOOL_INTENT", metadata={"tool": "x", "approval": {"by": "person", "digest": ""}}),
        Entry("GATE_RESULT"),
        Entry("PACKAGE_INSTALLED"),
        Entry("HOOK_DECISION", decision="ask", metadata={"answer": "ask"}),
        Entry("HOOK_EVENT", metadata={"event": "SessionEnd"}),
        Entry("SESSION_END"),
    ],
    ids=lambda entry: entry.event_type,
)
def test_what_matters_is_covered_above_before_its_append_returns(sealed, entry):
    shelf = Shelf()
    ledger = open_kept(sealed, shelf, Clock(), ASIDE)

    ledger.append([entry])

    assert matters(entry)
    assert shelf.sizes == [2]


CLIENTS_OWN = Entry("HOOK_DECISION", decision="ask", metadata={"answer": "none"})


@pytest.mark.parametrize("entry", [INTENT, RESULT, note("x"), Entry("HOOK_EVENT"), CLIENTS_OWN])
def test_what_does_not_matter_waits(sealed, entry):
    shelf = Shelf()

    open_kept(sealed, shelf, Clock()).append([entry])

    assert not matters(entry)
    assert shelf.sizes == []


def test_write_covers_when_it_is_waited_for(sealed):
    shelf = Shelf()
    pending = Pending(open_kept(sealed, shelf, Clock()), [Entry("GATE_RESULT")])
    assert shelf.sizes == []

    assert pending.wait() == pending.receipt
    assert shelf.sizes == [2]


def test_an_end_without_news_signs_nothing(sealed):
    shelf = Shelf()
    ledger = open_kept(sealed, shelf, Clock())
    ledger.append([Entry("GATE_RESULT")])
    ledger.close()
    ledger.close()
    open_kept(sealed, shelf, Clock()).close()

    assert (sizes_beside(sealed), shelf.sizes) == ([2], [2])


def test_a_hook_leaves_few_entries_to_others(sealed):
    shelf = Shelf()
    pace = Pace(entries=4, interval_s=float("inf"), at_close=False)
    for _ in range(3):
        ledger = open_kept(sealed, shelf, Clock(), pace)
        ledger.append([note("x")])
        ledger.close()

    # Three processes; the last one finds four entries with GENESIS.
    assert shelf.sizes == [4]


EVENTS = Pace(entries=4, interval_s=1.0, at_close=False)
"""Of a process that answers one event and looks at the time."""


def stored_s(sealed):
    return os.stat(sealed.folder / "x.d" / "checkpoints" / "2").st_mtime


@pytest.mark.parametrize(
    ("age_s", "wanted"),
    [(0.5, [2]), (1.0, [2, 4]), (3600.0, [2, 4]), (-1.0, [2, 4])],
    ids=["young", "due", "old", "the clock went back"],
)
def test_what_others_left_is_covered_a_second_after_the_newest_checkpoint(sealed, age_s, wanted):
    shelf = Shelf()
    open_kept(sealed, shelf, Clock()).append([Entry("GATE_RESULT")])
    # Killed, or a hook: it closes nothing, and its clock is gone.
    open_kept(sealed, shelf, Clock()).append([note("x")])

    now = stored_s(sealed) + age_s
    ledger = open_kept(sealed, shelf, Clock(), EVENTS, lambda: now)
    ledger.append([note("x")])
    ledger.close()

    assert (sizes_beside(sealed), shelf.sizes) == (wanted, wanted)


def test_what_others_left_before_any_checkpoint_is_covered_at_once(sealed):
    shelf = Shelf()
    open_kept(sealed, shelf, Clock()).append([note("x")])

    open_kept(sealed, shelf, Clock(), EVENTS).append([note("x")])

    assert shelf.sizes == [3]


def test_an_own_entry_behind_covered_ones_has_its_own_second(sealed):
    shelf, clock = Shelf(), Clock()
    open_kept(sealed, shelf, Clock()).append([Entry("GATE_RESULT")])
    now = stored_s(sealed) + 3600

    ledger = open_kept(sealed, shelf, clock, EVENTS, lambda: now)
    ledger.append([note("x")])
    assert shelf.sizes == [2]

    clock.now = 1.0
    ledger.append([note("x")])
    assert shelf.sizes == [2, 4]


def test_where_it_cannot_be_carried_up_the_append_stands_and_says_why(sealed, warned):
    shelf, clock = Shelf(), Clock()
    ledger = open_kept(sealed, shelf, clock)
    shelf.failure = HostError("no room above")

    ledger.append([Entry("GATE_RESULT")])

    assert [text.rpartition(": ")[2] for text in warned] == ["no room above"]
    assert verify(sealed.path).entries == 2
    shelf.failure = None
    clock.now = 1.0
    ledger.append([note("x")])
    assert shelf.sizes == [3]


def test_what_cannot_be_carried_up_is_said_once_until_it_changes(sealed, warned):
    shelf, clock = Shelf(), Clock()
    ledger = open_kept(sealed, shelf, clock)
    shelf.failure = HostError("no room above")

    for _ in range(3):
        ledger.append([Entry("GATE_RESULT")])

    said = f"the newest entries of {sealed.path!a} are covered by no exported checkpoint: no room above"
    assert warned == [f"paddock: {said}"]
    shelf.failure = HostError("no way up")
    ledger.append([Entry("GATE_RESULT")])
    assert [text.rpartition(": ")[2] for text in warned] == ["no room above", "no way up"]


def test_without_its_key_a_ledger_is_written_and_not_signed(sealed, warned):
    os.unlink(sealed.key)
    ledger = open_kept(sealed, Shelf(), Clock())

    ledger.append([Entry("GATE_RESULT")])

    assert ["key cannot be read" in text for text in warned] == [True]
    assert verify(sealed.path).uncovered.startswith("entries 0 to 1 are covered by no")


def test_a_key_that_the_ledger_does_not_name_signs_nothing_of_it(sealed):
    os.unlink(sealed.key)
    create_key(str(sealed.key), ORIGIN, os.urandom)

    with pytest.raises(ConfigError, match="not the one that the ledger names"):
        open_kept(sealed, Shelf(), Clock()).seal()


def test_a_ledger_that_went_back_is_not_signed(sealed):
    sealed.append(5)
    note_before = sealed.checkpointer.make().note
    sealed.write(sealed.lines()[:3])
    sealed.forget_sidecars()

    with pytest.raises(
        LedgerDamagedError, match="was rolled back: 6 entries were signed, 3 are here"
    ):
        open_kept(sealed, Shelf(), Clock()).seal()
    assert sealed.signer.last().note == note_before


def test_a_ledger_made_anew_is_not_signed(sealed):
    sealed.append(5)
    sealed.checkpointer.make()
    sealed.write(sealed.lines()[:3])
    sealed.forget_sidecars()
    sealed.append(10)

    with pytest.raises(LedgerDamagedError, match="first 6 entries are not those that were signed"):
        sealed.checkpointer.make()


def test_a_ledger_with_a_line_that_does_not_chain_is_not_signed(sealed):
    sealed.append(5)
    lines = sealed.lines()
    sealed.write([*lines[:2], lines[2].replace(b"note", b"nota"), *lines[3:]])

    with pytest.raises(LedgerDamagedError, match="does not follow"):
        sealed.checkpointer.make()


def test_a_line_that_holds_no_entry_is_not_signed_whatever_the_head_file_says(sealed):
    sealed.append(5)
    last = sealed.lines()[-1].replace(b'"reason":', b'"reason":"x","reason":')
    sealed.write([*sealed.lines()[:-1], last])
    head = open_head(Disk(), str(sealed.folder / "x.d" / "head"))
    durable = head.read().durable
    forged = changed(
        durable,
        offset_bytes=os.path.getsize(sealed.path),
        leaf=leaf_hash(last),
        generation=durable.generation + 1,
    )
    head.store_durable(forged, head.read_durable()[1])
    os.close(head.descriptor)

    with pytest.raises(LedgerDamagedError, match="the key 'reason' is given twice"):
        sealed.checkpointer.make()
    assert sealed.signer.last() is None


def test_what_is_not_on_the_disk_for_certain_is_not_signed(sealed):
    ledger = open_ledger(sealed.path, create=None)
    ledger.append([note("durable")])
    ledger.write([note("not yet")])

    assert sealed.checkpointer.make().checkpoint.size == 2


def test_a_seal_covers_all_that_is_written_whoever_wrote_it(sealed):
    ledger = open_kept(sealed, Shelf(), Clock())
    open_ledger(sealed.path, create=None).write([note("nobody waits for it")])

    assert ledger.seal().checkpoint.size == 2


def test_nothing_is_sealed_in_a_ledger_that_was_replaced(sealed):
    ledger = open_kept(sealed, Shelf(), Clock())
    ledger.append([note("one")])
    os.rename(sealed.path, f"{sealed.path}.aside")
    shutil.copyfile(f"{sealed.path}.aside", sealed.path)

    with pytest.raises(LedgerDamagedError, match="replaced"):
        ledger.seal()
    assert sealed.signer.last() is None


@pytest.mark.parametrize("harm", ["removed", "cut", "zeroed", "edge"])
def test_a_tree_that_is_not_whole_is_made_anew_from_the_lines(sealed, harm):
    sealed.append(600)
    sealed.checkpointer.make()
    tree = sealed.folder / "x.d" / "tree.0"
    if harm == "removed":
        for each in tree.parent.glob("tree.*"):
            each.unlink()
    elif harm == "cut":
        os.truncate(tree, 32 * 100)
    elif harm == "zeroed":
        tree.write_bytes(bytes(32 * 300) + tree.read_bytes()[32 * 300 :])
        (tree.parent / "tree.1").unlink()
    else:
        (tree.parent / "tree.edge").write_text("nonsense", encoding="ascii")
    sealed.append(10)

    signed = sealed.checkpointer.make()

    assert signed.checkpoint.size == 611
    assert verify(sealed.path, held=[Held("it", signed.note)]).covered_entries == 611
    files = TreeFiles(str(tree.parent), create=False)
    assert (files.edge.entries, tree.stat().st_size) == (611, 611 * 32)
    files.close()


def number(field, text):
    """`tree.edge` with another number."""

    def attack(folder):
        fields = (folder / "tree.edge").read_text("ascii").split(" ")
        fields[field] = text
        (folder / "tree.edge").write_text(" ".join(fields), encoding="ascii")

    return attack


def instead(name, make):
    def attack(folder):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return attack


BESIDE = {
    "a size that no system takes": number(0, "9" * 30),
    "a place that no system takes": number(1, "9" * 20),
    "a place that no integer holds": number(1, "9" * 200),
    "a pipe for the leaves": instead("tree.0", os.mkfifo),
    "a directory for the leaves": instead("tree.0", os.mkdir),
    "a link for the leaves": instead("tree.0", lambda place: place.symlink_to("/dev/full")),
    "a pipe for the draft": instead("tree.edge.new", os.mkfifo),
    "a link for the draft": instead("tree.edge.new", lambda place: place.symlink_to("head")),
}


@pytest.mark.parametrize("attack", BESIDE.values(), ids=BESIDE)
def test_what_is_put_in_the_place_of_the_tree_stops_no_checkpoint(sealed, attack):
    sealed.append(9)
    sealed.checkpointer.make()
    sealed.append(10)
    head = (sealed.folder / "x.d" / "head").read_bytes()
    attack(sealed.folder / "x.d")

    signed = sealed.checkpointer.make()

    assert signed.checkpoint.size == 20
    assert verify(sealed.path, held=[Held("it", signed.note)]).covered_entries == 20
    assert (sealed.folder / "x.d" / "head").read_bytes() == head
    files = TreeFiles(str(sealed.folder / "x.d"), create=False)
    assert (files.edge.entries, len(files.leaves(0, 20))) == (20, 20)
    files.close()


def test_the_tree_is_shaped_as_tiles(sealed):
    sealed.append(600)
    sealed.checkpointer.make()

    names = {each.name: each.stat().st_size for each in (sealed.folder / "x.d").glob("tree.[0-9]")}

    assert names == {"tree.0": 601 * 32, "tree.1": 2 * 32}


def test_a_checkpoint_says_origin_size_and_root(sealed):
    signed = sealed.checkpointer.make()

    assert signed.checkpoint == Checkpoint(ORIGIN, 1, signed.checkpoint.root)
    assert open_note(signed.note, sealed.signer.verifier) == signed
    assert sealed.signer.last() == signed


def test_many_checkpoints_are_thinned_out_and_the_newest_stay(sealed, monkeypatch):
    monkeypatch.setattr("paddock.limits.checkpoints_kept_max", 3)
    for _ in range(6):
        sealed.append(1)
        sealed.checkpointer.make()

    assert sizes_beside(sealed) == [5, 6, 7]
