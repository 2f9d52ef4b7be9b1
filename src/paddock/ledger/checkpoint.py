"""Create checkpoints of a ledger when they are due; store them beside it and outside the plane.

The durable lines are hashed and must chain; the signer compares the result with its last checkpoint
and signs; the note is stored; then the tree's edge advances. No thread waits for an append lock
while it holds the lock on `checkpoints/`, or the reverse. A failed checkpoint stops no append:
`problem` and a warning in the log `paddock.ledger` give the reason.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, HostError, LedgerDamagedError, PaddockError
from paddock.ledger.format.lines import Head
from paddock.ledger.format.notes import Checkpoint, SignedCheckpoint, consistency_path
from paddock.ledger.read import LedgerReader, failing
from paddock.ledger.signing import NoteProgram, Signer, failed, require_growth, run_command
from paddock.ledger.tail import NOTHING_DURABLE, LedgerPaths, Mark
from paddock.ledger.tree import TreeFiles, checkpoints_folder, note_sizes, read_notes
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import is_temporary_name, make_directories, read_file, replace_file
from paddock.storage.locks import call_after_fork, locked, try_locked
from paddock.values import entries as events
from paddock.values.entries import Entry

if TYPE_CHECKING:
    from subprocess import CompletedProcess


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


# Anchors store the topmost ledger's checkpoints outside the plane: directory, git or command. Only
# the user's configuration names one: a project that could name one could run a program, or send the
# proof to a place that no one checks.

_ANCHOR_HINT: Final = "the user's configuration names it: [ledger] anchor"
_GIT: Final = (
    "git",
    # Run no hook of the repository, signing program or pager. A filter may run, but never on a
    # note: only on other files, which git compares if they were added just before.
    *("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false"),
    *("-c", "user.name=paddock", "-c", "user.email=paddock@localhost"),
)


class Anchor(Protocol):
    @property
    def where(self) -> str: ...

    def read(self) -> list[str]: ...  # the stored notes, the newest last

    def store(self, signed: SignedCheckpoint) -> None: ...

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """Store the note of a ledger whose rollback was accepted; earlier notes no longer count."""


class DirectoryAnchor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = f"the directory {str(folder)!a}"

    def read(self) -> list[str]:
        return [note for _, note in read_notes(self._folder)]

    def store(self, signed: SignedCheckpoint) -> None:
        make_directories(self._folder)
        store_note(self._folder, signed)

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        set_aside_notes(self._folder, 0)
        self.store(signed)


class GitAnchor:
    """A file in a git repository, committed at each checkpoint; git keeps all versions."""

    def __init__(self, repository: Path, name: str, environment: Sequence[tuple[str, str]]) -> None:
        """`repository` may be any directory in it; `name` is a file below its `paddock/`."""
        self._repository, self._environment = repository, dict(environment)
        self._name = f"paddock/{name}.checkpoint"
        self._file = repository / self._name
        self.where = f"the git repository {str(repository)!a}"

    def read(self) -> list[str]:
        # Threat: with a lost branch or object git fails; that must not pass for an anchor without
        # notes, which only a successful listing proves.
        if not self._newest_commit() or not self._committed():
            return []
        return [self._git("cat-file", "blob", f"HEAD:./{self._name}")]

    def store(self, signed: SignedCheckpoint) -> None:
        self._commit(signed, f"Checkpoint {signed.checkpoint.size} of {signed.checkpoint.origin}")

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        origin, size = signed.checkpoint.origin, signed.checkpoint.size
        self._commit(signed, f"Accept the rollback of {origin} to {size}")

    def _commit(self, signed: SignedCheckpoint, message: str) -> None:
        from tempfile import TemporaryDirectory  # noqa: PLC0415 - only for git anchors

        note = signed.note.encode()
        before = self._newest_commit()
        # Not `git add`: it runs filters, which may change the note and invalidate it.
        stored = self._git("hash-object", "-w", "--stdin", given=note)
        if before and f" {stored}\t" in self._committed():
            return
        entry = f"100644,{stored},{self._git('rev-parse', '--show-prefix')}{self._name}"
        # Also in the user's index: otherwise their next commit would remove the note.
        self._git("update-index", "--add", "--cacheinfo", entry)
        make_directories(self._file.parent)
        if read_file(self._file, limits.checkpoint_note_bytes_max) != note:
            replace_file(self._file, note)
        with TemporaryDirectory(prefix="paddock-anchor-") as folder:
            own = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            if before:
                self._git("read-tree", before, more=own)
            self._git("update-index", "--add", "--cacheinfo", entry, more=own)
            tree = self._git("write-tree", more=own)
        parent = ("-p", before) if before else ()
        commit = self._git("commit-tree", *parent, "-m", message, tree)
        self._git("update-ref", "-m", message, "HEAD", commit, before)

    def _newest_commit(self) -> str:
        done = self._run("rev-parse", "--verify", "--quiet", "HEAD")
        if done.returncode == 0:
            return os.fsdecode(done.stdout).removesuffix("\n")
        if done.returncode != 1:
            raise failed(self.where, done, _ANCHOR_HINT)
        if self._git("rev-list", "--all", "--reflog", "--max-count=1"):
            said = "the checked-out branch has no commit, and the repository has some"
            hint = f"check out the branch that holds the checkpoints; {_ANCHOR_HINT}"
            raise HostError(said, where=self.where, hint=hint)
        return ""

    def _committed(self) -> str:
        return self._git("ls-tree", "HEAD", "--", self._name)

    def _git(
        self, *arguments: str, given: bytes = b"", more: Mapping[str, str] | None = None
    ) -> str:
        done = self._run(*arguments, given=given, more=more)
        if done.returncode != 0:
            raise failed(self.where, done, _ANCHOR_HINT)
        # Keep a note byte for byte; of other answers strip the last line feed.
        if arguments[0] == "cat-file":
            return done.stdout.decode(errors="replace")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def _run(
        self, *arguments: str, given: bytes = b"", more: Mapping[str, str] | None = None
    ) -> "CompletedProcess[bytes]":
        command = (*_GIT, "-C", str(self._repository), *arguments)
        return run_command(command, given, {**self._environment, **(more or {})}, self.where)


class CommandAnchor:
    """Runs `PROGRAM… store|accept-rollback|read ORIGIN`; notes go to stdin and come from `read`."""

    def __init__(
        self, command: Sequence[str], origin: str, environment: Sequence[tuple[str, str]]
    ) -> None:
        self.where = f"the command {command[0]!a}"
        self._program = NoteProgram(command, origin, dict(environment), self.where, _ANCHOR_HINT)

    def read(self) -> list[str]:
        note = self._program.ask("read")
        return [note] if note else []

    def store(self, signed: SignedCheckpoint) -> None:
        self._program.ask("store", signed.note)

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        self._program.ask("accept-rollback", signed.note)


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
