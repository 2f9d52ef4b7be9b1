"""The lean writer beside the ledger's own: nothing is lost, split or said that is not so."""

import errno
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock import limits
from paddock.apps.hook.lean.records import LeanRecord, encode_record
from paddock.apps.hook.lean.request import HookEvent
from paddock.ledger import tail
from paddock.ledger.query import Filter, query
from paddock.ledger.read import read_head
from paddock.ledger.tail import AppendFailedError, LedgerPaths, NotPlainError, append_plain
from paddock.ledger.verify import verify
from tests.support.ledgers import is_poisoned, note, open_ledger, reasons

WRITERS = 6
ROUNDS = 4


def lean_append(path: Path, text: str, filling: str = "", disk=os) -> None:
    """One entry as the hook appends it. Raises: NotPlainError, AppendFailedError."""
    asked = HookEvent("PreToolUse", "claude", {})
    record = LeanRecord("NOTE", asked, "", "", text, {"filling": filling} if filling else {})
    body = encode_record(record, os.urandom(16), time.time())
    status = path.stat()
    append_plain(str(path), (status.st_dev, status.st_ino), body, disk)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "ho1m.jsonl"
    open_ledger(made).close()
    return made


def holds(path: Path, wanted: list[str]) -> bool:
    found = verify(str(path))
    assert found.problems == ()
    return reasons(path) == wanted


def test_both_writers_take_turns_in_one_chain(path: Path):
    with_store = open_ledger(path)
    for number in range(4):
        lean_append(path, f"lean {number}")
        with_store.append([note(f"store {number}")])
    with_store.close()

    assert holds(path, [f"{who} {number}" for number in range(4) for who in ("lean", "store")])


def test_what_the_lean_writer_acknowledged_counts_as_durable(path: Path):
    lean_append(path, "one")
    page = read_head(LedgerPaths(str(path)).head)

    assert page.durable.offset_bytes == page.newest.offset_bytes == path.stat().st_size


def test_killed_writers_of_both_kinds_lose_nothing_that_was_acknowledged(
    path: Path, tmp_path: Path
):
    chance = random.Random(7)
    for number in range(ROUNDS):
        children = [
            fork(path, tmp_path / f"notes-{number}-{each}", each) for each in range(WRITERS)
        ]
        for child in children:
            time.sleep(chance.uniform(0.005, 0.05))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    open_ledger(path).close()

    assert verify(str(path)).problems == ()
    written = {row.entry.reason for row in query(str(path), Filter("NOTE")).entries}
    acknowledged = {
        text for notes in tmp_path.glob("notes-*") for text in notes.read_text().split("\n")[:-1]
    }
    assert len(acknowledged) > ROUNDS
    assert acknowledged - written == set()


# --- a file that is full -----------------------------------------------------------------


def rotate(path: Path, text: str = "fills") -> None:
    """The store goes on in a new file."""
    ledger = open_ledger(path, segment_bytes=1_000)
    ledger.append([note(text, 900)])
    ledger.close()


def test_after_the_store_has_gone_on_in_a_new_file_the_lean_writer_does_too(path: Path):
    lean_append(path, "one")
    rotate(path, "two")
    lean_append(path, "three")
    rotate(path, "four")
    store = open_ledger(path)
    lean_append(path, "five")
    store.append([note("six")])
    lean_append(path, "seven")
    store.close()

    assert len(list(path.parent.glob("ho1m.*.jsonl"))) == 2
    assert holds(path, ["one", "two", "three", "four", "five", "six", "seven"])


def test_a_file_that_is_full_is_left_to_the_store(path: Path, monkeypatch: pytest.MonkeyPatch):
    assert limits.ledger_segment_bytes == tail.SEGMENT_BYTES
    monkeypatch.setattr(tail, "SEGMENT_BYTES", path.stat().st_size + 400)

    with pytest.raises(NotPlainError, match="full"):
        lean_append(path, "one", "x" * 200)
    monkeypatch.setattr(tail, "SEGMENT_BYTES", path.stat().st_size + 700)
    lean_append(path, "two", "x" * 200)

    assert holds(path, ["two"])


def test_the_image_of_a_file_that_was_sealed_since_is_left_to_the_store(path: Path):
    identity = (path.stat().st_dev, path.stat().st_ino)
    rotate(path)

    with pytest.raises(NotPlainError, match="was replaced"):
        append_plain(str(path), identity, b'{"id":"LED-"}')


class Sealing:
    """The system calls of the lean writer: behind its sync the store seals the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_synced = False

    def __getattr__(self, name: str):
        return getattr(os, name)

    def fdatasync(self, file: int) -> None:
        os.fdatasync(file)
        self.is_synced = True

    def stat(self, path: str | int) -> os.stat_result:
        if self.is_synced:
            self.is_synced = False
            rotate(self.path, "later")
        return os.stat(path)


def test_an_entry_whose_file_is_sealed_before_the_last_look_is_acknowledged(path: Path):
    lean_append(path, "one", disk=Sealing(path))

    assert holds(path, ["one", "later"])


class Acting:
    """The system calls of the lean writer: something happens while it syncs."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def __getattr__(self, name: str):
        return getattr(os, name)

    def fdatasync(self, file: int) -> None:
        self.act()
        os.fdatasync(file)


@pytest.mark.parametrize("replaced", ["x.jsonl", "x.d", "x.d/lock", "x.d/slock", "x.d/head"])
def test_in_a_ledger_that_is_replaced_while_it_syncs_nobody_is_acknowledged(
    replaced: str, tmp_path: Path
):
    path = tmp_path / "x.jsonl"
    other = open_ledger(path)
    other.write([note("another's")])
    durable = other._files.head.read().durable

    def replace() -> None:
        old = tmp_path / replaced
        new = tmp_path / "new"
        (shutil.copytree if old.is_dir() else shutil.copyfile)(old, new)
        old.rename(tmp_path / "old")
        new.rename(old)

    with pytest.raises(AppendFailedError, match="replaced while in use"):
        lean_append(path, "mine", disk=Acting(replace))

    assert other._files.head.read().durable == durable
    other.close()


def test_a_base_that_is_not_known_is_left_to_the_store(path: Path):
    with (path.with_suffix(".d") / "head").open("r+b") as head:
        head.seek(2560)
        head.write(bytes(12))

    with pytest.raises(NotPlainError, match="incomplete"):
        lean_append(path, "one")
    open_ledger(path).close()
    lean_append(path, "two")
    assert holds(path, ["two"])


def fork(path: Path, notes: Path, number: int) -> int:
    """A process that appends until it is killed, even ones by the lean writer."""
    child = os.fork()
    if child:
        return child
    try:
        kept = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        store = open_ledger(path, segment_bytes=60_000) if number % 2 else None
        count = 0
        while True:
            count += 1
            text = f"{notes.name}-{count}"
            filling = "x" * random.choice([0, 0, 0, 5_000, 40_000])
            if store is not None:
                store.append([note(text, len(filling))])
            else:
                try:
                    lean_append(path, text, filling)
                except NotPlainError:
                    continue
            os.write(kept, f"{text}\n".encode())
    finally:
        os._exit(1)


# --- what is not plain is declined, and nothing was written ---------------------------


def torn(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"id":"LED-')


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def changed_last_line(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"reason":"first"', b'"reason":"worst"'))


def head_gone(path: Path) -> None:
    (path.with_suffix(".d") / "head").unlink()


def head_zeroed(path: Path) -> None:
    (path.with_suffix(".d") / "head").write_bytes(bytes(4096))


def pending(path: Path) -> None:
    torn_folder = path.with_suffix(".d") / "torn"
    torn_folder.mkdir()
    (torn_folder / f"0-{'0' * 64}.pending").write_bytes(b"")


def another_file(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


STATES = [
    torn,
    cut,
    changed_last_line,
    head_gone,
    head_zeroed,
    pending,
    a_directory,
]


@pytest.mark.parametrize("change", STATES)
def test_a_ledger_that_is_not_plain_is_left_to_the_store(
    change: Callable[[Path], None], path: Path
):
    lean_append(path, "first")
    identity = (path.stat().st_dev, path.stat().st_ino)
    change(path)
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(NotPlainError):
        append_plain(str(path), identity, b'{"id":"LED-"}')
    assert (path.read_bytes() if path.is_file() else b"") == before


def test_behind_a_line_however_long_the_lean_writer_goes_on(path: Path):
    ledger = open_ledger(path)
    ledger.append([note("long", 1_000_000)])
    ledger.close()
    lean_append(path, "next")

    assert holds(path, ["long", "next"])


def test_a_ledger_that_was_replaced_is_left_to_the_store(path: Path):
    identity = (path.stat().st_dev, path.stat().st_ino)
    another_file(path)

    with pytest.raises(NotPlainError, match="was replaced"):
        append_plain(str(path), identity, b'{"id":"LED-"}')


def test_a_poisoned_ledger_is_left_to_the_store(path: Path):
    ledger = open_ledger(path)
    ledger._files.head.poison(ledger._boot)
    ledger.close()

    with pytest.raises(NotPlainError):
        lean_append(path, "never")


def test_a_lock_that_is_held_is_left_to_the_store(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tail, "_LOCK_TIMEOUT_S", 0.001)
    held = open_ledger(path)
    held._files.lock.acquire()

    with pytest.raises(NotPlainError, match="locked"):
        lean_append(path, "never")
    held._files.lock.release()
    held.close()
    lean_append(path, "now")
    assert holds(path, ["now"])


# --- calls that fail half-way ---------------------------------------------------------


class Failing:
    """The system calls of the lean writer, one of which fails."""

    def __init__(self, name: str, fault: OSError, after: int = 0) -> None:
        self.name = name
        self.fault = fault
        self.left = after

    def __getattr__(self, name: str):
        real = getattr(os, name)
        if name != self.name:
            return real

        def failing(*arguments):
            if self.left:
                self.left -= 1
                return real(*arguments)
            if name == "write":
                real(arguments[0], arguments[1][:10])
            raise self.fault

        return failing


@pytest.mark.parametrize(
    ("name", "number", "after"),
    [("write", errno.ENOSPC, 0), ("fdatasync", errno.EIO, 0), ("pwrite", errno.ENOSPC, 0),
     ("pwrite", errno.EIO, 1)],
)  # fmt: skip
def test_what_fails_half_way_is_not_acknowledged_and_the_ledger_stays_whole(
    name, number, after, path: Path
):
    lean_append(path, "first")
    fault = OSError(number, os.strerror(number))
    with pytest.raises(AppendFailedError):
        lean_append(path, "second", disk=Failing(name, fault, after))

    assert verify(str(path)).problems == ()
    if name == "write":
        assert holds(path, ["first"])
        lean_append(path, "third")
        assert holds(path, ["first", "third"])
    if name == "fdatasync":
        # The disk failed: nobody acknowledges anything any more, until a restart.
        assert is_poisoned(str(path))
        with pytest.raises(NotPlainError):
            lean_append(path, "third")
