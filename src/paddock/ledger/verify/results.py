"""What verification finds, as values.

Also here:

- Comparing a ledger with checkpoints: what a chain by itself cannot see.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.checkpoint import checkpoints_folder, opened_tree, read_notes, tree_root
from paddock.ledger.format.lines import Genesis, LineFault, VerifierKey
from paddock.ledger.format.notes import Checkpoint, NoteError, parse_checkpoint, parse_note
from paddock.ledger.ports import Head
from paddock.ledger.read import LedgerReader, whole_lines
from paddock.ledger.segments import LedgerPaths
from paddock.ledger.signing import open_note


class ChainFault(StrEnum):
    """What is wrong with a line's place, or with the ledger as a whole."""

    GENESIS = "genesis"
    MISSING = "missing"
    OUT_OF_ORDER = "out_of_order"
    CHANGED = "changed"
    CUT = "cut"
    HEAD = "head"
    SEGMENT = "segment"
    CHECKPOINT = "checkpoint"
    """A checkpoint that is none, or that the ledger's key did not sign."""
    ROLLED_BACK = "rolled_back"
    """More was signed than is here."""
    REWRITTEN = "rewritten"
    """Other entries were signed than are here."""
    ANCHOR = "anchor"
    """The anchor holds no checkpoint, and some were signed."""


class LedgerProblem(Struct, frozen=True):
    """Something that is not as it was written.

    `line` counts from 1 over all the ledger's files, `offset_bytes` is where that
    line begins, `seq` the sequence number that belongs there. All 0 where it is
    about no place, as a checkpoint that nobody signed.
    """

    kind: LineFault | ChainFault
    line: int
    seq: int
    offset_bytes: int
    detail: str


class Unanswered(Struct, frozen=True):
    """A TOOL_INTENT without its TOOL_RESULT: the outcome is unknown, or the call still runs."""

    seq: int
    session_id: str
    agent: str
    call_id: str
    tool: str


class Held(Struct, frozen=True):
    """A checkpoint that the ledger is compared with, and where it was kept.

    `is_outside`: not beside the ledger, so that whoever cuts the ledger would have
    to reach there too. `is_authentic`: where it stands is verified by itself, so its
    signature need not be.
    """

    source: str
    note: str
    is_outside: bool = True
    is_authentic: bool = False


class Agreement(Struct, frozen=True):
    source: str
    size: int
    is_outside: bool


class Remembered(Struct, frozen=True):
    """What a verification may build on: sealed files that were found whole.

    `files` are their starts, sizes, inodes and times, as the system said then; what
    was touched since is read again. `size`, `offset_bytes`, `leaf` and `edge` are the
    place after them; `intents` those that had no result yet.
    """

    files: tuple[tuple[int, ...], ...]
    size: int
    offset_bytes: int
    leaf: str
    edge: tuple[str, ...]
    intents: tuple[Unanswered, ...]


class Verification(Struct, frozen=True):
    """What verification found.

    `torn_bytes` follow the last whole line: an append on its way, or a torn one
    that the next append puts aside. `covered_entries` are those below the newest
    checkpoint that is held outside and that the ledger agrees with.
    `unread_entries` were found whole before, and were not read again.
    """

    path: str
    entries: int
    head: Head | None
    genesis: Genesis | None
    problems: tuple[LedgerProblem, ...]
    problems_omitted: int
    unanswered: tuple[Unanswered, ...]
    torn_bytes: int
    covered_entries: int = 0
    agreements: tuple[Agreement, ...] = ()
    unread_entries: int = 0
    memory: Remembered | None = None
    """For the next time; None where nothing can be remembered."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found. What no checkpoint covers could still be cut or made anew."""
        return not self.problems

    @property
    def uncovered(self) -> str:
        """The window that no checkpoint covers, in words; empty where there is none."""
        if self.covered_entries >= self.entries:
            return ""
        return (
            f"entries {self.covered_entries} to {self.entries - 1} are covered by no exported "
            "checkpoint: they could have been cut off or written anew"
        )


# A ledger that was cut off, put back to an old copy, or made anew from some line on
# is a valid ledger. A checkpoint that was signed before says so: more entries than
# are here, or another root.


class Opened(Struct, frozen=True):
    """A held note, and the checkpoint in it; None, and why, where it is no checkpoint."""

    held: Held
    checkpoint: Checkpoint | None
    why: str = ""


def kept_beside(path: str) -> list[Held]:
    """The checkpoints that stand beside the ledger. Raises: ConfigError, HostError."""
    return [
        Held(f"checkpoints/{name}", note, is_outside=False)
        for name, note in read_notes(checkpoints_folder(path))
    ]


def open_all(held: Iterable[Held], key: VerifierKey) -> list[Opened]:
    opened: list[Opened] = []
    for each in held:
        try:
            if each.is_authentic:
                checkpoint = parse_checkpoint(parse_note(each.note).text)
                if checkpoint.origin != key.name:
                    raise NoteError(f"a checkpoint of {checkpoint.origin!a}, not of {key.name!a}")
            else:
                checkpoint = open_note(each.note, key).checkpoint
        except NoteError as fault:
            opened.append(Opened(each, None, fault.message))
        else:
            opened.append(Opened(each, checkpoint))
    return opened


class CheckpointComparison:
    """What the checkpoints say of a ledger of so many entries, in so many bytes."""

    def __init__(self, entries: int, end: int) -> None:
        self._entries = entries
        self._end = end
        self.problems: list[LedgerProblem] = []
        self.agreements: list[Agreement] = []
        self._differing: list[Opened] = []

    def take(self, opened: Opened, root_at: Callable[[int], bytes | None]) -> None:
        """Compare one; `root_at` gives the ledger's root at a size, if it is known."""
        source, checkpoint = opened.held.source, opened.checkpoint
        if checkpoint is None:
            self.problems.append(
                LedgerProblem(ChainFault.CHECKPOINT, 0, 0, 0, f"{source}: {opened.why}")
            )
        elif checkpoint.size > self._entries:
            detail = (
                f"the end is missing: {checkpoint.size} entries were signed ({source}), "
                f"{self._entries} are here"
            )
            self.problems.append(
                LedgerProblem(
                    ChainFault.ROLLED_BACK, self._entries + 1, self._entries, self._end, detail
                )
            )
        else:
            root = root_at(checkpoint.size)
            if root == checkpoint.root:
                self.agreements.append(Agreement(source, checkpoint.size, opened.held.is_outside))
            elif root is not None:
                self._differing.append(opened)

    def locate(self, reader: LedgerReader) -> None:
        """Find where the ledger departs from what was signed. Raises: HostError."""
        for opened in sorted(self._differing, key=_size)[:1]:
            checkpoint = opened.checkpoint
            if checkpoint is None:
                continue
            found = find_departure(reader, checkpoint)
            if found is None:
                below = max(
                    (a.size for a in self.agreements if a.size < checkpoint.size), default=0
                )
                seq, offset = below, find_offset(reader, below)
                detail = f"an entry from {below} to {checkpoint.size - 1} is not what was signed"
            else:
                seq, offset = found
                detail = "not the entry that was signed"
            self.problems.append(
                LedgerProblem(
                    ChainFault.REWRITTEN, seq + 1, seq, offset, f"{detail} ({opened.held.source})"
                )
            )


def find_departure(reader: LedgerReader, checkpoint: Checkpoint) -> tuple[int, int] | None:
    """The first entry that is not the one signed, and where its line begins.

    The tree files tell, if they are those of the checkpoint: its root proves them.
    None where they are not, or cannot be read.
    """
    try:
        with opened_tree(LedgerPaths(reader.path).folder, create=False) as tree:
            if tree_root(tree, checkpoint.size) != checkpoint.root:
                return None
            seq = 0
            for offset, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
                known = tree.leaves(seq, min(len(lines), checkpoint.size - seq))
                for line, leaf in zip(lines, known, strict=False):
                    if sha256(b"\0" + line).digest() != leaf:
                        return seq, offset
                    seq, offset = seq + 1, offset + len(line) + 1
                if seq >= checkpoint.size:
                    return None
    except (LedgerDamagedError, HostError):
        return None
    return None


def find_offset(reader: LedgerReader, seq: int) -> int:
    """Where the line of an entry begins. Raises: HostError."""
    at = 0
    for offset, lines in whole_lines(reader, 0, reader.whole_bytes(reader.size())):
        if seq < at + len(lines):
            return offset + sum(len(line) + 1 for line in lines[: seq - at])
        at += len(lines)
    return reader.whole_bytes(reader.size())


def _size(opened: Opened) -> int:
    return 0 if opened.checkpoint is None else opened.checkpoint.size
