"""Comparing a ledger with checkpoints: what a chain by itself cannot see.

A ledger that was cut off, put back to an old copy, or made anew from some line on
is a valid ledger. A checkpoint that was signed before says so: more entries than
are here, or another root.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from paddock.errors import HostError, LedgerDamagedError
from paddock.ledger.checkpoints import checkpoints_folder, opened_tree, read_notes, tree_root
from paddock.ledger.format.genesis import VerifierKey
from paddock.ledger.format.notes import Checkpoint, NoteError, parse_checkpoint, parse_note
from paddock.ledger.paths import LedgerPaths
from paddock.ledger.reading import LedgerReader
from paddock.ledger.scan import whole_lines
from paddock.ledger.signing import open_note
from paddock.ledger.verify.results import Agreement, ChainFault, Held, Problem


@dataclass(frozen=True, slots=True)
class Opened:
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


class Comparison:
    """What the checkpoints say of a ledger of so many entries, in so many bytes."""

    def __init__(self, entries: int, end: int) -> None:
        self._entries = entries
        self._end = end
        self.problems: list[Problem] = []
        self.agreements: list[Agreement] = []
        self._differing: list[Opened] = []

    def take(self, opened: Opened, root_at: Callable[[int], bytes | None]) -> None:
        """Compare one; `root_at` gives the ledger's root at a size, if it is known."""
        source, checkpoint = opened.held.source, opened.checkpoint
        if checkpoint is None:
            self.problems.append(Problem(ChainFault.CHECKPOINT, 0, 0, 0, f"{source}: {opened.why}"))
        elif checkpoint.size > self._entries:
            detail = (
                f"the end is missing: {checkpoint.size} entries were signed ({source}), "
                f"{self._entries} are here"
            )
            self.problems.append(
                Problem(ChainFault.ROLLED_BACK, self._entries + 1, self._entries, self._end, detail)
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
                Problem(
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
