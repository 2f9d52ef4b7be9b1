"""Create checkpoints of a ledger and store them beside it, automatically when they are due.

The durable lines are hashed and must chain; the signer compares the result with its last checkpoint
and signs; the note is stored; then the tree's edge advances. No thread waits for an append lock
while it holds the lock on `checkpoints/`, or the reverse. A failed checkpoint stops no append:
`problem` and a warning in the log `paddock.ledger` give the reason.
"""

import os
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError, PaddockError
from paddock.ledger.format.lines import Head
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint, consistency_path
from paddock.ledger.read import LedgerReader, failing
from paddock.ledger.signing import Signer, require_growth
from paddock.ledger.tail import NOTHING_DURABLE, LedgerPaths, Mark
from paddock.ledger.tree import TreeFiles, checkpoints_folder, note_sizes
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import is_temporary_name, make_directories, replace_file
from paddock.storage.locks import call_after_fork, locked, try_locked
from paddock.values import entries as events
from paddock.values.entries import Entry


class Checkpointer:
    def __init__(self, ledger: str, signer: Callable[[], Signer]) -> None:
        self.ledger, self._signer = ledger, signer
        self._folder = checkpoints_folder(ledger)

    def make(self) -> SignedCheckpoint:
        """Sign the durable lines. Raises: ConfigError: unusable key; as `Signer.sign`."""
        make_directories(self._folder)
        with locked(self._folder):
            return self._make()

    def try_make(self) -> SignedCheckpoint | None:
        make_directories(self._folder)
        with try_locked(self._folder) as is_ours:
            return self._make() if is_ours else None

    def stored(self) -> tuple[int, float]:
        """Return the newest checkpoint's entry count and storage time; each 0 if unknown."""
        entries = max(note_sizes(self._folder), default=0)
        try:
            return entries, (self._folder / str(entries)).stat().st_mtime
        except OSError:
            return entries, 0.0

    def _make(self) -> SignedCheckpoint:
        last = (signer := self._signer()).last()
        with (
            LedgerReader(self.ledger) as reader,
            closing(TreeFiles(LedgerPaths(self.ledger).folder, create=True)) as tree,
        ):
            if reader.genesis().public_key != str(signer.verifier):
                said = "the key is not the one that the ledger names"
                hint = "restore the ledger's key, or run: paddock ledger verify"
                raise ConfigError(said, where=ascii(reader.path), hint=hint)
            end = reader.marks().durable
            if end is None or not end.entries or end.is_poisoned:
                said = "unknown how much of the ledger is durable"
                raise HostError(said, where=ascii(reader.path), hint="append an entry to fix this")
            root, proof = _grow(tree, reader, end, last)
            wanted = Checkpoint(signer.verifier.name, end.entries, root)
            signed = last
            if signed is None or wanted != signed.checkpoint:
                signed = signer.sign(wanted, proof)
            if not (self._folder / str(end.entries)).exists():
                store_note(self._folder, signed)
            tree.keep(end)
        return signed


def _grow(
    tree: TreeFiles, reader: LedgerReader, end: Mark, last: SignedCheckpoint | None
) -> tuple[bytes, list[bytes]]:
    signed = 0 if last is None else last.checkpoint.size
    old = min(signed, end.entries)
    edge = tree.edge
    is_line_end = reader.read(1, max(0, edge.offset_bytes - 1)) == b"\n"
    if edge.entries and edge.entries <= end.entries and is_line_end:
        # A damaged tree does not mean a damaged ledger: if this fails, hash all lines again.
        with suppress(LedgerDamagedError):
            root = tree.grow(reader, end, signed).root()
            proof = consistency_path(tree.node, old, end.entries)
            if last is not None:
                wanted = Checkpoint(last.checkpoint.origin, end.entries, root)
                require_growth(last.checkpoint, wanted, proof)
            return root, proof
    tree.edge = NOTHING_DURABLE
    root = tree.grow(reader, end, signed).root()
    return root, consistency_path(tree.node, old, end.entries)


def store_note(folder: Path, signed: SignedCheckpoint) -> None:
    """Store a note durably, named by its size; drop the oldest, which newer ones cover."""
    replace_file(folder / str(signed.checkpoint.size), signed.note.encode())
    with failing("old checkpoints cannot be removed", str(folder)):
        for size in sorted(note_sizes(folder))[: -limits.checkpoints_kept_max]:
            # Another process may remove them at the same time.
            (folder / str(size)).unlink(missing_ok=True)


def set_aside_notes(folder: Path, size: int) -> None:
    with failing("a checkpoint cannot be renamed", str(folder)):
        for each in note_sizes(folder):
            if each > size:
                os.rename(folder / str(each), folder / f"{each}.before-rollback")


_MATTERS: Final = {
    *(events.APPROVAL_ASKED, events.APPROVAL_ANSWERED, events.GATE_RESULT, events.SESSION_END),
    *(events.CONTENT_ERASED, events.PACKAGE_INSTALLED, events.PACKAGE_UNINSTALLED),
    *(events.PACKAGE_APPROVED, events.OPERATOR_KEY_ENROLLED, events.POLICY_TRUSTED),
    events.ROLLBACK_ACCEPTED,
}
_ASK: Final = "ask"


def matters(entry: Entry) -> bool:
    """Return True if the entry's append waits until a checkpoint covers it."""
    if entry.event_type == events.HOOK_DECISION:
        # Not `decision`, which is the policy's: a client may ask on its own, without this answer.
        return entry.metadata.get("answer") == _ASK
    if entry.event_type == events.HOOK_EVENT:
        # The end of a client's session: no later checkpoint may cover it.
        return entry.metadata.get("event") == "SessionEnd"
    return entry.event_type in _MATTERS or entry.decision == _ASK or "approval" in entry.metadata


class Pace(Struct, frozen=True):
    """When a checkpoint is due. `at_close`: also when the ledger is closed with any new entry."""

    entries: int = limits.checkpoint_entries_max
    interval_s: float = limits.checkpoint_interval_s
    at_close: bool = True
    is_waited_for: bool = True  # created within the append that finds it due, not in a thread


USUAL_PACE: Final = Pace(is_waited_for=False)


class Above(Protocol):
    def take(self, signed: SignedCheckpoint) -> None:
        """Store it durably, and have the storing ledger covered in turn. Raises: PaddockError."""


class AutoCheckpoint:
    """Creates checkpoints of one open ledger when they are due. Threads may share it.

    They are passed to `Above` once per `interval_s` of the pace; but always without `at_close`, on
    closing, and for entries that matter, whose append waits for that or sets `problem`.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        above: Above,
        monotonic: Callable[[], float],
        pace: Pace,
        clock: Callable[[], float],
    ) -> None:
        self._checkpointer, self._above, self._pace = checkpointer, above, pace
        self._monotonic, self._clock = monotonic, clock
        self._lock = threading.Lock()
        self._covered: int | None = None
        """How many entries the newest checkpoint covers; None until looked up."""
        self._newest = self._carried = 0
        self._tried_at = self._carried_at = monotonic()
        self.problem = self._reported = ""
        call_after_fork(self, AutoCheckpoint._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()

    def appended(self, head: Head, entries: Sequence[Entry]) -> None:
        self._newest = head.seq + 1
        if self._covered is None:
            # Looked up here, not on opening: without an append it is not needed.
            self._covered, stored_s = self._checkpointer.stored()
            # Line 0 alone needs no checkpoint: nothing else can be lost.
            if self._newest - len(entries) > max(self._covered, 1):
                # A hook or a killed writer left these: count from the newest checkpoint.
                now_s = self._clock()
                age_s = now_s - stored_s
                self._tried_at -= age_s if age_s >= 0 else now_s
                self._carried_at = self._tried_at
        if any(map(matters, entries)):
            self._try(self.seal)
            return
        waited_s = self._monotonic() - self._tried_at
        is_many = self._newest - self._covered >= self._pace.entries and not self.problem
        if (is_many or waited_s >= self._pace.interval_s) and self._lock.acquire(blocking=False):
            if self._pace.is_waited_for:
                self._catch_up()
                return
            try:
                threading.Thread(target=self._catch_up, name="paddock-checkpoint").start()
            except RuntimeError:  # too many threads, or the interpreter is exiting
                self._catch_up()

    def _catch_up(self) -> None:
        try:
            self._try(self._seal_if_free)
        finally:
            self._lock.release()

    def close(self) -> None:
        if self._covered is None:
            return
        with self._lock:
            pass  # wait for a checkpoint in progress, so that it counts
        is_due = self._pace.at_close or self._newest - self._covered >= self._pace.entries
        if self._newest > min(self._covered, self._carried) and is_due:
            self._try(self.seal)

    def seal(self) -> SignedCheckpoint:
        with self._lock:
            signed = self._checkpointer.make()
            self._note(signed)
            self._carry(signed)
        return signed

    def _seal_if_free(self) -> None:
        signed = self._checkpointer.try_make()
        if signed is None:
            # Another process is creating one; the next one covers the rest.
            self._tried_at = self._monotonic()
            return
        self._note(signed)
        waited_s = self._tried_at - self._carried_at
        if waited_s >= self._pace.interval_s or not self._pace.at_close:
            self._carry(signed)

    def _note(self, signed: SignedCheckpoint) -> None:
        self._covered = max(self._covered or 0, signed.checkpoint.size)
        self._tried_at = self._monotonic()
        self.problem = ""

    def _carry(self, signed: SignedCheckpoint) -> None:
        self._above.take(signed)
        self._reported = ""
        self._carried = signed.checkpoint.size
        self._carried_at = self._monotonic()

    def _try(self, seal: Callable[[], object]) -> None:
        try:
            seal()
        except (PaddockError, OSError) as fault:
            self._tried_at = self._monotonic()
            self.problem = fault.message if isinstance(fault, PaddockError) else str(fault)
            if self.problem != self._reported:
                from logging import getLogger  # noqa: PLC0415 - rarely needed, and slow to load

                said = "paddock: the newest entries of %a are covered by no exported checkpoint: %s"
                getLogger("paddock.ledger").warning(said, self._checkpointer.ledger, self.problem)
            self._reported = self.problem


# Paths allowed in `NAME.d/`. A ballast file has a name only between two system calls, unless a kill
# came between them. `index.lock` and the last two rows are from versions before the index.

_FILE: Final = lazy_pattern(
    r"""(?x) lock | slock | head | next | new | index\.(?: lock | sqlite(?:-journal)? )
    | tree\.(?: \d{1,2} | edge(?:\.new)? ) | ballast\.\d{1,10}\.[0-9a-f]{1,16}
    | checkpoints/\d{1,16}(?:\.before-rollback)?
    | torn/(?: draft | \d{1,16}-[0-9a-f]{64}(?:\.pending)? )
    | (?: offsets | by-(?: time | type | session | call | agent | decision ) )
      /(?: draft | \d{16}-\d{16} )""",
    re.ASCII,
)
_DIRECTORY: Final = lazy_pattern(
    r"checkpoints|torn|offsets|by-(?:time|type|session|call|agent|decision)", re.ASCII
)


class Detail(Enum):
    FILE = "file"
    DIRECTORY = "directory"


def find_detail(path: str) -> Detail | None:
    """Return the kind of entry a ledger keeps at `path`, relative to `NAME.d/`, if any."""
    if _DIRECTORY.fullmatch(path):
        return Detail.DIRECTORY
    folder, _, name = path.rpartition("/")
    is_left = folder == "checkpoints" and is_temporary_name(name)
    return Detail.FILE if is_left or _FILE.fullmatch(path) else None
